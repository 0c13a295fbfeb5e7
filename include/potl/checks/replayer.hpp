// SPDX-License-Identifier: Apache-2.0
// Answers requests: restores recorded states in a workload, runs agreed steps, measures. The same
// for Python, LibTorch and any other workload. It decides nothing.
//
// Claims: whose fault an exception is, an experiment decides: the step that failed is run again
// from the workload's own initial state. Only when that works, and the recorded state fails a
// second time in the same way, does the record carry the blame. What memory, files, clocks or the
// data pipeline do wrong is the verifier's own.
// Assumes a workload as workload.hpp describes it.
// Cost: that of the requests; one recorded state is kept between two of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <potl/checks/request.hpp>
#include <potl/checks/run_view.hpp>
#include <potl/checks/workload.hpp>
#include <potl/evidence/evidence.hpp>
#include <potl/transcript/state.hpp>

namespace potl::checks {

/// How requests are answered.
struct replay_settings {
  /// That one request may take with all of its repeats, looked at between steps; each of the two
  /// segments of steady() may take as long.
  std::optional<double> timeout_seconds;
  /// Train a state from the one before it where the job lets the trainer store few and nobody has
  /// asked for this one. What was asked for and is missing is trained as well, and is withheld if
  /// it comes out finite: a trainer elsewhere may come to another NaN, and cannot store it.
  bool derive = false;
};

/// Answers the requests of one verification with one workload.
class replayer {
 public:
  using seen = std::function<void(std::uint64_t step, const step_outcome& what)>;

  /// `run` and `work` must outlive it. `work` holds its own initial state.
  replayer(const transcript::evidence& run, any_workload& work, replay_settings settings = {});
  replayer(const replayer&) = delete;
  replayer& operator=(const replayer&) = delete;

  /// The measurement that answers a request. What derives from std::exception becomes a status;
  /// anything else, such as an interrupt, ends it.
  measurement answer(const request& asked);

  // ---------------------------------------------------------------- for requests while answered

  const transcript::evidence& run() const noexcept { return run_; }
  const run_view& view() const noexcept { return view_; }
  any_workload& work() noexcept { return work_; }

  /// The recorded state after `step`, of a branch if one is named: withheld, tampered with or
  /// unlawful ones end the request with that status.
  transcript::state load(std::uint64_t step, std::optional<std::uint64_t> branch = {});
  /// Whether the trainer may store the state on demand only, and does not store it.
  bool may_be_missing(std::uint64_t step);
  bool is_flagged(std::uint64_t step) const;
  /// What of a state is not finite, or "".
  std::string not_finite(const transcript::state& what);
  /// Makes the workload hold `what`, the state after `step`.
  void restore(const transcript::state& what, std::uint64_t step);
  /// Restores the state after `start`, runs the agreed steps to `end`, and gives the state there.
  /// Logs are followed as the leaves of `branch` bind them; absent: of the effective history.
  /// `steered`: what follows a metric follows the logged losses.
  transcript::state run_steps(const transcript::state& from, std::uint64_t start, std::uint64_t end,
                              std::optional<std::uint64_t> branch, const seen& told = {},
                              bool steered = false);
  /// The first operator of `step` that came out otherwise than in the trace that the trainer left,
  /// run from `from`, the state after `start`; nothing: there is no trace. Naming it is a
  /// courtesy: its failure, "unknown: ...", must not cost the measurement.
  std::optional<std::string> first_operator(const transcript::state& from, std::uint64_t start,
                                            std::uint64_t step);
  /// What a step on the agreed samples would report from `from`, the state after `step` - 1.
  double loss_of(const transcript::state& from, std::uint64_t step);
  /// The same by running the step, with its backward passes and its update.
  double loss_of_whole(const transcript::state& from, std::uint64_t step);
  /// Runs `what`, blamed on the recorded state only if it works from the workload's own initial
  /// state, which the control experiment restores before it calls `what` again.
  template <class What>
  auto guarded(What what) {
    try {
      return what();
    } catch (const std::exception& thrown) {
      throw suspect{work_.trouble_of(thrown), [what] { static_cast<void>(what()); }};
    }
  }
  /// Runs `what` in way `way` (1, 2, ...) of the workload: in another arithmetic, or where
  /// something has no form in it, with another number of threads. True: it was the former.
  bool otherwise(std::uint64_t way, const std::function<void()>& what);
  /// Runs `what` with rough sums drawn from `seed`. False: the workload cannot, or failed.
  bool roughly(std::uint64_t seed, const std::function<void()>& what);
  /// Elements that are no noise in the first segment, of tensors that are noise there. Of other
  /// segments than that (`begins`), also those that are no noise in the second one. Found once, by
  /// repeats of both, from the agreed state and what it becomes here. failed: verifier_error.
  const std::vector<still_elements>& steady(bool begins);
  /// Ends the request, unrepeatable, where this machine ends the job's first steps otherwise than
  /// the job says. Called before bits that it computed are held against the run, and before the
  /// first segment speaks for it.
  void require_agreed_bits();
  /// Runs steps again, which ended in `before`: the first one that ends in another state than
  /// `digest_of` says. failed: unrepeatable.
  using recorded_digest = std::function<const digest*(std::uint64_t step)>;
  std::uint64_t first_difference(const transcript::state& from, std::uint64_t start,
                                 std::uint64_t end, std::optional<std::uint64_t> branch,
                                 const transcript::state& before, const recorded_digest& digest_of);
  /// Says that a replay from a recorded state ended in the recorded bits: what is derived next may
  /// start from there.
  void keep_replayed(std::uint64_t step, const transcript::state& end);
  /// From now on, there is as much time as the settings say.
  void start_clock();
  /// Ends the request where its time is over.
  void check_time() const;
  void search_steady();

  /// Ends a request with a status.
  struct failed {
    measured status;
    std::string message;
  };

 private:
  /// The workload failed on a recorded state; whether that is to blame is still to be found out.
  struct suspect {
    trouble why;
    std::function<void()> control;  ///< the same from the workload's own initial state
  };
  using place = std::pair<std::uint64_t, std::optional<std::uint64_t>>;

  measurement attempt(const request& asked, std::vector<std::string>& kinds, bool& again);
  bool passes(const std::function<void()>& control);
  transcript::state opened(std::uint64_t step, std::optional<std::uint64_t> branch);
  transcript::state derived(std::uint64_t step);
  void require_lawful(const transcript::state& what, std::uint64_t step,
                      std::optional<std::uint64_t> branch);
  std::vector<std::int64_t> prepare(std::uint64_t step, std::optional<std::uint64_t> branch);
  const std::set<std::uint64_t>& derivable();

  const transcript::evidence& run_;
  run_view view_;
  any_workload& work_;
  replay_settings settings_;
  bool follows_;  ///< rounding logs
  /// Absent: the workload could not give it, and nobody is ever blamed for an exception.
  std::optional<transcript::state> initial_;
  /// Of the agreed initial state's model, for a workload that does not judge states itself.
  std::optional<transcript::state_value> form_;
  bool sized_ = false;  ///< the workload's largest state was told
  std::optional<std::pair<place, transcript::state>> kept_;
  std::optional<std::pair<std::uint64_t, transcript::state>> replayed_;  ///< came out as recorded
  std::optional<std::set<std::uint64_t>> derivable_;
  /// Of the first segment, and of all others.
  std::optional<std::pair<std::vector<still_elements>, std::vector<still_elements>>> steady_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
};

}  // namespace potl::checks
