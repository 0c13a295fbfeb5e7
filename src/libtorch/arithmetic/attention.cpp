// SPDX-License-Identifier: Apache-2.0
// torch's flash attention of the CPU, defined: dot products of the mode, one product with the
// scale, the mask, softmax as everywhere, dot products again. The backward pass computes the same
// probabilities once more. Heads are taken in groups, so that no matrix of all scores exists.
#include "attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ops/arange.h>

#include <potl/numeric/softmax.hpp>

#include "products.hpp"
#include "real.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

/// Most scores that are held at a time, unless one head has more.
constexpr std::int64_t group_scores = std::int64_t{1} << 22;
constexpr double never = -std::numeric_limits<double>::infinity();

/// Keeps where a mask of bool is true; adds another.
void apply_mask(at::Tensor scores, const at::Tensor& mask) {
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

void require_shapes(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& value) {
  TORCH_CHECK(query.dim() == 4 && keys.dim() == 4 && value.dim() == 4,
              "scaled_dot_product_attention: expected operands of 4 dimensions");
  TORCH_CHECK(query.size(0) == keys.size(0) && keys.size(0) == value.size(0) &&
                  keys.size(1) == value.size(1) && keys.size(2) == value.size(2) &&
                  query.size(3) == keys.size(3) && keys.size(1) > 0 &&
                  query.size(1) % keys.size(1) == 0,
              "scaled_dot_product_attention: the shapes ", query.sizes(), ", ", keys.sizes(),
              " and ", value.sizes(), " do not fit");
}

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

/// Like torch's: [batch, rows, heads, width] in memory.
at::Tensor heads_inside(const at::Tensor& like, std::int64_t width, c10::ScalarType type) {
  return make({like.size(0), like.size(2), like.size(1), width}, type).transpose(1, 2);
}

}  // namespace

attention_result attention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& value,
                           const at::Tensor& mask, bool is_causal, std::optional<double> scale) {
  require_shapes(query, keys, value);
  const c10::ScalarType type = compute_type("scaled_dot_product_attention", query.scalar_type());
  const scores all(query, repeated(keys, query.size(1)), mask, is_causal, scale);
  const at::Tensor values = repeated(value, query.size(1)).flatten(0, 1);
  const at::Tensor output =
      make({query.size(0) * query.size(1), query.size(2), value.size(3)}, query.scalar_type());
  const at::Tensor logsumexp = make({query.size(0) * query.size(1), query.size(2)}, type);
  all.for_groups([&](std::int64_t first, std::int64_t size) {
    const at::Tensor p = all.probabilities(first, size, logsumexp.narrow(0, first, size));
    output.narrow(0, first, size)
        .copy_(wide_product("scaled_dot_product_attention", p.to(value.scalar_type()),
                            values.narrow(0, first, size)));
  });
  const at::Tensor inside = heads_inside(query, value.size(3), query.scalar_type());
  inside.copy_(output.view(inside.sizes()));
  return {inside, logsumexp.view({query.size(0), query.size(1), query.size(2)})};
}

namespace {

std::tuple<at::Tensor, at::Tensor> flash(const at::Tensor& query, const at::Tensor& keys,
                                         const at::Tensor& value, double dropout, bool is_causal,
                                         const std::optional<at::Tensor>& mask,
                                         std::optional<double> scale) {
  TORCH_CHECK(dropout == 0, "scaled_dot_product_attention_flash_attention: dropout is not for CPU");
  const attention_result out =
      attention(query, keys, value, value_or_undefined(mask), is_causal, scale);
  return {out.output, out.logsumexp};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& keys,
    const at::Tensor& value, const at::Tensor&, const at::Tensor&, double, bool is_causal,
    const std::optional<at::Tensor>& mask, std::optional<double> scale) {
  const char* name = "scaled_dot_product_attention_backward";
  require_shapes(query, keys, value);
  const c10::ScalarType narrow = query.scalar_type();
  const at::Tensor every_key = repeated(keys, query.size(1));
  const scores all(query, every_key, value_or_undefined(mask), is_causal, scale);
  const at::Tensor q = query.flatten(0, 1);
  const at::Tensor k = every_key.flatten(0, 1);
  const at::Tensor v = repeated(value, query.size(1)).flatten(0, 1);
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
  return {heads(dq), gathered(heads(dk), keys.size(1)), gathered(heads(dv), keys.size(1))};
}

}  // namespace

void register_attention(registrar& r) {
  r.kernel("_scaled_dot_product_flash_attention_for_cpu", TORCH_FN(flash),
           "dot products, one product with the scale, the mask, _softmax, dot products");
  r.kernel("_scaled_dot_product_flash_attention_for_cpu_backward", TORCH_FN(flash_backward),
           "the probabilities again, then the gradients of each step");
  r.exact({"_fused_sdp_choice"}, "chooses a composition by shapes and options");
  r.refused({"_scaled_dot_product_fused_attention_overrideable",
             "_scaled_dot_product_fused_attention_overrideable_backward"},
            "use torch.nn.functional.scaled_dot_product_attention");
}

}  // namespace potl::libtorch::dispatch
