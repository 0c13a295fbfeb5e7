// SPDX-License-Identifier: Apache-2.0
// Attention in log64: the formulas of numeric/detail/attention.hpp as operators of whole tensors,
// one after the other, so that the rounding log has an order. Heads are taken in groups, so that no
// matrix of all scores exists; keys and values that heads share are repeated.
#include "attention_log.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ops/arange.h>

#include <potl/numeric/detail/softmax.hpp>

#include "products.hpp"
#include "real.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

/// Most scores that are held at a time, unless one head has more.
constexpr std::int64_t group_scores = std::int64_t{1} << 22;
constexpr double never = -std::numeric_limits<double>::infinity();

/// Keeps where a mask of bool is true; adds another.
void apply_mask(const at::Tensor& scores, const at::Tensor& mask) {
  if (mask.scalar_type() == at::kBool) {
    scores.masked_fill_(mask.logical_not(), never);
  } else {
    scores.add_(mask);
  }
}

/// The scores of one call, some heads at a time; operands as [batch * heads, rows, width].
class scores {
 public:
  scores(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& mask, bool is_causal,
         std::optional<double> scale)
      : query_(query.flatten(0, 1)),
        key_(keys.flatten(0, 1)),
        is_causal_(is_causal),
        scale_(scale ? *scale : 1.0 / std::sqrt(static_cast<double>(query.size(3)))),
        heads_(query.size(1)) {
    const std::int64_t one = std::max<std::int64_t>(1, query.size(2) * keys.size(2));
    group_ = std::max<std::int64_t>(1, group_scores / one);
    // Whole samples where possible: one operator masks all of their heads.
    if (group_ > heads_) group_ -= group_ % std::max<std::int64_t>(1, heads_);
    if (mask.defined()) {
      mask_ = mask.expand({query.size(0), query.size(1), query.size(2), keys.size(2)});
    }
  }

  double scale() const { return scale_; }

  /// body(first, size) over groups of heads.
  template <class Body>
  void for_groups(const Body& body) const {
    for (std::int64_t first = 0; first < query_.size(0); first += group_) {
      body(first, std::min(group_, query_.size(0) - first));
    }
  }

  /// Probabilities of some heads, [size, queries, keys], in the type that is computed in; the
  /// logarithms of the sums too where they are wanted.
  at::Tensor probabilities(std::int64_t first, std::int64_t size,
                           const at::Tensor& logsumexp) const {
    at::Tensor x = wide_product("scaled_dot_product_attention", query_.narrow(0, first, size),
                                key_.narrow(0, first, size).transpose(1, 2));
    x.mul_(scale_);
    if (is_causal_) {
      const at::Tensor rows = at::arange(x.size(1), at::TensorOptions(at::kLong));
      const at::Tensor columns = at::arange(x.size(2), at::TensorOptions(at::kLong));
      x.masked_fill_(columns.unsqueeze(0) > rows.unsqueeze(1), never);
    }
    if (mask_.defined()) add_mask(x, first, size);
    if (logsumexp.defined() && x.numel() == 0) logsumexp.fill_(never);
    if (x.numel() != 0) normalise(x, logsumexp);
    return x;
  }

 private:
  void add_mask(const at::Tensor& x, std::int64_t first, std::int64_t size) const {
    if (size % heads_ == 0 && first % heads_ == 0) {
      apply_mask(x.unflatten(0, {size / heads_, heads_}),
                 mask_.narrow(0, first / heads_, size / heads_));
      return;
    }
    for (std::int64_t i = 0; i < size; ++i) {
      apply_mask(x[i], mask_[(first + i) / heads_][(first + i) % heads_]);
    }
  }

  void normalise(const at::Tensor& x, const at::Tensor& logsumexp) const {
    const numeric::reduction_shape shape{x.size(0) * x.size(1), x.size(2), 1};
    with_real(x.scalar_type(), [&](auto zero) {
      using Real = decltype(zero);
      Real* values = x.mutable_data_ptr<Real>();
      if (logsumexp.defined()) {
        numeric::logsumexp(shape, values, logsumexp.mutable_data_ptr<Real>(), executor());
      }
      std::vector<Real*> empty;
      if (mask_.defined()) {
        for (Real* row = values; row != values + x.numel(); row += shape.count) {
          const bool is_empty = std::all_of(
              row, row + shape.count, [](Real one) { return one == static_cast<Real>(never); });
          if (is_empty) empty.push_back(row);
        }
      }
      numeric::softmax(shape, values, values, executor());
      for (Real* row : empty) std::fill(row, row + shape.count, Real{0});
    });
  }

  at::Tensor query_, key_, mask_;
  bool is_causal_;
  double scale_;
  std::int64_t heads_, group_ = 1;
};

/// Every head of keys or values as often as there are heads of the query for it.
at::Tensor repeated(const at::Tensor& x, std::int64_t heads) {
  if (x.size(1) == heads) return x;
  const std::int64_t times = heads / x.size(1);
  return x.unsqueeze(2).expand({-1, -1, times, -1, -1}).flatten(1, 2);
}

/// The gradient of that: sums over each group.
at::Tensor gathered(const at::Tensor& gradient, std::int64_t heads) {
  if (gradient.size(1) == heads) return gradient;
  return gradient.unflatten(1, {heads, gradient.size(1) / heads}).sum(2);
}

}  // namespace

attention_result logged_attention(const attention_operands& of, const at::Tensor& output) {
  const at::Tensor& query = of.query;
  const c10::ScalarType type = compute_type("scaled_dot_product_attention", query.scalar_type());
  const scores all(query, repeated(of.keys, query.size(1)), of.mask, of.is_causal, of.scale);
  const at::Tensor values = repeated(of.value, query.size(1)).flatten(0, 1);
  const at::Tensor flat =
      make({query.size(0) * query.size(1), query.size(2), of.value.size(3)}, query.scalar_type());
  const at::Tensor logsumexp = make({query.size(0) * query.size(1), query.size(2)}, type);
  all.for_groups([&](std::int64_t first, std::int64_t size) {
    const at::Tensor p = all.probabilities(first, size, logsumexp.narrow(0, first, size));
    flat.narrow(0, first, size)
        .copy_(wide_product("scaled_dot_product_attention", p.to(of.value.scalar_type()),
                            values.narrow(0, first, size)));
  });
  output.copy_(flat.view(output.sizes()));
  return {output, logsumexp.view({query.size(0), query.size(1), query.size(2)})};
}

attention_gradients logged_attention_backward(const attention_operands& of,
                                              const at::Tensor& gradient) {
  const char* name = "scaled_dot_product_attention_backward";
  const at::Tensor& query = of.query;
  const c10::ScalarType narrow = query.scalar_type();
  const at::Tensor every_key = repeated(of.keys, query.size(1));
  const scores all(query, every_key, of.mask, of.is_causal, of.scale);
  const at::Tensor q = query.flatten(0, 1);
  const at::Tensor k = every_key.flatten(0, 1);
  const at::Tensor v = repeated(of.value, query.size(1)).flatten(0, 1);
  const at::Tensor dy = gradient.flatten(0, 1);
  const at::Tensor dq = make(q.sizes(), narrow);
  const at::Tensor dk = make(k.sizes(), narrow);
  const at::Tensor dv = make(v.sizes(), narrow);
  all.for_groups([&](std::int64_t first, std::int64_t size) {
    const at::Tensor p = all.probabilities(first, size, {});
    const at::Tensor own = dy.narrow(0, first, size);
    dv.narrow(0, first, size).copy_(wide_product(name, p.to(narrow).transpose(1, 2), own));
    at::Tensor slope = wide_product(name, own, v.narrow(0, first, size).transpose(1, 2));
    if (slope.numel() != 0) {
      with_real(slope.scalar_type(), [&](auto zero) {
        using Real = decltype(zero);
        numeric::softmax_backward({size * slope.size(1), slope.size(2), 1},
                                  slope.const_data_ptr<Real>(), p.const_data_ptr<Real>(),
                                  slope.mutable_data_ptr<Real>(), executor());
      });
    }
    slope = slope.mul_(all.scale()).to(narrow);
    dq.narrow(0, first, size).copy_(wide_product(name, slope, k.narrow(0, first, size)));
    dk.narrow(0, first, size)
        .copy_(wide_product(name, slope.transpose(1, 2), q.narrow(0, first, size)));
  });
  const auto heads = [&](const at::Tensor& flat) {
    return flat.unflatten(0, {query.size(0), query.size(1)});
  };
  return {heads(dq), gathered(heads(dk), of.keys.size(1)), gathered(heads(dv), of.keys.size(1))};
}

}  // namespace potl::libtorch::dispatch
