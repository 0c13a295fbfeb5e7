// SPDX-License-Identifier: Apache-2.0
// torch's flash attention of the CPU: numeric/detail/attention.hpp on tensors of any strides.
// bfloat16 and float16 are widened, and the results rounded once.
#include "attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/all.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <potl/numeric/detail/attention.hpp>

#include "attention_log.hpp"
#include "device.hpp"
#include "products.hpp"
#include "real.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

void require_shapes(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& value) {
  for (const at::Tensor& operand : {query, keys, value}) {
    require_plain(on_devices("scaled_dot_product_attention"), operand);
  }
  TORCH_CHECK(query.dim() == 4 && keys.dim() == 4 && value.dim() == 4,
              "scaled_dot_product_attention: expected operands of 4 dimensions");
  TORCH_CHECK(query.size(0) == keys.size(0) && keys.size(0) == value.size(0) &&
                  keys.size(1) == value.size(1) && keys.size(2) == value.size(2) &&
                  query.size(3) == keys.size(3) && keys.size(1) > 0 &&
                  query.size(1) % keys.size(1) == 0,
              "scaled_dot_product_attention: the shapes ", query.sizes(), ", ", keys.sizes(),
              " and ", value.sizes(), " do not fit");
}

/// Like torch's: [batch, rows, heads, width] in memory.
at::Tensor heads_inside(const at::Tensor& like, std::int64_t width, c10::ScalarType type) {
  return make({like.size(0), like.size(2), like.size(1), width}, type).transpose(1, 2);
}

constexpr std::int64_t block_queries = 128;  // of numeric/detail/attention.hpp

/// numeric/detail/attention.hpp on a device, operator by operator: one head of a group that shares
/// keys, and one block of its queries, for all batches and groups at once.
class attention_there {
 public:
  attention_there(const attention_operands& of, numeric::arithmetic mode)
      : mode_(mode),
        batch_(of.query.size(0)),
        groups_(of.keys.size(1)),
        sharing_(of.query.size(1) / of.keys.size(1)),
        causal_(of.is_causal),
        scale_(of.scale ? *of.scale : 1.0 / std::sqrt(static_cast<double>(of.query.size(3)))),
        query_(grouped(of.query)),
        keys_(flat(of.keys)),
        values_(flat(of.value)) {
    if (of.mask.defined()) {
      mask_ =
          grouped(of.mask.expand({batch_, of.query.size(1), of.query.size(2), of.keys.size(2)}));
    }
  }

  std::int64_t sharing() const { return sharing_; }
  std::int64_t blocks() const { return (query_.size(3) + block_queries - 1) / block_queries; }
  /// The queries of a block, and the keys that it sees.
  std::int64_t first(std::int64_t block) const { return block * block_queries; }
  std::int64_t rows(std::int64_t block) const {
    return std::min(block_queries, query_.size(3) - first(block));
  }
  std::int64_t seen(std::int64_t block) const {
    return causal_ ? std::min(keys_.size(1), first(block) + rows(block)) : keys_.size(1);
  }

  /// [batch groups][rows][width] of a tensor like the queries.
  at::Tensor block_of(const at::Tensor& of, std::int64_t head, std::int64_t block) const {
    return of.select(2, head)
        .narrow(2, first(block), rows(block))
        .reshape({batch_ * groups_, rows(block), of.size(4)});
  }
  at::Tensor query(std::int64_t head, std::int64_t block) const {
    return block_of(query_, head, block);
  }
  at::Tensor keys(std::int64_t block) const { return keys_.narrow(1, 0, seen(block)); }
  at::Tensor values(std::int64_t block) const { return values_.narrow(1, 0, seen(block)); }
  double scale() const { return scale_; }

  /// [batch][groups][heads of a group][rows][columns]
  at::Tensor grouped(const at::Tensor& x) const {
    return x.reshape({batch_, groups_, sharing_, x.size(2), x.size(3)});
  }
  /// [batch groups][rows][columns]
  at::Tensor flat(const at::Tensor& x) const {
    return x.reshape({batch_ * groups_, x.size(2), x.size(3)});
  }

  at::Tensor product(const at::Tensor& a, const at::Tensor& b) const {
    return product_in("scaled_dot_product_attention", mode_, a, b);
  }

  /// The probabilities of a block. Places that are left out count as -inf: they add +0 behind the
  /// others.
  at::Tensor of(std::int64_t head, std::int64_t block) const {
    at::Tensor s = product(query(head, block), keys(block).transpose(1, 2)).mul_(scale_);
    if (mask_.defined()) {
      const at::Tensor part =
          block_of(mask_, head, block).narrow(2, 0, seen(block)).reshape(s.sizes());
      s = part.scalar_type() == at::kBool ? s.masked_fill(part.logical_not(), minus_infinity)
                                          : s.add_(part.to(s.scalar_type()));
    }
    if (causal_) {
      const at::Tensor future =
          at::ones({rows(block), seen(block)}, s.options().dtype(at::kBool)).triu(first(block) + 1);
      s = s.masked_fill(future, minus_infinity);
    }
    at::Tensor p = at::_softmax(s, -1, false);
    if (mask_.defined()) {
      const at::Tensor is_empty = (s == minus_infinity).all(-1, /*keepdim=*/true);
      p = p.masked_fill(is_empty, 0);
    }
    return p;
  }

 private:
  static constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

  numeric::arithmetic mode_;
  std::int64_t batch_, groups_, sharing_;
  bool causal_;
  double scale_;
  at::Tensor query_, keys_, values_, mask_;
};

attention_result forward_there(const attention_operands& of, numeric::arithmetic mode) {
  const attention_there work(of, mode);
  const at::Tensor output = at::empty(
      {of.query.size(0), of.query.size(2), of.query.size(1), of.value.size(3)}, of.query.options());
  const at::Tensor heads = work.grouped(output.transpose(1, 2));
  for (std::int64_t head = 0; head < work.sharing(); ++head) {
    for (std::int64_t block = 0; block < work.blocks(); ++block) {
      const at::Tensor y = work.product(work.of(head, block), work.values(block));
      const auto place = [&](const at::Tensor& all) {
        return all.select(2, head).narrow(2, work.first(block), work.rows(block));
      };
      place(heads).copy_(y.view_as(place(heads)));
    }
  }
  // Nothing here reads the sums of the rows, and the gradient computes the probabilities again.
  return {output.transpose(1, 2),
          at::full({of.query.size(0), of.query.size(1), of.query.size(2)},
                   std::numeric_limits<double>::quiet_NaN(), of.query.options())};
}

/// Adds a product to sums of which the first rows have begun.
void add_to(const at::Tensor& sums, std::int64_t& begun, const at::Tensor& product) {
  const std::int64_t rows = product.size(1);
  const std::int64_t both = std::min(begun, rows);
  if (both > 0) sums.narrow(1, 0, both).add_(product.narrow(1, 0, both));
  if (rows > begun) {
    sums.narrow(1, begun, rows - begun).copy_(product.narrow(1, begun, rows - begun));
    begun = rows;
  }
}

attention_gradients backward_there(const attention_operands& of, numeric::arithmetic mode,
                                   const at::Tensor& gradient) {
  const attention_there work(of, mode);
  const at::Tensor dy = work.grouped(gradient);
  const at::Tensor dq = at::empty(
      {of.query.size(0), of.query.size(2), of.query.size(1), of.query.size(3)}, of.query.options());
  const at::Tensor queries = work.grouped(dq.transpose(1, 2));
  const at::Tensor dk = at::zeros_like(work.flat(of.keys), at::MemoryFormat::Contiguous);
  const at::Tensor dv = at::zeros_like(work.flat(of.value), at::MemoryFormat::Contiguous);
  std::int64_t begun_keys = 0, begun_values = 0;
  for (std::int64_t head = 0; head < work.sharing(); ++head) {
    for (std::int64_t block = 0; block < work.blocks(); ++block) {
      const at::Tensor p = work.of(head, block);
      const at::Tensor slope = work.block_of(dy, head, block);
      add_to(dv, begun_values, work.product(p.transpose(1, 2), slope));
      const at::Tensor dp = work.product(slope, work.values(block).transpose(1, 2));
      const at::Tensor ds =
          at::_softmax_backward_data(dp, p, -1, dp.scalar_type()).mul_(work.scale());
      const at::Tensor to = queries.select(2, head).narrow(2, work.first(block), work.rows(block));
      to.copy_(work.product(ds, work.keys(block)).view_as(to));
      add_to(dk, begun_keys, work.product(ds.transpose(1, 2), work.query(head, block)));
    }
  }
  return {dq.transpose(1, 2), dk.view(of.keys.sizes()), dv.view(of.value.sizes())};
}

bool is_logged(const attention_operands& of) {
  return mode() == numeric::arithmetic::log64 && of.query.scalar_type() != at::kDouble &&
         of.query.scalar_type() != at::kBFloat16;
}

numeric::arithmetic product_mode_of(const attention_operands& of) {
  return of.query.scalar_type() == at::kBFloat16 ? numeric::arithmetic::xint16 : mode();
}

/// Operands that a device computes with.
attention_operands widened_there(const attention_operands& of) {
  const char* name = "scaled_dot_product_attention";
  if (is_logged(of)) {
    refuse(std::string(name) + " in log64 on " + of.query.device().str(),
           "use xint24 or ord32 there, or move the tensors to the CPU");
  }
  require_float(name, of.query, compute_type(name, of.query.scalar_type()));
  return {of.query.to(at::kFloat),
          of.keys.to(at::kFloat),
          of.value.to(at::kFloat),
          of.mask,
          of.is_causal,
          of.scale};
}

template <class Real>
numeric::head_view<const Real> view_of(const at::Tensor& x) {
  return {x.const_data_ptr<Real>(), {x.stride(0), x.stride(1), x.stride(2), x.stride(3)}};
}
template <class Real>
numeric::head_view<Real> writable(const at::Tensor& x) {
  return {x.mutable_data_ptr<Real>(), {x.stride(0), x.stride(1), x.stride(2), x.stride(3)}};
}

/// Operands in the type that is computed in.
struct widened {
  explicit widened(const attention_operands& of)
      : type(compute_type("scaled_dot_product_attention", of.query.scalar_type())),
        query(of.query.to(type)),
        keys(of.keys.to(type)),
        value(of.value.to(type)) {
    shape.batch = query.size(0), shape.heads = query.size(1), shape.key_heads = keys.size(1);
    shape.queries = query.size(2), shape.keys = keys.size(2);
    shape.width = query.size(3), shape.value_width = value.size(3);
    shape.causal = of.is_causal;
    shape.scale = of.scale ? *of.scale : 1.0 / std::sqrt(static_cast<double>(query.size(3)));
    if (!of.mask.defined()) return;
    mask = of.mask.scalar_type() == at::kBool ? of.mask : of.mask.to(type);
    mask = mask.expand({shape.batch, shape.heads, shape.queries, shape.keys});
  }

  template <class Work>
  Work work() const {
    using Real = std::remove_const_t<std::remove_pointer_t<decltype(Work{}.query.data)>>;
    Work w;
    w.shape = shape;
    w.query = view_of<Real>(query);
    w.keys = view_of<Real>(keys);
    w.values = view_of<Real>(value);
    if (mask.defined() && mask.scalar_type() == at::kBool) w.mask.kept = view_of<bool>(mask);
    if (mask.defined() && mask.scalar_type() != at::kBool) w.mask.added = view_of<Real>(mask);
    return w;
  }

  c10::ScalarType type;
  at::Tensor query, keys, value, mask;
  numeric::attention_shape shape;
};

void run(numeric::arithmetic, const numeric::attention_forward<double>& work) {
  numeric::attention(work, executor());
}
void run(numeric::arithmetic, const numeric::attention_backward<double>& work) {
  numeric::attention(work, executor());
}
template <class Work>
void run(numeric::arithmetic mode, const Work& work) {
  numeric::attention(mode, work, executor());
}

}  // namespace

attention_result attention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& value,
                           const at::Tensor& mask, bool is_causal, std::optional<double> scale) {
  require_shapes(query, keys, value);
  const attention_operands of{query, keys, value, mask, is_causal, scale};
  if (is_on_device(query)) {
    const attention_result wide = forward_there(widened_there(of), product_mode_of(of));
    return {rounded_to(wide.output, query.scalar_type()), wide.logsumexp};
  }
  if (is_logged(of)) {
    return logged_attention(of, heads_inside(query, value.size(3), query.scalar_type()));
  }
  const widened wide(of);
  const at::Tensor output = heads_inside(query, value.size(3), wide.type);
  const at::Tensor logsumexp = make({query.size(0), query.size(1), query.size(2)}, wide.type);
  with_real(wide.type, [&](auto zero) {
    using Real = decltype(zero);
    auto work = wide.work<numeric::attention_forward<Real>>();
    work.output = writable<Real>(output);
    work.logsumexp = logsumexp.mutable_data_ptr<Real>();
    run(product_mode_of(of), work);
  });
  return {rounded_to(output, query.scalar_type()), logsumexp};
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

attention_gradients flash_backward(const at::Tensor& gradient, const at::Tensor& query,
                                   const at::Tensor& keys, const at::Tensor& value,
                                   const at::Tensor&, const at::Tensor&, double, bool is_causal,
                                   const std::optional<at::Tensor>& mask,
                                   std::optional<double> scale) {
  require_shapes(query, keys, value);
  TORCH_CHECK(gradient.dim() == 4 && gradient.size(0) == query.size(0) &&
                  gradient.size(1) == query.size(1) && gradient.size(2) == query.size(2) &&
                  gradient.size(3) == value.size(3),
              "scaled_dot_product_attention: the gradient has shape ", gradient.sizes());
  const attention_operands of{query, keys, value, value_or_undefined(mask), is_causal, scale};
  if (is_on_device(query)) {
    const auto [dq, dk, dv] =
        backward_there(widened_there(of), product_mode_of(of), gradient.to(at::kFloat));
    const c10::ScalarType type = query.scalar_type();
    return {rounded_to(dq, type), rounded_to(dk, type), rounded_to(dv, type)};
  }
  if (is_logged(of)) return logged_attention_backward(of, gradient);
  const widened wide(of);
  const at::Tensor dy = gradient.to(wide.type);
  const at::Tensor dq = heads_inside(query, query.size(3), wide.type);
  const at::Tensor dk = heads_inside(keys, keys.size(3), wide.type);
  const at::Tensor dv = heads_inside(value, value.size(3), wide.type);
  with_real(wide.type, [&](auto zero) {
    using Real = decltype(zero);
    auto work = wide.work<numeric::attention_backward<Real>>();
    work.gradient = view_of<Real>(dy);
    work.dquery = writable<Real>(dq);
    work.dkeys = writable<Real>(dk);
    work.dvalues = writable<Real>(dv);
    run(product_mode_of(of), work);
  });
  const c10::ScalarType type = query.scalar_type();
  return {rounded_to(dq, type), rounded_to(dk, type), rounded_to(dv, type)};
}

}  // namespace

void register_attention(registrar& r) {
  r.kernel<flash>("_scaled_dot_product_flash_attention_for_cpu",
                  "numeric/detail/attention.hpp: products, scale, mask, softmax, products");
  r.kernel<flash_backward>("_scaled_dot_product_flash_attention_for_cpu_backward",
                           "the probabilities again, then the gradients of each step");
  r.exact({"_fused_sdp_choice"}, "chooses a composition by shapes and options");
  r.refused({"_scaled_dot_product_fused_attention_overrideable",
             "_scaled_dot_product_fused_attention_overrideable_backward"},
            "use torch.nn.functional.scaled_dot_product_attention");
}

}  // namespace potl::libtorch::dispatch
