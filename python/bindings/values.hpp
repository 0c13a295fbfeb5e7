// SPDX-License-Identifier: Apache-2.0
// How the values of checks cross into Python: outcomes and statuses as their names, requests and
// measurements as what they are, of whichever kind.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <potl/checks/request.hpp>
#include <potl/core/finding.hpp>

#include "bindings.hpp"

namespace potl::python {

/// An object of Python's in a value of C++, which may be copied and destroyed by any thread.
class shared_object {
 public:
  shared_object() = default;
  explicit shared_object(py::object one)
      : self_(new py::object(std::move(one)), [](py::object* last) {
          const py::gil_scoped_acquire held;
          delete last;
        }) {}
  /// Holding the interpreter's lock.
  py::object get() const { return self_ ? *self_ : py::none(); }
  explicit operator bool() const noexcept { return static_cast<bool>(self_); }

 private:
  std::shared_ptr<py::object> self_;
};

struct python_measurement;

/// A request that a Python class brings (potl.Request).
struct python_request {
  shared_object self;

  std::string kind() const;
  std::uint64_t from_step() const;
  std::uint64_t steps() const;
  std::string place() const;
  std::string key() const;
  python_measurement answer(checks::replayer& with) const;
};

/// What it was answered with: anything that can be pickled.
struct python_measurement {
  python_request request;
  checks::measured status = checks::measured::ok;
  std::string message, not_finite;
  shared_object value;
  double seconds = 0;

  bool differs() const noexcept { return false; }
  double spent() const noexcept { return seconds; }
};

/// Calls Python; an interrupt passes every handler of std::exception.
struct interrupted {
  py::error_already_set what;
};
template <class Call>
auto calling_python(Call call) {
  const py::gil_scoped_acquire held;
  try {
    return call();
  } catch (py::error_already_set& thrown) {
    if (thrown.matches(PyExc_Exception)) throw;
    throw interrupted{thrown};
  }
}

py::object to_python(const checks::request& one);
py::object to_python(const checks::measurement& one);
/// usage: no request, no measurement.
checks::request request_of(py::handle one);
checks::measurement measurement_of(py::handle one);

/// A finding, or anything with the attributes of one.
finding finding_of(py::handle one);

void bind_values(py::module_& module);

}  // namespace potl::python

namespace pybind11::detail {

template <class Value, const char* (*Name)(Value) noexcept, Value... Known>
struct named_value_caster {
  PYBIND11_TYPE_CASTER(Value, const_name("str"));
  bool load(handle from, bool) {
    if (!PyUnicode_Check(from.ptr())) return false;
    const auto text = pybind11::cast<std::string>(from);
    for (const Value one : {Known...}) {
      if (text == Name(one)) {
        value = one;
        return true;
      }
    }
    return false;
  }
  static handle cast(Value from, return_value_policy, handle) {
    return PyUnicode_FromString(Name(from));
  }
};

template <>
struct type_caster<potl::outcome>
    : named_value_caster<potl::outcome, &potl::to_string, potl::outcome::pass,
                         potl::outcome::reject, potl::outcome::inconclusive, potl::outcome::note> {
};

template <>
struct type_caster<potl::checks::judged_as>
    : named_value_caster<potl::checks::judged_as, &potl::checks::to_string,
                         potl::checks::judged_as::floats, potl::checks::judged_as::alone,
                         potl::checks::judged_as::unmoved, potl::checks::judged_as::steady,
                         potl::checks::judged_as::codes, potl::checks::judged_as::code_places> {};

template <>
struct type_caster<potl::checks::measured>
    : named_value_caster<potl::checks::measured, &potl::checks::to_string,
                         potl::checks::measured::ok, potl::checks::measured::withheld,
                         potl::checks::measured::tampered, potl::checks::measured::verifier_error,
                         potl::checks::measured::unrepeatable, potl::checks::measured::unknown_form,
                         potl::checks::measured::unlawful, potl::checks::measured::prover_error> {};

template <>
struct type_caster<potl::checks::request> {
  static constexpr auto name = const_name("Request");
  template <class>
  using cast_op_type = potl::checks::request&&;
  operator potl::checks::request&&() { return std::move(*value_); }
  bool load(handle from, bool) {
    value_ = potl::python::request_of(from);
    return true;
  }
  static handle cast(const potl::checks::request& from, return_value_policy, handle) {
    return potl::python::to_python(from).release();
  }

 private:
  std::optional<potl::checks::request> value_;
};

template <>
struct type_caster<potl::checks::measurement> {
  static constexpr auto name = const_name("Measurement");
  template <class>
  using cast_op_type = potl::checks::measurement&&;
  operator potl::checks::measurement&&() { return std::move(*value_); }
  bool load(handle from, bool) {
    value_ = potl::python::measurement_of(from);
    return true;
  }
  static handle cast(const potl::checks::measurement& from, return_value_policy, handle) {
    return potl::python::to_python(from).release();
  }

 private:
  std::optional<potl::checks::measurement> value_;
};

}  // namespace pybind11::detail
