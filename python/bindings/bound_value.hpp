// SPDX-License-Identifier: Apache-2.0
// A struct of plain values as a Python class: keyword arguments, attributes, equality of fields and
// pickling come from one list of members.
#pragma once

#include <concepts>
#include <string>
#include <utility>

#include "bindings.hpp"

namespace potl::python {

template <class Owner, class Value>
struct bound_member {
  const char* name;
  Value Owner::*pointer;
};

template <class Owner, class Value>
bound_member(const char*, Value Owner::*) -> bound_member<Owner, Value>;

/// A member that has the same name in Python.
#define POTL_MEMBER(owner, name) \
  ::potl::python::bound_member { #name, &owner::name }

/// Fields that are not named keep their initialisers. Readers in other processes get them by
/// pickling, which holds no code.
template <class Owner, class... Values>
py::class_<Owner> bind_value(py::module_& module, const char* name,
                             bound_member<Owner, Values>... members) {
  py::class_<Owner> type(module, name, py::module_local());
  type.def(py::init([=](const py::kwargs& given) {
    Owner out;
    std::size_t known = 0;
    const auto read = [&](auto member) {
      if (!given.contains(member.name)) return;
      ++known;
      using value = std::remove_cvref_t<decltype(out.*member.pointer)>;
      out.*member.pointer = py::cast<value>(given[member.name]);
    };
    (read(members), ...);
    if (known != given.size()) {
      throw py::type_error(std::string(name) + " got a field that it does not have");
    }
    return out;
  }));
  (type.def_readwrite(members.name, members.pointer), ...);
  const auto fields = [=](const Owner& self) { return py::make_tuple(self.*members.pointer...); };
  type.def(py::pickle(fields, [=](const py::tuple& from) {
    if (from.size() != sizeof...(members)) throw py::value_error("another number of fields");
    Owner out;
    std::size_t at = 0;
    ((out.*members.pointer = py::cast<Values>(from[at++])), ...);
    return out;
  }));
  type.def("__eq__", [=](const Owner& self, const py::object& other) -> py::object {
    if (!py::isinstance<Owner>(other)) return py::reinterpret_borrow<py::object>(Py_NotImplemented);
    return py::bool_(fields(self).equal(fields(py::cast<const Owner&>(other))));
  });
  type.def("__repr__", [=](const Owner& self) {
    std::string out = name;
    out += "(";
    const auto add = [&](auto member) {
      out += (out.ends_with("(") ? "" : ", ") + std::string(member.name) + "=" +
             py::cast<std::string>(py::repr(py::cast(self.*member.pointer)));
    };
    (add(members), ...);
    return out + ")";
  });
  type.attr("__hash__") = py::none();
  // By which worker processes find it, also where a test loads the module under another name.
  type.attr("__module__") = "potl._core";
  return type;
}

}  // namespace potl::python
