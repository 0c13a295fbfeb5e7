// SPDX-License-Identifier: Apache-2.0
// Convolutions of contiguous float32 buffers, for tests and benchmarks.
#include <potl/numeric/convolution.hpp>

#include "bindings.hpp"

namespace potl::python {
namespace {

using numeric::arithmetic;
using sizes = std::array<std::int64_t, 3>;

std::int64_t volume(const sizes& of) { return of[0] * of[1] * of[2]; }

/// A contiguous buffer that has to hold exactly so many float32.
class floats {
 public:
  floats(py::handle object, std::int64_t count, bool writable) {
    const int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw py::error_already_set();
    if (view_.itemsize != 4 || view_.len != count * 4) {
      PyBuffer_Release(&view_);
      throw exception(error{errc::usage, "a buffer of another size than the geometry says",
                            "pass " + std::to_string(count) + " float32"});
    }
  }
  ~floats() { PyBuffer_Release(&view_); }
  floats(const floats&) = delete;
  floats& operator=(const floats&) = delete;
  float* get() const { return static_cast<float*>(view_.buf); }

 private:
  Py_buffer view_{};
};

/// A geometry, a mode and a thread pool of its own.
class convolver {
 public:
  convolver(const std::string& mode, const numeric::convolution& geometry, std::size_t threads)
      : geometry_(geometry),
        output_(geometry.output()),
        threads_(numeric::make_thread_pool(threads)) {
    const auto known = numeric::arithmetic_from(mode);
    if (!known) throw exception(error{errc::usage, "there is no mode \"" + mode + "\"", ""});
    mode_ = *known;
  }

  sizes output() const { return output_; }

  void forward(const py::object& x, const py::object& w, const py::object& y) const {
    const floats a(x, inputs(), false), b(w, weights(), false), c(y, outputs(), true);
    const py::gil_scoped_release released;
    convolve(mode_, geometry_, a.get(), b.get(), c.get(), *threads_);
  }
  void input_gradient(const py::object& dy, const py::object& w, const py::object& dx) const {
    const floats a(dy, outputs(), false), b(w, weights(), false), c(dx, inputs(), true);
    const py::gil_scoped_release released;
    convolve_input_gradient(mode_, geometry_, a.get(), b.get(), c.get(), *threads_);
  }
  void weight_gradient(const py::object& x, const py::object& dy, const py::object& dw) const {
    const floats a(x, inputs(), false), b(dy, outputs(), false), c(dw, weights(), true);
    const py::gil_scoped_release released;
    convolve_weight_gradient(mode_, geometry_, a.get(), b.get(), c.get(), *threads_);
  }

 private:
  std::int64_t inputs() const {
    return geometry_.batch * geometry_.in_channels * volume(geometry_.input);
  }
  std::int64_t outputs() const {
    return geometry_.batch * geometry_.out_channels * volume(output_);
  }
  std::int64_t weights() const {
    return geometry_.out_channels * (geometry_.in_channels / geometry_.groups) *
           volume(geometry_.kernel);
  }

  arithmetic mode_ = arithmetic::ord32;
  numeric::convolution geometry_;
  sizes output_;
  std::unique_ptr<numeric::executor> threads_;
};

}  // namespace

void bind_convolution(py::module_& module) {
  py::class_<convolver>(module, "Convolver", py::module_local())
      .def(py::init([](const std::string& mode, std::int64_t batch, std::int64_t in_channels,
                       std::int64_t out_channels, std::int64_t groups, const sizes& input,
                       const sizes& kernel, const sizes& stride, const sizes& padding,
                       const sizes& dilation, std::size_t threads) {
             return std::make_unique<convolver>(
                 mode,
                 numeric::convolution{batch, in_channels, out_channels, groups, input, kernel,
                                      stride, padding, dilation},
                 threads);
           }),
           py::arg("mode"), py::kw_only(), py::arg("batch"), py::arg("in_channels"),
           py::arg("out_channels"), py::arg("groups"), py::arg("input_size"), py::arg("kernel"),
           py::arg("stride"), py::arg("padding"), py::arg("dilation"), py::arg("threads"))
      .def_property_readonly("output", &convolver::output)
      .def("forward", &convolver::forward, py::arg("x"), py::arg("w"), py::arg("y"))
      .def("input_gradient", &convolver::input_gradient, py::arg("dy"), py::arg("w"), py::arg("dx"))
      .def("weight_gradient", &convolver::weight_gradient, py::arg("x"), py::arg("dy"),
           py::arg("dw"));
}

}  // namespace potl::python
