// SPDX-License-Identifier: Apache-2.0
// Systems of equations, inverses, determinants, Cholesky and QR (numeric/detail/decomposition.hpp):
// computed in double, matrix after matrix, and rounded once. Products of reflections and the
// exponential are products of matrices in double.
#include <potl/numeric/detail/decomposition.hpp>
#include <potl/numeric/elementwise.hpp>

#include <algorithm>
#include <vector>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/where.h>

#include "matrices.hpp"
#include "operand.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;
using numeric::double_matrix;

struct factored {
  Tensor lu, pivots, info;  ///< lu in double
};
factored factor(const Tensor& a) {
  const std::int64_t least = std::min(a.size(-1), a.size(-2));
  factored all = {work_of(a), make(batch_of(a, {least}), at::kInt), make(batch_of(a), at::kInt)};
  each(all.lu, [&](std::int64_t i) {
    const std::span pivots(all.pivots.mutable_data_ptr<std::int32_t>() + i * least,
                           static_cast<std::size_t>(least));
    all.info.mutable_data_ptr<std::int32_t>()[i] = numeric::lu_factor(matrix(all.lu, i), pivots);
  });
  return all;
}

/// A^-1 B or, transposed, A^-T B, in double; batches are broadcast.
Tensor solved(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool transposed) {
  const std::vector<std::int64_t> of_lu = batch_of(lu), of_b = batch_of(b);
  const auto common = at::infer_size(of_lu, of_b);
  const auto spread = [&](const Tensor& x, std::int64_t kept) {
    std::vector<std::int64_t> sizes(common.begin(), common.end());
    for (std::int64_t i = x.dim() - kept; i < x.dim(); ++i) sizes.push_back(x.size(i));
    return x.expand(sizes);
  };
  const std::int64_t n = lu.size(-1);
  const Tensor factors = spread(lu, 2).contiguous(), places = spread(pivots, 1).contiguous();
  Tensor x = work_of(spread(b, 2));
  if (x.numel() == 0) return x;
  each(factors, [&](std::int64_t i) {
    const std::span swaps(places.const_data_ptr<std::int32_t>() + i * n,
                          static_cast<std::size_t>(n));
    numeric::lu_solve(matrix(factors, i), swaps, transposed, matrix(x, i));
  });
  return x;
}
Tensor solved_on(bool left, const Tensor& lu, const Tensor& pivots, const Tensor& b,
                 bool transposed) {
  return left ? solved(lu, pivots, b, transposed) : solved(lu, pivots, b.mT(), !transposed).mT();
}

std::tuple<Tensor, Tensor, Tensor> lu_factor(const Tensor& a, bool pivot, bool check_errors) {
  const char* name = "linalg.lu_factor";
  require_matrices(name, a);
  if (!pivot) refuse("linalg.lu_factor without pivots is not reproducible", "use pivot=True");
  const factored all = factor(a);
  if (check_errors) at::_linalg_check_errors(all.info, name, a.dim() == 2);
  return {rounded_to(all.lu, a.scalar_type()), all.pivots, all.info};
}

Tensor lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left, bool adjoint) {
  const char* name = "linalg.lu_solve";
  require_square(name, lu);
  require_matrices(name, b);
  const std::int64_t n = lu.size(-1);
  TORCH_CHECK(lu.scalar_type() == b.scalar_type() && b.size(left ? -2 : -1) == n, name, ": sizes ",
              lu.sizes(), " and ", b.sizes(), " are not a system of one type");
  TORCH_CHECK(pivots.scalar_type() == at::kInt && pivots.sizes() == without_last(lu), name,
              ": expected pivots of type int32 and of the sizes of LU without the last one");
  TORCH_CHECK(((pivots >= 1) & (pivots <= n)).all().item<bool>(), name,
              ": pivots must be from 1 to the number of rows");
  return rounded_to(solved_on(left, lu.to(at::kDouble), pivots, b, adjoint), b.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor, Tensor> solve(const Tensor& a, const Tensor& b, bool left,
                                                 bool check_errors) {
  const char* name = "linalg.solve";
  require_square(name, a);
  require_plain(name, b);
  const bool vector = is_vector_beside(a, b);
  TORCH_CHECK(left || !vector, name,
              ": Vector broadcasting of the left hand side is not supported for left=False");
  const Tensor right = vector ? b.unsqueeze(-1) : b;
  TORCH_CHECK(a.scalar_type() == b.scalar_type() && right.dim() >= 2 &&
                  right.size(left ? -2 : -1) == a.size(-1),
              name, ": sizes ", a.sizes(), " and ", b.sizes(), " are not a system of one type");
  const factored all = factor(a);
  if (check_errors) at::_linalg_check_errors(all.info, name, a.dim() == 2);
  const Tensor x = solved_on(left, all.lu, all.pivots, right, /*transposed=*/false);
  const c10::ScalarType type = a.scalar_type();
  return {rounded_to(vector ? x.squeeze(-1) : x, type), rounded_to(all.lu, type), all.pivots,
          all.info};
}

std::tuple<Tensor, Tensor> inverse(const Tensor& a, bool check_errors) {
  const char* name = "linalg.inv";
  require_square(name, a);
  const factored all = factor(a);
  if (check_errors) at::_linalg_check_errors(all.info, name, a.dim() == 2);
  const Tensor ones = at::eye(a.size(-1), all.lu.options());
  return {rounded_to(solved(all.lu, all.pivots, ones, false), a.scalar_type()), all.info};
}

/// The product of the pivots, or its sign and its logarithm.
struct determinant {
  Tensor value, sign, logarithm;
};
determinant of_pivots(const factored& all) {
  const std::vector<std::int64_t> sizes = batch_of(all.lu);
  const determinant of = {make(sizes, at::kDouble), make(sizes, at::kDouble),
                          make(sizes, at::kDouble)};
  const std::int64_t n = all.lu.size(-1);
  each(all.lu, [&](std::int64_t index) {
    const double_matrix lu = matrix(all.lu, index);
    const auto* pivots = all.pivots.const_data_ptr<std::int32_t>() + index * n;
    double product = 1.0, sign = 1.0, sum = 0.0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double pivot = pivots[i] == i + 1 ? lu(i, i) : -lu(i, i);
      product *= pivot;
      sign *= pivot > 0.0 ? 1.0 : pivot < 0.0 ? -1.0 : pivot;
      sum += numeric::evaluate(numeric::unary::log, pivot < 0.0 ? -pivot : pivot);
    }
    of.value.mutable_data_ptr<double>()[index] = product;
    of.sign.mutable_data_ptr<double>()[index] = sign;
    of.logarithm.mutable_data_ptr<double>()[index] = sum;
  });
  return of;
}
/// torch's gradients of determinants expect factors of the transpose where A is contiguous, else of
/// A. The determinant is always that of the transpose, so that strides do not change it.
std::pair<determinant, factored> determinant_of(const Tensor& a) {
  factored all = factor(a.mT());
  determinant of = of_pivots(all);
  if (!a.is_contiguous()) all = factor(a);
  return {std::move(of), std::move(all)};
}
std::tuple<Tensor, Tensor, Tensor> det(const Tensor& a) {
  require_square("linalg.det", a);
  const auto [of, all] = determinant_of(a);
  const c10::ScalarType type = a.scalar_type();
  return {rounded_to(of.value, type), rounded_to(all.lu, type), all.pivots};
}
std::tuple<Tensor, Tensor, Tensor, Tensor> slogdet(const Tensor& a) {
  require_square("linalg.slogdet", a);
  const auto [of, all] = determinant_of(a);
  const c10::ScalarType type = a.scalar_type();
  return {rounded_to(of.sign, type), rounded_to(of.logarithm, type), rounded_to(all.lu, type),
          all.pivots};
}

std::tuple<Tensor, Tensor> cholesky_ex(const Tensor& a, bool upper, bool check_errors) {
  const char* name = "linalg.cholesky";
  require_square(name, a);
  const Tensor work = work_of(upper ? a.mT() : a), info = make(batch_of(a), at::kInt);
  each(work, [&](std::int64_t i) {
    info.mutable_data_ptr<std::int32_t>()[i] = numeric::cholesky(matrix(work, i));
  });
  if (check_errors) at::_linalg_check_errors(info, name, a.dim() == 2);
  const Tensor lower = rounded_to(work, a.scalar_type());
  return {upper ? lower.mT() : lower, info};
}
Tensor cholesky(const Tensor& a, bool upper) {
  return std::get<0>(cholesky_ex(a, upper, /*check_errors=*/true));
}
Tensor cholesky_solve(const Tensor& b, const Tensor& factor, bool upper) {
  const Tensor lower = upper ? factor.mT() : factor;
  const Tensor y = at::linalg_solve_triangular(lower, b, /*upper=*/false);
  return at::linalg_solve_triangular(lower.mT(), y, /*upper=*/true);
}
Tensor cholesky_inverse(const Tensor& factor, bool upper) {
  require_square("cholesky_inverse", factor);
  return cholesky_solve(at::eye(factor.size(-1), factor.options()), factor, upper);
}

std::tuple<Tensor, Tensor> qr(const Tensor& a, c10::string_view mode) {
  require_matrices("linalg.qr", a);
  TORCH_CHECK(mode == "reduced" || mode == "complete" || mode == "r",
              "qr received unrecognized mode '", mode,
              "' but expected one of 'reduced' (default), 'r', or 'complete'");
  const std::int64_t rows = a.size(-2), least = std::min(rows, a.size(-1));
  const std::int64_t kept = mode == "complete" ? rows : least;
  const Tensor r = work_of(a), q = make(batch_of(a, {rows, kept}), at::kDouble);
  each(r, [&](std::int64_t i) { numeric::qr(matrix(r, i), matrix(q, i)); });
  const c10::ScalarType type = a.scalar_type();
  return {mode == "r" ? make({0}, type) : rounded_to(q, type),
          rounded_to(r.narrow(-2, 0, kept), type).contiguous()};
}

/// The first columns of H1 H2 ... Hk, Hi = 1 - tau_i v_i v_i^T, where v_i is 1 on the diagonal and
/// column i of A below.
Tensor reflections(const Tensor& a, const Tensor& tau) {
  const char* name = "linalg.householder_product";
  require_matrices(name, a);
  const std::int64_t rows = a.size(-2), columns = a.size(-1), count = tau.size(-1);
  TORCH_CHECK(rows >= columns && columns >= count && tau.scalar_type() == a.scalar_type() &&
                  tau.sizes() == c10::IntArrayRef(batch_of(a, {count})),
              name, ": sizes ", a.sizes(), " and ", tau.sizes(), " do not fit");
  const Tensor below = a.to(at::kDouble).tril(-1), factors = tau.to(at::kDouble).unsqueeze(-1);
  const Tensor ones = at::eye(rows, columns, below.options());
  Tensor q = ones.expand(a.sizes());
  for (std::int64_t i = count; i-- > 0;) {
    const Tensor v = (below.select(-1, i) + ones.select(-1, i)).unsqueeze(-1);
    q = q - (factors.narrow(-2, i, 1) * v).matmul(v.mT().matmul(q));
  }
  return rounded_to(q, a.scalar_type());
}

/// exp(A) = exp(A / 2^h)^(2^h): the halvings h of a matrix leave no row of more than 1/2, where 18
/// terms of the series are enough in double. A matrix that is not finite is not halved.
Tensor exponential(const Tensor& a) {
  require_square("linalg.matrix_exp", a);
  if (a.numel() == 0) return a.clone();
  const Tensor x = a.to(at::kDouble), size = x.abs().sum(-1).amax(-1);
  const Tensor exponent = std::get<1>(at::frexp(size));
  const Tensor halvings =
      at::where(size.isfinite(), exponent + 1, 0).clamp_min(0).unsqueeze(-1).unsqueeze(-1);
  const Tensor small = x * at::exp2(-halvings.to(at::kDouble));
  const Tensor ones = at::eye(a.size(-1), x.options());
  Tensor power = ones + small / 18;
  for (std::int64_t term = 17; term > 0; --term) power = ones + small.matmul(power) / term;
  const std::int64_t most = halvings.max().item<std::int64_t>();
  for (std::int64_t i = 0; i < most; ++i) {
    power = at::where(halvings > i, power.matmul(power), power);
  }
  return rounded_to(power, a.scalar_type());
}

}  // namespace

void register_decompositions(registrar& r) {
  const char* lu = "LU with partial pivoting in double, rounded once";
  r.kernel<lu_factor>("linalg_lu_factor_ex", lu, {"linalg_lu_factor_ex.out"});
  r.kernel<lu_solve>("linalg_lu_solve", lu, {"linalg_lu_solve.out"});
  r.kernel<solve>("_linalg_solve_ex", lu, {"_linalg_solve_ex.result"});
  r.kernel<inverse>("linalg_inv_ex", lu, {"linalg_inv_ex.inverse"});
  r.kernel<det>("_linalg_det", lu, {"_linalg_det.result"});
  r.kernel<slogdet>("_linalg_slogdet", lu, {"_linalg_slogdet.sign"});
  r.exact({"lu_unpack", "lu_unpack.out"}, "copies");
  const char* rows = "row after row in double, rounded once";
  r.kernel<cholesky_ex>("linalg_cholesky_ex", rows, {"linalg_cholesky_ex.L"});
  if (registrar::knows("cholesky")) r.kernel<cholesky>("cholesky", rows, {"cholesky.out"});
  const char* systems = "two triangular systems";
  r.kernel<cholesky_solve>("cholesky_solve", systems, {"cholesky_solve.out"});
  r.kernel<cholesky_inverse>("cholesky_inverse", systems, {"cholesky_inverse.out"});
  r.kernel<qr>("linalg_qr", "Householder's reflections in double, rounded once", {"linalg_qr.out"});
  r.kernel<reflections>("linalg_householder_product",
                        "reflection after reflection in double, rounded once",
                        {"linalg_householder_product.out"});
  r.kernel<exponential>("linalg_matrix_exp",
                        "halved, 18 terms of the series, squared, in double, rounded once",
                        {"linalg_matrix_exp.out"});
}

}  // namespace potl::libtorch::dispatch
