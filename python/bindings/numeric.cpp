// SPDX-License-Identifier: Apache-2.0
// Reproducible products of buffers (numpy arrays, torch's through the array interface): for tests
// and experiments. The torch adapter calls the library itself.
#include <potl/numeric/detail/isa.hpp>
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

template <class Body>
void with_matrices(const py::buffer& a, const py::buffer& b, const py::buffer& c,
                   const Body& body) {
  const py::buffer_info a_info = a.request(), b_info = b.request(), c_info = c.request(true);
  const auto a_view = matrix_of<const float>(a_info);
  const auto b_view = matrix_of<const float>(b_info);
  const auto c_view = matrix_of<float>(c_info);
  py::gil_scoped_release released;
  body(a_view, b_view, c_view);
}

void bind_gemm(py::module_& module) {
  module.attr("MODES") =
      py::tuple(list_of(numeric::arithmetics, [](auto one) { return numeric::to_string(one); }));
  module.def(
      "gemm",
      [](const std::string& mode, const py::buffer& a, const py::buffer& b, const py::buffer& c,
         const thread_pool* pool) {
        const auto arithmetic = mode_of(mode);
        with_matrices(a, b, c, [&](auto a_view, auto b_view, auto c_view) {
          numeric::gemm(arithmetic, a_view, b_view, c_view, threads_of(pool));
        });
      },
      py::arg("mode"), py::arg("a"), py::arg("b"), py::arg("c"), py::arg("pool") = nullptr);
  module.def(
      "gemm_log64",
      [](const py::buffer& a, const py::buffer& b, const py::buffer& c, int bits,
         std::uint64_t order, const thread_pool* pool) {
        std::vector<numeric::near_tie> ties;
        with_matrices(a, b, c, [&](auto a_view, auto b_view, auto c_view) {
          ties = numeric::gemm_log64(a_view, b_view, c_view, {bits, order}, threads_of(pool));
        });
        return list_of(
            ties, [](const auto& tie) { return py::make_tuple(tie.index, tie.value, tie.window); });
      },
      py::arg("a"), py::arg("b"), py::arg("c"), py::arg("bits") = 32, py::arg("order") = 0,
      py::arg("pool") = nullptr);
}

}  // namespace

void bind_numeric(py::module_& module) {
  py::class_<thread_pool>(module, "ThreadPool", py::module_local())
      .def(py::init<std::size_t>(), py::arg("threads"));
  module.def("active_isa", [] { return numeric::to_string(numeric::active_isa()); });
  bind_gemm(module);
}

}  // namespace potl::python
