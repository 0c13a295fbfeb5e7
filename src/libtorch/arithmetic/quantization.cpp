// SPDX-License-Identifier: Apache-2.0
// Fake quantisation, as quantisation-aware training uses it: exact operations one after the other.
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/ones_like.h>
#include <c10/util/Exception.h>

#include "elements.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;
using quantized = std::tuple<Tensor, Tensor>;

/// The values that are left of `x`, and which of them lie within the bounds.
template <class Scale, class Point>
quantized fake(const char* name, const Tensor& x, const Scale& scale, const Scale& inverse,
               const Point& zero_point, std::int64_t low, std::int64_t high) {
  TORCH_CHECK_VALUE(low <= high, "quant_min should be less than or equal to quant_max");
  const Tensor number = (widened(name, x) * inverse).round_() + zero_point;
  return {rounded_to((number.clamp(low, high) - zero_point) * scale, result_type(x)),
          at::logical_and(number >= low, number <= high)};
}

quantized per_tensor(const Tensor& x, double scale, std::int64_t zero_point, std::int64_t low,
                     std::int64_t high) {
  const float single = static_cast<float>(scale);
  return fake<double>("fake_quantize_per_tensor_affine_cachemask", x, single, 1.0F / single,
                      zero_point, low, high);
}

quantized by_tensors(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                     const Tensor& enabled, std::int64_t low, std::int64_t high) {
  if (enabled.item<double>() == 0) return {x.clone(), at::ones_like(x, at::kBool)};
  return per_tensor(x, scale.item<double>(), zero_point.item<std::int64_t>(), low, high);
}

quantized per_channel(const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                      std::int64_t axis, std::int64_t low, std::int64_t high) {
  const char* name = "fake_quantize_per_channel_affine_cachemask";
  if (!c10::isIntegralType(zero_point.scalar_type(), false)) {
    refuse("a zero point that is no whole number", "pass zero_point as int32");
  }
  TORCH_CHECK_VALUE(axis >= 0 && axis < x.dim(), "axis is ", axis, ", of ", x.dim(), " dimensions");
  TORCH_CHECK_VALUE(scale.numel() == x.size(axis) && zero_point.numel() == x.size(axis),
                    "one scale and one zero point for each of ", x.size(axis), " channels");
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
  sizes[static_cast<std::size_t>(axis)] = x.size(axis);
  const Tensor wide = widened(name, scale).view(sizes);
  return fake(name, x, wide, wide.reciprocal(), zero_point.view(sizes), low, high);
}

}  // namespace

void register_quantization(registrar& r) {
  const char* note = "round(x (1 / scale)) + zero point, within the bounds, and back";
  r.kernel<per_tensor>("fake_quantize_per_tensor_affine_cachemask", note);
  r.kernel<by_tensors>("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", note);
  r.kernel<per_channel>("fake_quantize_per_channel_affine_cachemask", note);
}

}  // namespace potl::libtorch::dispatch
