// SPDX-License-Identifier: Apache-2.0
#include <potl/verify.hpp>

#include <algorithm>
#include <chrono>
#include <functional>

#include <potl/checks/model.hpp>
#include <potl/crypto/challenge.hpp>
#include <potl/transcript/ledger.hpp>

#include "verify_fulfil.hpp"

namespace potl::detail {
namespace {

bool rejects(const std::vector<finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const finding& one) { return one.result == outcome::reject; });
}

class driver {
 public:
  driver(const transcript::evidence& run, workload_handle& work)
      : view_(checks::view_of(run)), replays_(run, work) {}

  std::vector<finding> operator()(const checks::telemetry_options& options) {
    return checks::judge_telemetry(view_, options);
  }

  std::vector<finding> operator()(const checks::pev_options& options) {
    const auto plan = checks::plan_pev(view_, options, nonce_).value();
    std::vector<checks::loss_measurement> losses;
    std::vector<checks::subset_loss_measurement> subsets;
    const auto judged = [&](std::span<const checks::loss_measurement> of_losses,
                            std::span<const checks::subset_loss_measurement> of_subsets) {
      return checks::judge_pev(view_, options, nonce_, of_losses, of_subsets).value();
    };
    for (const auto& request : plan.losses) {
      if (settled_) break;
      losses.push_back(replays_.fulfil(request));
      settle(losses.back(), [&] { return judged({&losses.back(), 1}, {}); });
    }
    for (const auto& request : plan.subsets) {
      if (settled_) break;
      subsets.push_back(replays_.fulfil(request));
      settle(subsets.back(), [&] { return judged({}, {&subsets.back(), 1}); });
    }
    return checks::judge_pev(view_, options, nonce_, losses, subsets).value();
  }

  std::vector<finding> operator()(const checks::replay_options& options) {
    const auto plan = checks::plan_replay(view_, options, nonce_).value();
    std::vector<checks::segment_measurement> measured;
    for (const auto& request : plan) {
      if (settled_) break;
      measured.push_back(replays_.fulfil(view_, request));
      const auto& last = measured.back();
      settle(
          last,
          [&] {
            return checks::judge_replay(view_, options, nonce_, {&last, 1}).value();
          },
          view_.agreed.arithmetic != "stock" && !last.digest_equal);
    }
    if (settled_) return checks::judge_replay(view_, options, nonce_, measured).value();
    for (const auto& request : checks::plan_noise(view_, options, measured)) {
      for (auto& one : measured) {
        if (one.request.start != request.start || one.request.superseded != request.superseded ||
            one.request.branch != request.branch) {
          continue;
        }
        one = replays_.fulfil(view_, request);
      }
    }
    return checks::judge_replay(view_, options, nonce_, measured).value();
  }

  std::vector<finding> ask(const any_check& one, const digest& nonce) {
    nonce_ = nonce;
    return std::visit(std::ref(*this), one);
  }

  const checks::run_view& view() const { return view_; }

 private:
  // Whether one measurement rejects the run, whatever the others will be: then nothing more is
  // replayed. No noise excuses a state that is withheld, tampered with or not finite, nor other
  // bits where replay is exact.
  template <class Measurement, class Judge>
  void settle(const Measurement& one, Judge judge, bool differs = false) {
    if (one.status == checks::measured::verifier_error) return;
    if (one.status == checks::measured::ok && one.not_finite.empty() && !differs) return;
    settled_ = rejects(judge());
  }

  checks::run_view view_;
  fulfiller replays_;
  digest nonce_;
  bool settled_ = false;
};

template <class Options>
json_value options_json(const Options& options) {
  json_value out = json_value::of({});
  for (const checks::field_info& row : checks::describe(Options::fields(), options)) {
    out.set(row.name, row.value);
  }
  return out;
}

const char* name_of(const any_check& one) {
  constexpr const char* names[] = {"telemetry", "pev", "replay"};
  return names[one.index()];
}

json_value options_of(const any_check& one) {
  return std::visit([](const auto& checked) { return options_json(checked); }, one);
}

/// A check under one nonce.
struct question {
  any_check check;
  digest nonce;
};

std::optional<any_check> parse_check(const std::string& name, const json_value& options) {
  if (name == "telemetry") return checks::telemetry_options::parse(options).value();
  if (name == "pev") return checks::pev_options::parse(options).value();
  if (name == "replay") return checks::replay_options::parse(options).value();
  return std::nullopt;  // of a driver that knows more checks
}

// What is asked now, then what was asked before: segments that were drawn for an earlier replay
// join the replay of now, so that each is judged once.
std::vector<question> with_earlier(std::vector<question> asked,
                                   const transcript::ledger_memory& known) {
  std::vector<question> out = std::move(asked);
  const std::size_t now = out.size();
  for (const transcript::ledger_challenge& old : known.challenges) {
    for (const auto& [name, options] : old.checks) {
      const std::optional<any_check> check = parse_check(name, options);
      if (!check) continue;
      checks::replay_options* present = nullptr;
      bool again = true;
      for (std::size_t i = 0; i < now; ++i) {
        if (out[i].check.index() != check->index()) continue;
        again = again && (out[i].nonce != old.nonce || !(options_of(out[i].check) == options));
        if (present == nullptr) present = std::get_if<checks::replay_options>(&out[i].check);
      }
      if (!again) continue;
      if (present == nullptr) {
        out.push_back({*check, old.nonce});
        continue;
      }
      const auto& replay = std::get<checks::replay_options>(*check);
      const std::string draw = old.nonce.hex() + ":" + std::to_string(replay.samples);
      auto& all = present->repeat;
      if (std::find(all.begin(), all.end(), draw) == all.end()) all.push_back(draw);
    }
  }
  return out;
}

digest nonce_of(const verify_options& options) {
  if (!options.nonce) return fresh_nonce();
  if (*options.nonce == digest{}) {
    throw exception({errc::usage, "the nonce is zero, which nobody drew",
                     "leave it out: then it is drawn now, after the commitment"});
  }
  return *options.nonce;
}

finding note_of(std::string reason) {
  finding out;
  out.check = "verifier";
  out.result = outcome::note;
  out.reason = std::move(reason);
  return out;
}

// Written before anything is asked, so that an aborted verification counts.
transcript::ledger_memory remembered(const transcript::evidence& run, const verify_options& options,
                                     const std::vector<question>& asked,
                                     std::vector<finding>& findings) {
  if (!run.job_is_own() || !run.committed()) return {};
  const digest job = run.agreed().id();
  const std::string path =
      options.ledger ? *options.ledger : transcript::default_ledger(job).value();
  if (path.empty()) return {};
  std::vector<std::pair<std::string, json_value>> wanted;
  for (const question& one : asked) wanted.emplace_back(name_of(one.check), options_of(one.check));
  transcript::ledger_memory known =
      transcript::remember(
          path, job, run.commitment_note(),
          transcript::challenge_of(asked.empty() ? digest{} : asked[0].nonce, wanted))
          .value();
  std::vector<std::string> others = known.commitments;
  std::erase(others, run.commitment_note());
  std::vector<finding> compared = run.compare_commitments(others).value();
  for (finding& one : compared) findings.push_back(std::move(one));
  if (!known.commitments.empty()) {
    findings.push_back(
        note_of("this job was verified before: earlier challenges are repeated and "
                "earlier commitments compared (" +
                path + " remembers them)"));
  }
  return known;
}

}  // namespace

json_value verify(const transcript::evidence& run, workload_handle& work,
                  const verify_options& options, std::span<const any_check> wanted) {
  const auto seconds_since = [](std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto begin = std::chrono::steady_clock::now();
  if (run.agreed().store_every != 0 && !run.rejected() && !run.missing_checkpoints().empty()) {
    // Nobody has asked for them, so that their absence must not be held against the trainer.
    throw exception({errc::usage, "the trainer derives challenged states of this job on demand",
                     "let it derive all of them (potl rederive), or use potl challenge"});
  }
  const digest nonce = nonce_of(options);
  report_context context;
  context.nonce = nonce.hex();
  context.software = options.software;
  context.reproduce = options.reproduce;
  std::vector<finding> findings = run.findings();
  std::vector<question> asked;
  for (const any_check& one : wanted) asked.push_back({one, nonce});
  const transcript::ledger_memory known = remembered(run, options, asked, findings);
  driver drive(run, work);
  const bool rejected = rejects(findings);
  if (rejected) {
    findings.push_back(note_of("the record itself is rejected, so that nothing was recomputed"));
  }
  for (const auto& [check, drawn] : with_earlier(std::move(asked), known)) {
    if (rejected && !std::holds_alternative<checks::telemetry_options>(check)) continue;
    const auto started = std::chrono::steady_clock::now();
    for (finding& found : drive.ask(check, drawn)) findings.push_back(std::move(found));
    context.costs.emplace_back(name_of(check), seconds_since(started));
    context.checks.emplace_back(name_of(check), options_of(check));
  }
  const auto model =
      options.model.empty() ? std::nullopt : std::optional<std::string>(options.model);
  for (finding& found : checks::judge_model(run, model)) findings.push_back(std::move(found));
  context.seconds = seconds_since(begin);
  return make_report(&drive.view(), std::move(findings), options.policy, context);
}

}  // namespace potl::detail
