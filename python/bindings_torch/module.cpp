// SPDX-License-Identifier: Apache-2.0
// potl._torch: reproducible operators under torch. The signatures carry no torch types, so that the
// module shares nothing with torch's own pybind11.
#include <memory>
#include <string>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <potl/core/error.hpp>
#include <potl/libtorch/arithmetic.hpp>

#include "libtorch/arithmetic/mode.hpp"

namespace py = pybind11;

namespace {

PyObject* error_class = nullptr;  // potl.NotReproducible, as long as the interpreter lives

// torch turns this into the Python class; it hands over one text.
struct python_not_reproducible final : torch::PyTorchError {
  using torch::PyTorchError::PyTorchError;
  PyObject* python_type() override { return error_class; }
};

void throw_for_python(const std::string& message, const std::string& remedy) {
  throw python_not_reproducible(message + '\x1f' + remedy);
}

void set_error_class(const py::object& type) {
  error_class = type.inc_ref().ptr();
  potl::libtorch::dispatch::set_thrower(&throw_for_python);
}

class block {
 public:
  explicit block(const std::string& mode) {
    const auto known = potl::numeric::arithmetic_from(mode);
    if (!known) throw py::value_error("no arithmetic mode is called " + mode);
    guard_ = std::make_unique<potl::libtorch::deterministic_guard>(*known);
  }
  void leave() { guard_.reset(); }

 private:
  std::unique_ptr<potl::libtorch::deterministic_guard> guard_;
};

class stock_block {
 public:
  stock_block() : guard_(std::make_unique<potl::libtorch::stock_guard>()) {}
  void leave() { guard_.reset(); }

 private:
  std::unique_ptr<potl::libtorch::stock_guard> guard_;
};

}  // namespace

PYBIND11_MODULE(_torch, module) {
  module.doc() = "Reproducible operators for torch (see potl.deterministic).";
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (python_not_reproducible& error) {
      PyErr_SetString(error.python_type(), error.what());
    }
  });
  module.def("set_error_class", &set_error_class);
  module.def("operators", [] {
    py::list rows;
    for (const auto& entry : potl::libtorch::operators()) {
      rows.append(py::make_tuple(entry.name, entry.runs, entry.note));
    }
    return rows;
  });
  py::class_<block>(module, "Block").def(py::init<std::string>()).def("leave", &block::leave);
  py::class_<stock_block>(module, "StockBlock").def(py::init<>()).def("leave", &stock_block::leave);
  module.def("is_on", [] { return potl::libtorch::dispatch::is_on(); });
}
