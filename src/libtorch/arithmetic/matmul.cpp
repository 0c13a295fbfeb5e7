// SPDX-License-Identifier: Apache-2.0
// Matrix products. With beta and alpha: alpha (A B) is rounded, then beta C, then their sum;
// factors of 1 are not applied, and beta = 0 ignores C, whatever is in it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/addbmm_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mv_ops.h>

#include "operand.hpp"
#include "products.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;
using keys_t = c10::DispatchKeySet;

/// `out=` forms of a function.
template <Tensor (*function)(keys_t, const Tensor&, const Tensor&, const Tensor&, const Scalar&,
                             const Scalar&)>
Tensor& sum_out(keys_t keys, const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta,
                const Scalar& alpha, Tensor& out) {
  return write_out(function(keys, c, a, b, beta, alpha), out);
}

/// The form that overwrites the first operand.
template <Tensor (*function)(keys_t, const Tensor&, const Tensor&, const Tensor&, const Scalar&,
                             const Scalar&)>
Tensor& sum_in_place(keys_t keys, Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta,
                     const Scalar& alpha) {
  return c.copy_(function(keys, c, a, b, beta, alpha));
}

void require_fit(const char* name, const Tensor& a, const Tensor& b, std::int64_t dimensions) {
  TORCH_CHECK(a.dim() == dimensions && b.dim() == dimensions, name, ": expected ", dimensions,
              "-dimensional operands, got sizes ", a.sizes(), " and ", b.sizes());
  TORCH_CHECK(a.size(-1) == b.size(-2) && (dimensions == 2 || a.size(0) == b.size(0)), name,
              ": sizes ", a.sizes(), " and ", b.sizes(), " cannot be multiplied");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), name, ": expected operands of one type, but got ",
              a.scalar_type(), " and ", b.scalar_type());
}

/// beta c + alpha x, where x is nobody else's.
Tensor plus(const Tensor& c, const Scalar& beta, Tensor x, const Scalar& alpha) {
  if (!alpha.equal(1)) x.mul_(alpha);
  if (beta.equal(0)) return x;
  TORCH_CHECK(c.scalar_type() == x.scalar_type(), "expected operands of one type, but got ",
              c.scalar_type(), " and ", x.scalar_type());
  return beta.equal(1) ? x.add_(c) : x.add_(c.mul(beta));
}

Tensor mm(keys_t keys, const Tensor& a, const Tensor& b) {
  if (is_integral(a)) return at::_ops::mm::redispatch(keys & below, a, b);
  require_fit("mm", a, b, 2);
  return product("mm", a, b);
}

Tensor bmm(keys_t keys, const Tensor& a, const Tensor& b) {
  if (is_integral(a)) return at::_ops::bmm::redispatch(keys & below, a, b);
  require_fit("bmm", a, b, 3);
  return product("bmm", a, b);
}

Tensor addmm(keys_t keys, const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta,
             const Scalar& alpha) {
  if (is_integral(a)) return at::_ops::addmm::redispatch(keys & below, c, a, b, beta, alpha);
  return plus(c, beta, mm(keys, a, b), alpha);
}

Tensor baddbmm(keys_t keys, const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta,
               const Scalar& alpha) {
  if (is_integral(a)) return at::_ops::baddbmm::redispatch(keys & below, c, a, b, beta, alpha);
  return plus(c, beta, bmm(keys, a, b), alpha);
}

/// The sum of a batch of products is one product, whose dot products run over the batch too.
Tensor addbmm(keys_t keys, const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta,
              const Scalar& alpha) {
  if (is_integral(a)) return at::_ops::addbmm::redispatch(keys & below, c, a, b, beta, alpha);
  require_fit("addbmm", a, b, 3);
  const std::int64_t terms = a.size(0) * a.size(2);
  const Tensor left = a.transpose(0, 1).reshape({a.size(1), terms});
  return plus(c, beta, product("addbmm", left, b.reshape({terms, b.size(2)})), alpha);
}

Tensor mv(keys_t keys, const Tensor& a, const Tensor& x) {
  if (is_integral(a)) return at::_ops::mv::redispatch(keys & below, a, x);
  TORCH_CHECK(x.dim() == 1, "mv: expected a vector, got sizes ", x.sizes());
  const Tensor column = x.unsqueeze(1);
  require_fit("mv", a, column, 2);
  return product("mv", a, column).squeeze(1);
}

Tensor addmv(keys_t keys, const Tensor& c, const Tensor& a, const Tensor& x, const Scalar& beta,
             const Scalar& alpha) {
  if (is_integral(a)) return at::_ops::addmv::redispatch(keys & below, c, a, x, beta, alpha);
  return plus(c, beta, mv(keys, a, x), alpha);
}

Tensor dot(keys_t keys, const Tensor& a, const Tensor& b) {
  if (is_integral(a)) return at::_ops::dot::redispatch(keys & below, a, b);
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1 && a.numel() == b.numel(),
              "dot: expected vectors of one length, got sizes ", a.sizes(), " and ", b.sizes());
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "dot: expected vectors of one type");
  return product("dot", a.unsqueeze(0), b.unsqueeze(1)).reshape({});
}

Tensor& mm_out(keys_t keys, const Tensor& a, const Tensor& b, Tensor& out) {
  if (!is_integral(a)) {
    require_fit("mm", a, b, 2);
    if (product_into("mm", a, b, out)) return out;
  }
  return write_out(mm(keys, a, b), out);
}

Tensor& bmm_out(keys_t keys, const Tensor& a, const Tensor& b, Tensor& out) {
  if (!is_integral(a)) {
    require_fit("bmm", a, b, 3);
    if (product_into("bmm", a, b, out)) return out;
  }
  return write_out(bmm(keys, a, b), out);
}

}  // namespace

void register_matmul(registrar& r) {
  const char* note = "dot products of the mode";
  r.kernel("mm", TORCH_FN(mm), note);
  r.kernel("mm.out", TORCH_FN(mm_out), note);
  r.kernel("bmm", TORCH_FN(bmm), note);
  r.kernel("bmm.out", TORCH_FN(bmm_out), note);
  r.kernel("mv", TORCH_FN(mv), note);
  r.kernel("dot", TORCH_FN(dot), note);
  r.kernel("vdot", TORCH_FN(dot), note);
  const char* sums = "dot products of the mode, then alpha, beta and one sum";
  r.kernel("addmm", TORCH_FN(addmm), sums);
  r.kernel("addmm_", TORCH_FN(sum_in_place<addmm>), sums);
  r.kernel("addmm.out", TORCH_FN(sum_out<addmm>), sums);
  r.kernel("baddbmm", TORCH_FN(baddbmm), sums);
  r.kernel("baddbmm_", TORCH_FN(sum_in_place<baddbmm>), sums);
  r.kernel("baddbmm.out", TORCH_FN(sum_out<baddbmm>), sums);
  r.kernel("addbmm", TORCH_FN(addbmm), sums);
  r.kernel("addbmm_", TORCH_FN(sum_in_place<addbmm>), sums);
  r.kernel("addbmm.out", TORCH_FN(sum_out<addbmm>), sums);
  r.kernel("addmv", TORCH_FN(addmv), sums);
  r.kernel("addmv_", TORCH_FN(sum_in_place<addmv>), sums);
  r.kernel("addmv.out", TORCH_FN(sum_out<addmv>), sums);
  r.composed({"mv.out", "dot.out", "vdot.out", "_foreach_mm", "linear.out"}, "matrix products");
  r.refused({"_addmm_activation", "_addmm_activation.out", "_grouped_mm", "_scaled_mm"},
            "use torch.nn.functional.linear");
}

}  // namespace potl::libtorch::dispatch
