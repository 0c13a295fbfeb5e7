// SPDX-License-Identifier: Apache-2.0
#include <potl/policy.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include <potl/checks/check.hpp>
#include <potl/checks/detail/reach.hpp>
#include <potl/core/rules.hpp>
#include <potl/statistics/detail/soundness.hpp>
#include <potl/statistics/displacement.hpp>

#include "checks/text.hpp"
#include "core/counted.hpp"
#include "verify/report_answer.hpp"

namespace potl {

bool detail::may_reject(const finding& one) {
  const auto check = checks::find_check(one.check);
  return check == nullptr || check->may_reject;
}

namespace {

using checks::percent;
using checks::text;
using detail::may_reject;

bool is_random_summary(const finding& one) {
  return one.check == "replay" && one.rule == "replay.random_segments";
}

// What a summary of random segments says, if it says all of it.
std::optional<replay_strength> draw_of(const finding& summary) {
  const auto* segments = summary.detail<std::uint64_t>("segments");
  const auto* pool = summary.detail<std::uint64_t>("pool");
  const auto* judged = summary.detail<std::uint64_t>("judged");
  if (segments == nullptr || pool == nullptr || judged == nullptr) return std::nullopt;
  const bool* all = summary.detail<bool>("all");
  return replay_strength{*segments, *pool, *judged, all != nullptr && *all};
}

// Of steps that this machine does not repeat, or of what is not relied on because of that.
bool is_unrepeatable(const finding& one) {
  const bool* says = one.detail<bool>("unrepeatable");
  return says != nullptr && *says;
}

bool recomputes(const finding& one) {
  const auto check = checks::find_check(one.check);
  return check != nullptr && check->asks;
}

bool is_needed(const finding& one) {
  const auto check = checks::find_check(one.check);
  return check == nullptr || check->is_needed;
}

// What a reader should hear first: broken records explain everything behind them.
int rank(const finding& one) {
  if (one.rule.starts_with("transcript.chain")) return 0;
  if (one.rule.starts_with("agreed.")) return 1;
  const auto check = checks::find_check(one.check);
  return check == nullptr ? checks::check_info{}.rank : check->rank;
}

const finding* first_rejection(std::span<const finding> findings) {
  const finding* out = nullptr;
  for (const finding& one : findings) {
    if (one.result != outcome::reject || !may_reject(one)) continue;
    if (out == nullptr || rank(one) < rank(*out)) out = &one;
  }
  return out;
}

std::string capitalised(std::string sentence) {
  if (!sentence.empty() && sentence[0] >= 'a' && sentence[0] <= 'z') {
    sentence[0] = static_cast<char>(sentence[0] - 'a' + 'A');
  }
  return sentence;
}

std::vector<std::string> unjudged(std::span<const finding> findings) {
  std::vector<std::string> out;
  for (const finding& one : findings) {
    // A rejection that is not relied on is no acceptance, whichever check it is of.
    const bool counts = is_needed(one) || is_unrepeatable(one);
    if (one.result == outcome::inconclusive && counts) out.push_back(one.reason);
  }
  return out;
}

const finding* guarded_to_its_end(std::span<const finding> findings) {
  const auto found = std::find_if(findings.begin(), findings.end(), [](const finding& one) {
    return one.check == "spot_check" && one.rule == "spot_check.gradients" &&
           one.result == outcome::pass && one.detail<double>("displacement") != nullptr;
  });
  return found == findings.end() ? nullptr : &*found;
}

// What stands between a training that a trusted side guarded and its acceptance.
std::vector<std::string> guarded_obstacles(std::span<const finding> findings) {
  std::vector<std::string> out = unjudged(findings);
  if (out.empty() && guarded_to_its_end(findings) == nullptr) {
    out.emplace_back("the training did not reach its end under the guard");
  }
  return out;
}

std::vector<std::string> obstacles(std::span<const finding> findings, const standing& where,
                                   const policy& wanted) {
  if (where.guarded) return guarded_obstacles(findings);
  std::vector<std::string> out;
  if (!where.has_run) out.emplace_back("the run could not be read");
  if (!where.job_is_own) {
    out.emplace_back(
        "no job of the verifier's own was given, so what was agreed is only the "
        "prover's word");
  }
  if (!where.committed) {
    out.emplace_back("there is no valid commitment, so the record could still be changed");
  }
  for (std::string& reason : unjudged(findings)) out.push_back(std::move(reason));
  if (!rule_enabled("replay.random_segments")) return out;
  const auto draws = [](const finding& one) { return is_random_summary(one) && draw_of(one); };
  if (std::none_of(findings.begin(), findings.end(), draws)) {
    out.emplace_back(
        "no segment was replayed at random, so nothing shows that the recorded "
        "training happened");
    return out;
  }
  const replay_strength reached = strength_of(findings);
  const std::uint64_t needed = segments_needed(reached, wanted);
  if (reached.seen() >= reached.pool || reached.seen() >= needed) return out;
  std::string few =
      text(reached.sampled) + " random segments were judged, the policy asks for " + text(needed);
  if (wanted.probability > 0) {
    few += " (to see false transitions in " + percent(wanted.cheat_fraction) +
           " of the segments with probability " + text(wanted.probability) + ")";
  }
  out.push_back(std::move(few));
  return out;
}

std::string accepted_sentence(std::span<const finding> findings, const standing& where) {
  if (where.guarded) {
    return "The model was trained as agreed, as far as the guard looked: " +
           guarded_to_its_end(findings)->reason;
  }
  const replay_strength reached = strength_of(findings);
  const std::string drawn = text(reached.sampled) + " of " + text(reached.segments);
  std::string out = "The run was trained as agreed, as far as this verification looked: ";
  if (reached.seen() >= reached.pool) {
    out += "every segment was trained again (" + drawn + " were drawn at random)";
  } else {
    out += drawn + " segments were drawn at random and replayed, beside the first and the last";
    const double seen = reached.probability(0.05);
    out += ". False transitions in 5 % of the segments would have been seen with probability " +
           text(seen);
    if (!(seen >= 0.5)) out += ", so more likely than not they would have been missed";
    if (const auto reach = reach_of(findings)) {
      const bool is_one = reach->false_segments == 1;
      out += ". With probability " + text(reach->probability) + " at most " +
             counted(reach->false_segments, "transition") +
             (is_one ? " is false; by itself it moves" : " are false; by themselves they move") +
             " the weights at most " + text(reach->displacement) +
             " times as far as the training did";
    } else {
      out += ". Nothing bounds how far one of them carries the weights";
    }
  }
  return out + ".";
}

}  // namespace

std::span<const checks::field<policy>> policy::fields() {
  using row = checks::field<policy>;
  // clang-format off
  static const std::array table{
      row{"min_random_segments", &policy::min_random_segments, 1, 1e9, "",
          "randomly drawn segments that must have been judged, at least"},
      row{"probability", &policy::probability, 0, 0.999999999, "",
          "probability with which false transitions in cheat_fraction of the segments must have been seen; 0: no goal"},
      row{"cheat_fraction", &policy::cheat_fraction, 1e-9, 1, "",
          "share of the segments that are false"},
  };
  // clang-format on
  return table;
}

result<policy> policy::parse(const json_value& from) {
  return checks::parse_options("policy", fields(), from);
}

policy policy::for_detection(double probability, double cheat_fraction) {
  policy out;
  out.probability = probability;
  out.cheat_fraction = cheat_fraction;
  return out;
}

std::uint64_t policy::samples(std::uint64_t segments) const noexcept {
  const std::uint64_t out = statistics::samples_for(segments, probability, cheat_fraction);
  return std::min(std::max(min_random_segments, out), segments);
}

double replay_strength::probability(double cheat_fraction) const noexcept {
  return statistics::detection_without_replacement(
      pool, statistics::packed_units(segments, cheat_fraction), seen());
}

std::uint64_t segments_needed(replay_strength of, const policy& wanted) {
  std::uint64_t low = std::min(wanted.min_random_segments, of.pool);
  std::uint64_t high = of.pool;
  while (low < high) {
    of.sampled = low + (high - low) / 2;
    if (of.probability(wanted.cheat_fraction) >= wanted.probability) {
      high = of.sampled;
    } else {
      low = of.sampled + 1;
    }
  }
  return low;
}

replay_strength strength_of(std::span<const finding> findings) {
  // Repeated earlier challenges have summaries of their own, behind the present one: the strongest
  // single draw is what the present verdict may claim.
  replay_strength out;
  for (const finding& one : findings) {
    if (!is_random_summary(one)) continue;
    const std::optional<replay_strength> drawn = draw_of(one);
    if (!drawn || (out.segments != 0 && drawn->seen() <= out.seen())) continue;
    out = *drawn;
  }
  return out;
}

std::optional<reach_strength> reach_of(std::span<const finding> findings) {
  const replay_strength drawn = strength_of(findings);
  for (const finding& one : findings) {
    if (one.rule != "replay.reach" || one.result != outcome::pass) continue;
    const auto* limit = one.detail<double>("limit");
    const auto* travelled = one.detail<double>("travelled");
    if (limit == nullptr || travelled == nullptr || drawn.segments == 0) continue;
    if (!std::isfinite(*limit) || !(*travelled > 0)) continue;
    const auto* stretches = one.detail<std::uint64_t>("stretches");
    if (stretches == nullptr) continue;
    reach_strength out;
    out.factor = one.threshold.value_or(0);
    out.probability = checks::reach_probability;
    out.false_segments =
        statistics::unseen(drawn.pool, drawn.seen(), *limit, out.probability).units;
    // Several false segments of a stretch lead no further than it does.
    const auto far = static_cast<double>(std::min(out.false_segments, *stretches));
    out.displacement = far * *limit / *travelled;
    return out;
  }
  return std::nullopt;
}

judgement judge(std::span<const finding> findings, const standing& where, const policy& wanted) {
  judgement out;
  if (const finding* bad = first_rejection(findings)) {
    out.result = verdict::rejected;
    out.sentence =
        "There is evidence that this run was not trained as agreed: " + bad->reason + ".";
    return out;
  }
  out.reasons = obstacles(findings, where, wanted);
  if (out.reasons.empty()) {
    out.result = verdict::accepted;
    out.sentence = accepted_sentence(findings, where);
  } else {
    out.sentence = capitalised("the run could not be judged: " + out.reasons.front() + ".");
  }
  return out;
}

std::vector<finding> weigh(std::vector<finding> findings) {
  const bool repeats = std::none_of(findings.begin(), findings.end(), is_unrepeatable);
  for (finding& one : findings) {
    if (one.result != outcome::reject) continue;
    if (!may_reject(one)) {
      one.result = outcome::note;
      one.reason = "suspicious: " + one.reason;
    } else if (!repeats && recomputes(one)) {
      one.result = outcome::inconclusive;
      one.reason =
          "not to be relied on, as this machine does not repeat the agreed steps: " + one.reason;
      one.details.emplace_back("unrepeatable", true);
    }
  }
  return findings;
}

int exit_code(verdict what) noexcept {
  switch (what) {
    case verdict::accepted: return 0;
    case verdict::rejected: return 1;
    case verdict::inconclusive: break;
  }
  return 3;
}

}  // namespace potl
