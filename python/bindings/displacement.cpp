// SPDX-License-Identifier: Apache-2.0
// Plans of spot-checks for Python: arrays of float64 in, bytes of them out.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <potl/statistics/displacement.hpp>

#include "bound_value.hpp"

namespace potl::python {
namespace {

using certificate = statistics::displacement_certificate;
using statistics::displacement_plan;

std::span<const double> steps_of(const py::buffer_info& info) {
  const bool packed = info.ndim == 1 && (info.shape[0] < 2 || info.strides[0] == info.itemsize);
  if (!packed || !info.item_type_is_equivalent_to<double>()) {
    throw exception({errc::usage, "what each step has is no array", "pass one of float64"});
  }
  return {static_cast<const double*>(info.ptr), static_cast<std::size_t>(info.size)};
}

py::bytes bytes_of(const std::vector<double>& values) {
  return to_bytes({reinterpret_cast<const std::uint8_t*>(values.data()), 8 * values.size()});
}

py::bytes responses_of(const py::buffer& rates, double momentum, double dampening, bool nesterov) {
  const py::buffer_info info = rates.request();
  return bytes_of(
      statistics::gradient_responses(steps_of(info), {momentum, dampening, nesterov}).value());
}

displacement_plan plan_of(const py::buffer& responses, double probability, double clip,
                          double tolerance, double miss_rate, std::optional<double> displacement,
                          std::optional<std::uint64_t> steps_at_risk) {
  const py::buffer_info info = responses.request();
  return statistics::plan_displacement(
             steps_of(info), {probability, clip, tolerance, miss_rate, displacement, steps_at_risk})
      .value();
}

}  // namespace

void bind_displacement(py::module_& module) {
  bind_value<certificate>(module, "DisplacementCertificate", POTL_MEMBER(certificate, probability),
                          POTL_MEMBER(certificate, displacement), POTL_MEMBER(certificate, leak),
                          POTL_MEMBER(certificate, clipped))
      .def_property_readonly("sentence", &certificate::sentence)
      .doc() =
      "What a plan guarantees, against workers that adapt too. It bounds what is injected.";
  py::class_<displacement_plan>(module, "DisplacementPlan", py::module_local())
      .def_property_readonly(
          "probabilities",
          [](const displacement_plan& self) { return bytes_of(self.probabilities); })
      .def_readonly("expected_checks", &displacement_plan::expected_checks)
      .def_readonly("certificate", &displacement_plan::certificate);
  module.def("gradient_responses", &responses_of, py::arg("rates"), py::kw_only(),
             py::arg("momentum") = 0.0, py::arg("dampening") = 0.0, py::arg("nesterov") = false);
  module.def("plan_displacement", &plan_of, py::arg("responses"), py::kw_only(),
             py::arg("probability"), py::arg("clip"), py::arg("tolerance") = 0.0,
             py::arg("miss_rate") = 0.0, py::arg("displacement") = py::none(),
             py::arg("steps_at_risk") = py::none());
}

}  // namespace potl::python
