// SPDX-License-Identifier: Apache-2.0
// The fused operators that torch.nn.MultiheadAttention and TransformerEncoderLayer call when they
// train nothing: composed of the operators that the modules run in training, with the same bits.
#include <cmath>
#include <tuple>

#include <ATen/ops/bmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>

#include "attention.hpp"
#include "real.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

/// What torch passes as mask_type.
enum mask_kind : std::int64_t { of_scores = 0, of_keys = 1, of_both = 2 };

/// Added to the scores, [batch or 1, heads or 1, queries or 1, keys]; undefined without a mask.
at::Tensor additive_mask(const std::optional<at::Tensor>& mask, std::optional<std::int64_t> kind,
                         c10::ScalarType type) {
  if (!mask.has_value() || !mask->defined()) return {};
  at::Tensor out = *mask;
  // Here true means that the place is left out.
  if (out.scalar_type() == at::kBool) {
    const at::Tensor places = out;
    out = at::zeros_like(places, at::TensorOptions(type));
    out.masked_fill_(places, -std::numeric_limits<double>::infinity());
  }
  switch (kind.value_or(of_both)) {
    case of_scores: return out.dim() == 3 ? out.unsqueeze(0) : out.unsqueeze(0).unsqueeze(0);
    case of_keys: return out.unsqueeze(1).unsqueeze(1);
    default: return out;
  }
}

struct heads {
  at::Tensor query, keys, value;
};

/// [batch, length, heads * width] to [batch, heads, length, width].
at::Tensor split(const at::Tensor& x, std::int64_t count) {
  return x.unflatten(2, {count, x.size(2) / count}).transpose(1, 2);
}

heads project(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& value,
              std::int64_t width, std::int64_t count, const at::Tensor& weight,
              const at::Tensor& bias) {
  const auto part = [&](const at::Tensor& x, std::int64_t first, std::int64_t parts) {
    return at::linear(x, weight.narrow(0, first * width, parts * width),
                      bias.narrow(0, first * width, parts * width));
  };
  if (keys.is_same(value) && query.is_same(keys)) {
    const at::Tensor all = part(query, 0, 3);
    const auto third = [&](std::int64_t i) {
      return split(all.narrow(2, i * width, width), count);
    };
    return {third(0), third(1), third(2)};
  }
  return {split(part(query, 0, 1), count), split(part(keys, 1, 1), count),
          split(part(value, 2, 1), count)};
}

/// As torch.nn.functional.multi_head_attention_forward computes them when weights are wanted.
std::tuple<at::Tensor, at::Tensor> with_weights(const heads& of, const at::Tensor& mask) {
  const double scale = std::sqrt(1.0 / static_cast<double>(of.query.size(3)));
  const at::Tensor query = (of.query * scale).flatten(0, 1);
  at::Tensor scores = at::bmm(query, of.keys.flatten(0, 1).transpose(1, 2))
                          .unflatten(0, {of.query.size(0), of.query.size(1)});
  if (mask.defined()) scores = scores + mask;
  const at::Tensor weights = at::softmax(scores, -1);
  const at::Tensor output = at::bmm(weights.flatten(0, 1), of.value.flatten(0, 1))
                                .unflatten(0, {of.query.size(0), of.query.size(1)});
  return {output, weights};
}

std::tuple<at::Tensor, at::Tensor> multi_head_attention(
    const at::Tensor& query, const at::Tensor& keys, const at::Tensor& value, std::int64_t width,
    std::int64_t count, const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
    const at::Tensor& weight, const at::Tensor& bias, const std::optional<at::Tensor>& mask,
    bool need_weights, bool average_weights, std::optional<std::int64_t> mask_type) {
  require_plain("_native_multi_head_attention", query);
  TORCH_CHECK(query.dim() == 3 && width % count == 0,
              "_native_multi_head_attention: expected [batch, length, width] and heads that divide "
              "the width");
  const heads of = project(query, keys, value, width, count, qkv_weight, qkv_bias);
  const at::Tensor added = additive_mask(mask, mask_type, query.scalar_type());
  at::Tensor output, weights;
  if (need_weights) {
    std::tie(output, weights) = with_weights(of, added);
    if (average_weights) weights = weights.mean(1);
  } else {
    output = attention(of.query, of.keys, of.value, added, false, {}).output;
  }
  return {at::linear(output.transpose(1, 2).flatten(2), weight, bias), weights};
}

at::Tensor encoder_layer(const at::Tensor& x, std::int64_t width, std::int64_t count,
                         const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
                         const at::Tensor& weight, const at::Tensor& bias, bool use_gelu,
                         bool norm_first, double epsilon, const at::Tensor& norm_weight_1,
                         const at::Tensor& norm_bias_1, const at::Tensor& norm_weight_2,
                         const at::Tensor& norm_bias_2, const at::Tensor& weight_1,
                         const at::Tensor& bias_1, const at::Tensor& weight_2,
                         const at::Tensor& bias_2, const std::optional<at::Tensor>& mask,
                         std::optional<std::int64_t> mask_type) {
  const auto first_norm = [&](const at::Tensor& of) {
    return at::layer_norm(of, {width}, norm_weight_1, norm_bias_1, epsilon);
  };
  const auto second_norm = [&](const at::Tensor& of) {
    return at::layer_norm(of, {width}, norm_weight_2, norm_bias_2, epsilon);
  };
  const auto attend = [&](const at::Tensor& of) {
    return std::get<0>(multi_head_attention(of, of, of, width, count, qkv_weight, qkv_bias, weight,
                                            bias, mask, false, false, mask_type));
  };
  const auto feed = [&](const at::Tensor& of) {
    const at::Tensor inner = at::linear(of, weight_1, bias_1);
    return at::linear(use_gelu ? at::gelu(inner) : at::relu(inner), weight_2, bias_2);
  };
  if (norm_first) {
    const at::Tensor attended = x + attend(first_norm(x));
    return attended + feed(second_norm(attended));
  }
  const at::Tensor attended = first_norm(x + attend(x));
  return second_norm(attended + feed(attended));
}

/// Nested tensors have no reproducible kernels.
bool may_nest(const at::Tensor&, const at::Tensor&) { return false; }

}  // namespace

void register_encoder(registrar& r) {
  r.kernel<multi_head_attention>("_native_multi_head_attention", "linear, attention, linear");
  r.kernel<encoder_layer>("_transformer_encoder_layer_fwd",
                          "the operators of the module in training");
  r.refused({"_transform_bias_rescale_qkv"}, "use torch.nn.MultiheadAttention");
  r.kernel<may_nest>(
      "_nested_tensor_from_mask_left_aligned",
      "false: torch.nn.TransformerEncoder then computes padded places like in training");
  r.refused({"_nested_tensor_from_mask"},
            "make the torch.nn.TransformerEncoder with enable_nested_tensor=False");
}

}  // namespace potl::libtorch::dispatch
