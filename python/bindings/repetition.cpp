// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/repetition.hpp>

#include "transcript.hpp"
#include "values.hpp"

namespace potl::python {
namespace {

using transcript::repetition;
using transcript::run_difference;

py::object difference_of(const repetition& self) {
  const std::optional<run_difference>& found = self.difference();
  if (!found) return py::none();
  return py::make_tuple(found->step, found->field, found->sentence);
}

py::object rounding_of(const repetition& self, std::uint64_t step) {
  const std::optional<transcript::heard_log> found = self.rounding_of(step);
  if (!found) return py::none();
  return py::make_tuple(found->branch, found->offset, found->bound.bytes,
                        to_bytes(found->bound.content));
}

}  // namespace

void bind_repetition(py::module_& module) {
  const auto hearing = [](status (repetition::*hear)(bytes_view)) {
    return [hear](repetition& self, py::handle more) {
      const readable_buffer buffer(more);
      require((self.*hear)(buffer.bytes()));
    };
  };
  py::class_<repetition>(module, "Repetition", py::module_local())
      .def(py::init([](const job_handle& agreed) { return repetition(*agreed.agreed); }),
           py::arg("job"))
      .def("hear", hearing(&repetition::hear), py::arg("more"))
      .def("hear_own", hearing(&repetition::hear_own), py::arg("more"))
      .def_property_readonly("position", &repetition::position)
      .def_property_readonly("own_position", &repetition::own_position)
      .def_property_readonly("heard_steps", &repetition::heard_steps)
      .def_property_readonly("is_closed", &repetition::is_closed)
      .def_property_readonly("agreed_steps", &repetition::agreed_steps)
      .def_property_readonly("difference", &difference_of)
      .def("rounding_of", &rounding_of, py::arg("step"))
      .def_property_readonly("other_rounding", &repetition::other_rounding);
}

}  // namespace potl::python
