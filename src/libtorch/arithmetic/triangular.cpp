// SPDX-License-Identifier: Apache-2.0
// Systems of equations with a triangular matrix: by substitution, one row after the other.
#include <vector>

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/matmul.h>

#include "operand.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left, bool has_ones) {
  const char* name = "linalg.solve_triangular";
  if (!left) return solve_triangular(a.mT(), b.mT(), !upper, true, has_ones).mT();
  TORCH_CHECK(a.dim() >= 2 && b.dim() >= 2 && a.size(-1) == a.size(-2) && a.size(-1) == b.size(-2),
              name, ": sizes ", a.sizes(), " and ", b.sizes(), " are not a system");
  TORCH_CHECK(a.scalar_type() == at::kFloat || a.scalar_type() == at::kDouble, name,
              ": expected a matrix of float32 or float64");
  const std::int64_t rows = a.size(-1);
  const auto batch = at::infer_size(a.sizes().slice(0, static_cast<std::size_t>(a.dim() - 2)),
                                    b.sizes().slice(0, static_cast<std::size_t>(b.dim() - 2)));
  std::vector<std::int64_t> sizes(batch.begin(), batch.end());
  sizes.insert(sizes.end(), {rows, b.size(-1)});
  // torch takes a right-hand side of another type, too, as gradients under autocast are.
  Tensor x = make_beside(b, sizes, a.scalar_type()).copy_(b);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t row = upper ? rows - 1 - i : i, first = upper ? row + 1 : 0;
    const Tensor coefficients = a.narrow(-2, row, 1);
    Tensor to = x.narrow(-2, row, 1);
    if (i > 0) to.sub_(at::matmul(coefficients.narrow(-1, first, i), x.narrow(-2, first, i)));
    if (!has_ones) to.div_(coefficients.narrow(-1, row, 1));
  }
  return x;
}

}  // namespace

void register_triangular(registrar& r) {
  r.kernel<solve_triangular>("linalg_solve_triangular",
                             "each row less a dot product of the mode, then one division",
                             {"linalg_solve_triangular.out"});
}

}  // namespace potl::libtorch::dispatch
