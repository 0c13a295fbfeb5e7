// SPDX-License-Identifier: Apache-2.0
// How a replayer answers what replay asks for.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include <potl/checks/detail/state_distance.hpp>
#include <potl/checks/replay.hpp>
#include <potl/checks/replayer.hpp>

#include "checks/replay/replay_losses.hpp"
#include "checks/stopwatch.hpp"
#include "checks/text.hpp"

namespace potl::checks {
namespace {

using paths = std::set<std::string>;

/// Of parameters of which no element had a gradient.
paths idle(const std::vector<still_elements>& still) {
  paths out;
  for (const still_elements& one : still) {
    const bool all = std::all_of(one.mask.begin(), one.mask.end(), [](auto flag) { return flag; });
    if (all) out.insert(one.paths.begin(), one.paths.end());
  }
  return out;
}

/// One segment, replayed.
class segment_answer {
 public:
  segment_answer(const segment_request& request, replayer& with)
      : request_(request), with_(with), exact_(with.view().agreed.is_exact()) {
    out_.request = request;
    if (request.superseded) branch_ = request.branch;
  }

  segment_measurement measure() {
    const stopwatch loading;
    const transcript::state start = request_.superseded
                                        ? with_.load(request_.start, request_.start_branch)
                                        : with_.load(request_.start);
    out_.not_finite = with_.not_finite(start);
    out_.load_seconds = loading.seconds();

    const stopwatch replaying;
    static_cast<void>(with_.work().rounding());  // what it followed before belongs to others
    const transcript::state end = run(start, [this](std::uint64_t, const step_outcome& one) {
      out_.losses.push_back(one.loss);
      out_.rates.push_back(one.rates);
      out_.skipped.push_back(one.skipped);
      if (one.finite) out_.finite.push_back(*one.finite);
      out_.gradient_norm_mean += one.gradient_norm / static_cast<double>(request_.steps());
    });
    const digest* expected = recorded_digest(request_.end);
    out_.digest_equal = expected != nullptr && end.state_digest() == *expected;
    const bool repeats = !out_.digest_equal || request_.noise_if_equal;
    if (!exact_ && repeats) still_ = with_.work().still();
    out_.replay_seconds = replaying.seconds();
    if (with_.view().agreed.arithmetic == "log64") out_.rounding = with_.work().rounding();

    if (out_.digest_equal) {
      look_at(end);
      if (!request_.superseded) with_.keep_replayed(request_.end, end);
      // Trainer and verifier may both have another teacher's file than the job was made with.
      const bool begins = request_.start == 0;
      if (exact_ && (begins || !agrees_with_records())) with_.require_agreed_bits();
    } else {
      request_.superseded ? look_at(end) : compare(start, end);
      if (exact_) name_difference(start, end);
    }
    if (repeats) repeat(start, end);
    return std::move(out_);
  }

 private:
  void look_at(const transcript::state& what) {
    if (out_.not_finite.empty()) out_.not_finite = with_.not_finite(what);
  }

  const transcript::step_record* recorded(std::uint64_t step) const {
    return branch_ ? with_.view().superseded_step(*branch_, step) : with_.view().step(step);
  }

  const digest* recorded_digest(std::uint64_t step) const {
    const transcript::step_record* record = recorded(step);
    return record == nullptr ? nullptr : &record->state;
  }

  bool agrees_with_records() const {
    for (std::size_t i = 0; i < out_.losses.size(); ++i) {
      const transcript::step_record* record = recorded(request_.start + 1 + i);
      if (record == nullptr || record->loss != out_.losses[i]) return false;
      if (detail::other_finiteness(*record, out_, i)) return false;
    }
    return true;
  }

  transcript::state run(const transcript::state& start, const replayer::seen& told) {
    // In stock arithmetic a loss next to a threshold is on the other side on another machine, and
    // the rates take another course. The logged losses are judged by themselves.
    return with_.run_steps(start, request_.start, request_.end, branch_, told, !exact_);
  }

  void compare(const transcript::state& start, const transcript::state& end) {
    const stopwatch loading;
    if (const auto recorded = recorded_end()) {
      look_at(*recorded);
      out_.distances = compare_states(start.root(), recorded->root(), end.root(), still_);
      out_.load_seconds += loading.seconds();
      if (!exact_ && may_be_noise()) {
        const stopwatch repeating;
        steady_ = with_.steady(request_.start == 0);
        out_.distances =
            compare_states(start.root(), recorded->root(), end.root(), still_, steady_);
        out_.noise_seconds += repeating.seconds();
      }
      go_on(end);
      look_further(start, *recorded, out_.distances);
    } else {
      look_at(end);
      out_.load_seconds += loading.seconds();
    }
  }

  // Whether a tensor is off by so much that only noise could excuse it.
  bool may_be_noise() const {
    const double cap = with_.view().agreed.tolerance_cap;
    return std::any_of(out_.distances.begin(), out_.distances.end(), [cap](const auto& group) {
      return std::any_of(group.tensors.begin(), group.tensors.end(), [cap](const auto& one) {
        const double update = std::min(one.update_l2, one.replayed_update_l2);
        return one.judged == judged_as::floats && !one.rounding_only && one.l2 > cap * update;
      });
    });
  }

  // Replays a step more, or as many as it takes until every parameter that had a gradient in the
  // segment has one again, at no less than half the largest rate to come: a scaler may leave steps
  // out, optimizers may take turns, and rates may go up and down.
  void go_on(const transcript::state& end) {
    const std::uint64_t steps = with_.view().agreed.steps;
    const std::uint64_t last = std::min(request_.end + request_.steps(), steps);
    if (exact_ || request_.superseded || request_.end == last || stays_in_proportion(last)) return;
    const stopwatch replaying;
    const paths at_rest = idle(still_);
    paths waiting;
    std::vector<double> rates = halves_of_largest_rates(request_.end, last);
    const auto look = [&rates](std::uint64_t, const step_outcome& one) {
      for (std::size_t i = 0; i < std::min(rates.size(), one.rates.size()); ++i) {
        if (!one.skipped && std::fabs(one.rates[i]) >= rates[i]) rates[i] = 0;
      }
    };
    const auto too_low = [&rates] {
      return std::any_of(rates.begin(), rates.end(), [](double one) { return one > 0; });
    };
    next_ = end;
    further_ = request_.end;
    do {
      next_ = with_.run_steps(*next_, further_, further_ + 1, std::nullopt, look, !exact_);
      const paths now = idle(with_.work().still());
      const paths& of = further_ == request_.end ? now : waiting;
      paths left;
      for (const std::string& path : of) {
        if (now.count(path) > 0 && at_rest.count(path) == 0) left.insert(path);
      }
      waiting = std::move(left);
    } while (++further_ < last && (!waiting.empty() || too_low()));
    out_.replay_seconds += replaying.seconds();
  }

  // Nothing divides a difference, and no rate up to `last` makes more than twice as much of it as
  // the one at the end of the segment. What was not agreed is not relied on.
  bool stays_in_proportion(std::uint64_t last) const {
    const auto& agreed = with_.view().agreed;
    const std::vector<double>* now = agreed.rates_at(request_.end);
    if (now == nullptr || !with_.work().is_linear()) return false;
    const auto suffices = [](double rate, double later) {
      return std::fabs(later) <= 2 * std::fabs(rate);
    };
    for (std::uint64_t step = request_.end + 1; step <= last; ++step) {
      const std::vector<double>* then = agreed.rates_at(step);
      if (then == nullptr ||
          !std::equal(now->begin(), now->end(), then->begin(), then->end(), suffices)) {
        return false;
      }
    }
    return true;
  }

  // Of every group in the steps after `start`, as agreed, or else as recorded.
  std::vector<double> halves_of_largest_rates(std::uint64_t start, std::uint64_t end) const {
    std::vector<double> out;
    for (std::uint64_t step = start + 1; step <= end; ++step) {
      const std::vector<double>* rates = with_.view().agreed.rates_at(step);
      const transcript::step_record* record = with_.view().step(step);
      if (rates == nullptr && record != nullptr) rates = &record->rates;
      if (rates == nullptr) continue;
      out.resize(std::max(out.size(), rates->size()));
      for (std::size_t i = 0; i < rates->size(); ++i) {
        out[i] = std::max(out[i], std::fabs((*rates)[i]) / 2);
      }
    }
    return out;
  }

  // What an optimizer keeps may be next to nothing and move a weight far in the next step, because
  // it is divided by less (Adam where gradients are small): no norm of it shows that.
  void look_further(const transcript::state& start, const transcript::state& from,
                    std::vector<group_distance>& out) {
    if (!next_) return;
    const transcript::state there =
        with_.run_steps(from, request_.end, further_, std::nullopt, {}, !exact_);
    for (group_distance& one : compare_next(start.root(), there.root(), next_->root())) {
      out.push_back(std::move(one));
    }
  }

  // Nothing where exact replay does without it: another digest says it all, and a file that cannot
  // be read here must not hide it.
  std::optional<transcript::state> recorded_end() {
    if (with_.may_be_missing(request_.end)) return std::nullopt;
    try {
      return with_.load(request_.end);
    } catch (const replayer::failed& why) {
      if (!exact_ || why.status != measured::verifier_error) throw;
      return std::nullopt;
    }
  }

  void name_difference(const transcript::state& start, const transcript::state& end) {
    const stopwatch searching;
    const std::uint64_t differing =
        with_.first_difference(start, request_.start, request_.end, branch_, end,
                               [this](std::uint64_t step) { return recorded_digest(step); });
    out_.first_differing_step = differing;
    if (!request_.superseded) {
      out_.first_differing_operator = with_.first_operator(start, request_.start, differing);
    }
    out_.noise_seconds += searching.seconds();
  }

  void repeat(const transcript::state& start, const transcript::state& end) {
    if (out_.digest_equal) go_on(end);
    const stopwatch repeating;
    std::vector<double> losses;
    std::vector<bool> skipped;
    std::vector<group_distance> distances;
    const auto again = [&] {
      losses.clear();
      skipped.clear();
      const transcript::state other = run(start, [&](std::uint64_t, const step_outcome& one) {
        losses.push_back(one.loss);
        skipped.push_back(one.skipped);
      });
      distances = compare_states(start.root(), end.root(), other.root(), still_, steady_);
      look_further(start, other, distances);
    };
    for (std::uint32_t way = 1; way <= request_.noise_repeats; ++way) {
      const bool other = with_.otherwise(way, again);
      out_.other_arithmetic = out_.other_arithmetic || other;
      out_.noise.push_back(std::exchange(distances, {}));
      out_.noise_losses.push_back(std::exchange(losses, {}));
      out_.repeat_skipped.push_back(std::exchange(skipped, {}));
    }
    const std::uint32_t rough = out_.digest_equal ? 0 : request_.rough_repeats;
    for (std::uint32_t number = 1; number <= rough; ++number) {
      // Drawn by where the segment lies, so that a verification comes out the same way again.
      if (!with_.roughly((request_.start << 8) + number, again)) continue;
      out_.rough.push_back(std::exchange(distances, {}));
      out_.rough_losses.push_back(std::exchange(losses, {}));
      out_.repeat_skipped.push_back(std::exchange(skipped, {}));
    }
    out_.noise_seconds += repeating.seconds();
  }

  const segment_request& request_;
  replayer& with_;
  const bool exact_;
  std::optional<std::uint64_t> branch_;  ///< whose steps are replayed
  std::vector<still_elements> still_, steady_;
  std::optional<transcript::state> next_;  ///< after the replay of step further_
  std::uint64_t further_ = 0;
  segment_measurement out_;
};

}  // namespace

segment_measurement segment_request::answer(replayer& with) const {
  return segment_answer(*this, with).measure();
}

}  // namespace potl::checks
