// SPDX-License-Identifier: Apache-2.0
// Eigenvalues of symmetric matrices, singular values (numeric/detail/spectrum.hpp) and least
// squares by them: computed in double, matrix after matrix, and rounded once.
#include <potl/numeric/detail/spectrum.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>

#include "matrices.hpp"
#include "operand.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;
using numeric::spectrum;

std::span<double> row_of(const Tensor& x, std::int64_t index) {
  const std::int64_t width = x.size(-1);
  return {x.mutable_data_ptr<double>() + index * width, static_cast<std::size_t>(width)};
}

/// body(index) for each matrix of a batch; throws torch's error for the first without a result.
template <class Body>
void each_found(const char* name, const Tensor& a, const Body& body) {
  std::vector<spectrum> all(static_cast<std::size_t>(count_of(a)), spectrum::found);
  each(a, [&](std::int64_t i) { all[static_cast<std::size_t>(i)] = body(i); });
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string which =
        a.dim() > 2 ? " (Batch element " + std::to_string(i) + "):" : std::string();
    TORCH_CHECK_LINALG(all[i] != spectrum::not_finite, name, ":", which,
                       " The algorithm failed to converge because the input matrix contained "
                       "non-finite values.");
    TORCH_CHECK_LINALG(all[i] != spectrum::not_converged, name, ":", which,
                       " The algorithm failed to converge because the input matrix is "
                       "ill-conditioned or has too many repeated values.");
  }
}

std::tuple<Tensor, Tensor> eigh(const Tensor& a, c10::string_view triangle, bool compute_v) {
  const char* name = "linalg.eigh";
  require_square(name, a);
  const bool lower = triangle == "L" || triangle == "l";
  TORCH_CHECK(lower || triangle == "U" || triangle == "u",
              "Expected UPLO argument to be 'L' or 'U', but got ", triangle);
  const Tensor half = (lower ? a : a.mT()).to(at::kDouble).tril();
  const Tensor work = work_of(half + half.tril(-1).mT());
  const std::int64_t n = a.size(-1), wanted = compute_v ? n : 0;
  const Tensor values = make(batch_of(a, {n}), at::kDouble);
  const Tensor vectors = make(batch_of(a, {wanted, wanted}), at::kDouble);
  each_found(name, work, [&](std::int64_t i) {
    return numeric::eigenvalues(matrix(work, i), row_of(values, i), matrix(vectors, i), executor());
  });
  const c10::ScalarType type = a.scalar_type();
  return {rounded_to(values, type), compute_v ? rounded_to(vectors, type) : make({0}, type)};
}

struct factors {
  Tensor u, s, v;  ///< in double
};
factors decomposed(const char* name, const Tensor& a, bool full_matrices, bool compute_uv) {
  const Tensor work = work_of(a);
  const std::int64_t rows = a.size(-2), columns = a.size(-1), least = std::min(rows, columns);
  const auto square_or = [&](std::int64_t size) {
    const std::int64_t width = full_matrices ? size : least;
    return compute_uv ? make(batch_of(a, {size, width}), at::kDouble)
                      : make(batch_of(a, {0, 0}), at::kDouble);
  };
  const factors out = {square_or(rows), make(batch_of(a, {least}), at::kDouble),
                       square_or(columns)};
  each_found(name, work, [&](std::int64_t i) {
    return numeric::singular_values(matrix(work, i), row_of(out.s, i), matrix(out.u, i),
                                    matrix(out.v, i), executor());
  });
  return out;
}

std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& a, bool full_matrices, bool compute_uv,
                                       std::optional<c10::string_view> driver) {
  const char* name = "linalg.svd";
  require_matrices(name, a);
  TORCH_CHECK(!driver.has_value(),
              "torch.linalg.svd: keyword argument `driver=` is only supported "
              "on CUDA inputs with cuSOLVER backend.");
  const factors of = decomposed(name, a, full_matrices, compute_uv);
  const c10::ScalarType type = a.scalar_type();
  if (!compute_uv) return {make({0}, type), rounded_to(of.s, type), make({0}, type)};
  return {rounded_to(of.u, type), rounded_to(of.s, type), rounded_to(of.v, type).mT()};
}

/// The solution of least norm, for every driver. "gels" takes the full rank for granted: it leaves
/// out values of 0 alone.
std::tuple<Tensor, Tensor, Tensor, Tensor> lstsq(const Tensor& a, const Tensor& b,
                                                 std::optional<double> cut,
                                                 std::optional<c10::string_view> driver) {
  const char* name = "linalg.lstsq";
  const c10::string_view by = driver.value_or("gelsy");
  TORCH_CHECK(by == "gels" || by == "gelsy" || by == "gelsd" || by == "gelss", "torch.", name,
              ": parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  TORCH_CHECK(!cut || *cut == *cut, "torch.", name,
              ": rcond is NaN; give a number, or leave it out");
  require_matrices(name, a);
  require_plain(name, b);
  const std::int64_t rows = a.size(-2), columns = a.size(-1);
  const bool vector = is_vector_beside(a, b);
  const Tensor right = (vector ? b.unsqueeze(-1) : b).to(at::kDouble);
  TORCH_CHECK(a.scalar_type() == b.scalar_type() && right.dim() >= 2 && right.size(-2) == rows,
              "torch.", name, ": sizes ", a.sizes(), " and ", b.sizes(),
              " are not a system of one type");
  const factors of = decomposed(name, a, /*full_matrices=*/false, /*compute_uv=*/true);
  const double unit = a.scalar_type() == at::kFloat ? 0x1p-23 : 0x1p-52;
  const double ratio =
      by == "gels" ? 0.0 : cut.value_or(unit * static_cast<double>(std::max(rows, columns)));
  const Tensor largest = of.s.narrow(-1, 0, std::min<std::int64_t>(1, of.s.size(-1)));
  const Tensor is_kept = (of.s > largest * std::max(ratio, 0.0)) & (of.s > 0.0);
  const Tensor along = at::matmul(of.u.mT(), right) / of.s.unsqueeze(-1);
  const Tensor x = at::matmul(of.v, at::where(is_kept.unsqueeze(-1), along, 0.0));

  const c10::ScalarType type = a.scalar_type();
  const Tensor rank = is_kept.sum(-1);
  Tensor residuals = make({0}, type);
  const bool has_residuals = rows > columns && by != "gelsy";
  if (has_residuals && (by == "gels" || (rank == columns).all().item<bool>())) {
    const Tensor off = at::matmul(a.to(at::kDouble), x) - right;
    residuals = rounded_to((off * off).sum(-2), type);
  }
  const bool has_values = by == "gelsd" || by == "gelss";
  return {rounded_to(vector ? x.squeeze(-1) : x, type), residuals,
          by == "gels" ? make({0}, at::kLong) : rank,
          has_values ? rounded_to(of.s, type) : make({0}, type)};
}

}  // namespace

void register_spectrum(registrar& r) {
  const char* note = "numeric/detail/spectrum.hpp in double, rounded once";
  r.kernel<eigh>("_linalg_eigh", note, {"_linalg_eigh.eigenvalues"});
  r.kernel<svd>("_linalg_svd", note, {"_linalg_svd.U"});
  r.kernel<lstsq>("linalg_lstsq", "the singular values, then products in double, rounded once",
                  {"linalg_lstsq.out"});
  r.composed({"linalg_pinv.atol_rtol_tensor", "linalg_pinv.atol_rtol_tensor_out"},
             "_linalg_svd or _linalg_eigh, and products");
}

}  // namespace potl::libtorch::dispatch
