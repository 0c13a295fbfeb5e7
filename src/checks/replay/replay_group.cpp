// SPDX-License-Identifier: Apache-2.0
#include "checks/replay/replay_group.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <potl/checks/detail/state_distance.hpp>
#include <potl/core/rules.hpp>

#include "checks/judging.hpp"
#include "checks/replay/replay_draw.hpp"
#include "checks/replay/replay_history.hpp"
#include "checks/replay/replay_own_noise.hpp"
#include "checks/text.hpp"

namespace potl::checks::detail {
namespace {

// Of a group's elements, those of tensors that may be excused as all noise (a bias in front of a
// norm) although the first segment does not show them to be so.
constexpr double excused_share = 0.02;
// So many times its noise a tensor may be off that the first segment does not show to be noise: a
// cheat knows which segments are repeated, and goes that far in each. Of 33 honest ones in bfloat16
// all went at most 1.2 times as far. One or two repeats say little of a tensor of few elements: a
// scalar of normal noise is beyond twice theirs in three of ten segments.
double safety_of_unproven(double count) { return 2 + 6 / count; }
// Of an update, what another machine may turn without being accused. The sign of an activation next
// to zero (ReLU, max-pooling) is another one there, which no repeat needs to show: one tensor was
// off by 0.35 of its update, a group by 0.14 (experiments/false_alarms.py).
constexpr double turned_in_tensor = 0.7;
constexpr double turned_in_group = 0.5;
// So many elements of what is no float may turn though the replay leaves them: patience that begins
// anew, samples that are next to another centre. Chosen, not measured: repeats would turn one, too,
// where many more turn on another machine.
constexpr double turned_alone = 16;
// A limit that no number is beyond.
constexpr double anywhere = std::numeric_limits<double>::max();
// The same, where repeats may still excuse.
constexpr double unaccused = anywhere / 2;
// A step further differences have grown; those that an optimizer's state was made for grow by more.
constexpr double next_slack = 2;

// Comparisons that a NaN fails on either side, and an infinite tolerance too.
bool within(double distance, double tolerance) {
  return distance <= tolerance && std::isfinite(tolerance);
}

/// Where a tensor is kept: its path up to its own name.
std::string_view object_of(std::string_view path) {
  return path.substr(0, path.find_last_of("./") + 1);
}

/// How many batches torch's layers and averages have seen: that turns with no output.
bool is_plain_count(std::string_view path) {
  const std::string_view name = path.substr(object_of(path).size());
  return name.substr(0, 19) == "num_batches_tracked" || name.substr(0, 10) == "n_averaged";
}

bool is_within(const std::set<std::string_view>& objects, std::string_view path) {
  for (path = object_of(path); !objects.empty();
       path = object_of(path.substr(0, path.size() - 1))) {
    if (objects.count(path) > 0) return true;
    if (path.empty()) break;
  }
  return false;
}

bool is_finite(const group_distance& repeat) {
  return repeat.finite && std::isfinite(repeat.l2) &&
         std::all_of(repeat.tensors.begin(), repeat.tensors.end(),
                     [](const tensor_distance& one) { return std::isfinite(one.l2); });
}

bool noise_is_finite(const segment_measurement& measurement, const std::string& which) {
  return std::all_of(measurement.noise.begin(), measurement.noise.end(), [&](const auto& repeat) {
    const group_distance* group = find(repeat, which);
    return group == nullptr || is_finite(*group);
  });
}

template <class Value>
Value look_up(const std::map<std::string, Value>& in, const std::string& name) {
  const auto at = in.find(name);
  return at == in.end() ? Value{} : at->second;
}

// Distance between the directions of both updates on the unit sphere.
// In this order std::max keeps a NaN.
double chord(const group_distance& group) { return std::sqrt(2 * std::max(1 - group.cosine, 0.0)); }

std::string_view rule_of(const std::string& which) {
  if (which == "parameters") return "replay.parameters";
  const bool buffers = which == "buffers" || which == "next_buffers";
  return buffers ? "replay.buffers" : "replay.optimizer";
}

std::string name_of(const std::string& which) {
  if (which == "next") return "parameters a step later";
  return which == "next_buffers" ? "buffers a step later" : which;
}

std::string beyond(const std::string& what, double distance, double tolerance, double update) {
  std::string out = "recorded and replayed " + what + " differ by " + text(distance);
  if (update > 0) out += " (" + percent(distance / update) + " of the update)";
  return out + ", tolerance " + text(tolerance);
}

std::string off(const std::string& what, double l2, double tolerance) {
  const std::size_t stem = what.size() - std::min(what.size(), its_form.size());
  if (what.substr(stem) == its_form) {
    return what.substr(0, stem) + " has another length, type or text than in the replay";
  }
  return what + " is " + text(l2) + " off, allowed are " + text(tolerance);
}

// What one distance is compared with.
struct limits {
  double noise = 0;      // what honest repeats explain, before the safety factor
  double tolerance = 0;  // of what rounding leaves
  double cap = 0;        // of the whole distance
  double far = 0;        // beyond it no honest machine is expected
  bool places = false;   // of what is no float, how many elements
};

class judge {
 public:
  judge(const replay_context& context, const segment_measurement& measurement,
        const std::string& which, const group_distance& group)
      : context_(context), measurement_(measurement), which_(which), group_(group) {}

  group_judgement run() {
    out_.distance = group_.l2;
    const std::string_view rule = rule_of(which_);
    if (!rule_enabled(rule) || (is_next(which_) && stops_at_the_end())) return out_;
    if (!group_.structure_equal) {
      problem(rule, outcome::reject,
              "recorded and replayed " + name_ +
                  " differ in a name, shape, type or value that is not a float");
    } else if (!group_.finite) {
      // With that rule off, every comparison with such numbers passes.
      if (rule_enabled("transcript.finite")) {
        const bool diverges = !context_.exact && !std::isfinite(group_.update_l2) &&
                              !std::isfinite(group_.replayed_update_l2);
        // Next to an overflow, the verifier's own repeats are not finite on one side alone.
        const bool turns = !context_.exact && !noise_is_finite(measurement_, which_);
        problem("transcript.finite", diverges || turns ? outcome::inconclusive : outcome::reject,
                name_ + " of the recorded " + (diverges ? "and of the" : "or") +
                    " replayed state are not finite" +
                    (turns ? ", and honest repeats differ in that" : ""));
      }
    } else if (context_.exact) {
      if (!(group_.l2 <= 0)) {
        problem(rule, outcome::reject, beyond(name_, group_.l2, 0, update_of(group_)));
      } else if (!group_.tensors.empty()) {  // what is in no norm
        const tensor_distance& one = group_.tensors.front();
        problem(rule, outcome::reject, off(one.path, one.l2, 0));
      }
    } else if (which_ == "parameters" && !rule_enabled("replay.update_relative")) {
      // The weak comparison of the literature: against the weights, whatever the update was.
      published(context_.cap * group_.weight_l2, 0);
    } else if (which_ == "parameters" && is_published(*context_.options)) {
      published(context_.options->tolerance == "d_ref" ? context_.options->d_ref.value_or(0) / 100
                                                       : measurement_.gradient_norm_mean,
                update_of(group_));
    } else {
      calibrated(rule);
    }
    return out_;
  }

 private:
  // As the comparisons of the literature do.
  bool stops_at_the_end() const {
    return is_published(*context_.options) || !rule_enabled("replay.parameters") ||
           !rule_enabled("replay.update_relative") || !rule_enabled("replay.magnitude");
  }

  void problem(std::string_view rule, outcome result, const std::string& reason) {
    out_.problem = make_finding("replay", rule, result, reason);
    out_.problem->statistic = out_.distance;
    out_.problem->threshold = out_.tolerance;
    if (!group_.worst_tensor.empty()) {
      out_.problem->details.emplace_back("worst_tensor", group_.worst_tensor);
    }
  }

  void published(double tolerance, double update) {
    out_.tolerance = tolerance;
    if (!within(out_.distance, tolerance)) {
      problem("replay.parameters", outcome::reject,
              beyond("parameters", out_.distance, tolerance, update));
      return;
    }
    for (const tensor_distance& one : group_.tensors) {  // what is in no norm
      if (!is_code(one.judged)) continue;
      problem("replay.parameters", outcome::inconclusive, off(one.path, one.l2, 0));
      return;
    }
  }

  void calibrated(std::string_view rule) {
    const own_noise own = noise_of_group(measurement_.noise, which_);
    const double rough = noise_of_group(measurement_.rough, which_).l2;
    const limits whole = limits_of(group_, own, rough, look_up(context_.group_share, which_),
                                   group_.rounding_l2, turned_in_group);
    out_.noise = std::max(own.l2, rough);
    out_.tolerance = std::min(whole.tolerance + group_.rounding_l2, whole.cap);
    if (which_ == "parameters" && !rule_enabled("replay.magnitude")) {
      out_.distance = chord(group_) * update_of(group_);
      if (!within(out_.distance, out_.tolerance)) {
        too_far(rule, name_, out_.distance, 0, whole);
      }
    } else {
      const rest judged = tensors(rule);
      // Not the group's less what is excused: a rounding error of that would accuse.
      const double l2 = judged.all ? group_.l2 : std::sqrt(judged.l2);
      const double excess = judged.all ? group_.excess_l2 : std::sqrt(judged.excess);
      if (!out_.problem) out_.distance = l2;
      // All tensors together accuse where each by itself is only doubtful.
      const bool undecided = !out_.problem || (out_.problem->result == outcome::inconclusive &&
                                               !within(l2, whole.far));
      if (undecided && !passes(l2, excess, whole)) too_far(rule, name_, l2, excess, whole);
    }
    if (!out_.problem && rule_enabled("transcript.finite") &&
        !noise_is_finite(measurement_, which_)) {
      problem("transcript.finite", outcome::inconclusive,
              "an honest repeat of the " + name_ + " is not finite, so the noise is not known");
    }
  }

  template <class Distance>
  limits limits_of(const Distance& of, const own_noise& own, double rough, double share,
                   double rounding, double turned) const {
    const replay_options& options = *context_.options;
    const double update = update_of(of);
    limits out;
    out.noise = own.l2;
    // An infinite share is one of a tensor that a repeat moves and the replay does not.
    if (update > 0) out.noise = std::max(out.noise, share * update);
    const double explained = rounding + options.safety * out.noise;
    out.far = std::max(options.margin * explained, turned * of.replayed_update_l2);
    // What rough sums turn excuses, and makes no accusation harder.
    out.noise = std::max(out.noise, rough);
    out.tolerance = slack_ * options.safety * out.noise;
    out.cap = rule_enabled("replay.tolerance_cap") ? slack_ * context_.cap * update : anywhere;
    return out;
  }

  // How far a code jumps accuses nobody, because it may be any other one. How many jump is not
  // capped for itself: all the bins of a count may, by one.
  static limits of_codes(limits by, bool places) {
    (places ? by.cap : by.far) = anywhere;
    if (places) by.far = std::max(by.far, turned_alone);
    by.places = places;
    return by;
  }

  // Nothing is accepted beyond the cap, whatever noise and rounding would explain: a prover who
  // inflates weights (A29) inflates both.
  static bool passes(double l2, double excess, const limits& by) {
    return within(l2, by.cap) && (excess <= 0 || within(excess, by.tolerance));
  }

  /// What all tensors together are judged by, where some are excused.
  struct rest {
    bool all = true;
    double l2 = 0, excess = 0;  // squares
  };

  // Each tensor by its own limits. One that is all noise to the verifier too is excused within that
  // noise, and one that hardly moves within its rounding, if the first segment shows that it is
  // noise without the prover's doing, or if all such tensors together are a small part of the
  // group. Not what is no float: of codes and masks that noise would allow any other ones.
  rest tensors(std::string_view rule) {
    const std::map<std::string, own_noise> noise = noise_of_tensors(measurement_.noise, which_);
    const std::map<std::string, own_noise> rough = noise_of_tensors(measurement_.rough, which_);
    rest out;
    double unproven = 0;
    const tensor_distance* doubtful = nullptr;
    const auto limits_for = [&](const tensor_distance& one) {
      const limits by =
          limits_of(one, look_up(noise, one.path), look_up(rough, one.path).l2,
                    look_up(context_.tensor_share, one.path), one.rounding, turned_in_tensor);
      return is_code(one.judged) ? of_codes(by, one.judged == judged_as::code_places) : by;
    };
    const auto add = [&out](const tensor_distance& one) {
      if (one.judged != judged_as::floats) return;
      out.l2 += one.l2 * one.l2;
      out.excess += one.excess * one.excess;
    };
    // What is kept beside the weights may follow from what turned in the same object: a copy of the
    // best ones so far, a history that is a step further.
    std::set<std::string_view> turned;
    // A history may lack another step of as many, so that no count and no length tells.
    if (which_ == "optimizer") turned = with_histories(group_.tensors);
    for (const tensor_distance& one : group_.tensors) {
      const bool beside = which_ == "buffers" || which_ == "other";
      if (!is_code(one.judged) || !beside) continue;
      if (is_plain_count(one.path) || passes(one.l2, one.excess, limits_for(one))) continue;
      turned.insert(object_of(one.path));
    }
    take_other_forms(measurement_.noise, which_, turned);
    take_other_forms(measurement_.rough, which_, turned);
    for (const tensor_distance& one : group_.tensors) {
      const own_noise own = look_up(noise, one.path);
      if (one.judged == judged_as::unmoved) {
        judge_still(rule, one, std::max(own.l2, look_up(rough, one.path).l2),
                    look_up(context_.tensor_share, one.path));
        continue;
      }
      limits by = limits_for(one);
      const bool follows = !is_code(one.judged) && is_within(turned, one.path);
      if (one.judged == judged_as::steady) by.far = unaccused;  // noise may seem steady
      if (follows) by.far = anywhere;
      if (passes(one.l2, one.excess, by)) {
        add(one);
        continue;
      }
      const auto first = context_.noisy_at_first.find(one.path);
      const bool proven = first != context_.noisy_at_first.end();
      double loud = own.share > slack_ * context_.cap ? own.l2 : 0;
      if (proven) loud = std::max(loud, first->second.l2);
      const double safety = context_.options->safety;
      loud *= slack_ * (proven ? safety : std::min(safety, safety_of_unproven(one.count)));
      const bool may_be_noise = rule_enabled("replay.tolerance_cap") && !is_code(one.judged);
      if (may_be_noise && (one.rounding_only || within(one.l2, loud))) {
        if (!proven) {
          unproven += one.count;
          doubtful = &one;
        }
        out.all = false;
        continue;
      }
      const bool worse = !out_.problem || out_.problem->result != outcome::reject;
      if (out_.problem && is_settled(one.l2, by)) {
        out_.near = false;  // and hides nothing that repeats decide
      } else if (worse) {
        too_far(rule, one.path, one.l2, one.excess, by);
      }
      if (follows) {
        out.all = false;
      } else {
        add(one);
      }
    }
    if (!out_.problem && unproven > excused_share * group_.count) {
      problem("replay.tolerance_cap", outcome::inconclusive,
              doubtful->path + " is noise to honest repeats, and with it " +
                  percent(std::min(1.0, unproven / group_.count)) + " of the " + name_ +
                  ", so that the cap of the job tells nothing apart" + remedy_of_noise);
    }
    return out;
  }

  // Where no gradient is, only rounding and what repeats show there too; what those of other
  // segments show (an optimizer that mixes elements) up to the cap. Where all of a tensor's
  // gradients are rounding errors (a bias in front of a norm), a sum of them may be 0 here and not
  // there: what the first segment shows of such an element. Beyond that nobody is accused: a neuron
  // that fires on another machine alone gives a gradient there.
  void judge_still(std::string_view rule, const tensor_distance& one, double noise, double share) {
    const double update = update_of(one);
    const bool known = update > 0 && within(one.l2, context_.cap * update);
    if (known) noise = std::max(noise, share * update);
    const std::string whole = one.path.substr(0, one.path.size() - where_still.size());
    noise = std::max(noise, look_up(context_.noisy_at_first, whole).still * std::sqrt(one.count));
    const double tolerance = context_.options->safety * noise;
    if (one.rounding_only || within(one.excess, tolerance) || out_.problem) return;
    problem(rule, outcome::inconclusive,
            one.path + " is " + text(one.excess) + " off, allowed are " + text(tolerance) +
                (has_own_noise(context_, measurement_) ? std::string(remedy)
                                                       : ", but the noise was not measured here"));
    out_.problem->statistic = one.excess;
    out_.problem->threshold = tolerance;
  }

  /// Neither passes nor accuses, whatever repeats show.
  static bool is_settled(double l2, const limits& by) {
    return by.far == anywhere && !within(l2, by.cap);
  }

  void too_far(std::string_view rule, const std::string& what, double l2, double excess,
               const limits& by) {
    out_.settled = is_settled(l2, by);
    if (!within(l2, by.far))
      out_.accuses = std::max(out_.accuses, by.places ? accuser::codes : accuser::floats);
    const bool capped = excess <= 0 || within(excess, by.tolerance);
    out_.near = out_.near && within(l2, by.cap);
    const double tolerance = std::min(by.tolerance, by.cap);
    const std::string reason =
        what == name_ ? beyond(what, l2, tolerance, update_of(group_)) : off(what, l2, tolerance);
    const std::string_view found = capped                   ? "replay.tolerance_cap"
                                   : which_ == "parameters" ? narrowest()
                                                            : rule;
    if (!out_.settled && !has_own_noise(context_, measurement_)) {
      problem(found, outcome::inconclusive, reason + ", but the noise was not measured here");
    } else if (!out_.settled && !noise_is_finite(measurement_, which_)) {
      problem("transcript.finite", outcome::inconclusive,
              reason + ", but an honest repeat is not finite, so the noise is not known");
    } else if (within(l2, by.far)) {
      problem(found, outcome::inconclusive,
              reason + ", and honest machines may differ " +
                  (by.far >= unaccused ? "there" : "by up to " + text(by.far)) + remedy);
    } else if (!measurement_.other_arithmetic) {
      problem(found, outcome::inconclusive,
              reason + ", but no repeat could run in another arithmetic here" + remedy);
    } else {
      problem(found, outcome::reject, reason);
    }
    out_.problem->statistic = l2;
    out_.problem->threshold = tolerance;
  }

  // Which comparison of the literature would have missed it.
  std::string_view narrowest() const {
    if (chord(group_) * update_of(group_) <= out_.tolerance) return "replay.magnitude";
    if (group_.l2 <= context_.cap * group_.weight_l2) return "replay.update_relative";
    return "replay.parameters";
  }

  const replay_context& context_;
  const segment_measurement& measurement_;
  const std::string& which_;
  const double slack_ = is_next(which_) ? next_slack : 1;
  const std::string name_ = name_of(which_);
  const group_distance& group_;
  group_judgement out_;
};

}  // namespace

double group_judgement::ratio() const noexcept {
  if (distance == 0) return 0;
  if (std::isnan(distance) || std::isnan(tolerance)) return HUGE_VAL;
  return tolerance > 0 ? distance / tolerance : HUGE_VAL;
}

bool is_next(const std::string& which) { return which == "next" || which == "next_buffers"; }

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
