// SPDX-License-Identifier: Apache-2.0
// Evidence for Python: steps as columns.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <potl/checks/detail/finite.hpp>
#include <potl/evidence/evidence.hpp>

#include "transcript.hpp"
#include "values.hpp"

namespace potl::python {
namespace {

using namespace potl::transcript;
using namespace py::literals;

py::dict columns(const std::vector<step_record>& steps) {
  py::dict out;
  out["step"] = list_of(steps, [](const step_record& one) { return py::int_(one.step); });
  out["epoch"] = list_of(steps, [](const step_record& one) { return py::int_(one.epoch); });
  out["loss"] = list_of(steps, [](const step_record& one) { return py::float_(one.loss); });
  out["rates"] = list_of(steps, [](const step_record& one) { return py::cast(one.rates); });
  out["flags"] = list_of(steps, [](const step_record& one) { return py::int_(one.flags); });
  out["duration_ns"] =
      list_of(steps, [](const step_record& one) { return py::int_(one.duration_ns); });
  out["random_draws"] =
      list_of(steps, [](const step_record& one) { return py::int_(one.random_draws); });
  out["state"] = list_of(steps, [](const step_record& one) { return to_bytes(one.state); });
  return out;
}

py::list to_list(const std::vector<checkpoint_info>& checkpoints) {
  return list_of(checkpoints, [](const checkpoint_info& one) {
    return py::dict("step"_a = one.step, "branch"_a = one.branch, "state"_a = to_bytes(one.state),
                    "file_bytes"_a = one.file_bytes);
  });
}

py::list superseded_list(const evidence& self) {
  return list_of(self.superseded(), [](const superseded_range& one) {
    return py::dict("branch"_a = one.branch, "from_step"_a = one.from_step,
                    "last_step"_a = one.last_step, "start_branch"_a = one.start_branch);
  });
}

py::bytes digest_at(const evidence& self, std::uint64_t step) {
  const digest* out = self.state_digest(step);
  if (out == nullptr) {
    throw exception({errc::missing, "step " + std::to_string(step) + " is not in the log", ""});
  }
  return to_bytes(*out);
}

// What a function of Python's raises is what the read comes to.
file_fetcher fetcher_of(const shared_object& fetch) {
  return [fetch](const std::string& name, std::uint64_t offset, std::uint64_t size) -> status {
    return calling_python([&]() -> status {
      try {
        fetch.get()(name, offset, size);
        return unit{};
      } catch (py::error_already_set& thrown) {
        if (!thrown.matches(PyExc_Exception)) throw;
        return error_of(thrown);
      }
    });
  };
}

evidence open_evidence(const file_path& directory, const job_handle* own,
                       std::optional<std::string> commitment, std::vector<std::string> published,
                       std::vector<std::string> others,
                       std::optional<std::uint64_t> max_checkpoint_bytes,
                       std::optional<py::bytes> expected_log, const py::object& fetch) {
  evidence_options options;
  options.directory = directory.name;
  if (own != nullptr) options.client_job = *own->agreed;
  if (commitment && commitment->empty()) {
    throw exception({errc::malformed, "note: the commitment is empty", ""});
  }
  if (commitment) options.commitment = std::move(*commitment);
  options.published = std::move(published);
  options.other_commitments = std::move(others);
  options.max_checkpoint_bytes = max_checkpoint_bytes;
  if (expected_log) options.expected_log = to_digest(*expected_log);
  if (!fetch.is_none()) options.fetch = fetcher_of(shared_object(fetch));
  py::gil_scoped_release released;
  return evidence::open(options).value();
}

state load(const evidence& self, std::uint64_t step, std::optional<std::uint64_t> branch) {
  py::gil_scoped_release released;
  return branch ? self.load_state(step, *branch).value() : self.load_state(step).value();
}

/// None when the step binds none.
py::object rounding_reference_of(const evidence& self, std::uint64_t step,
                                 std::optional<std::uint64_t> branch) {
  const auto bound = branch ? self.rounding_log_of(step, *branch) : self.rounding_log_of(step);
  return bound ? py::object(to_bytes(bound->content)) : py::none();
}

py::bytes load_log(const evidence& self, std::uint64_t step, std::optional<std::uint64_t> branch) {
  const std::vector<std::uint8_t> bytes = [&] {
    py::gil_scoped_release released;
    return branch ? self.load_rounding_log(step, *branch).value()
                  : self.load_rounding_log(step).value();
  }();
  return to_bytes(bytes);
}

std::string not_finite_in(const evidence& self, const state& opened) {
  py::gil_scoped_release released;
  return checks::not_finite(self, opened.root()).value();
}

}  // namespace

void bind_evidence(py::module_& module) {
  module.def(
      "not_finite",
      [](const state& recorded, const state& initial,
         const std::optional<std::vector<std::string>>& masks) {
        const py::gil_scoped_release released;
        return checks::not_finite(recorded.root(), &initial.root(), masks ? &*masks : nullptr);
      },
      py::arg("recorded"), py::arg("initial"), py::arg("masks") = py::none());
  py::class_<evidence>(module, "Evidence", py::module_local())
      .def_static("open", &open_evidence, py::arg("directory"), py::kw_only(),
                  py::arg("job").none(true), py::arg("commitment").none(true),
                  py::arg("published") = std::vector<std::string>{},
                  py::arg("other_commitments") = std::vector<std::string>{},
                  py::arg("max_checkpoint_bytes") = py::none(),
                  py::arg("expected_log") = py::none(), py::arg("fetch") = py::none())
      .def_property_readonly("job", [](const evidence& self) { return job_handle(self.agreed()); })
      .def_property_readonly("job_is_own", &evidence::job_is_own)
      .def_property_readonly("committed", &evidence::committed)
      .def_property_readonly("closed", &evidence::closed)
      .def_property_readonly(
          "commitment_digest",
          [](const evidence& self) { return to_bytes(self.commitment_digest()); })
      .def_property_readonly("log_digest",
                             [](const evidence& self) { return to_bytes(self.log_digest()); })
      .def_property_readonly("log_bytes", &evidence::log_bytes)
      .def_property_readonly("rejected", &evidence::rejected)
      .def("findings", [](const evidence& self) { return self.findings(); })
      .def("steps", [](const evidence& self) { return columns(self.steps()); })
      .def(
          "has_diverged_by",
          [](const evidence& self, std::uint64_t step) {
            return transcript::has_diverged_by(step, self.steps());
          },
          py::arg("step"))
      .def("superseded_steps",
           [](const evidence& self) { return columns(self.superseded_steps()); })
      .def("superseded", &superseded_list)
      .def("checkpoints", [](const evidence& self) { return to_list(self.checkpoints()); })
      .def("missing_checkpoints",
           [](const evidence& self) { return to_list(self.missing_checkpoints()); })
      .def("telemetry", [](const evidence& self) { return to_bytes(self.telemetry()); })
      .def("expect_state_bytes", &evidence::expect_state_bytes, py::arg("initial"))
      .def("load_state", &load, py::arg("step"), py::arg("branch") = py::none())
      .def("load_rounding_log", &load_log, py::arg("step"), py::arg("branch") = py::none())
      .def("rounding_digest", &rounding_reference_of, py::arg("step"),
           py::arg("branch") = py::none())
      .def("not_finite", &not_finite_in, py::arg("state"))
      .def("state_digest", &digest_at, py::arg("step"));
}

}  // namespace potl::python
