// SPDX-License-Identifier: Apache-2.0
// Inspection and pruning for Python, as dictionaries that are JSON documents.
#include <vector>

#include <potl/evidence/detail/inspect.hpp>

#include "bindings.hpp"

namespace potl::python {
namespace {

using namespace potl::transcript;
using namespace py::literals;

py::object hex_or_none(const std::optional<digest>& value) {
  return value ? py::object(py::str(value->hex())) : py::none();
}

py::list to_list(const std::vector<step_range>& ranges, const char* first, const char* last) {
  return list_of(ranges, [&](const step_range& one) {
    return py::dict(py::arg(first) = one.first_step, py::arg(last) = one.last_step);
  });
}

py::list to_list(const std::vector<stored_file>& files) {
  return list_of(files, [](const stored_file& one) {
    return py::dict("name"_a = one.name, "step"_a = one.step, "branch"_a = one.branch,
                    "bytes"_a = one.bytes);
  });
}

py::dict inspect(const file_path& directory) {
  const run_facts facts = [&] {
    py::gil_scoped_release released;
    return inspect_run(directory).value();
  }();
  py::dict out;
  out["job"] = hex_or_none(facts.job_id);
  out["trainer"] = hex_or_none(facts.trainer);
  out["software"] = facts.software;
  out["agreed_steps"] = facts.agreed_steps ? py::cast(*facts.agreed_steps) : py::none();
  out["steps"] = facts.steps;
  out["superseded_steps"] = facts.superseded_steps;
  out["records"] = facts.records;
  out["root"] = facts.root.hex();
  out["log_bytes"] = facts.log_bytes;
  out["telemetry_bytes"] = facts.telemetry_bytes;
  out["checkpoint_bytes"] = facts.checkpoint_bytes;
  out["rounding_logs"] = facts.rounding_logs;
  out["rounding_bytes"] = facts.rounding_bytes;
  out["closed"] = facts.closed;
  out["committed"] = facts.committed;
  out["seconds"] = facts.seconds;
  out["checkpoints"] = to_list(facts.checkpoints);
  out["unused"] = facts.unused;
  out["losses"] = facts.losses;
  out["gaps"] = to_list(facts.gaps, "first_step", "last_step");
  out["resumes"] = to_list(facts.resumes, "from_step", "last_step");
  out["damage"] = facts.damage;
  return out;
}

py::dict prune(const file_path& directory, std::uint64_t max_bytes, bool archive) {
  const prune_plan plan = [&] {
    py::gil_scoped_release released;
    const prune_depth depth = archive ? prune_depth::archive : prune_depth::verifiable;
    return plan_prune(directory, max_bytes, depth).value();
  }();
  py::dict out;
  out["remove"] = plan.remove;
  out["keep"] = plan.keep;
  out["bytes"] = plan.bytes;
  out["segment"] = plan.segment;
  return out;
}

}  // namespace

void bind_inspect(py::module_& module) {
  module.def("inspect_run", &inspect, py::arg("directory"));
  module.def("prune_plan", &prune, py::arg("directory"), py::kw_only(), py::arg("max_bytes"),
             py::arg("archive") = false);
}

}  // namespace potl::python
