// SPDX-License-Identifier: Apache-2.0
// Reproducible kernels on buffers (numpy arrays, torch's through the array interface): for tests,
// benchmarks and programs without torch. The torch adapter calls the library itself.
#include <memory>
#include <span>

#include <potl/numeric/detail/isa.hpp>
#include <potl/numeric/elementwise.hpp>
#include <potl/numeric/gemm.hpp>

#include "matrices.hpp"

namespace potl::python {
namespace {

numeric::arithmetic mode_of(const std::string& name) {
  const auto mode = numeric::arithmetic_from(name);
  if (!mode) {
    throw exception({errc::usage, "there is no arithmetic \"" + name + "\"",
                     "ord32, cr32, log64, xint24 and xint16 exist"});
  }
  return *mode;
}

numeric::isa level_of(const std::string& name) {
  const auto level = numeric::isa_from(name);
  if (!level) {
    throw exception({errc::usage, "there is no level \"" + name + "\"",
                     "portable, avx2, avx512 and vnni exist"});
  }
  return *level;
}

template <class Element, class Body>
void with_matrices(const py::buffer& a, const py::buffer& b, const py::buffer& c,
                   const Body& body) {
  const py::buffer_info a_info = a.request(), b_info = b.request(), c_info = c.request(true);
  const auto a_view = matrix_of<const Element>(a_info);
  const auto b_view = matrix_of<const Element>(b_info);
  const auto c_view = matrix_of<Element>(c_info);
  py::gil_scoped_release released;
  body(a_view, b_view, c_view);
}

void bind_gemm(py::module_& module) {
  module.def(
      "gemm",
      [](const std::string& mode, const py::buffer& a, const py::buffer& b, const py::buffer& c,
         const thread_pool* pool) {
        const auto arithmetic = mode_of(mode);
        with_matrices<float>(a, b, c, [&](auto a_view, auto b_view, auto c_view) {
          numeric::gemm(arithmetic, a_view, b_view, c_view, threads_of(pool));
        });
      },
      py::arg("mode"), py::arg("a"), py::arg("b"), py::arg("c"), py::arg("pool") = nullptr);
  module.def(
      "gemm_ord64",
      [](const py::buffer& a, const py::buffer& b, const py::buffer& c, const thread_pool* pool) {
        with_matrices<double>(a, b, c, [&](auto a_view, auto b_view, auto c_view) {
          numeric::gemm_ord64(a_view, b_view, c_view, threads_of(pool));
        });
      },
      py::arg("a"), py::arg("b"), py::arg("c"), py::arg("pool") = nullptr);
  module.def(
      "gemm_log64",
      [](const py::buffer& a, const py::buffer& b, const py::buffer& c, int bits,
         std::uint64_t order, const thread_pool* pool) {
        std::vector<numeric::near_tie> ties;
        with_matrices<float>(a, b, c, [&](auto a_view, auto b_view, auto c_view) {
          ties = numeric::gemm_log64(a_view, b_view, c_view, {bits, order}, threads_of(pool));
        });
        return list_of(
            ties, [](const auto& tie) { return py::make_tuple(tie.index, tie.value, tie.window); });
      },
      py::arg("a"), py::arg("b"), py::arg("c"), py::arg("bits") = 32, py::arg("order") = 0,
      py::arg("pool") = nullptr);
}

numeric::unary function_of(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(numeric::unary::mish); ++i) {
    const auto function = static_cast<numeric::unary>(i);
    if (name == numeric::to_string(function)) return function;
  }
  throw exception({errc::usage, "there is no function \"" + name + "\"", ""});
}

/// The elements of a contiguous buffer.
template <class Element>
std::span<Element> span_of(const py::buffer_info& info) {
  using value = std::remove_const_t<Element>;
  py::ssize_t step = sizeof(value);
  bool fits = info.item_type_is_equivalent_to<value>();
  for (auto i = static_cast<std::size_t>(info.ndim); i-- > 0; step *= info.shape[i])
    fits = fits && (info.shape[i] < 2 || info.strides[i] == step);
  if (!fits) {
    throw exception(
        {errc::usage,
         "an operand is not a contiguous buffer of " + py::format_descriptor<value>::format(),
         "pass float32"});
  }
  return {static_cast<Element*>(info.ptr), static_cast<std::size_t>(info.size)};
}

void bind_elementwise(py::module_& module) {
  module.def(
      "apply",
      [](const std::string& name, const py::buffer& x, const py::buffer& y,
         const thread_pool* pool) {
        const auto function = function_of(name);
        const py::buffer_info x_info = x.request(), y_info = y.request(true);
        const auto from = span_of<const float>(x_info);
        const auto to = span_of<float>(y_info);
        py::gil_scoped_release released;
        numeric::apply(function, from, to, threads_of(pool));
      },
      py::arg("function"), py::arg("x"), py::arg("y"), py::arg("pool") = nullptr);
}

}  // namespace

void bind_numeric(py::module_& module) {
  py::class_<thread_pool>(module, "ThreadPool", py::module_local())
      .def(py::init<std::size_t>(), py::arg("threads"));
  module.def("processor_isa", [] { return numeric::to_string(numeric::processor_isa()); });
  module.def("active_isa", [] { return numeric::to_string(numeric::active_isa()); });
  module.def(
      "cap_isa",
      [](const std::string& level) {
        return numeric::to_string(numeric::cap_isa(level_of(level)));
      },
      py::arg("level"));
  bind_gemm(module);
  bind_elementwise(module);
}

}  // namespace potl::python
