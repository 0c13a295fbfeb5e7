// SPDX-License-Identifier: Apache-2.0
// What checks ask for and what is measured, as plain values. A replayer (replayer.hpp) answers
// requests; it decides nothing. Every number in a measurement comes from
// numeric/detail/distance.hpp or from the workload itself.
//
// Kinds are open: a check may bring a request of its own, any copyable value with the members of
// the concept request_kind, and what it is answered with, a value with those of measurement_kind.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace potl::checks {

class replayer;
struct segment_measurement;
struct loss_measurement;
struct subset_loss_measurement;

/// Restore the state at `start`, run steps start+1 .. end with the agreed recipe and samples,
/// report.
struct segment_request {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::string
      why;  ///< "random", "top-q", "reach", "final", "first", "superseded", "earlier challenge"
  std::uint64_t branch = 0;        ///< != 0 or superseded: which recorded steps to compare with
  std::uint64_t start_branch = 0;  ///< which recording of `start` to restore, when superseded
  bool superseded = false;  ///< compare losses (and digests) only: there is no end checkpoint
  /// Honest replays in other arithmetics to run if the end digest differs (rule 12).
  std::uint32_t noise_repeats = 0;
  bool noise_if_equal = false;  ///< run them also where it does not
  /// Repeats with rough sums (any_workload::roughen) to run if it differs.
  std::uint32_t rough_repeats = 0;

  std::string kind() const { return "segment"; }
  std::uint64_t from_step() const noexcept { return start; }
  std::uint64_t steps() const noexcept { return end - start; }
  std::string place() const;
  std::string key() const;
  segment_measurement answer(replayer& with) const;
};

/// Restore the state at `step` - 1, recompute the loss of step `step`'s recorded batch: train mode,
/// same randomness.
struct loss_request {
  std::uint64_t step = 0;
  std::uint32_t noise_repeats = 0;
  /// Relative to 1 + the logged loss. In stock arithmetic a forward pass alone answers within it,
  /// otherwise the whole step.
  double loss_floor = 0;

  std::string kind() const { return "loss"; }
  std::uint64_t from_step() const noexcept { return step - 1; }
  std::uint64_t steps() const noexcept { return 0; }
  std::string place() const;
  std::string key() const;
  loss_measurement answer(replayer& with) const;
};

/// Mean loss over a random subset of the data at the weights of `step` (the published PEV rule).
struct subset_loss_request {
  std::uint64_t step = 0;
  std::vector<std::int64_t> sample_ids;

  std::string kind() const { return "subset_loss"; }
  std::uint64_t from_step() const noexcept { return step; }
  std::uint64_t steps() const noexcept { return 0; }
  std::string place() const;
  std::string key() const;
  subset_loss_measurement answer(replayer& with) const;
};

/// Elements of one parameter that had no gradient, in any step since a state was restored: zero, or
/// none at all.
struct still_elements {
  /// Of the parameter and what optimizers keep of it, or of an average of it: a tensor's path, or
  /// its parent's.
  std::vector<std::string> paths;
  std::vector<std::uint8_t> mask;  ///< one of each element, row by row; 1: without a gradient
  std::uint64_t roundings = 0;     ///< of an average: how often all of its elements were rounded
};

/// What of a tensor, or number, a distance is of: by what it is judged (docs/reference/replay.md).
enum class judged_as {
  floats,      ///< all elements, also in the norms of its group
  alone,       ///< a counter or the like, which would drown the others of its group
  unmoved,     ///< once more, the elements without a gradient
  steady,      ///< once more, those that are no noise in a tensor of which others are
  codes,       ///< what is no float: it counts, or tells which, and is never mere noise
  code_places  ///< of codes, not how far they are off, but how many: these alone accuse
};

/// Whether the value is no float.
constexpr bool is_code(judged_as what) noexcept {
  return what == judged_as::codes || what == judged_as::code_places;
}

/// Names as Python has them: "floats".
const char* to_string(judged_as what) noexcept;

/// How far one tensor (or float of the tree) is off: l2 norms over its elements, as
/// numeric/detail/distance.hpp defines them.
struct tensor_distance {
  std::string path;
  double count = 0;     ///< elements
  double l2 = 0;        ///< of replayed - recorded
  double excess = 0;    ///< of what rounding leaves of it
  double rounding = 0;  ///< of what rounding alone explains
  double update_l2 = 0, replayed_update_l2 = 0;
  bool rounding_only = false;  ///< no element is farther off than rounding may move it
  judged_as judged = judged_as::floats;
};

/// Distances of one group of tensors ("parameters", "buffers", "optimizer", "other").
struct group_distance {
  std::string group;
  double l1 = 0, l2 = 0, linf = 0;  ///< norms of replayed - recorded
  double cosine = 1;     ///< of (replayed - start) and (recorded - start); 1 when both are zero
  double update_l2 = 0;  ///< |recorded - start|
  double replayed_update_l2 = 0;  ///< |replayed - start|
  double weight_l2 = 0;           ///< |recorded|
  bool finite = true;             ///< every compared element, and every norm, is finite
  bool structure_equal = true;    ///< same tree, dtypes, shapes, and every non-float value equal
  double excess_l2 = 0, rounding_l2 = 0;  ///< of its tensors, as above
  double count = 0;                       ///< elements in these norms
  std::vector<tensor_distance> tensors;   ///< those that are not zero, so that none hides in a norm
  double worst_relative = 0;              ///< the largest excess of them, over the tensor's update
  std::string worst_tensor;
};

/// How a request ended.
enum class measured {
  ok,
  withheld,        ///< a healthy store does not have what was asked for
  tampered,        ///< what is stored does not hash to its leaf
  verifier_error,  ///< out of memory, time-out, an exception that is ours: never a rejection
  unrepeatable,    ///< this machine does not repeat the steps: nothing recomputed here rejects
  unknown_form,    ///< an opened state has a form that the verifier's build does not know
  unlawful,        ///< an opened state says of the recipe what the agreed steps do not make of it
  prover_error,  ///< restoring or running the recorded state failed because of what the state holds
};

/// Names as findings write them, e.g. "verifier_error".
const char* to_string(measured what) noexcept;

/// A rejection by the auditor of a step's rounding log (numeric/detail/rounding_session.hpp).
struct rounding_rejection {
  std::uint64_t step = 0;
  std::string fault;    ///< numeric::log_fault as text
  std::string message;  ///< which element, how far from a tie
  std::string proof;    ///< numeric::fraud_proof in base64; empty where the leaf and the log speak
};

/// What the auditor of a segment's rounding logs saw (log64), added up.
struct rounding_summary {
  std::uint64_t values = 0, entries = 0, corrections = 0;
  std::uint64_t rejected = 0;  ///< also those that are not listed
  double moved_l2 = 0;         ///< largest of a step, in the units of the operators' results
  double reachable_l2 = 0;     ///< what a trainer could have moved within the windows of a step
  std::vector<rounding_rejection> rejections;
};

/// What a replay of a segment showed.
struct segment_measurement {
  segment_request request;
  measured status = measured::ok;
  std::string message;  ///< of the error
  /// What an opened state holds that no honest one does (finite.hpp); empty: nothing.
  std::string not_finite;
  bool digest_equal =
      false;  ///< replayed end state == the leaf's digest: then nothing below is needed
  std::optional<std::uint64_t>
      first_differing_step;  ///< from per-step digests; meaningful in exact modes
  std::optional<std::string>
      first_differing_operator;              ///< of that step, when the prover left a trace of it
  std::optional<rounding_summary> rounding;  ///< in log64
  std::vector<double> losses;                ///< one per step, recomputed
  std::vector<std::vector<double>> rates;    ///< used by the replay, one row per step
  std::vector<bool> skipped;                 ///< scaler skips seen by the replay
  std::vector<bool> finite;                  ///< loss and gradients; empty: nobody looked
  std::vector<group_distance> distances;     ///< replayed against recorded; empty when digest_equal
  /// Each repeat against the replay: the verifier's own noise.
  std::vector<std::vector<group_distance>> noise;
  /// Whether a repeat computed in another arithmetic. Other thread counts alone show too little of
  /// what honest machines do to accuse by.
  bool other_arithmetic = false;
  std::vector<std::vector<double>> noise_losses;
  /// The same of repeats with rough sums, and their losses. What they show may excuse this segment,
  /// and accuses nobody.
  std::vector<std::vector<group_distance>> rough;
  std::vector<std::vector<double>> rough_losses;
  std::vector<std::vector<bool>> repeat_skipped;  ///< scaler skips of each repeat of either kind
  double gradient_norm_mean =
      0;  ///< mean l2 norm of the gradients over the segment's steps (Lab Apex VMO)
  double load_seconds = 0, replay_seconds = 0, noise_seconds = 0;

  bool differs() const noexcept { return status == measured::ok && !digest_equal; }
  double spent() const noexcept { return load_seconds + replay_seconds + noise_seconds; }
};

/// A loss, recomputed.
struct loss_measurement {
  loss_request request;
  measured status = measured::ok;
  std::string message;
  std::string not_finite;  ///< as above
  double loss = 0;
  std::vector<double> noise;  ///< losses of repeats in other arithmetics
  double seconds = 0;

  bool differs() const noexcept { return false; }
  double spent() const noexcept { return seconds; }
};

/// The losses of a subset, recomputed.
struct subset_loss_measurement {
  subset_loss_request request;
  measured status = measured::ok;
  std::string message;
  std::string not_finite;                   ///< as above
  double mean = 0, standard_deviation = 0;  ///< over the samples
  double seconds = 0;

  bool differs() const noexcept { return false; }
  double spent() const noexcept { return seconds; }
};

/// What was measured for one request: the request, how it ended, and why.
template <class Value>
concept measurement_kind = requires(Value& one) {
  { one.status } -> std::convertible_to<measured>;
  { one.message } -> std::convertible_to<std::string>;     ///< of the error
  { one.not_finite } -> std::convertible_to<std::string>;  ///< of a state that was opened
  { one.differs() } -> std::convertible_to<bool>;  ///< other bits, which rejects where exact
  { one.spent() } -> std::convertible_to<double>;  ///< seconds
  one.request = one.request;
};

/// What can be asked of a workload.
template <class Value>
concept request_kind = std::copyable<Value> && requires(const Value& one, replayer& with) {
  { one.kind() } -> std::convertible_to<std::string>;
  { one.from_step() } -> std::convertible_to<std::uint64_t>;  ///< whose state it begins with
  { one.steps() } -> std::convertible_to<std::uint64_t>;      ///< to train
  { one.place() } -> std::convertible_to<std::string>;  ///< what it is about, however thoroughly
  { one.key() } -> std::convertible_to<std::string>;    ///< equal: one answer serves both
  one.answer(with);
};

class measurement;

/// A request of any kind.
class request {
 public:
  template <class Value>
  requires(!std::same_as<Value, request> && request_kind<Value>)
      // NOLINTNEXTLINE(google-explicit-constructor): a request is one of its kinds
      request(Value what)
      : self_(std::make_shared<const of<Value>>(std::move(what))) {}

  std::string kind() const { return self_->kind(); }
  std::uint64_t from_step() const { return self_->from_step(); }
  std::uint64_t steps() const { return self_->steps(); }
  std::string place() const { return kind() + " " + self_->place(); }
  std::string key() const { return kind() + " " + self_->key(); }
  measurement answer(replayer& with) const;
  /// A measurement that says that, and why, there is no answer.
  measurement unanswered(measured status, std::string message) const;

  template <class Value>
  const Value* get_if() const noexcept {
    const auto* found = dynamic_cast<const of<Value>*>(self_.get());
    return found == nullptr ? nullptr : &found->what;
  }

 private:
  struct any {
    virtual ~any() = default;
    virtual std::string kind() const = 0;
    virtual std::uint64_t from_step() const = 0;
    virtual std::uint64_t steps() const = 0;
    virtual std::string place() const = 0;
    virtual std::string key() const = 0;
    virtual measurement answer(replayer& with) const = 0;
    virtual measurement unanswered(measured status, std::string message) const = 0;
  };
  template <class Value>
  struct of final : any {
    explicit of(Value one) : what(std::move(one)) {}
    std::string kind() const override { return what.kind(); }
    std::uint64_t from_step() const override { return what.from_step(); }
    std::uint64_t steps() const override { return what.steps(); }
    std::string place() const override { return what.place(); }
    std::string key() const override { return what.key(); }
    measurement answer(replayer& with) const override;
    measurement unanswered(measured status, std::string message) const override;
    Value what;
  };
  std::shared_ptr<const any> self_;
};

/// A measurement of any kind.
class measurement {
 public:
  template <class Value>
  requires(!std::same_as<Value, measurement> && measurement_kind<Value>)
      // NOLINTNEXTLINE(google-explicit-constructor): a measurement is one of its kinds
      measurement(Value what)
      : self_(std::make_shared<const of<Value>>(std::move(what))) {}

  checks::request request() const { return self_->request(); }
  measured status() const { return self_->status(); }
  const std::string& message() const { return self_->message(); }
  const std::string& not_finite() const { return self_->not_finite(); }
  bool differs() const { return self_->differs(); }
  double spent() const { return self_->spent(); }
  /// The same answer to a request of the same key, which may have another reason.
  measurement answering(const checks::request& asked) const { return self_->answering(asked); }

  template <class Value>
  const Value* get_if() const noexcept {
    const auto* found = dynamic_cast<const of<Value>*>(self_.get());
    return found == nullptr ? nullptr : &found->what;
  }

 private:
  struct any {
    virtual ~any() = default;
    virtual checks::request request() const = 0;
    virtual measured status() const = 0;
    virtual const std::string& message() const = 0;
    virtual const std::string& not_finite() const = 0;
    virtual bool differs() const = 0;
    virtual double spent() const = 0;
    virtual measurement answering(const checks::request& asked) const = 0;
  };
  template <class Value>
  struct of final : any {
    explicit of(Value one) : what(std::move(one)) {}
    checks::request request() const override { return what.request; }
    measured status() const override { return what.status; }
    const std::string& message() const override { return what.message; }
    const std::string& not_finite() const override { return what.not_finite; }
    bool differs() const override { return what.differs(); }
    double spent() const override { return what.spent(); }
    measurement answering(const checks::request& asked) const override {
      Value out = what;
      if (const auto* own = asked.get_if<decltype(out.request)>()) out.request = *own;
      return out;
    }
    Value what;
  };
  std::shared_ptr<const any> self_;
};

inline measurement request::answer(replayer& with) const { return self_->answer(with); }

inline measurement request::unanswered(measured status, std::string message) const {
  return self_->unanswered(status, std::move(message));
}

/// The answer, with its request.
template <class Value>
measurement request::of<Value>::answer(replayer& with) const {
  auto out = what.answer(with);
  out.request = what;
  return out;
}

/// A measurement of the kind that the answer would be.
template <class Value>
measurement request::of<Value>::unanswered(measured status, std::string message) const {
  decltype(what.answer(std::declval<replayer&>())) out;
  out.request = what;
  out.status = status;
  out.message = std::move(message);
  return out;
}

}  // namespace potl::checks
