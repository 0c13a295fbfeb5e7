// SPDX-License-Identifier: Apache-2.0
// Functions of one to three tensors and numbers on a CUDA device, with the bits of
// numeric/combine.hpp, numeric/elementwise.hpp (pow) and numeric/detail/ieee.hpp.
//
// Claims: the same templates as on the CPU, or the same list of IEEE operations. Cost: every
// element is read and written once. Cannot: double.
#pragma once

#include <cstddef>

#include <potl/cuda/queue.hpp>

namespace potl::cuda {

/// What is computed of a, b, c and numbers[0 to 2] (n, m, l), which are rounded to float32.
enum class combination {
  add_scaled,      ///< fma(n, b, a)
  lerp,            ///< fma(c, b - a, a), or fma(c - 1, b - a, b) from c = 1/2 on
  lerp_by_number,  ///< the same with n instead of c
  addcmul,         ///< fma(n b, c, a)
  addcdiv,         ///< fma(n, b / c, a)
  power,           ///< a to the power b
  logaddexp,       ///< of a and b
  xlogy,           ///< a log(b)
  square_root,     ///< of a
  fmod,            ///< of a and b, as the next seven: numeric::ieee_binary in its order
  remainder,
  floor_divide,
  trunc_divide,
  maximum,
  minimum,
  fmax,
  fmin,
  pass_between,            ///< a where n < b < m, else +0
  pass_beyond,             ///< a where b < n or b > m, else +0
  soft_shrink,             ///< a less what is nearest to it in [-n, n]
  hard_swish,              ///< of a
  hard_swish_gradient,     ///< of a, its gradient, at b
  softplus,                ///< of a, with beta n and threshold m
  softplus_gradient,       ///< of a, its gradient, at b
  elu,                     ///< of a, with alpha scale n, scale m and input scale l
  elu_gradient,            ///< of a, its gradient, at b
  elu_gradient_of_result,  ///< likewise, where b is what elu gave
};

/// As many elements as the result has, or a single one for all of them; memory of the device.
struct operand {
  const float* data = nullptr;
  bool is_single = false;
};

/// Which combination, and of what; operands and numbers that it does not take are left out.
struct combined {
  combination kind;
  operand a, b = {}, c = {};
  double numbers[3] = {};
};

/// Computes `count` elements of `out`, which may be an operand; queued on `stream`. Throws
/// potl::exception (io) for an error of the device.
void combine(const combined& of, float* out, std::size_t count, queue stream);

}  // namespace potl::cuda
