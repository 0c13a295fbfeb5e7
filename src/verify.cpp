// SPDX-License-Identifier: Apache-2.0
#include <potl/verify.hpp>

#include <chrono>
#include <functional>

#include <potl/checks/model.hpp>

#include "verify_fulfil.hpp"

namespace potl::detail {
namespace {

class driver {
 public:
  driver(const transcript::evidence& run, workload_handle& work, const digest& nonce)
      : run_(run), view_(checks::view_of(run)), work_(work), nonce_(nonce) {}

  std::vector<finding> operator()(const checks::telemetry_options& options) {
    return checks::judge_telemetry(view_, options);
  }

  std::vector<finding> operator()(const checks::pev_options& options) {
    const auto plan = checks::plan_pev(view_, options, nonce_).value();
    std::vector<checks::loss_measurement> losses;
    std::vector<checks::subset_loss_measurement> subsets;
    for (const auto& request : plan.losses) losses.push_back(fulfil(run_, work_, request));
    for (const auto& request : plan.subsets) subsets.push_back(fulfil(run_, work_, request));
    return checks::judge_pev(view_, options, nonce_, losses, subsets).value();
  }

  std::vector<finding> operator()(const checks::replay_options& options) {
    const auto plan = checks::plan_replay(view_, options, nonce_).value();
    std::vector<checks::segment_measurement> measured;
    for (const auto& request : plan) measured.push_back(fulfil(run_, view_, work_, request));
    return checks::judge_replay(view_, options, nonce_, measured).value();
  }

  const checks::run_view& view() const { return view_; }

 private:
  const transcript::evidence& run_;
  checks::run_view view_;
  workload_handle& work_;
  digest nonce_;
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
  report_context context;
  context.nonce = options.nonce.hex();
  context.software = options.software;
  context.reproduce = options.reproduce;
  std::vector<finding> findings = run.findings();
  driver drive(run, work, options.nonce);
  if (run.rejected()) {
    finding stopped;
    stopped.check = "verifier";
    stopped.result = outcome::note;
    stopped.reason = "the record itself is rejected, so that nothing was recomputed";
    findings.push_back(std::move(stopped));
  }
  for (const any_check& one : wanted) {
    if (run.rejected() && !std::holds_alternative<checks::telemetry_options>(one)) continue;
    const auto started = std::chrono::steady_clock::now();
    for (finding& found : std::visit(std::ref(drive), one)) findings.push_back(std::move(found));
    context.costs.emplace_back(name_of(one), seconds_since(started));
    context.checks.emplace_back(
        name_of(one), std::visit([](const auto& checked) { return options_json(checked); }, one));
  }
  const auto model =
      options.model.empty() ? std::nullopt : std::optional<std::string>(options.model);
  for (finding& found : checks::judge_model(run, model)) findings.push_back(std::move(found));
  context.seconds = seconds_since(begin);
  return make_report(&drive.view(), std::move(findings), options.policy, context);
}

}  // namespace potl::detail
