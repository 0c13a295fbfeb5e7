// SPDX-License-Identifier: Apache-2.0
// Matrix products. With beta and alpha: alpha (A B) is rounded, then beta C, then their sum;
// factors of 1 are not applied, and beta = 0 ignores C, whatever is in it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_grouped_mm_ops.h>
#include <ATen/ops/addbmm_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mv_ops.h>
#include <ATen/ops/vdot_ops.h>
#include <ATen/ops/zeros.h>

#include "operand.hpp"
#include "products.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;

void require_fit(const char* name, const Tensor& a, const Tensor& b, std::int64_t dimensions) {
  TORCH_CHECK(a.dim() == dimensions && b.dim() == dimensions, name, ": expected ", dimensions,
              "-dimensional operands, got sizes ", a.sizes(), " and ", b.sizes());
  TORCH_CHECK(a.size(-1) == b.size(-2) && (dimensions == 2 || a.size(0) == b.size(0)), name,
              ": sizes ", a.sizes(), " and ", b.sizes(), " cannot be multiplied");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), name, ": expected operands of one type, but got ",
              a.scalar_type(), " and ", b.scalar_type());
  // Of integers alone it would be torch's.
  TORCH_CHECK(!is_integral(a), name, ": expected operands of one type, but got ", a.scalar_type(),
              " beside others");
}

/// beta c + alpha x, where x is nobody else's.
Tensor plus(const Tensor& c, const Scalar& beta, Tensor x, const Scalar& alpha) {
  if (!alpha.equal(1)) x.mul_(alpha);
  if (beta.equal(0)) return x;
  TORCH_CHECK(c.scalar_type() == x.scalar_type(), "expected operands of one type, but got ",
              c.scalar_type(), " and ", x.scalar_type());
  return beta.equal(1) ? x.add_(c) : x.add_(c.mul(beta));
}

Tensor mm(const Tensor& a, const Tensor& b) {
  require_fit("mm", a, b, 2);
  return product("mm", a, b);
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  require_fit("bmm", a, b, 3);
  return product("bmm", a, b);
}

Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta,
             const Scalar& alpha) {
  return plus(c, beta, mm(a, b), alpha);
}

Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta,
               const Scalar& alpha) {
  return plus(c, beta, bmm(a, b), alpha);
}

/// The sum of a batch of products is one product, whose dot products run over the batch too.
Tensor addbmm(const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta,
              const Scalar& alpha) {
  require_fit("addbmm", a, b, 3);
  const std::int64_t terms = a.size(0) * a.size(2);
  const Tensor left = a.transpose(0, 1).reshape({a.size(1), terms});
  return plus(c, beta, product("addbmm", left, b.reshape({terms, b.size(2)})), alpha);
}

Tensor mv(const Tensor& a, const Tensor& x) {
  TORCH_CHECK(x.dim() == 1, "mv: expected a vector, got sizes ", x.sizes());
  const Tensor column = x.unsqueeze(1);
  require_fit("mv", a, column, 2);
  return product("mv", a, column).squeeze(1);
}

Tensor addmv(const Tensor& c, const Tensor& a, const Tensor& x, const Scalar& beta,
             const Scalar& alpha) {
  return plus(c, beta, mv(a, x), alpha);
}

Tensor dot(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1 && a.numel() == b.numel(),
              "dot: expected vectors of one length, got sizes ", a.sizes(), " and ", b.sizes());
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "dot: expected vectors of one type");
  return product("dot", a.unsqueeze(0), b.unsqueeze(1)).reshape({});
}

Tensor vdot(const Tensor& a, const Tensor& b) { return dot(a.conj(), b); }

Tensor& mm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  require_fit("mm", a, b, 2);
  return product_into("mm", a, b, out) ? out : write_out(product("mm", a, b), out);
}
Tensor& bmm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  require_fit("bmm", a, b, 3);
  return product_into("bmm", a, b, out) ? out : write_out(product("bmm", a, b), out);
}

/// One product for each group: of rows of `a`, of columns of `b`, or of the terms where both are
/// matrices. `ends` says where groups end; what is behind the last one gets +0.
Tensor grouped_mm(const Tensor& a, const Tensor& b, const std::optional<Tensor>& ends,
                  const std::optional<Tensor>& bias, std::optional<c10::ScalarType> type) {
  const char* name = "grouped_mm";
  TORCH_CHECK(!bias.has_value() || !bias->defined(), name, ": a bias is not supported");
  TORCH_CHECK(!type || *type == a.scalar_type(), name, ": expected a result of type ",
              a.scalar_type());
  const bool of_rows = a.dim() == 2, of_columns = b.dim() == 2, of_terms = of_rows && of_columns;
  if (!of_rows && !of_columns) return bmm(a, b);
  TORCH_CHECK(ends.has_value() && ends->dim() == 1, name, ": expected a vector offs");
  const std::int64_t groups = ends->size(0), axis = of_rows && !of_terms ? 0 : 1;
  const std::int64_t total = axis == 0 || of_terms ? a.size(axis) : b.size(1);
  TORCH_CHECK((of_rows || a.size(0) == groups) && (of_columns || b.size(0) == groups), name,
              ": sizes ", a.sizes(), " and ", b.sizes(), " do not fit ", groups, " groups");
  const Tensor places = ends->to(at::kCPU, at::kLong).contiguous();
  const std::int64_t rows = a.size(-2), columns = b.size(-1);
  const Tensor out = of_terms ? at::zeros({groups, rows, columns}, a.options())
                              : at::zeros({rows, columns}, a.options());
  std::int64_t start = 0;
  for (std::int64_t i = 0; i < groups; ++i) {
    const std::int64_t end = places.const_data_ptr<std::int64_t>()[i];
    TORCH_CHECK(start <= end && end <= total, name, ": offs must ascend, to at most ", total);
    const Tensor left = of_rows ? a.slice(axis, start, end) : a.select(0, i);
    const Tensor right = of_columns ? b.slice(of_terms ? 0 : 1, start, end) : b.select(0, i);
    (of_terms ? out.select(0, i) : out.slice(axis, start, end)).copy_(mm(left, right));
    start = end;
  }
  return out;
}

}  // namespace

void register_matmul(registrar& r) {
  namespace ops = at::_ops;
  const char* note = "dot products of the mode; of complex numbers, real ones of twice the terms";
  r.kernel<but_integers<ops::mm, mm>>("mm", note);
  r.kernel<but_integers<ops::mm_out, mm_out>>("mm.out", note);
  r.kernel<but_integers<ops::bmm, bmm>>("bmm", note);
  r.kernel<but_integers<ops::bmm_out, bmm_out>>("bmm.out", note);
  r.kernel<but_integers<ops::mv, mv>>("mv", note);
  r.kernel<but_integers<ops::dot, dot>>("dot", note);
  r.kernel<but_integers<ops::vdot, vdot>>("vdot", note);
  const char* sums = "dot products of the mode, then alpha, beta and one sum";
  r.kernel<but_integers<ops::addmm, addmm>>("addmm", sums, {"addmm_", "addmm.out"});
  r.kernel<but_integers<ops::baddbmm, baddbmm>>("baddbmm", sums, {"baddbmm_", "baddbmm.out"});
  r.kernel<but_integers<ops::addbmm, addbmm>>("addbmm", sums, {"addbmm_", "addbmm.out"});
  r.kernel<but_integers<ops::addmv, addmv>>("addmv", sums, {"addmv_", "addmv.out"});
  r.composed({"mv.out", "dot.out", "vdot.out", "_foreach_mm", "linear.out"}, "matrix products");
  r.kernel<but_integers<ops::_grouped_mm, grouped_mm>>("_grouped_mm", note);
  r.refused({"_addmm_activation", "_addmm_activation.out", "_scaled_mm"},
            "use torch.nn.functional.linear");
}

}  // namespace potl::libtorch::dispatch
