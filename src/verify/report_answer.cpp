// SPDX-License-Identifier: Apache-2.0
#include "verify/report_answer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include <potl/checks/check.hpp>

#include "checks/text.hpp"
#include "core/counted.hpp"

namespace potl::detail {
namespace {

using checks::text;

// The shares of the first page, and the one by which a stronger draw is chosen.
constexpr std::array shown_fractions{0.01, 0.05, 0.2};
constexpr double goal_fraction = 0.05;
constexpr std::array goals{0.5, 0.8, 0.95, 0.99};

bool is_exhausted(const replay_strength& reached) { return reached.seen() >= reached.pool; }

std::string member_of(const json_value& one, std::string_view name) {
  const json_value* found = one.find(name);
  return found != nullptr && found->if_string() != nullptr ? *found->if_string() : "";
}

// Segments that were trained to their end; for one reason, or for any. A replay may span several.
std::uint64_t trained(const answer_facts& facts, std::string_view why = "") {
  const std::uint64_t length = facts.run == nullptr ? 0 : facts.run->agreed.segment_steps();
  if (length == 0) return 0;
  std::set<std::uint64_t> out;
  for (const json_value& one : facts.replays) {
    const std::string reason = member_of(one, "why");
    if (member_of(one, "status") != "ok" || reason == "superseded") continue;
    if (!why.empty() && reason != why) continue;
    const auto start = one.root().count("start"), end = one.root().count("end");
    if (!start || !end) continue;
    for (std::uint64_t at = start.value(); at < end.value(); at += length) out.insert(at / length);
  }
  return out.size();
}

// Of one more drawn segment. Largest updates are looked at in proportion to what is drawn.
std::optional<double> seconds_per_segment(const replay_strength& reached,
                                          const answer_facts& facts) {
  double spent = 0, all = 0, steps = 0;
  for (const auto& [name, seconds] : facts.context.costs) {
    all += seconds;
    if (name == "replay") spent += seconds;
  }
  for (const json_value& one : facts.replays) {
    const auto start = one.root().count("start"), end = one.root().count("end");
    if (start && end && member_of(one, "status") == "ok" && end.value() > start.value()) {
      steps += static_cast<double>(end.value() - start.value());
    }
  }
  if (facts.run == nullptr || !(spent > 0) || !(steps > 0) || reached.sampled == 0) return {};
  // Worker processes spend more seconds than the client waits for.
  if (facts.context.seconds > 0 && all > facts.context.seconds) {
    spent *= facts.context.seconds / all;
  }
  const auto length = static_cast<double>(facts.run->agreed.checkpoint_every);
  const double beside =
      static_cast<double>(trained(facts, "top-q")) / static_cast<double>(reached.sampled);
  const double out = spent / steps * length * (1 + beside);
  if (!std::isfinite(out * static_cast<double>(reached.pool))) return {};
  return out;
}

json_value stronger_json(const replay_strength& reached, const policy& wanted, double seconds,
                         double total) {
  std::vector<std::uint64_t> samples{segments_needed(reached, wanted)};
  for (const double goal : goals) {
    samples.push_back(segments_needed(reached, policy::for_detection(goal, goal_fraction)));
  }
  samples.push_back(reached.pool);
  std::sort(samples.begin(), samples.end());
  samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
  std::erase_if(samples, [&](std::uint64_t count) { return count <= reached.sampled; });
  json_value::array out;
  for (const std::uint64_t count : samples) {
    replay_strength then = reached;
    then.sampled = count;
    const double more = static_cast<double>(count - reached.sampled) * seconds;
    json_value::array seen;
    for (const double fraction : shown_fractions) {
      seen.push_back(json_value::of(
          {{"cheat_fraction", fraction}, {"probability", then.probability(fraction)}}));
    }
    out.push_back(json_value::of({{"samples", count},
                                  {"more_segments", count - reached.sampled},
                                  {"more_seconds", more},
                                  {"seconds", total + more},
                                  {"table", std::move(seen)}}));
  }
  return out;
}

// A note of the driver's: it did not draw the nonce itself, after the commitment.
bool is_given_nonce(const finding& one) { return one.detail<bool>("given_nonce") != nullptr; }

constexpr std::string_view not_finite = "transcript.finite";

// The record says so itself, or a gradient that the client computed. Elsewhere it may be a repeat
// of the verifier's that is not finite.
bool diverges(std::span<const finding> findings) {
  return std::any_of(findings.begin(), findings.end(), [](const finding& one) {
    const auto* end = one.detail<std::string>("end");
    const bool recorded =
        one.rule == not_finite && (one.check == "transcript" || one.check == "model");
    return one.result == outcome::inconclusive &&
           (recorded || (end != nullptr && *end == "diverged"));
  });
}

// Random segments that were to be judged, whatever came of it.
std::uint64_t asked_for(std::span<const finding> findings) {
  std::uint64_t out = 0;
  for (const finding& one : findings) {
    if (const auto* asked = one.detail<std::uint64_t>("requested")) out = std::max(out, *asked);
  }
  return out;
}

constexpr std::string_view stays_finite =
    "lower the rates or clip gradients, and in float16 add a scaler.";

// What the reader can do about a run that could not be judged.
void add_remedies(std::span<const finding> findings, const answer_facts& facts,
                  json_value::array& steps) {
  if (facts.run == nullptr || !facts.where.has_run) {
    steps.emplace_back("Ask the trainer for a run directory that can be read, and verify it.");
    return;
  }
  if (!facts.where.job_is_own) {
    steps.emplace_back(
        "Pass your own copy of the job (--job job.json; in C++ evidence_options::client_job).");
  }
  if (!facts.where.committed) {
    steps.emplace_back(
        "Ask the trainer for the commitment, and verify with it (--commitment; in C++ "
        "evidence_options::commitment).");
  }
  const bool diverged = diverges(findings);
  const auto open = std::count_if(findings.begin(), findings.end(), [&](const finding& one) {
    const bool told = diverged && (one.rule == not_finite || one.check == "spot_check");
    return one.result == outcome::inconclusive && may_reject(one) && !told;
  });
  if (open > 0) {
    steps.emplace_back(
        "Read the findings that could not be judged: each says what was missing. Provide it, and "
        "verify again. The guide's page \"When it says inconclusive\" tells how.");
  }
  if (diverged) {
    steps.emplace_back("If your own replays are not finite either, agree on another job: " +
                       std::string(stays_finite));
  }
  const replay_strength reached = strength_of(findings);
  const std::uint64_t needed = segments_needed(reached, facts.wanted);
  if (reached.segments == 0) {
    if (open == 0) steps.emplace_back("Replay segments: verify with the Replay check and a task.");
  } else if (reached.sampled < needed && asked_for(findings) < needed) {
    steps.emplace_back("Replay at least " + counted(needed, "random segment") +
                       " (--replay-samples " + text(needed) + "; in C++ replay_options::samples).");
  }
}

// Whoever mixes up files of two jobs gets this too. A step is named where the records of one log
// are of several jobs, which no mixed-up file is.
bool is_of_another_job(std::span<const finding> findings) {
  return std::any_of(findings.begin(), findings.end(), [](const finding& one) {
    return one.result == outcome::reject && one.rule == "agreed.job" && !one.first_step;
  });
}

// Nothing is wrong with the run: the file that was passed beside it does not fit.
bool is_of_another_model(std::span<const finding> findings) {
  const auto rejects = [](const finding& one) { return one.result == outcome::reject; };
  return std::any_of(findings.begin(), findings.end(), rejects) &&
         std::all_of(findings.begin(), findings.end(), [&](const finding& one) {
           return !rejects(one) || one.rule == "model.delivered";
         });
}

// In an exact arithmetic, which can be repeated in full. What is missing or damaged is not excused
// by what the task keeps.
bool rests_on_replays(std::span<const finding> findings, const answer_facts& facts) {
  const auto otherwise = [](const finding& one) {
    if (one.result != outcome::reject) return false;
    return (one.check != "replay" && one.check != "pev") || one.rule.starts_with("transcript.");
  };
  return facts.run != nullptr && facts.run->agreed.is_exact() &&
         std::none_of(findings.begin(), findings.end(), otherwise);
}

}  // namespace

std::string answer_of(std::span<const finding> findings, const standing& where, verdict result) {
  if (result == verdict::rejected) {
    if (is_of_another_job(findings)) {
      return "Do not pay for this run: it, or its commitment, is of another job than yours. If you "
             "passed the wrong file, this says nothing about the trainer.";
    }
    if (is_of_another_model(findings)) {
      return "Do not pay for this model: it is not what the run ended in. If you passed the wrong "
             "file, this says nothing about the trainer.";
    }
    return "Do not pay for this run: there is evidence that it was not trained as agreed.";
  }
  if (result == verdict::inconclusive) {
    if (where.has_run && where.job_is_own && !where.committed && !where.guarded) {
      return "Do not decide yet: without the trainer's commitment this is an interim look at a "
             "record that can still change.";
    }
    if (diverges(findings)) {
      return "No run with NaN or infinities is accepted. This says nothing for or against the "
             "trainer: the agreed recipe may lead there.";
    }
    return "Do not decide yet: the run could not be judged. This says nothing for or against the "
           "trainer.";
  }
  if (where.guarded) {
    return "You may pay: your own side made every update, and no gradient that it drew was false.";
  }
  const replay_strength reached = strength_of(findings);
  if (is_exhausted(reached)) {
    return "You may pay: every segment was trained again, and all of them are as agreed.";
  }
  std::string out =
      "You may pay: everything that was looked at is as agreed, and as much was looked at as your "
      "policy asks.";
  if (!(reached.probability(goal_fraction) >= 0.5)) {
    out += " False transitions in 5 % of the segments would more likely than not have been missed.";
  }
  return out;
}

json_value looked_at_json(std::span<const finding> findings, const answer_facts& facts) {
  json_value::array out;
  if (facts.where.guarded) {
    out.emplace_back(counted(facts.run->steps.size(), "step") + ", each updated by your own side");
  } else if (facts.run != nullptr) {
    out.emplace_back("the record of " + counted(facts.run->steps.size(), "step"));
  }
  if (const std::uint64_t count = trained(facts); count > 0) {
    const std::uint64_t random = trained(facts, "random");
    std::string again = text(count) + " of " + counted(strength_of(findings).segments, "segment") +
                        ", trained again";
    if (random > 0) again += ": " + text(random) + " drawn at random";
    const bool drawn_now = std::none_of(findings.begin(), findings.end(), is_given_nonce);
    if (random > 0 && facts.where.committed && drawn_now) again += " after the commitment";
    out.emplace_back(std::move(again));
  }
  std::vector<std::string> named;
  for (const finding& one : findings) {
    const bool judged = one.result == outcome::pass || one.result == outcome::reject;
    if (!judged || std::find(named.begin(), named.end(), one.check) != named.end()) continue;
    const auto check = checks::find_check(one.check);
    // Record and replays have been named.
    if (!may_reject(one) || (check != nullptr && check->looks_at.empty())) continue;
    if (one.check == "model" && one.detail<bool>("delivered") == nullptr) continue;
    named.push_back(one.check);
    out.emplace_back(check == nullptr ? "what the check " + one.check + " looks at"
                                      : check->looks_at);
  }
  return out;
}

// After a session of a guarded training.
json_value next_guarded_json(std::span<const finding> findings, const answer_facts& facts) {
  json_value::array steps;
  if (facts.result == verdict::rejected) {
    steps.emplace_back(
        "What was not final was taken back. Go on from there with another worker: train again with "
        "the same folder.");
  } else if (diverges(findings)) {
    steps.emplace_back("Agree on another job: " + std::string(stays_finite));
  } else if (facts.result == verdict::inconclusive) {
    steps.emplace_back(
        "Train again with the same folder: it goes on after the last final step, with the same "
        "worker or another one.");
  } else {
    steps.emplace_back("The weights are your own: take them from the trusted side.");
  }
  return json_value::of({{"steps", std::move(steps)},
                         {"seconds_per_segment", json_value()},
                         {"stronger", json_value::array{}}});
}

json_value next_json(std::span<const finding> findings, const answer_facts& facts) {
  if (facts.where.guarded) return next_guarded_json(findings, facts);
  const replay_strength reached = strength_of(findings);
  json_value::array steps;
  json_value stronger = json_value::array{}, cost;
  if (facts.result == verdict::rejected) {
    if (is_of_another_job(findings)) {
      steps.emplace_back(
          "First check that run, job and commitment belong together (potl inspect, potl job "
          "show).");
    }
    if (is_of_another_model(findings)) {
      steps.emplace_back(
          "First check that the file is the one that the trainer delivered for this run.");
    }
    if (rests_on_replays(findings, facts)) {
      steps.emplace_back(
          "First repeat the run in one go, up to the first difference (potl audit). If there is "
          "none, it was trained as agreed, and your task keeps state that no checkpoint holds, "
          "such as a global count.");
    }
    steps.emplace_back("Send the trainer the findings that reject: they say what does not fit.");
    steps.emplace_back(
        "A file that was damaged or lost can be replaced by an intact one that fits the "
        "commitment; a lost state is trained again by potl rederive. Anything else needs a new "
        "run of a new job: a second commitment for this one rejects.");
  } else if (facts.result == verdict::inconclusive) {
    add_remedies(findings, facts, steps);
  } else if (is_exhausted(reached)) {
    steps.emplace_back("Replay cannot be made stronger: every segment was trained again.");
  }
  if (facts.result != verdict::rejected && !is_exhausted(reached)) {
    if (const auto seconds = seconds_per_segment(reached, facts)) {
      cost = *seconds;
      stronger = stronger_json(reached, facts.wanted, *seconds, facts.context.seconds);
    }
    if (facts.result == verdict::accepted) {
      steps.emplace_back(
          "To see more, verify again with more random segments (--replay-samples; in C++ "
          "replay_options::samples).");
    }
  }
  return json_value::of({{"steps", std::move(steps)},
                         {"seconds_per_segment", std::move(cost)},
                         {"stronger", std::move(stronger)}});
}

}  // namespace potl::detail
