// SPDX-License-Identifier: Apache-2.0
#include "finding.hpp"

#include <optional>

namespace potl::python {
namespace {

template <class Value>
py::object optional_value(const std::optional<Value>& value) {
  return value ? py::cast(*value) : py::none();
}

}  // namespace

py::dict to_python(const finding& one) {
  py::dict out;
  out["check"] = one.check;
  out["rule"] = one.rule;
  out["result"] = to_string(one.result);
  out["reason"] = one.reason;
  out["first_step"] = optional_value(one.first_step);
  out["last_step"] = optional_value(one.last_step);
  out["statistic"] = optional_value(one.statistic);
  out["threshold"] = optional_value(one.threshold);
  out["error_probability"] = optional_value(one.error_probability);
  py::dict details;
  for (const auto& [name, value] : one.details) details[py::str(name)] = py::str(value);
  out["details"] = details;
  return out;
}

py::list to_python(const std::vector<finding>& findings) {
  return list_of(findings, [](const finding& one) { return to_python(one); });
}

}  // namespace potl::python
