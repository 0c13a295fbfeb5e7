// SPDX-License-Identifier: Apache-2.0
#include <potl/report.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include <potl/checks/check.hpp>
#include <potl/core/detail/utf8.hpp>
#include <potl/statistics/detail/soundness.hpp>

#include "verify/report_answer.hpp"

namespace potl {
namespace {

constexpr std::size_t timeline_points = 1000;
constexpr std::array cheat_fractions{0.01, 0.05, 0.1, 0.2};

json_value number(double value) { return std::isfinite(value) ? json_value(value) : json_value(); }

// Records may claim steps beyond what JSON can carry.
json_value whole(std::uint64_t value) {
  return std::min(value, static_cast<std::uint64_t>(json_max_integer));
}

json_value optional(const std::optional<double>& value) {
  return value ? number(*value) : json_value();
}

json_value optional(const std::optional<std::uint64_t>& value) {
  return value ? whole(*value) : json_value();
}

// Reasons quote names that a prover chose.
json_value safe_text(const std::string& text) {
  if (is_utf8(text)) return text;
  std::string out;
  for (const char c : text) out += c >= ' ' && c < 127 ? c : '?';
  return out;
}

json_value finding_json(const finding& one) {
  json_value details;
  details = json_value::of({});
  for (const auto& [name, value] : one.details) {
    details.set(is_utf8(name) ? name : "?", safe_text(to_string(value)));
  }
  return json_value::of({{"check", one.check},
                         {"rule", one.rule},
                         {"result", to_string(one.result)},
                         {"reason", safe_text(one.reason)},
                         {"first_step", optional(one.first_step)},
                         {"last_step", optional(one.last_step)},
                         {"statistic", optional(one.statistic)},
                         {"threshold", optional(one.threshold)},
                         {"error_probability", optional(one.error_probability)},
                         {"details", std::move(details)}});
}

json_value::array replays_json(const std::vector<finding>& findings) {
  json_value::array out;
  for (const finding& one : findings) {
    const auto* why = one.detail<std::string>("why");
    const auto* status = one.detail<std::string>("status");
    if (one.check != "replay" || why == nullptr || status == nullptr) continue;
    const bool* equal = one.detail<bool>("equal");
    const std::uint64_t first = one.first_step.value_or(1);
    out.push_back(json_value::of({{"start", whole(first - 1)},
                                  {"end", whole(one.last_step.value_or(first))},
                                  {"why", *why},
                                  {"status", *status},
                                  {"equal", equal != nullptr && *equal},
                                  {"fits", one.result == outcome::pass},
                                  {"ratio", optional(one.statistic)}}));
  }
  return out;
}

json_value reach_json(const std::optional<reach_strength>& reach) {
  if (!reach) return {};
  return json_value::of({{"factor", number(reach->factor)},
                         {"false_segments", whole(reach->false_segments)},
                         {"probability", number(reach->probability)},
                         {"displacement", number(reach->displacement)}});
}

json_value strength_json(const replay_strength& reached,
                         const std::optional<reach_strength>& reach) {
  json_value::array table;
  for (const double fraction : cheat_fractions) {
    if (reached.segments == 0) break;
    table.push_back(
        json_value::of({{"cheat_fraction", fraction},
                        {"bad_segments", statistics::packed_units(reached.segments, fraction)},
                        {"probability", number(reached.probability(fraction))}}));
  }
  return json_value::of({{"segments", reached.segments},
                         {"drawn_from", reached.pool},
                         {"sampled", reached.sampled},
                         {"table", std::move(table)},
                         {"reach", reach_json(reach)}});
}

// Every n-th step and always the last, so that the shape and both ends stay.
json_value timeline_json(const checks::run_view& run) {
  json_value::array steps, losses;
  const std::size_t count = run.steps.size();
  const std::size_t stride = count / timeline_points + (count % timeline_points != 0);
  for (std::size_t i = 0; i < count; i += stride) {
    const std::size_t at = i + stride >= count ? count - 1 : i;
    steps.push_back(whole(run.steps[at].step));
    losses.push_back(number(run.steps[at].loss));
  }
  return json_value::of({{"step", std::move(steps)}, {"loss", std::move(losses)}});
}

double training_seconds(const checks::run_view& run) {
  double out = 0;
  for (const transcript::step_record& one : run.steps) {
    out += static_cast<double>(one.duration_ns) * 1e-9;
  }
  return out;
}

json_value cost_json(const report_context& context, double training) {
  const auto share = [&](double seconds) {
    return training > 0 ? number(seconds / training) : json_value();
  };
  json_value::array checks;
  for (const auto& [name, seconds] : context.costs) {
    checks.push_back(json_value::of(
        {{"check", name}, {"seconds", number(seconds)}, {"fraction", share(seconds)}}));
  }
  return json_value::of({{"seconds", number(context.seconds)},
                         {"training_seconds", number(training)},
                         {"fraction", share(context.seconds)},
                         {"checks", std::move(checks)}});
}

json_value limits_json(const std::vector<finding>& findings, const standing& where,
                       const report_context& context) {
  std::vector<std::string> names;
  if (!where.guarded) names.emplace_back("transcript");
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const finding& one : findings) add(one.check);
  for (const auto& [name, options] : context.checks) add(name);
  json_value::array out;
  for (const std::string& name : names) {
    const auto check = checks::find_check(name);
    if (check == nullptr) continue;
    for (const std::string& text : check->cannot_see) {
      out.push_back(json_value::of({{"check", name}, {"text", text}}));
    }
  }
  return out;
}

json_value model_json(const std::vector<finding>& findings) {
  json_value digest, file, delivered = false;
  for (const finding& one : findings) {
    if (one.check != "model") continue;
    if (const auto* found = one.detail<std::string>("model_digest")) digest = *found;
    if (const auto* found = one.detail<std::string>("sha256")) file = *found;
    if (one.detail<bool>("delivered") != nullptr) delivered = one.result == outcome::pass;
  }
  return json_value::of({{"digest", std::move(digest)},
                         {"delivered", std::move(delivered)},
                         {"sha256", std::move(file)}});
}

json_value job_json(const checks::run_view& run) {
  const transcript::job& agreed = run.agreed;
  json_value trainer;
  if (agreed.trainer) trainer = agreed.trainer->hex();
  return json_value::of({{"id", run.job_id.hex()},
                         {"own", run.job_is_own},
                         {"trainer", std::move(trainer)},
                         {"arithmetic", safe_text(agreed.arithmetic)},
                         {"steps", whole(agreed.steps)},
                         {"epochs", whole(agreed.epochs)},
                         {"samples", whole(agreed.data_count)}});
}

json_value document_of(const checks::run_view* run, const standing& where,
                       std::vector<finding> findings, const policy& wanted,
                       const report_context& context) {
  findings = weigh(std::move(findings));
  const judgement judged = judge(findings, where, wanted);
  // Those that decided come first; within a kind the order of the checks stays.
  const auto order = [](const finding& one) {
    switch (one.result) {
      case outcome::reject: return 0;
      case outcome::inconclusive: return detail::may_reject(one) ? 1 : 3;
      case outcome::pass: return 2;
      case outcome::note: break;
    }
    return 4;
  };
  std::stable_sort(findings.begin(), findings.end(),
                   [&](const finding& a, const finding& b) { return order(a) < order(b); });

  json_value::array listed, asked, reasons;
  for (const finding& one : findings) listed.push_back(finding_json(one));
  for (const auto& [name, options] : context.checks) {
    asked.push_back(json_value::of({{"check", name}, {"options", options}}));
  }
  for (const std::string& reason : judged.reasons) reasons.push_back(safe_text(reason));
  const double training = run == nullptr ? 0 : training_seconds(*run);
  json_value::array replays = replays_json(findings);
  const detail::answer_facts facts{run, where, wanted, judged.result, replays, context};
  json_value looked_at = detail::looked_at_json(findings, facts);
  json_value next = detail::next_json(findings, facts);

  json_value out =
      json_value::of({{"format", "potl-report-v1"},
                      {"software", context.software},
                      {"verdict", to_string(judged.result)},
                      {"exit_code", exit_code(judged.result)},
                      {"answer", detail::answer_of(findings, where, judged.result)},
                      {"looked_at", std::move(looked_at)},
                      {"next", std::move(next)},
                      {"sentence", safe_text(judged.sentence)},
                      {"reasons", std::move(reasons)},
                      {"nonce", context.nonce},
                      {"reproduce", safe_text(context.reproduce)},
                      {"checks", std::move(asked)},
                      {"findings", std::move(listed)},
                      {"strength", strength_json(strength_of(findings), reach_of(findings))},
                      {"replays", std::move(replays)},
                      {"cost", cost_json(context, training)},
                      {"limits", limits_json(findings, where, context)},
                      {"model", model_json(findings)}});
  if (run != nullptr) {
    out.set("job", job_json(*run));
    out.set("timeline", timeline_json(*run));
    json_value root, size;
    if (run->committed) {
      root = run->commitment.hex();
      size = whole(run->records);
    }
    out.set("commitment", json_value::of({{"root", std::move(root)}, {"size", std::move(size)}}));
  }
  return out;
}

}  // namespace

result<report_context> report_context::parse(const json_value& from) {
  report_context out;
  if (from.type() == json_value::kind::null) return out;
  const auto wrong = [](std::string_view name) {
    return error{errc::usage, "context: \"" + std::string(name) + "\" has the wrong type", ""};
  };
  const status known =
      from.root().only({"nonce", "reproduce", "software", "seconds", "costs", "checks"});
  if (!known) return error{errc::usage, "context: " + known.why().message, ""};
  const auto as_number = [](const json_value& value) -> std::optional<double> {
    if (const auto* whole = value.if_integer()) return static_cast<double>(*whole);
    if (const auto* real = value.if_number()) return *real;
    return std::nullopt;
  };
  const std::pair<std::string_view, std::string*> texts[] = {
      {"nonce", &out.nonce}, {"reproduce", &out.reproduce}, {"software", &out.software}};
  for (const auto& [name, to] : texts) {
    const json_value* value = from.find(name);
    if (value == nullptr) continue;
    if (value->if_string() == nullptr) return wrong(name);
    *to = *value->if_string();
  }
  if (const json_value* value = from.find("seconds")) {
    if (!as_number(*value)) return wrong("seconds");
    out.seconds = *as_number(*value);
  }
  if (const json_value* value = from.find("costs")) {
    if (value->if_object() == nullptr) return wrong("costs");
    for (const json_member& member : *value->if_object()) {
      if (!as_number(member.value)) return wrong("costs");
      out.costs.emplace_back(member.name, *as_number(member.value));
    }
  }
  if (const json_value* value = from.find("checks")) {
    if (value->if_array() == nullptr) return wrong("checks");
    for (const json_value& one : *value->if_array()) {
      const json_value* name = one.find("check");
      const json_value* options = one.find("options");
      if (name == nullptr || name->if_string() == nullptr) return wrong("checks");
      out.checks.emplace_back(*name->if_string(),
                              options == nullptr ? json_value::of({}) : *options);
    }
  }
  return out;
}

json_value make_report(const checks::run_view* run, std::vector<finding> findings,
                       const policy& wanted, const report_context& context) {
  standing where;
  if (run != nullptr) where = {true, run->job_is_own, run->committed};
  return document_of(run, where, std::move(findings), wanted, context);
}

json_value make_guarded_report(const transcript::job& agreed,
                               const checks::spot_check_result& session,
                               std::vector<finding> findings, const report_context& context) {
  std::vector<transcript::step_record> steps(session.entries.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps[i].step = session.first_step + i;
    steps[i].loss = session.entries[i].loss;
  }
  if (!steps.empty()) {
    // What the training took, in the only place that a record has for it.
    steps.front().duration_ns = static_cast<std::uint64_t>(1e9 * session.seconds);
  }
  checks::run_view view;
  view.agreed = agreed;
  view.job_id = agreed.id();
  view.job_is_own = true;
  view.steps = steps;
  const standing where{.has_run = true, .job_is_own = true, .committed = false, .guarded = true};
  return document_of(&view, where, std::move(findings), {}, context);
}

}  // namespace potl
