// SPDX-License-Identifier: Apache-2.0
// What a verifier's own training is to the checks: something that takes any state, runs any step,
// and says what came out. Python and LibTorch implement it; replayer.hpp drives it.
//
// Assumes: the workload is the verifier's own code on the verifier's own data (the caller compares
// that data with the job's root), its arithmetic is the job's, and it was built anew: the state it
// holds when a replayer gets it is the honest initial state of control experiments.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <potl/checks/request.hpp>
#include <potl/core/digest.hpp>
#include <potl/transcript/operator_trace.hpp>
#include <potl/transcript/state.hpp>

namespace potl {

/// What one step did.
struct step_outcome {
  double loss = 0;            ///< mean loss of the batch before the update
  std::vector<double> rates;  ///< learning rate of every parameter group used in this step
  bool skipped = false;       ///< the gradient scaler skipped the update
  double gradient_norm = 0;   ///< l2 norm over all parameters
  /// Whether the loss and all gradients were finite; nothing: the workload does not look.
  std::optional<bool> finite = std::nullopt;
};

/// Mean and standard deviation of the per-sample losses of a set.
struct subset_outcome {
  double mean = 0;
  double standard_deviation = 0;
};

/// Something that can be replayed. Steps count from 1; ids are in batch order. `perturb` chooses
/// among equivalent ways to compute (another order of sums, another number of threads): 0 is the
/// usual one, other numbers show how large honest noise is (soundness.md rule 12).
///
/// A workload may also have any of the other functions of checks::any_workload, by the same name:
/// `sample_ids`, `expect`, `fetch`, `problem`, `not_finite`, `largest_state_bytes`, `follow`,
/// `rounding`, `trace`, `roughen`, `still`, `is_linear`, `other_first_steps`.
template <class Workload>
concept workload = requires(Workload& one, const transcript::state& state, std::uint64_t number,
                            std::span<const std::int64_t> ids) {
  one.load_state(state, number);
  { one.run_step(number, ids) } -> std::convertible_to<step_outcome>;
  { one.capture() } -> std::convertible_to<transcript::state>;
  { one.batch_loss(number, ids) } -> std::convertible_to<double>;
  { one.subset_loss(ids) } -> std::convertible_to<subset_outcome>;
  one.perturb(number);
};

namespace checks {

/// What an exception says of its cause.
struct trouble {
  std::string kind;     ///< equal for two exceptions of one kind
  std::string message;  ///< one line
  bool own = false;     ///< of this machine (memory, files), whatever the recorded state holds
};

/// Of exceptions of potl's, of the standard library's and of torch's.
trouble trouble_of(const std::exception& thrown);

/// What the trainer logged and committed for one step in log64.
struct logged_rounding {
  std::vector<std::uint8_t> log;    ///< empty: none
  std::optional<digest> committed;  ///< the digest in the step's leaf
};

/// Why a recorded state is none that the agreed task can be in.
struct state_problem {
  measured status = measured::unknown_form;  ///< or unlawful
  std::string what;
};

/// A workload behind a table of virtual functions, so that the replayer is compiled once.
class any_workload {
 public:
  virtual ~any_workload() = default;
  virtual void load_state(const transcript::state& state, std::uint64_t step) = 0;
  virtual step_outcome run_step(std::uint64_t step, std::span<const std::int64_t> ids) = 0;
  virtual transcript::state capture() = 0;
  virtual double batch_loss(std::uint64_t step, std::span<const std::int64_t> ids) = 0;
  virtual subset_outcome subset_loss(std::span<const std::int64_t> ids) = 0;

  /// Computes in way `way` from now on, 0 is the usual one; with `threads_only` it changes nothing
  /// but the number of threads. True: in another arithmetic.
  virtual bool perturb(std::uint64_t way, bool threads_only) = 0;
  /// Until perturb() is called, leaves each sum as far off as another machine's order of summation
  /// might, by numbers drawn from `seed`. False: it cannot.
  virtual bool roughen(std::uint64_t /*seed*/) { return false; }

  /// The agreed samples of a step in batch order, where they are the task's own to say; nothing:
  /// the job says.
  virtual std::optional<std::vector<std::int64_t>> sample_ids(std::uint64_t /*step*/) {
    return std::nullopt;
  }
  /// Says that steps `first` to `last` come next, of which fetch() is then asked one by one.
  virtual void expect(std::uint64_t /*first*/, std::uint64_t /*last*/) {}
  /// Reads what run_step(step, ids) will need. What fails here is the verifier's own trouble.
  virtual void fetch(std::uint64_t /*step*/, std::span<const std::int64_t> /*ids*/) {}
  /// What the trainer logged as the loss of the next step, which schedules that follow the loss are
  /// told in place of what is recomputed.
  virtual void steer(double /*loss*/) {}

  /// The honest initial state. Called once, before any other function.
  virtual transcript::state initial() { return capture(); }
  /// Whether problem() judges all of a state; if not, the replayer compares the form of its model
  /// with the initial one's.
  virtual bool judges_states() const { return false; }
  /// Why a state recorded after `step` is none of this task's. `logged`: whether the effective
  /// history leads to it.
  virtual std::optional<state_problem> problem(const transcript::state& /*recorded*/,
                                               std::uint64_t /*step*/, bool /*logged*/) {
    return std::nullopt;
  }
  /// What a state holds that is not finite and no mask of the task's, or ""; nothing: only the
  /// initial state is known to judge by.
  virtual std::optional<std::string> not_finite(const transcript::state& /*what*/) {
    return std::nullopt;
  }
  /// Of the largest of the verifier's own states with all that its steps make, where it knows.
  virtual std::optional<std::uint64_t> largest_state_bytes() { return std::nullopt; }

  /// The elements that had no gradient in any of the steps since expect() was called; of a
  /// parameter without such elements nothing.
  virtual std::vector<still_elements> still() { return {}; }
  /// Whether no step divides by what a state keeps, so that a difference stays in proportion.
  virtual bool is_linear() { return false; }

  /// Why this machine is none to accuse by: it trains the first steps of the client's exact job,
  /// and they end in other bits than the job pins. "": they do not, or the job pins none. It is
  /// asked before other bits of the run reject, and may be asked often.
  virtual std::string other_first_steps() { return ""; }

  /// Follows this rounding log in the next step or batch_loss; null: none from now on.
  virtual void follow(std::uint64_t /*step*/, const logged_rounding* /*logged*/) {}
  /// What following showed in the steps since the last call; nothing: logs are not followed.
  virtual std::optional<rounding_summary> rounding() { return std::nullopt; }

  /// Runs a step as run_step does, and says what each of its operators returned; nothing: it
  /// cannot.
  virtual std::optional<std::vector<transcript::traced_operator>> trace(
      std::uint64_t /*step*/, std::span<const std::int64_t> /*ids*/) {
    return std::nullopt;
  }

  virtual trouble trouble_of(const std::exception& thrown) const {
    return checks::trouble_of(thrown);
  }
};

/// Any class that satisfies the concept, as an any_workload.
template <workload Workload>
class workload_of final : public any_workload {
 public:
  explicit workload_of(Workload& one) : one_(one) {}
  void load_state(const transcript::state& state, std::uint64_t step) override {
    one_.load_state(state, step);
  }
  step_outcome run_step(std::uint64_t step, std::span<const std::int64_t> ids) override {
    return one_.run_step(step, ids);
  }
  transcript::state capture() override { return one_.capture(); }
  double batch_loss(std::uint64_t step, std::span<const std::int64_t> ids) override {
    return one_.batch_loss(step, ids);
  }
  subset_outcome subset_loss(std::span<const std::int64_t> ids) override {
    return one_.subset_loss(ids);
  }
  bool perturb(std::uint64_t way, bool threads_only) override {
    if constexpr (requires { one_.perturb(way, threads_only); }) {
      return one_.perturb(way, threads_only);
    } else {
      one_.perturb(way);
      return false;
    }
  }
  bool roughen(std::uint64_t seed) override {
    if constexpr (requires { one_.roughen(seed); }) {
      return one_.roughen(seed);
    } else {
      return false;
    }
  }
  std::optional<std::vector<std::int64_t>> sample_ids(std::uint64_t step) override {
    if constexpr (requires { one_.sample_ids(step); }) {
      return one_.sample_ids(step);
    } else {
      return std::nullopt;
    }
  }
  void expect(std::uint64_t first, std::uint64_t last) override {
    if constexpr (requires { one_.expect(first, last); }) one_.expect(first, last);
  }
  void fetch(std::uint64_t step, std::span<const std::int64_t> ids) override {
    if constexpr (requires { one_.fetch(step, ids); }) one_.fetch(step, ids);
  }
  bool judges_states() const override {
    return requires(const transcript::state& recorded) {
      one_.problem(recorded, std::uint64_t{}, true);
    };
  }
  std::optional<state_problem> problem(const transcript::state& recorded, std::uint64_t step,
                                       bool logged) override {
    if constexpr (requires { one_.problem(recorded, step, logged); }) {
      return one_.problem(recorded, step, logged);
    } else {
      return std::nullopt;
    }
  }
  std::optional<std::string> not_finite(const transcript::state& what) override {
    if constexpr (requires { one_.not_finite(what); }) {
      return one_.not_finite(what);
    } else {
      return std::nullopt;
    }
  }
  std::optional<std::uint64_t> largest_state_bytes() override {
    if constexpr (requires { one_.largest_state_bytes(); }) {
      return one_.largest_state_bytes();
    } else {
      return std::nullopt;
    }
  }
  std::vector<still_elements> still() override {
    if constexpr (requires { one_.still(); }) {
      return one_.still();
    } else {
      return {};
    }
  }
  bool is_linear() override {
    if constexpr (requires { one_.is_linear(); }) {
      return one_.is_linear();
    } else {
      return false;
    }
  }
  std::string other_first_steps() override {
    if constexpr (requires { one_.other_first_steps(); }) {
      return one_.other_first_steps();
    } else {
      return "";
    }
  }
  void follow(std::uint64_t step, const logged_rounding* logged) override {
    if constexpr (requires { one_.follow(step, logged); }) one_.follow(step, logged);
  }
  std::optional<rounding_summary> rounding() override {
    if constexpr (requires { one_.rounding(); }) {
      return one_.rounding();
    } else {
      return std::nullopt;
    }
  }
  std::optional<std::vector<transcript::traced_operator>> trace(
      std::uint64_t step, std::span<const std::int64_t> ids) override {
    if constexpr (requires { one_.trace(step, ids); }) {
      return one_.trace(step, ids);
    } else {
      return std::nullopt;
    }
  }

 private:
  Workload& one_;
};

}  // namespace checks
}  // namespace potl
