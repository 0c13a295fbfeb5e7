// SPDX-License-Identifier: Apache-2.0
// Of pairs of rows: distances, which are norms of differences (docs/reference/reduction.md), and
// cross products.
#include <cmath>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/linalg_cross_ops.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/triu_indices.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "operand.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;

Tensor differences(const Tensor& a, const Tensor& b) { return a.unsqueeze(-2) - b.unsqueeze(-3); }

Tensor cdist(const Tensor& a, const Tensor& b, double p, std::optional<std::int64_t>) {
  TORCH_CHECK(a.dim() >= 2 && b.dim() >= 2 && a.size(-1) == b.size(-1),
              "cdist: rows of one length are expected, got sizes ", a.sizes(), " and ", b.sizes());
  return at::linalg_vector_norm(differences(a, b), p, at::OptionalIntArrayRef(-1));
}

/// By the differences x: dy times the slope of the norm, where that is 0 at 0.
Tensor norm_backward(const Tensor& dy, const Tensor& x, double p, const Tensor& norms) {
  const Tensor norm = norms.unsqueeze(-1);
  Tensor slope = x.sign();
  if (p == 0) {
    slope = slope * 0;
  } else if (std::isinf(p)) {
    slope = slope * (x.abs() == norm).to(x.scalar_type());
  } else if (p == 2) {
    slope = x / norm;
  } else if (p != 1) {
    slope = slope * (x.abs() / norm).pow(p - 1);
  }
  return at::where((norm == 0) | (x == 0), 0.0, slope * dy.unsqueeze(-1));
}

/// By the first operand.
Tensor cdist_backward(const Tensor& dy, const Tensor& a, const Tensor& b, double p,
                      const Tensor& norms) {
  return norm_backward(dy, differences(a, b), p, norms).sum(-2);
}

/// All pairs of rows, the first row's before the second's.
struct pairs {
  explicit pairs(const Tensor& x) {
    const Tensor both = at::triu_indices(x.size(0), x.size(0), 1, at::kLong);
    first = both[0];
    second = both[1];
    difference = x.index_select(0, first) - x.index_select(0, second);
  }
  Tensor first, second, difference;
};

Tensor pdist(const Tensor& x, double p) {
  return at::linalg_vector_norm(pairs(x).difference, p, at::OptionalIntArrayRef(-1));
}

Tensor pdist_backward(const Tensor& dy, const Tensor& x, double p, const Tensor& norms) {
  const pairs of(x);
  const Tensor slope = norm_backward(dy, of.difference, p, norms);
  return at::zeros_like(x).index_add(0, of.first, slope).index_add(0, of.second, -slope);
}

Tensor cross(const Tensor& a, const Tensor& b, std::int64_t dim) {
  TORCH_CHECK(a.dim() == b.dim() && a.size(dim) == 3 && b.size(dim) == 3,
              "linalg.cross: rows of three elements are expected, got sizes ", a.sizes(), " and ",
              b.sizes());
  return a.roll(-1, dim) * b.roll(-2, dim) - a.roll(-2, dim) * b.roll(-1, dim);
}

}  // namespace

void register_distances(registrar& r) {
  r.kernel<cdist>("_cdist_forward", "the norm of each difference");
  r.kernel<cdist_backward>("_cdist_backward", "dy times the slope of the norm, then their sum");
  r.kernel<pdist>("_pdist_forward", "the norm of each difference");
  r.kernel<pdist_backward>("_pdist_backward",
                           "dy times the slope of the norm, added in ascending order of the pairs");
  r.kernel<but_integers<at::_ops::linalg_cross, cross>>(
      "linalg_cross", "two products and their difference", {"linalg_cross.out"});
  r.composed({"_euclidean_dist"}, "squares, matrix products, sqrt");
}

}  // namespace potl::libtorch::dispatch
