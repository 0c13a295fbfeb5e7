// SPDX-License-Identifier: Apache-2.0
// Weighted sums of tensors and square roots on a CUDA device, with the bits of numeric/combine.hpp
// and numeric/detail/ieee.hpp.
//
// Claims: add_scaled, lerp, addcmul and addcdiv of numeric/combine.hpp, from the same source.
// Cost: every element is read and written once. Cannot: double.
#pragma once

#include <cstddef>

namespace potl::cuda {

/// As many elements as the result has, or a single one for all of them; memory of the device.
struct operand {
  const float* data = nullptr;
  bool is_single = false;
};

/// out = fma(alpha, b, a). All are queued on `stream`, a cudaStream_t; `out` may be an operand.
/// Throw potl::exception (io) for an error of the device.
void add_scaled(operand a, operand b, double alpha, float* out, std::size_t count, void* stream);
/// out = fma(w, b - a, a), or fma(w - 1, b - a, b) from w = 1/2 on.
void lerp(operand a, operand b, operand weight, float* out, std::size_t count, void* stream);
void lerp(operand a, operand b, double weight, float* out, std::size_t count, void* stream);
/// out = fma(value b, c, a)
void addcmul(operand a, operand b, operand c, double value, float* out, std::size_t count,
             void* stream);
/// out = fma(value, b / c, a)
void addcdiv(operand a, operand b, operand c, double value, float* out, std::size_t count,
             void* stream);
void square_root(const float* x, float* y, std::size_t count, void* stream);
/// out = x to the power y.
void power(operand x, operand y, float* out, std::size_t count, void* stream);

}  // namespace potl::cuda
