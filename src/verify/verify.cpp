// SPDX-License-Identifier: Apache-2.0
#include <potl/verify.hpp>

#include <algorithm>
#include <chrono>

#include <potl/checks/detail/question.hpp>
#include <potl/checks/model.hpp>
#include <potl/crypto/challenge.hpp>
#include <potl/evidence/detail/ledger.hpp>

namespace potl::detail {
namespace {

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

// Whoever knew a nonce in time knew what it selects.
finding note_of_given_nonce() {
  finding out = note_of(
      "the nonce was given, and not drawn now: to a trainer that knew it before it "
      "committed, the draw was no secret");
  out.details.emplace_back("given_nonce", true);
  return out;
}

// Written before anything is asked, so that an aborted verification counts.
transcript::ledger_memory remembered(const transcript::evidence& run, const verify_options& options,
                                     const std::vector<checks::question>& asked,
                                     std::vector<finding>& findings) {
  if (!run.job_is_own() || !run.committed()) return {};
  const digest job = run.agreed().id();
  const std::string path =
      options.ledger ? *options.ledger : transcript::default_ledger(job).value();
  if (path.empty()) {
    findings.push_back(
        note_of("no ledger was kept: earlier challenges of this job were not repeated, and earlier "
                "commitments not compared"));
    return {};
  }
  std::vector<std::pair<std::string, json_value>> wanted;
  for (const checks::question& one : asked) {
    wanted.emplace_back(one.check->name(), one.check->options());
  }
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

// A workload of C++ may throw anything; only Python's interrupts have to end a verification.
checks::measurement answer(checks::replayer& replays, const checks::request& asked) {
  try {
    return replays.answer(asked);
  } catch (const std::exception&) {
    throw;
  } catch (...) {
    return asked.unanswered(checks::measured::verifier_error,
                            "the workload threw what is no std::exception");
  }
}

}  // namespace

json_value verify(const transcript::evidence& run, checks::any_workload& work,
                  const verify_options& options, std::span<const checks::check_pointer> wanted) {
  const auto seconds_since = [](std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  policy::parse(checks::options_json(options.policy)).value();
  if (options.timeout && !(*options.timeout > 0)) {
    throw exception({errc::usage, "timeout is " + std::to_string(*options.timeout),
                     "give seconds above 0, or none"});
  }
  const auto begin = std::chrono::steady_clock::now();
  const digest nonce = nonce_of(options);
  report_context context;
  context.nonce = nonce.hex();
  context.software = options.software;
  context.reproduce = options.reproduce;
  std::vector<finding> findings = run.findings();
  std::vector<checks::question> asked;
  for (const checks::check_pointer& one : wanted) asked.push_back({one, nonce, false, {}});
  const transcript::ledger_memory known = remembered(run, options, asked, findings);
  if (options.nonce) findings.push_back(note_of_given_nonce());
  std::vector<std::string> unknown;
  const checks::run_view view = checks::view_of(run);
  // Nobody has asked for states that the trainer may store on demand: they are derived here.
  checks::replayer replays(run, work, {options.timeout, true});
  const bool rejected = std::any_of(findings.begin(), findings.end(), [](const finding& one) {
    return one.result == outcome::reject;
  });
  const std::vector<checks::question> questions =
      checks::planned(checks::with_earlier(std::move(asked), known, &unknown), view, rejected);
  for (const std::string& name : unknown) {
    findings.push_back(note_of("the check " + name +
                               ", asked in an earlier verification, is not known here and was not "
                               "repeated"));
  }
  if (rejected) {
    findings.push_back(note_of("the record itself is rejected, so that nothing was recomputed"));
  }

  bool settled = false;
  const std::vector<checks::request> requests = checks::distinct_requests(questions);
  std::vector<checks::measurement> measured;
  for (const checks::request& one : requests) {
    if (settled) break;
    measured.push_back(answer(replays, one));
    settled = checks::settles(questions, view, measured.back());
  }
  if (measured.size() < requests.size()) {
    findings.push_back(note_of("what was seen rejects the run, so that " +
                               std::to_string(requests.size() - measured.size()) +
                               " more requests were not looked at"));
  }
  const auto more = [&](const std::vector<checks::request>& again) {
    std::vector<checks::measurement> out;
    for (const checks::request& one : again) out.push_back(answer(replays, one));
    return out;
  };
  for (const checks::question& one : questions) {
    const std::vector<checks::measurement> answers = checks::answers_to(one, view, measured, more);
    for (finding& found : checks::judged(one, view, answers)) findings.push_back(std::move(found));
    double spent = 0;
    for (const checks::measurement& each : answers) spent += each.spent();
    context.costs.emplace_back(one.check->name(), spent);
    context.checks.emplace_back(one.check->name(), one.check->options());
  }
  const auto model =
      options.model.empty() ? std::nullopt : std::optional<std::string>(options.model);
  for (finding& found : checks::judge_model(run, model)) findings.push_back(std::move(found));
  context.seconds = seconds_since(begin);
  return make_report(&view, std::move(findings), options.policy, context);
}

}  // namespace potl::detail
