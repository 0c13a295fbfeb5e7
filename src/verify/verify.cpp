// SPDX-License-Identifier: Apache-2.0
#include <potl/verify.hpp>

#include <algorithm>
#include <chrono>

#include <potl/checks/detail/question.hpp>
#include <potl/checks/detail/verifier_notes.hpp>
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

// Written before anything is asked, so that an aborted verification counts.
transcript::ledger_memory remembered(const transcript::evidence& run, const verify_options& options,
                                     const std::vector<checks::question>& asked,
                                     checks::verifier_work& done, std::vector<finding>& findings) {
  if (!run.job_is_own() || !run.committed()) return {};
  const digest job = run.agreed().id();
  const std::string path =
      options.ledger ? *options.ledger : transcript::default_ledger(job).value();
  if (path.empty()) return {};
  done.ledger = path;
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
  done.verified_before = !known.commitments.empty();
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
  checks::verifier_work done;
  done.nonce_given = options.nonce.has_value();
  const transcript::ledger_memory known = remembered(run, options, asked, done, findings);
  const checks::run_view view = checks::view_of(run);
  // Nobody has asked for states that the trainer may store on demand: they are derived here.
  checks::replayer replays(run, work, {options.timeout, true});
  done.rejected = std::any_of(findings.begin(), findings.end(),
                              [](const finding& one) { return one.result == outcome::reject; });
  const std::vector<checks::question> questions = checks::planned(
      checks::with_earlier(std::move(asked), known, &done.unknown), view, done.rejected);

  bool settled = false;
  const std::vector<checks::request> requests = checks::distinct_requests(questions);
  std::vector<checks::measurement> measured;
  for (const checks::request& one : requests) {
    if (settled) break;
    measured.push_back(answer(replays, one));
    settled = checks::settles(questions, view, measured.back());
  }
  done.not_looked_at = requests.size() - measured.size();
  for (finding& note : checks::verifier_notes(run, done)) findings.push_back(std::move(note));
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
