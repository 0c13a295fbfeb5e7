// SPDX-License-Identifier: Apache-2.0
// The module itself: exceptions, version and rules. Compiled once for potl._core and once, with
// POTL_TEST_HOOKS, for potl._core_hooks.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <potl/core/file.hpp>
#include <potl/core/rules.hpp>

#include "bindings.hpp"

#define POTL_TEXT_OF(name) #name
#define POTL_TEXT(name) POTL_TEXT_OF(name)

namespace py = pybind11;

namespace {

struct exception_class {
  potl::errc code;
  const char* name;
  const char* meaning;
  PyObject* type = nullptr;
};

// The exceptions live as long as the interpreter.
exception_class exception_classes[] = {
    {potl::errc::malformed, "MalformedError", "Bytes that do not follow the format."},
    {potl::errc::limit, "LimitError", "A declared size, count or depth beyond what is accepted."},
    {potl::errc::mismatch, "MismatchError",
     "Well-formed, but a digest, proof or signature does not fit."},
    {potl::errc::missing, "MissingError", "Something that should be there is not."},
    {potl::errc::io, "StorageError", "The operating system refused a read or a write."},
    {potl::errc::usage, "UsageError", "The caller's mistake."},
    {potl::errc::unsupported, "UnsupportedError",
     "A valid request that this build or version cannot serve."},
    {potl::errc::internal, "InternalError", "A defect of potl itself."},
};

py::object new_exception(py::module_& module, const char* name, const char* meaning,
                         py::handle base) {
  const std::string path = std::string("potl." POTL_TEXT(POTL_MODULE_NAME) ".") + name;
  py::object type = py::reinterpret_steal<py::object>(
      PyErr_NewExceptionWithDoc(path.c_str(), meaning, base.ptr(), nullptr));
  if (!type) throw py::error_already_set();
  module.add_object(name, type);
  return type;
}

// PotlError(message, remedy=""): Python code raises these classes too.
void add_methods(py::object& type) {
  type.attr("message") = "";
  type.attr("remedy") = "";
  type.attr("__init__") = py::cpp_function(
      [](const py::object& self, const py::str& message, const py::str& remedy) {
        py::tuple arguments = py::make_tuple(message);
        if (py::len(remedy) != 0) arguments = py::make_tuple(message, remedy);
        self.attr("args") = arguments;
        self.attr("message") = message;
        self.attr("remedy") = remedy;
      },
      // pybind11 takes a function called __init__ for the constructor of one of its own classes.
      py::name("initialize"), py::is_method(type), py::arg("message") = "", py::arg("remedy") = "");
  type.attr("__str__") = py::cpp_function(
      [](const py::object& self) {
        const auto remedy = py::cast<std::string>(self.attr("remedy"));
        const auto message = py::cast<std::string>(self.attr("message"));
        return remedy.empty() ? message : message + " (" + remedy + ")";
      },
      py::name("__str__"), py::is_method(type));
}

void raise(const potl::error& what) {
  for (const exception_class& one : exception_classes) {
    if (one.code != what.code) continue;
    // Messages may quote bytes of a broken file.
    const auto text = [](const std::string& bytes) {
      return py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
          bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "backslashreplace"));
    };
    const py::object value = py::handle(one.type)(text(what.message), text(what.remedy));
    PyErr_SetObject(one.type, value.ptr());
    return;
  }
}

void bind_exceptions(py::module_& module) {
  py::object base = new_exception(module, "PotlError", "Base of potl's errors.", PyExc_Exception);
  add_methods(base);
  for (exception_class& one : exception_classes) {
    one.type = new_exception(module, one.name, one.meaning, base).release().ptr();
  }
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the signature is pybind11's.
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const potl::exception& thrown) {
      raise(thrown.details());
    }
  });
}

void bind_rules(py::module_& module) {
  module.def("rules", [] {
    std::vector<std::pair<std::string, std::string>> list;
    for (const potl::rule_info& rule : potl::rules) list.emplace_back(rule.id, rule.meaning);
    return list;
  });
  const auto known = [](const std::string& id) {
    for (const potl::rule_info& rule : potl::rules) {
      if (rule.id == id) return;
    }
    throw potl::exception(
        {potl::errc::usage, "there is no rule \"" + id + "\"", "rules() lists them"});
  };
  module.def(
      "rule_enabled",
      [known](const std::string& id) {
        known(id);
        return potl::rule_enabled(id);
      },
      py::arg("rule"));
#ifdef POTL_TEST_HOOKS
  module.def(
      "set_rule_enabled",
      [known](const std::string& id, bool enabled) {
        known(id);
        potl::set_rule_enabled(id, enabled);
      },
      py::arg("rule"), py::arg("enabled"));
  module.def(
      "set_read_observer",
      [](py::object told) {
        if (told.is_none()) {
          potl::set_read_observer({});
          return;
        }
        // Kept for ever: nothing may be released without the interpreter's lock.
        auto* kept = new py::object(std::move(told));
        potl::set_read_observer([kept](const std::string& path, std::uint64_t) {
          const py::gil_scoped_acquire held;
          (*kept)(path);
        });
      },
      py::arg("told").none(true));
#endif
}

}  // namespace

std::optional<potl::error> potl::python::own_error_of(const py::error_already_set& thrown) {
  const auto text = [&](const char* name) {
    return py::cast<std::string>(thrown.value().attr(name));
  };
  for (const exception_class& one : exception_classes) {
    if (thrown.matches(one.type)) return error{one.code, text("message"), text("remedy")};
  }
  return std::nullopt;
}

potl::error potl::python::error_of(const py::error_already_set& thrown) {
  if (auto own = own_error_of(thrown)) return *std::move(own);
  return {errc::io, py::cast<std::string>(py::repr(thrown.value())), ""};
}

PYBIND11_MODULE(POTL_MODULE_NAME, module) {
  module.doc() = "The decisions of potl, in C++. Import potl instead.";
  module.def("version", [] { return POTL_VERSION; });
  bind_exceptions(module);
  bind_rules(module);
  potl::python::bind_crypto(module);
  potl::python::bind_signatures(module);
  potl::python::bind_sealing(module);
  potl::python::bind_random(module);
  potl::python::bind_files(module);
  potl::python::bind_parsers(module);
  potl::python::bind_state(module);
  potl::python::bind_transcript(module);
  potl::python::bind_inspect(module);
  potl::python::bind_ledger(module);
  potl::python::bind_environment(module);
  potl::python::bind_rounding(module);
  potl::python::bind_evidence(module);
  potl::python::bind_checks(module);
  potl::python::bind_attestation(module);
  potl::python::bind_displacement(module);
  potl::python::bind_numeric(module);
  potl::python::bind_freivalds(module);
  potl::python::bind_spot_check(module);
  potl::python::bind_dispute(module);
}
