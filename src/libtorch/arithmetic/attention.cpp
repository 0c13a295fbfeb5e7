// SPDX-License-Identifier: Apache-2.0
// torch's flash attention of the CPU: numeric/detail/attention.hpp on tensors of any strides.
// bfloat16 and float16 are widened, and the results rounded once.
#include "attention.hpp"

#include <cmath>

#include <potl/numeric/detail/attention.hpp>

#include "attention_log.hpp"
#include "real.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

void require_shapes(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& value) {
  for (const at::Tensor& operand : {query, keys, value}) {
    require_plain("scaled_dot_product_attention", operand);
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

bool is_logged(const attention_operands& of) {
  return mode() == numeric::arithmetic::log64 && of.query.scalar_type() != at::kDouble &&
         of.query.scalar_type() != at::kBFloat16;
}

numeric::arithmetic product_mode_of(const attention_operands& of) {
  return of.query.scalar_type() == at::kBFloat16 ? numeric::arithmetic::xint16 : mode();
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
