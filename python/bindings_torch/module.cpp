// SPDX-License-Identifier: Apache-2.0
// potl._torch: reproducible operators under torch. The signatures carry no torch types, so that the
// module shares nothing with torch's own pybind11.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <potl/core/error.hpp>
#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/libtorch/arithmetic.hpp>
#include <potl/numeric/elementwise.hpp>

#include "../bindings/bindings.hpp"
#include "../bindings/rounding_session.hpp"
#include "content.hpp"
#include "graph.hpp"
#include "libtorch/arithmetic/device.hpp"
#include "libtorch/arithmetic/fallback.hpp"
#include "libtorch/arithmetic/mode.hpp"
#include "libtorch/arithmetic/rounding.hpp"

namespace py = pybind11;
namespace dispatch = potl::libtorch::dispatch;

namespace {

// potl.NotReproducible and potl.UsageError, as long as the interpreter lives.
PyObject* error_class = nullptr;
PyObject* usage_class = nullptr;

// torch turns this into the Python class; it hands over one text.
struct python_not_reproducible final : torch::PyTorchError {
  using torch::PyTorchError::PyTorchError;
  PyObject* python_type() override { return error_class; }
};

void throw_for_python(const std::string& message, const std::string& remedy) {
  // Some of torch shows the text as it is: the mark between its parts is not seen there.
  throw python_not_reproducible(message + ":\x1f " + remedy);
}

void set_error_classes(const py::object& not_reproducible, const py::object& usage) {
  error_class = not_reproducible.inc_ref().ptr();
  usage_class = usage.inc_ref().ptr();
  dispatch::set_thrower(&throw_for_python);
}

class block {
 public:
  block(const std::string& mode, int bits) : thread_(std::this_thread::get_id()) {
    const auto known = potl::numeric::arithmetic_from(mode);
    if (!known) {
      throw potl::exception({potl::errc::usage, "no arithmetic mode is called \"" + mode + "\"",
                             "use ord32, cr32, log64, xint24 or xint16"});
    }
    guard_ = std::make_unique<potl::libtorch::deterministic_guard>(*known, bits);
  }
  ~block() {
    if (thread_ != std::this_thread::get_id()) static_cast<void>(guard_.release());
  }
  block(const block&) = delete;
  block& operator=(const block&) = delete;

  void leave() {
    if (thread_ != std::this_thread::get_id()) {
      throw potl::exception({potl::errc::usage, "a block is left by another thread than entered it",
                             "leave it in the thread that entered it"});
    }
    guard_.reset();
  }

 private:
  std::thread::id thread_;
  std::unique_ptr<potl::libtorch::deterministic_guard> guard_;
};

/// Installs a session, or none, for this thread; returns the one before. Keeps it alive.
py::object install_rounding(const py::object& session) {
  thread_local PyObject* kept = nullptr;
  dispatch::install_rounding(session.is_none() ? nullptr
                                               : session.cast<potl::numeric::rounding_session*>());
  py::object before = kept == nullptr ? py::none() : py::reinterpret_steal<py::object>(kept);
  kept = session.is_none() ? nullptr : py::object(session).release().ptr();
  return before;
}

/// A guard as an object with `leave`.
template <class Guard>
class left_by_hand {
 public:
  void leave() { guard_.reset(); }

 private:
  std::unique_ptr<Guard> guard_ = std::make_unique<Guard>();
};

void raise(PyObject* type, const std::string& message, const std::string& remedy) {
  const py::object error =
      py::reinterpret_borrow<py::object>(type)(py::str(message), py::str(remedy));
  PyErr_SetObject(type, error.ptr());
}

/// Numbers of autograd nodes: (made inside of blocks, made outside).
/// `numbers` are of nodes that this thread made.
py::tuple places_of(const py::list& tensors, const std::vector<std::uint64_t>& numbers) {
  std::vector<PyObject*> objects;
  for (const py::handle tensor : tensors) objects.push_back(tensor.ptr());
  potl_torch::graph_places places = potl_torch::places_of(objects);
  for (const std::uint64_t number : numbers) {
    ++(potl_torch::made_here(number) ? places.inside : places.outside);
  }
  return py::make_tuple(places.inside, places.outside);
}

/// Installs the kernels that a module of potl hands over for a kind of device; None: no longer.
void use_device(const std::string& device, const py::object& kernels) {
  const dispatch::device_kernels* all = nullptr;
  if (!kernels.is_none()) {
    all = py::reinterpret_borrow<py::capsule>(kernels).get_pointer<dispatch::device_kernels>();
  }
  dispatch::use_device(c10::Device(device).type(), all);
}

/// Whatever watches the operators of this thread has nothing to see here.
class unseen {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::DispatchKeySet(
      {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, dispatch::key})};
};

/// The content root of a tensor's elements, hashed by torch's threads.
py::bytes content_root(const py::object& tensor) {
  potl::digest root;
  {
    const py::gil_scoped_release released;
    const unseen by_others;
    root = potl_torch::content_root(tensor.ptr(), [](std::size_t tasks, const auto& body) {
      dispatch::executor().run(tasks, body);
    });
  }
  return potl::python::to_bytes(root);
}

/// Those of memory of a device, hashed there.
py::list content_roots_there(const std::string& device,
                             const std::vector<std::pair<std::uintptr_t, std::size_t>>& places) {
  std::vector<potl::digest> roots;
  {
    const py::gil_scoped_release released;
    const unseen by_others;
    roots = potl_torch::content_roots_there(device, places);
  }
  py::list out;
  for (const potl::digest& root : roots) out.append(potl::python::to_bytes(root));
  return out;
}

}  // namespace

PYBIND11_MODULE(_torch, module) {
  module.doc() = "Reproducible operators for torch (see potl.deterministic).";
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the signature is pybind11's.
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (python_not_reproducible& error) {
      PyErr_SetString(error.python_type(), error.what());
    } catch (const potl::exception& error) {
      if (error.details().code == potl::errc::io) {  // of a device
        return PyErr_SetString(PyExc_RuntimeError, error.details().message.c_str());
      }
      raise(usage_class, error.details().message, error.details().remedy);
    }
  });
  module.def("set_error_classes", &set_error_classes);
  module.def("use_device", &use_device);
  module.def("knows_device", [](const std::string& device) {
    return dispatch::is_known(c10::Device(device).type());
  });
  module.def("operators", [] {
    py::list rows;
    for (const auto& entry : potl::libtorch::operators()) {
      rows.append(py::make_tuple(entry.name, entry.runs, entry.note));
    }
    return rows;
  });
  py::class_<block>(module, "Block")
      .def(py::init<std::string, int>(), py::arg("mode"), py::arg("bits") = 32)
      .def("leave", &block::leave);
  using stock_block = left_by_hand<potl::libtorch::stock_guard>;
  py::class_<stock_block>(module, "StockBlock").def(py::init<>()).def("leave", &stock_block::leave);
  using foreign_block = left_by_hand<dispatch::foreign_guard>;
  py::class_<foreign_block>(module, "ForeignBlock")
      .def(py::init<>())
      .def("leave", &foreign_block::leave);
  module.def("let_through", &dispatch::let_through, py::arg("on"));
  module.def("lets_through", &dispatch::lets_through);
  module.def("is_on", &dispatch::is_on);
  potl::python::bind_rounding_session(module);
  module.def("install_rounding", &install_rounding, py::arg("session"));
  module.def("exact_pow", &potl::numeric::exact_pow);
  module.def("exact_cos", &potl::numeric::exact_cos);
  module.def("places_of", &places_of);
  module.def("content_root", &content_root, py::arg("tensor"));
  module.def("content_roots_there", &content_roots_there, py::arg("device"), py::arg("places"));
}
