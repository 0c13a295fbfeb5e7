// SPDX-License-Identifier: Apache-2.0
// Checks, verdicts and reports for Python: plan and judge as functions on values.
#include <potl/checks/extra_task_options.hpp>
#include <potl/checks/model.hpp>
#include <potl/checks/pev.hpp>
#include <potl/checks/reach.hpp>
#include <potl/checks/replay.hpp>
#include <potl/checks/state_distance.hpp>
#include <potl/checks/storage_plan.hpp>
#include <potl/checks/telemetry.hpp>
#include <potl/checks/telemetry_sampler.hpp>
#include <potl/numeric/soundness.hpp>
#include <potl/report.hpp>
#include <potl/transcript/evidence.hpp>

#include "bindings.hpp"
#include "extra_task.hpp"
#include "values.hpp"

namespace potl::python {
namespace {

using namespace py::literals;
using checks::run_view;

[[noreturn]] void no_such_check(const std::string& name) {
  throw exception(
      {errc::usage, "there is no check \"" + name + "\"", "checks are telemetry, pev and replay"});
}

py::list rows_of(const std::vector<checks::field_info>& rows) {
  return list_of(rows, [](const checks::field_info& row) {
    return py::dict("name"_a = row.name, "type"_a = row.type, "default"_a = to_python(row.value),
                    "low"_a = row.low, "high"_a = row.high, "choices"_a = row.choices,
                    "doc"_a = row.doc);
  });
}

py::list check_fields(const std::string& name) {
  if (name == "replay") return rows_of(checks::describe(checks::replay_options::fields()));
  if (name == "pev") return rows_of(checks::describe(checks::pev_options::fields()));
  if (name == "telemetry") return rows_of(checks::describe(checks::telemetry_options::fields()));
  if (name == "extra_task") return rows_of(checks::describe(checks::extra_task_options::fields()));
  if (name == "policy") return rows_of(checks::describe(policy::fields()));
  no_such_check(name);
}

template <class Requests>
void append_all(py::list& out, const Requests& requests) {
  for (const auto& one : requests) out.append(dict_of(one));
}

py::list plan_check(const std::string& name, const transcript::evidence& evidence,
                    const py::dict& options, const py::object& nonce, bool screen) {
  const json_value given = to_json(options);
  const digest drawn = to_digest(nonce);
  run_view run = checks::view_of(evidence);
  if (!screen) run.moved = nullptr;
  py::list out;
  if (name == "replay") {
    const auto parsed = checks::replay_options::parse(given).value();
    std::vector<checks::segment_request> plan;
    {
      const py::gil_scoped_release release;
      plan = checks::plan_replay(run, parsed, drawn).value();
    }
    append_all(out, plan);
  } else if (name == "pev") {
    const auto plan =
        checks::plan_pev(run, checks::pev_options::parse(given).value(), drawn).value();
    append_all(out, plan.losses);
    append_all(out, plan.subsets);
  } else if (name == "telemetry") {
    checks::telemetry_options::parse(given).value();  // asks for nothing, refuses wrong options
  } else {
    no_such_check(name);
  }
  return out;
}

py::list screen_reach(const transcript::evidence& evidence) {
  const run_view run = checks::view_of(evidence);
  checks::screening seen;
  {
    const py::gil_scoped_release release;
    seen = checks::screen(run, *run.moved());
  }
  return list_of(seen.stretches, [](const checks::screened& one) {
    return py::dict("start"_a = one.where.start, "end"_a = one.where.end, "ratio"_a = one.ratio,
                    "tensor"_a = one.tensor);
  });
}

py::list plan_noise(const transcript::evidence& evidence, const py::dict& options,
                    const py::iterable& measured) {
  const auto parsed = checks::replay_options::parse(to_json(options)).value();
  const measurements all = measurements_of(measured);
  const run_view run = checks::view_of(evidence);
  py::list out;
  append_all(out, checks::plan_noise(run, parsed, all.segments));
  return out;
}

py::list judge_check(const std::string& name, const transcript::evidence& evidence,
                     const py::dict& options, const py::object& nonce,
                     const py::iterable& measured) {
  const json_value given = to_json(options);
  const digest drawn = to_digest(nonce);
  const measurements all = measurements_of(measured);
  const run_view run = checks::view_of(evidence);
  if (name == "replay") {
    const auto parsed = checks::replay_options::parse(given).value();
    std::vector<finding> found;
    {
      const py::gil_scoped_release release;
      found = checks::judge_replay(run, parsed, drawn, all.segments).value();
    }
    return to_python(found);
  }
  if (name == "pev") {
    const auto parsed = checks::pev_options::parse(given).value();
    return to_python(checks::judge_pev(run, parsed, drawn, all.losses, all.subsets).value());
  }
  if (name == "telemetry") {
    return to_python(checks::judge_telemetry(run, checks::telemetry_options::parse(given).value()));
  }
  no_such_check(name);
}

py::bytes conclude(const transcript::evidence* evidence, const py::iterable& findings,
                   const py::dict& wanted, const py::dict& context) {
  const policy strength = policy::parse(to_json(wanted)).value();
  const report_context known = report_context::parse(to_json(context)).value();
  std::optional<run_view> run;
  if (evidence != nullptr) run = checks::view_of(*evidence);
  const json_value report =
      make_report(run ? &*run : nullptr, findings_of(findings), strength, known);
  return to_bytes(as_bytes_view(canonical_json(report)));
}

void bind_statistics(py::module_& module) {
  module.def("strength", &numeric::strength, py::arg("segments"), py::arg("sampled"),
             py::arg("cheat_fraction"));
  module.def(
      "samples_for",
      [](std::uint64_t segments, double probability, double cheat_fraction) {
        return numeric::samples_for(segments, probability, cheat_fraction);
      },
      py::arg("segments"), py::kw_only(), py::arg("probability"), py::arg("cheat_fraction"));
}

py::dict storage_plan(std::uint64_t steps, double step_seconds, double state_bytes,
                      double budget_bytes, double probability, double cheat_fraction,
                      double read_bytes_per_second, bool rederive) {
  const auto plan =
      checks::plan_storage({steps, step_seconds, state_bytes, budget_bytes, probability,
                            cheat_fraction, read_bytes_per_second, rederive})
          .value();
  py::dict out;
  out["checkpoint_every"] = plan.checkpoint_every;
  out["store_every"] = plan.store_every;
  out["segments"] = plan.segments;
  out["samples"] = plan.samples;
  out["bytes"] = plan.bytes;
  out["verification_fraction"] = plan.verification_fraction;
  out["rederivation_fraction"] = plan.rederivation_fraction;
  return out;
}

void bind_sampler(py::module_& module) {
  using checks::telemetry_sampler;
  const auto quietly = py::call_guard<py::gil_scoped_release>();
  py::class_<telemetry_sampler>(module, "TelemetrySampler", py::module_local())
      .def(py::init<std::string, double>(), py::arg("path"), py::kw_only(),
           py::arg("interval_seconds") = 0.1)
      .def(
          "start", [](telemetry_sampler& self) { require(self.start()); }, quietly)
      .def("mark_step", &telemetry_sampler::mark_step, py::arg("step"), py::arg("epoch"))
      .def(
          "stop", [](telemetry_sampler& self) { require(self.stop()); }, quietly);
}

}  // namespace

void bind_checks(py::module_& module) {
  bind_sampler(module);
  bind_extra_task(module);
  module.def("storage_plan", &storage_plan, py::kw_only(), py::arg("steps"),
             py::arg("step_seconds"), py::arg("state_bytes"), py::arg("budget_bytes"),
             py::arg("probability") = 0.95, py::arg("cheat_fraction") = 0.05,
             py::arg("read_bytes_per_second") = 5e8, py::arg("rederive") = false);
  bind_statistics(module);
  module.def("check_fields", &check_fields, py::arg("check"));
  module.def(
      "compare_states",
      [](const transcript::state& start, const transcript::state& recorded,
         const transcript::state& replayed) {
        std::vector<checks::group_distance> groups;
        {
          const py::gil_scoped_release release;
          groups = checks::compare_states(start.root(), recorded.root(), replayed.root());
        }
        return list_of(groups, [](const auto& one) { return dict_of(one); });
      },
      py::arg("start"), py::arg("recorded"), py::arg("replayed"));
  module.def("plan_check", &plan_check, py::arg("check"), py::arg("evidence"), py::arg("options"),
             py::arg("nonce"), py::kw_only(), py::arg("screen") = true);
  module.def("screen_reach", &screen_reach, py::arg("evidence"));
  module.def("plan_noise", &plan_noise, py::arg("evidence"), py::arg("options"),
             py::arg("measurements"));
  module.def("judge_check", &judge_check, py::arg("check"), py::arg("evidence"), py::arg("options"),
             py::arg("nonce"), py::arg("measurements"));
  module.def(
      "judge_model",
      [](const transcript::evidence& evidence, const std::optional<std::string>& path,
         const checks::optional_buffers& may_lack) {
        std::vector<finding> found;
        {
          const py::gil_scoped_release release;
          found = checks::judge_model(evidence, path, may_lack);
        }
        return to_python(found);
      },
      py::arg("evidence"), py::arg("path"), py::arg("may_lack") = py::none());
  module.def("conclude", &conclude, py::arg("evidence").none(true), py::arg("findings"),
             py::kw_only(), py::arg("policy"), py::arg("context"));
}

}  // namespace potl::python
