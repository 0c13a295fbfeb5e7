// SPDX-License-Identifier: Apache-2.0
// The registry, questions, verdicts and reports for Python.
#include <algorithm>

#include <potl/checks/check.hpp>
#include <potl/checks/detail/question.hpp>
#include <potl/checks/detail/reach.hpp>
#include <potl/checks/detail/state_distance.hpp>
#include <potl/checks/detail/storage_plan.hpp>
#include <potl/checks/detail/verifier_notes.hpp>
#include <potl/checks/model.hpp>
#include <potl/checks/telemetry_sampler.hpp>
#include <potl/evidence/evidence.hpp>
#include <potl/report.hpp>
#include <potl/statistics/detail/soundness.hpp>

#include "bindings.hpp"
#include "extra_task.hpp"
#include "replayer.hpp"

namespace potl::python {
namespace {

using namespace py::literals;
using checks::run_view;

py::list rows_of(const std::vector<checks::field_info>& rows) {
  return list_of(rows, [](const checks::field_info& row) {
    return py::dict("name"_a = row.name, "type"_a = row.type, "default"_a = to_python(row.value),
                    "low"_a = row.low, "high"_a = row.high, "choices"_a = row.choices,
                    "doc"_a = row.doc);
  });
}

py::list check_fields(const std::string& name) {
  if (name == "policy") return rows_of(checks::describe(policy::fields()));
  const checks::info_pointer info = checks::find_check(name);
  if (info == nullptr) {
    throw exception({errc::usage, "there is no check \"" + name + "\"",
                     "import the module that defines it, or install what announces it"});
  }
  return rows_of(info->options);
}

// What Python says of a check of its own.
checks::field_info field_of(const py::dict& row) {
  checks::field_info out;
  out.name = py::cast<std::string>(row["name"]);
  out.type = py::cast<std::string>(row["type"]);
  out.value = to_json(row["default"]);
  out.doc = py::cast<std::string>(row["doc"]);
  return out;
}

/// A check that a Python class judges: potl.Check with its methods.
class python_check final : public checks::check {
 public:
  explicit python_check(py::object self)
      : self_(std::move(self)), name_(py::cast<std::string>(self_.get().attr("name"))) {}

  const std::string& name() const noexcept override { return name_; }
  json_value options() const override {
    return calling_python([&] { return to_json(self_.get().attr("options")()); });
  }
  result<std::vector<checks::request>> plan(const run_view& run,
                                            const digest& nonce) const override {
    return calling_python([&] {
      return py::cast<std::vector<checks::request>>(
          self_.get().attr("plan")(evidence_of(run), to_bytes(nonce)));
    });
  }
  result<std::vector<finding>> judge(const run_view& run, const digest& nonce,
                                     std::span<const checks::measurement> answers) const override {
    return calling_python([&] {
      const py::list seen =
          list_of(answers, [](const checks::measurement& one) { return to_python(one); });
      std::vector<finding> found;
      const py::object judged = self_.get().attr("judge")(evidence_of(run), to_bytes(nonce), seen);
      for (const py::handle one : judged) {
        found.push_back(finding_of(one));
        found.back().check = name_;
      }
      return found;
    });
  }

 private:
  static py::object evidence_of(const run_view& run) {
    return py::cast(run.source, py::return_value_policy::reference);
  }

  shared_object self_;
  std::string name_;
};

void register_python_check(const std::string& name, py::object make, bool may_reject,
                           bool is_needed, std::string looks_at,
                           std::vector<std::string> cannot_see, const py::iterable& fields,
                           std::string cost) {
  checks::check_info info;
  info.name = name;
  info.may_reject = may_reject;
  info.is_needed = is_needed;
  info.looks_at = std::move(looks_at);
  info.cannot_see = std::move(cannot_see);
  info.cost = std::move(cost);
  for (const py::handle row : fields) info.options.push_back(field_of(py::cast<py::dict>(row)));
  const shared_object maker(std::move(make));
  info.make = [maker](const json_value& options) -> result<checks::check_pointer> {
    return calling_python([&] {
      return checks::check_pointer(
          std::make_shared<const python_check>(maker.get()(to_python(options))));
    });
  };
  checks::register_check(std::move(info));
}

// ------------------------------------------------------------------ questions

checks::check_pointer check_named(const std::string& name, const py::dict& options) {
  return checks::make_check(name, to_json(options)).value();
}

transcript::ledger_memory memory_of(const py::iterable& challenges) {
  transcript::ledger_memory out;
  for (const py::handle one : challenges) {
    const auto [nonce, asked] = py::cast<std::pair<py::bytes, py::list>>(one);
    transcript::ledger_challenge then;
    then.nonce = to_digest(nonce);
    for (const py::handle check : asked) {
      const auto [name, options] = py::cast<std::pair<std::string, py::dict>>(check);
      then.checks.emplace_back(name, to_json(options));
    }
    out.challenges.push_back(std::move(then));
  }
  return out;
}

// Without the interpreter's lock, which checks of Python's take when they are called.
template <class Call>
auto released(Call call) {
  try {
    const py::gil_scoped_release without;
    return call();
  } catch (interrupted& one) {
    throw std::move(one.what);
  }
}

/// The questions of one verification.
class bound_questions {
 public:
  bound_questions(py::object evidence, const py::iterable& asked, const py::iterable& earlier,
                  bool screen, bool from_log)
      : evidence_(std::move(evidence)),
        view_(checks::view_of(py::cast<const transcript::evidence&>(evidence_))) {
    if (!screen) view_.moved = nullptr;
    std::vector<checks::question> wanted;
    for (const py::handle one : asked) {
      const auto [name, options, nonce] =
          py::cast<std::tuple<std::string, py::dict, py::bytes>>(one);
      wanted.push_back({check_named(name, options), to_digest(nonce), false, {}});
    }
    const transcript::ledger_memory known = memory_of(earlier);
    released([&] {
      all_ = checks::planned(checks::with_earlier(std::move(wanted), known, &unknown_), view_,
                             rejected(from_log));
    });
  }

  py::list listed() const {
    return list_of(all_, [](const checks::question& one) {
      return py::make_tuple(one.check->name(), to_python(one.check->options()), to_bytes(one.nonce),
                            one.earlier, py::cast(one.plan));
    });
  }
  std::vector<checks::request> requests() const { return checks::distinct_requests(all_); }
  bool settled_by(const checks::measurement& one) const {
    return released([&] { return checks::settles(all_, view_, one); });
  }
  /// Per question: what it got, `more` called where it wants to know more.
  std::vector<std::vector<checks::measurement>> answers(
      const std::vector<checks::measurement>& measured, const py::function& more) const {
    std::vector<std::vector<checks::measurement>> out;
    const checks::answering ask = [&](const std::vector<checks::request>& again) {
      return calling_python(
          [&] { return py::cast<std::vector<checks::measurement>>(more(again)); });
    };
    for (const checks::question& one : all_) {
      out.push_back(released([&] { return checks::answers_to(one, view_, measured, ask); }));
    }
    return out;
  }
  std::vector<finding> judge(const std::vector<std::vector<checks::measurement>>& answered) const {
    std::vector<finding> out;
    for (std::size_t i = 0; i < all_.size() && i < answered.size(); ++i) {
      const auto found = released([&] { return checks::judged(all_[i], view_, answered[i]); });
      out.insert(out.end(), found.begin(), found.end());
    }
    return out;
  }
  const std::vector<std::string>& unknown() const { return unknown_; }

 private:
  // Which files are there has no say in a challenge, which is drawn from the log alone.
  bool rejected(bool from_log) const {
    const auto& found = view_.source->findings();
    return std::any_of(found.begin(), found.end(), [&](const finding& one) {
      return one.result == outcome::reject && !(from_log && one.rule == "transcript.withheld");
    });
  }

  py::object evidence_;
  run_view view_;
  std::vector<checks::question> all_;
  std::vector<std::string> unknown_;
};

std::vector<checks::request> plan_check(const std::string& name,
                                        const transcript::evidence& evidence,
                                        const py::dict& options, const py::object& nonce,
                                        bool screen) {
  const checks::check_pointer check = check_named(name, options);
  const digest drawn = to_digest(nonce);
  run_view run = checks::view_of(evidence);
  if (!screen) run.moved = nullptr;
  return released([&] { return check->plan(run, drawn).value(); });
}

std::vector<finding> judge_check(const std::string& name, const transcript::evidence& evidence,
                                 const py::dict& options, const py::object& nonce,
                                 const std::vector<checks::measurement>& answers) {
  const checks::check_pointer check = check_named(name, options);
  const digest drawn = to_digest(nonce);
  const run_view run = checks::view_of(evidence);
  return released([&] { return check->judge(run, drawn, answers).value(); });
}

void bind_questions(py::module_& module) {
  module.def("plan_check", &plan_check, py::arg("check"), py::arg("evidence"), py::arg("options"),
             py::arg("nonce"), py::kw_only(), py::arg("screen") = true);
  module.def("judge_check", &judge_check, py::arg("check"), py::arg("evidence"), py::arg("options"),
             py::arg("nonce"), py::arg("answers"));
  py::class_<bound_questions>(module, "Questions", py::module_local())
      .def(py::init<py::object, const py::iterable&, const py::iterable&, bool, bool>(),
           py::arg("evidence"), py::arg("asked"), py::arg("earlier"), py::kw_only(),
           py::arg("screen") = true, py::arg("from_log") = false)
      .def("listed", &bound_questions::listed)
      .def("requests", &bound_questions::requests)
      .def("settled_by", &bound_questions::settled_by, py::arg("measurement"))
      .def("answers", &bound_questions::answers, py::arg("measured"), py::arg("more"))
      .def("judge", &bound_questions::judge, py::arg("answers"))
      .def_property_readonly("unknown", &bound_questions::unknown);
}

py::list screen_reach(const transcript::evidence& evidence, bool first_alone) {
  const run_view run = checks::view_of(evidence);
  const checks::usual_of by =
      first_alone ? checks::usual_of::first_stretch : checks::usual_of::all_stretches;
  checks::screening seen;
  {
    const py::gil_scoped_release release;
    seen = checks::screen(run, *run.moved(), by);
  }
  return list_of(seen.stretches, [](const checks::screened& one) {
    return py::dict("start"_a = one.where.start, "end"_a = one.where.end, "ratio"_a = one.ratio,
                    "tensor"_a = one.tensor);
  });
}

py::bytes conclude(const transcript::evidence* evidence, const std::vector<finding>& findings,
                   const py::dict& wanted, const py::dict& context) {
  const policy strength = policy::parse(to_json(wanted)).value();
  const report_context known = report_context::parse(to_json(context)).value();
  std::optional<run_view> run;
  if (evidence != nullptr) run = checks::view_of(*evidence);
  const json_value report = make_report(run ? &*run : nullptr, findings, strength, known);
  return to_bytes(as_bytes_view(canonical_json(report)));
}

void bind_statistics(py::module_& module) {
  module.def("strength", &statistics::strength, py::arg("segments"), py::arg("sampled"),
             py::arg("cheat_fraction"));
  module.def(
      "samples_for",
      [](std::uint64_t segments, double probability, double cheat_fraction) {
        return statistics::samples_for(segments, probability, cheat_fraction);
      },
      py::arg("segments"), py::kw_only(), py::arg("probability"), py::arg("cheat_fraction"));
}

py::dict storage_plan(std::uint64_t steps, double step_seconds, double state_bytes,
                      double budget_bytes, double probability, double cheat_fraction,
                      bool rederive) {
  const auto plan = checks::plan_storage({steps, step_seconds, state_bytes, budget_bytes,
                                          probability, cheat_fraction, rederive})
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
      .def(py::init([](const file_path& path) {
             return std::make_unique<telemetry_sampler>(path.name);
           }),
           py::arg("path"))
      .def(
          "start", [](telemetry_sampler& self) { require(self.start()); }, quietly)
      .def("mark_step", &telemetry_sampler::mark_step, py::arg("step"), py::arg("epoch"))
      .def(
          "stop", [](telemetry_sampler& self) { require(self.stop()); }, quietly);
}

}  // namespace

void bind_checks(py::module_& module) {
  bind_values(module);
  bind_replayer(module);
  bind_sampler(module);
  bind_extra_task(module);
  module.def("storage_plan", &storage_plan, py::kw_only(), py::arg("steps"),
             py::arg("step_seconds"), py::arg("state_bytes"), py::arg("budget_bytes"),
             py::arg("probability") = 0.95, py::arg("cheat_fraction") = 0.05,
             py::arg("rederive") = false);
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
        return groups;
      },
      py::arg("start"), py::arg("recorded"), py::arg("replayed"));
  module.def("register_check", &register_python_check, py::arg("name"), py::kw_only(),
             py::arg("make"), py::arg("may_reject"), py::arg("is_needed"), py::arg("looks_at"),
             py::arg("cannot_see"), py::arg("fields"), py::arg("cost"));
  bind_questions(module);
  module.def(
      "unanswered",
      [](const checks::request& asked, std::string message) {
        return asked.unanswered(checks::measured::verifier_error, std::move(message));
      },
      py::arg("request"), py::arg("message"));
  const auto names = [](const auto& all) {
    return py::tuple(list_of(all, [](std::string_view one) { return py::str(std::string(one)); }));
  };
  module.attr("SUMS_OF_SQUARES") = names(checks::sums_of_squares);
  module.attr("OPTIONS_OF_RECIPES") = names(checks::options_of_recipes);
  module.def("screen_reach", &screen_reach, py::arg("evidence"), py::kw_only(),
             py::arg("first_alone") = false);
  module.def(
      "judge_model",
      [](const transcript::evidence& evidence, const std::optional<file_path>& path,
         const checks::optional_buffers& may_lack) {
        std::vector<finding> found;
        {
          const py::gil_scoped_release release;
          found = checks::judge_model(evidence, path, may_lack);
        }
        return found;
      },
      py::arg("evidence"), py::arg("path"), py::arg("may_lack") = py::none());
  module.def(
      "verifier_notes",
      [](const transcript::evidence& evidence, bool nonce_given, std::optional<std::string> ledger,
         bool verified_before, std::vector<std::string> unknown, std::uint64_t not_looked_at) {
        return checks::verifier_notes(
            evidence, {nonce_given, evidence.rejected(), std::move(ledger), verified_before,
                       std::move(unknown), not_looked_at});
      },
      py::arg("evidence"), py::kw_only(), py::arg("nonce_given"), py::arg("ledger"),
      py::arg("verified_before"), py::arg("unknown"), py::arg("not_looked_at"));
  module.def("conclude", &conclude, py::arg("evidence").none(true), py::arg("findings"),
             py::kw_only(), py::arg("policy"), py::arg("context"));
}

}  // namespace potl::python
