// SPDX-License-Identifier: Apache-2.0
#include <potl/statistics/displacement.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <utility>

#include <potl/statistics/detail/soundness.hpp>

namespace potl::statistics {
namespace {

bool is_length(double value) { return std::isfinite(value) && value >= 0; }

std::string text(double value, int digits = 6) {
  std::array<char, 40> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*g", digits, value);
  return buffer.data();
}

// Four digits, on the side on which following the advice is enough.
std::string advised(double value, double (*whole)(double), double hair) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 3);
  return text(whole(value / unit + hair) * unit);
}
std::string at_least(double value) { return advised(value, std::ceil, -1e-9); }
std::string at_most(double value) { return advised(value, std::floor, 1e-9); }

error misuse(std::string message, std::string remedy = "") {
  return {errc::usage, std::move(message), std::move(remedy)};
}

status check(std::span<const double> responses, const displacement_goal& goal) {
  if (responses.empty()) return misuse("a plan needs at least one step");
  if (!std::all_of(responses.begin(), responses.end(), is_length)) {
    return misuse("how far a step moves the weights is negative or not finite");
  }
  if (!(goal.probability > 0 && goal.probability < 1)) {
    return misuse("probability is " + text(goal.probability), "it lies between 0 and 1");
  }
  if (!(is_length(goal.clip) && goal.clip > 0)) {
    return misuse("clip is " + text(goal.clip), "give the largest norm of a step's gradient");
  }
  if (!is_length(goal.tolerance)) {
    return misuse("tolerance is " + text(goal.tolerance), "give a norm, or 0 for exact checks");
  }
  if (!(goal.miss_rate >= 0 && goal.miss_rate < 1)) {
    return misuse("miss_rate is " + text(goal.miss_rate), "it is at least 0 and below 1");
  }
  if (goal.displacement.has_value() == goal.steps_at_risk.has_value()) {
    return misuse("a plan is for a displacement or for steps at risk", "give one of both");
  }
  if (goal.displacement && !(is_length(*goal.displacement) && *goal.displacement > 0)) {
    return misuse("displacement is " + text(*goal.displacement), "give a positive norm");
  }
  if (goal.steps_at_risk && (*goal.steps_at_risk < 1 || *goal.steps_at_risk > responses.size())) {
    return misuse(
        "steps_at_risk is " + std::to_string(*goal.steps_at_risk),
        "it is at least 1, and at most the number of steps, " + std::to_string(responses.size()));
  }
  return unit{};
}

// How often a step is checked of which `steps` false ones must be caught. Where that is more than
// always, `other` says what would help beside a better check and a smaller probability.
result<double> check_probability(const displacement_goal& goal, double steps,
                                 const std::string& other) {
  constexpr double rounding = 1e-12;
  const double out = check_probability_for(goal.probability, steps) / (1 - goal.miss_rate);
  if (out <= 1 + rounding) return std::min(out, 1.0);
  const double missed = std::exp(std::log1p(-goal.probability) / steps);
  const double reached = -std::expm1(std::log(goal.miss_rate) * steps);
  return error{errc::unsupported,
               "unreachable: a step would have to be checked with probability " + text(out) +
                   ", because a check misses a false gradient with probability " +
                   text(goal.miss_rate),
               "a miss_rate of at most " + at_most(missed) + ", a probability of at most " +
                   at_most(reached) + ", or " + other + " would do"};
}

// With a miss rate so large, how many times the false steps that are caught for certain must be at
// risk.
double factor_of_missing(const displacement_goal& goal) {
  return goal.miss_rate > 0 ? std::log1p(-goal.probability) / std::log(goal.miss_rate) : 1;
}

// Steps that carry the weights further are checked more often. A step that alone carries them too
// far is one of which a single false one must be caught, and needs no more than that.
status weigh(std::span<const double> responses, const displacement_goal& goal,
             displacement_plan& plan) {
  const displacement_certificate& made = plan.certificate;
  if (!(made.leak < made.displacement)) {
    const double each = made.leak / std::min(goal.tolerance, 2 * goal.clip);
    return error{errc::unsupported,
                 "unreachable: what stays below the tolerance on every step carries the weights "
                 "by up to " +
                     text(made.leak) + ", and " + text(made.displacement) + " matters",
                 "a tolerance below " + at_most(made.displacement / each) +
                     ", or a displacement above " + at_least(made.leak) + ", would do"};
  }
  const double room = made.displacement - made.leak;
  const auto steps = [&](double response) {
    return std::max(1.0, room / (2 * goal.clip * response));
  };
  const double largest = *std::max_element(responses.begin(), responses.end());
  const double enough = made.leak + 2 * goal.clip * largest * factor_of_missing(goal);
  const auto most =
      check_probability(goal, steps(largest), "a displacement of at least " + at_least(enough));
  if (!most) return most.why();
  std::transform(responses.begin(), responses.end(), plan.probabilities.begin(), [&](double one) {
    const double caught = check_probability_for(goal.probability, steps(one));
    return std::min(*most, caught / (1 - goal.miss_rate));
  });
  return unit{};
}

// Every step is checked equally often. Fewer than `steps_at_risk` false ones are missed, at worst
// those that carry the weights furthest.
status spread(std::span<const double> responses, const displacement_goal& goal,
              displacement_plan& plan) {
  const auto steps = static_cast<double>(*goal.steps_at_risk);
  const auto each = check_probability(
      goal, steps, "steps_at_risk of at least " + text(std::ceil(factor_of_missing(goal))));
  if (!each) return each.why();
  auto& kept = plan.probabilities;
  std::copy(responses.begin(), responses.end(), kept.begin());
  const auto missed = kept.begin() + static_cast<std::ptrdiff_t>(*goal.steps_at_risk - 1);
  std::nth_element(kept.begin(), missed, kept.end(), std::greater<>());
  const double carried = 2 * goal.clip * std::accumulate(kept.begin(), missed, 0.0);
  displacement_certificate& made = plan.certificate;
  made.displacement = std::min(made.clipped, made.leak + carried);
  std::fill(kept.begin(), kept.end(), *each);
  return unit{};
}

}  // namespace

result<std::vector<double>> gradient_responses(std::span<const double> rates,
                                               const momentum_options& optimizer) {
  const auto& [momentum, dampening, nesterov] = optimizer;
  if (!std::all_of(rates.begin(), rates.end(), is_length)) {
    return misuse("a learning rate is negative or not finite");
  }
  if (!(momentum >= 0 && momentum < 1)) {
    return misuse("momentum is " + text(momentum), "it is at least 0 and below 1");
  }
  if (!(dampening >= 0 && dampening <= 1)) {
    return misuse("dampening is " + text(dampening), "it lies between 0 and 1");
  }
  if (nesterov && (momentum == 0 || dampening != 0)) {
    return misuse("Nesterov momentum needs a momentum and no dampening");
  }
  std::vector<double> out(rates.size());
  double carried = 0;  // how far what enters the buffer at a step moves the weights from there on
  for (std::size_t step = rates.size(); step-- > 0;) {
    carried = rates[step] + momentum * carried;
    if (nesterov) {
      out[step] = rates[step] + momentum * carried;
    } else {
      // The buffer begins as the first gradient. Without momentum there is none.
      const bool is_whole = step == 0 || momentum == 0;
      out[step] = is_whole ? carried : (1 - dampening) * carried;
    }
  }
  return out;
}

std::string displacement_certificate::sentence() const {
  if (displacement >= clipped) {
    return "Whatever the worker returns moves the weights by at most " + text(clipped) +
           " (l2): clipping alone sees to it.";
  }
  std::string out = "With probability " + text(probability, 15) +
                    " a false gradient is caught, or all of them together move the weights by at "
                    "most " +
                    text(displacement) + " (l2)";
  if (leak > 0) out += ", of which " + text(leak) + " is what stays below the tolerance of checks";
  return out + ". This bounds what is injected, not where the training goes from there.";
}

result<displacement_plan> plan_displacement(std::span<const double> responses,
                                            const displacement_goal& goal) {
  if (const status sane = check(responses, goal); !sane) return sane.why();
  const double total = std::accumulate(responses.begin(), responses.end(), 0.0);
  displacement_plan out;
  displacement_certificate& made = out.certificate;
  made.probability = goal.probability;
  made.leak = std::min(goal.tolerance, 2 * goal.clip) * total;
  made.clipped = 2 * goal.clip * total;
  if (!std::isfinite(made.clipped)) return misuse("clip times the steps' responses is not finite");
  made.displacement = std::min(made.clipped, goal.displacement.value_or(made.clipped));
  out.probabilities.resize(responses.size());
  if (goal.displacement && *goal.displacement >= made.clipped) return out;  // nothing to check
  const status done =
      goal.displacement ? weigh(responses, goal, out) : spread(responses, goal, out);
  if (!done) return done.why();
  out.expected_checks = std::accumulate(out.probabilities.begin(), out.probabilities.end(), 0.0);
  return out;
}

unseen_displacement unseen(std::uint64_t pool, std::uint64_t sampled, double each,
                           double probability) noexcept {
  std::uint64_t low = 0, high = pool;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (detection_without_replacement(pool, middle + 1, sampled) >= probability) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return {low, static_cast<double>(low) * each};
}

}  // namespace potl::statistics
