// SPDX-License-Identifier: Apache-2.0
#include "replay_group.hpp"

#include <algorithm>
#include <cmath>

#include <potl/core/rules.hpp>

#include "judging.hpp"
#include "replay_draw.hpp"
#include "text.hpp"

namespace potl::checks::detail {
namespace {

// Weights grow during training, by a small factor.
constexpr double expected_growth = 16;

const group_distance* find(const std::vector<group_distance>& groups, const std::string& name) {
  const auto at = std::find_if(groups.begin(), groups.end(),
                               [&](const group_distance& one) { return one.group == name; });
  return at == groups.end() ? nullptr : &*at;
}

// The smaller of both updates: neither side can enlarge the measure alone. What is not finite is
// no measure: nothing is tolerated by it.
double scale_of(const group_distance& group) {
  const double out = std::min(group.update_l2, group.replayed_update_l2);
  return std::isfinite(group.update_l2) && std::isfinite(group.replayed_update_l2) ? out : 0;
}

// Comparisons that a NaN fails on either side, and an infinite tolerance too.
bool within(double distance, double tolerance) {
  return distance <= tolerance && std::isfinite(tolerance);
}

bool is_finite(const group_distance& repeat) {
  return repeat.finite && std::isfinite(repeat.l2) &&
         std::none_of(repeat.tensors.begin(), repeat.tensors.end(),
                      [](const tensor_distance& one) { return std::isnan(one.relative); });
}

bool noise_is_finite(const segment_measurement& measurement, const std::string& which) {
  return std::all_of(measurement.noise.begin(), measurement.noise.end(), [&](const auto& repeat) {
    const group_distance* group = find(repeat, which);
    return group == nullptr || is_finite(*group);
  });
}

// Of the finite repeats; the others are a finding of their own.
double largest_noise(const segment_measurement& measurement, const std::string& which) {
  double out = 0;
  for (const auto& repeat : measurement.noise) {
    const group_distance* group = find(repeat, which);
    if (group != nullptr && is_finite(*group) && group->l2 > out) out = group->l2;
  }
  return out;
}

double largest_noise_of(const segment_measurement& measurement, const std::string& which,
                        const std::string& tensor) {
  double out = 0;
  for (const auto& repeat : measurement.noise) {
    const group_distance* group = find(repeat, which);
    if (group == nullptr) continue;
    for (const tensor_distance& one : group->tensors) {
      if (one.path == tensor && one.relative > out) out = one.relative;
    }
  }
  return out;
}

// Distance between the directions of both updates on the unit sphere.
// In this order std::max keeps a NaN.
double chord(const group_distance& group) { return std::sqrt(2 * std::max(1 - group.cosine, 0.0)); }

std::string_view rule_of(const std::string& which) {
  if (which == "parameters") return "replay.parameters";
  return which == "buffers" ? "replay.buffers" : "replay.optimizer";
}

std::string beyond(const std::string& which, double distance, double tolerance, double scale) {
  std::string out = "recorded and replayed " + which + " differ by " + text(distance);
  if (scale > 0) out += " (" + percent(distance / scale) + " of the update)";
  return out + ", tolerance " + text(tolerance);
}

class judge {
 public:
  judge(const replay_context& context, const segment_measurement& measurement,
        const std::string& which, const group_distance& group)
      : context_(context), measurement_(measurement), which_(which), group_(group) {}

  group_judgement run() {
    out_.distance = group_.l2;
    const std::string_view rule = rule_of(which_);
    if (!rule_enabled(rule)) return out_;
    if (!group_.structure_equal) {
      problem(rule, outcome::reject,
              "recorded and replayed " + which_ +
                  " differ in a name, shape, type or value that is not a float");
    } else if (!group_.finite) {
      // With that rule off, every comparison with such numbers passes.
      if (rule_enabled("transcript.finite")) {
        problem("transcript.finite", outcome::reject,
                which_ + " of the recorded or replayed state are not finite");
      }
    } else if (context_.exact) {
      if (!(group_.l2 <= 0) || !(group_.worst_relative <= 0)) {
        problem(rule, outcome::reject, beyond(which_, group_.l2, 0, scale_of(group_)));
      }
    } else if (which_ == "parameters") {
      parameters();
    } else {
      calibrated(rule);
    }
    return out_;
  }

 private:
  void problem(std::string_view rule, outcome result, const std::string& reason) {
    out_.problem = make_finding("replay", rule, result, reason);
    out_.problem->statistic = out_.distance;
    out_.problem->threshold = out_.tolerance;
    if (!group_.worst_tensor.empty()) {
      out_.problem->details.emplace_back("worst_tensor", group_.worst_tensor);
    }
  }

  void parameters() {
    const double weak = context_.cap * group_.weight_l2;
    if (!rule_enabled("replay.update_relative")) {
      // The weak comparison of the literature: against the weights, whatever the update was.
      out_.tolerance = weak;
      if (!within(out_.distance, weak)) {
        problem("replay.parameters", outcome::reject, beyond("parameters", out_.distance, weak, 0));
      }
      return;
    }
    if (is_published(*context_.options)) {
      out_.tolerance = context_.options->tolerance == "d_ref"
                           ? context_.options->d_ref.value_or(0) / 100
                           : measurement_.gradient_norm_mean;
      if (!within(out_.distance, out_.tolerance)) {
        problem("replay.parameters", outcome::reject,
                beyond("parameters", out_.distance, out_.tolerance, scale_of(group_)));
      }
      return;
    }
    calibrated("replay.parameters");
  }

  void calibrated(std::string_view rule) {
    const replay_options& options = *context_.options;
    const double scale = scale_of(group_);
    const bool capped = rule_enabled("replay.tolerance_cap");
    const bool is_parameters = rule == "replay.parameters";
    const double resolution = options.floor_ulp * group_.rounding_l2;
    const double floor = is_parameters && capped && context_.largest_rounding
                             ? std::min(resolution, options.floor_ulp * *context_.largest_rounding)
                             : resolution;
    out_.noise = largest_noise(measurement_, which_);
    const auto usual = context_.usual_noise.find(which_);
    const double share = usual == context_.usual_noise.end() ? 0 : usual->second;
    const double raw =
        std::max({resolution, options.safety * out_.noise, options.safety * share * scale});
    const double limit = std::max(floor, context_.cap * scale);
    out_.tolerance = capped ? std::min(raw, limit) : raw;
    if (is_parameters && !rule_enabled("replay.magnitude")) {
      out_.distance = chord(group_) * scale;
    }
    const bool excused = !rule_enabled("transcript.finite");
    out_.within_cap = capped && within(out_.distance, limit);
    if (!within(out_.distance, out_.tolerance)) {
      const double explained = options.safety * std::max(out_.noise, share * scale);
      too_far(rule, {raw, explained, limit, scale});
    } else if (!excused && !noise_is_finite(measurement_, which_)) {
      problem("transcript.finite", outcome::inconclusive,
              "an honest repeat of the " + which_ + " is not finite, so the noise is not known");
    } else if (capped && out_.noise > limit) {
      out_.irreproducible = true;
      problem("replay.tolerance_cap", outcome::inconclusive,
              "honest repeats of the " + which_ + " differ by " + text(out_.noise) +
                  ", more than the " + percent(context_.cap) +
                  " of the update that the job allows: use shorter segments");
    } else if (!is_parameters || rule_enabled("replay.magnitude")) {
      single_tensors(rule, scale);
    }
  }

  struct measures {
    double raw = 0;        // tolerance before the cap
    double explained = 0;  // of it, what honest repeats explain
    double limit = 0;      // the cap
    double scale = 0;
  };

  void too_far(std::string_view rule, const measures& by) {
    const std::string reason = beyond(which_, out_.distance, out_.tolerance, by.scale);
    const bool measured_noise = measurement_.noise.size() >= measurement_.request.noise_repeats;
    if (!measured_noise) {
      problem(rule, outcome::inconclusive, reason + ", but the noise was not measured");
    } else if (within(out_.distance, by.limit) && !noise_is_finite(measurement_, which_)) {
      // Beyond the cap no noise would help.
      problem("transcript.finite", outcome::inconclusive,
              reason + ", but an honest repeat is not finite, so the noise is not known");
    } else if (within(out_.distance, by.explained) && !is_inflated()) {
      out_.irreproducible = true;
      problem("replay.tolerance_cap", outcome::inconclusive,
              reason + ", but honest repeats differ by up to " + text(out_.noise) +
                  ", so that the cap of the job tells nothing apart here: use shorter segments");
    } else if (within(out_.distance, by.raw)) {
      problem("replay.tolerance_cap", outcome::reject,
              reason + ", though honest repeats differ by up to " + text(out_.noise));
    } else {
      problem(rule == "replay.parameters" ? narrowest(by.scale) : rule, outcome::reject, reason);
    }
  }

  // A29: who scales up weights in front of a norm makes noise of their rounding. It is seen in the
  // rounding itself, which the initial weights bound.
  bool is_inflated() const {
    const group_distance* parameters = find(measurement_.distances, "parameters");
    return parameters == nullptr || !context_.largest_rounding ||
           !(parameters->rounding_l2 <= *context_.largest_rounding);
  }

  // Which comparison of the literature would have missed it.
  std::string_view narrowest(double scale) const {
    if (chord(group_) * scale <= out_.tolerance) return "replay.magnitude";
    if (group_.l2 <= context_.cap * group_.weight_l2) return "replay.update_relative";
    return "replay.parameters";
  }

  // A tensor that is off decides, wherever it stands; one that only may be off is told of when no
  // other is.
  void single_tensors(std::string_view rule, double scale) {
    const replay_options& options = *context_.options;
    const double share = scale > 0 ? out_.tolerance / scale : 0;
    const bool capped = rule_enabled("replay.tolerance_cap");
    std::string doubt;
    for (const tensor_distance& tensor : group_.tensors) {
      const double noise = largest_noise_of(measurement_, which_, tensor.path);
      const double limit = std::max(options.tensor_looseness * share, options.safety * noise);
      if (within(tensor.relative, limit)) continue;
      // All noise to the verifier too, such as a bias in front of a norm: its group bounds it, and
      // what exceeds that noise tells nothing apart.
      const auto anywhere = context_.tensor_noise.find(tensor.path);
      if (capped && anywhere != context_.tensor_noise.end() && anywhere->second > context_.cap) {
        if (!within(tensor.relative, options.safety * anywhere->second) && doubt.empty()) {
          doubt = tensor.path + " is " + text(tensor.relative) +
                  " of its update off, which is noise of up to " + text(anywhere->second) +
                  " to honest repeats: use shorter segments, or an exact arithmetic";
        }
        continue;
      }
      problem(rule, outcome::reject,
              tensor.path + " is off by " + percent(tensor.relative) +
                  " of its own update, allowed are " + percent(limit));
      out_.problem->statistic = tensor.relative;
      out_.problem->threshold = limit;
      return;
    }
    if (!doubt.empty()) problem(rule, outcome::inconclusive, doubt);
  }

  const replay_context& context_;
  const segment_measurement& measurement_;
  const std::string& which_;
  const group_distance& group_;
  group_judgement out_;
};

}  // namespace

double group_judgement::ratio() const noexcept {
  if (distance == 0) return 0;
  if (std::isnan(distance) || std::isnan(tolerance)) return HUGE_VAL;
  return tolerance > 0 ? distance / tolerance : HUGE_VAL;
}

namespace {
// A29 lives on a floor without this bound, so failing to measure it is a finding.
void measure_rounding(const run_view& run, replay_context& out) {
  if (!run.initial_rounding) {
    out.rounding_problem = "nothing measures it";
    return;
  }
  const auto found = run.initial_rounding();
  if (!found) {
    const errc code = found.why().code;
    const bool excused = (code == errc::missing && !rule_enabled("transcript.withheld")) ||
                         (code == errc::mismatch && !rule_enabled("transcript.checkpoint"));
    if (!excused) out.rounding_problem = found.why().message;
  } else if (std::isfinite(found.value())) {
    out.largest_rounding = expected_growth * found.value();
  } else if (rule_enabled("transcript.finite")) {
    out.rounding_problem = "the initial parameters are not finite";
  }
}
}  // namespace

replay_context make_context(const run_view& run, const replay_options& options,
                            std::span<const segment_measurement> measurements) {
  replay_context out;
  out.options = &options;
  out.cap = run.agreed.tolerance_cap;
  out.exact = is_exact(run, options);
  const bool differs = std::any_of(measurements.begin(), measurements.end(),
                                   [](const auto& one) { return !one.distances.empty(); });
  const bool floors = !out.exact && !is_published(options) && rule_enabled("replay.tolerance_cap");
  if (differs && floors) measure_rounding(run, out);
  std::map<std::string, std::vector<double>> shares;
  for (const segment_measurement& one : measurements) {
    for (const group_distance& group : one.distances) {
      const double noise = largest_noise(one, group.group), scale = scale_of(group);
      if (!one.noise.empty() && scale > 0) shares[group.group].push_back(noise / scale);
    }
  }
  for (const segment_measurement& one : measurements) {
    for (const auto& repeat : one.noise) {
      for (const group_distance& group : repeat) {
        for (const tensor_distance& tensor : group.tensors) {
          double& largest = out.tensor_noise[tensor.path];
          if (tensor.relative > largest) largest = tensor.relative;
        }
      }
    }
  }
  for (auto& [name, list] : shares) {
    const auto middle = list.begin() + static_cast<std::ptrdiff_t>((list.size() - 1) / 2);
    std::nth_element(list.begin(), middle, list.end());
    out.usual_noise[name] = *middle;
  }
  return out;
}

group_judgement judge_group(const replay_context& context, const segment_measurement& measurement,
                            const std::string& which) {
  const group_distance* group = find(measurement.distances, which);
  if (group == nullptr) {
    group_judgement out;
    out.problem = make_finding("replay", "", outcome::inconclusive,
                               "the distance of the " + which + " was not measured");
    return out;
  }
  return judge(context, measurement, which, *group).run();
}

}  // namespace potl::checks::detail
