// SPDX-License-Identifier: Apache-2.0
// The bodies of combinations of tensors, sums of rows and random numbers: items of for_items().
// Private: needs block.hpp's macros.
//
// Exact because an element is one list of IEEE operations, or of operations on bits, on its own
// operands; the templates are the CPU's with one lane.
#pragma once

#include <cstdint>

#include <potl/core/detail/rng.hpp>
#include <potl/cuda/combine.hpp>
#include <potl/cuda/resampling.hpp>

#include "block.hpp"
#include "numeric/elementwise/combinations.hpp"
#include "numeric/ieee/functions.hpp"

namespace potl::cuda {

using combined_lane = numeric::elementwise::single<float>;

POTL_BODY combined_lane at(const operand& of, std::uint64_t i) {
  return combined_lane(of.data[of.is_single ? 0 : i]);
}

/// x - y trunc(x / y), exact, in whole numbers: the significand of x is divided by that of y, and
/// the rest of it again for each 40 bits by which x is shifted further than y.
POTL_BODY combined_lane rest_of_quotient(combined_lane x, combined_lane y) {
  constexpr std::uint32_t sign = 0x80000000U, infinite = 0x7f800000U, one = 0x00800000U;
  const std::uint32_t bits = x.to_bits();
  const std::uint32_t a = bits & ~sign, b = y.to_bits() & ~sign;
  if (a >= infinite || b > infinite || b == 0) return combined_lane(canonical_nan());
  if (a < b) return x;
  // A subnormal number has the exponent of the smallest normal one.
  const std::uint32_t exponent = b < one ? 1 : b >> 23U;
  std::uint32_t further = (a < one ? 1 : a >> 23U) - exponent;
  const std::uint64_t divisor = b < one ? b : b % one + one;
  std::uint64_t rest = (a < one ? a : a % one + one) % divisor;
  while (further != 0) {
    const std::uint32_t step = further < 40 ? further : 40;
    rest = (rest << step) % divisor;
    further -= step;
  }
  // rest 2^(exponent - 150), which is a number of float32 as it is below y.
  const auto scale = numeric::elementwise::single<double>::bits(
      (static_cast<std::uint64_t>(exponent) + 1023 - 150) << 52U);
  const auto magnitude = static_cast<float>(static_cast<double>(rest) * scale.v);
  return combined_lane((bits & sign) != 0 ? -magnitude : magnitude);
}

template <combination Kind>
struct combined_elements {
  operand a, b, c;
  float n, m, l;
  float* out;

  POTL_BODY combined_lane value(std::uint64_t i) const {
    using namespace numeric::elementwise;
    using lane = combined_lane;
    const lane x = at(a, i), first(n), second(m);
    if constexpr (Kind == combination::square_root) {
      return sqrt(x);
    } else if constexpr (Kind == combination::soft_shrink) {
      return numeric::ieee::soft_shrink(x, first);
    } else if constexpr (Kind == combination::hard_swish) {
      return numeric::ieee::hard_swish(x);
    } else if constexpr (Kind == combination::softplus) {
      return softplus(softplus_scalars<float>{n, m}, x);
    } else if constexpr (Kind == combination::elu) {
      return elu(elu_scalars<float>{n, m, l, false}, x);
    } else {
      const lane y = at(b, i);
      if constexpr (Kind == combination::add_scaled) {
        return fma(first, y, x);
      } else if constexpr (Kind == combination::lerp) {
        return numeric::elementwise::lerp(x, y, at(c, i));
      } else if constexpr (Kind == combination::lerp_by_number) {
        return numeric::elementwise::lerp(x, y, first);
      } else if constexpr (Kind == combination::addcmul) {
        return fma(first * y, at(c, i), x);
      } else if constexpr (Kind == combination::addcdiv) {
        return fma(first, y / at(c, i), x);
      } else if constexpr (Kind == combination::power) {
        return compute<numeric::binary::pow>(x, y);
      } else if constexpr (Kind == combination::logaddexp) {
        return compute<numeric::binary::logaddexp>(x, y);
      } else if constexpr (Kind == combination::xlogy) {
        return compute<numeric::binary::xlogy>(x, y);
      } else if constexpr (Kind >= combination::fmod && Kind <= combination::fmin) {
        static_assert(static_cast<int>(combination::fmin) - static_cast<int>(combination::fmod) ==
                          static_cast<int>(numeric::ieee_binary::fmin) &&
                      numeric::ieee_binary{} == numeric::ieee_binary::fmod);
        constexpr auto function = static_cast<numeric::ieee_binary>(
            static_cast<int>(Kind) - static_cast<int>(combination::fmod));
        return numeric::ieee::compute<function>(x, y, rest_of_quotient);
      } else if constexpr (Kind == combination::pass_between) {
        return numeric::ieee::pass_between(x, y, first, second);
      } else if constexpr (Kind == combination::pass_beyond) {
        return numeric::ieee::pass_beyond(x, y, first, second);
      } else if constexpr (Kind == combination::hard_swish_gradient) {
        return numeric::ieee::hard_swish_gradient(x, y);
      } else if constexpr (Kind == combination::softplus_gradient) {
        return softplus_slope(softplus_scalars<float>{n, m}, x, y);
      } else {
        constexpr bool of_result = Kind == combination::elu_gradient_of_result;
        return elu_slope(elu_scalars<float>{n, m, l, of_result}, x, y);
      }
    }
  }
  POTL_BODY void operator()(std::uint64_t i) const {
    out[i] = numeric::elementwise::canonical(value(i)).v;
  }
};

/// Column i % width of target i / width.
struct added_rows {
  std::uint64_t width;
  const std::int64_t *starts, *order;
  const float* rows;
  float* out;

  POTL_BODY void operator()(std::uint64_t i) const {
    const std::uint64_t target = i / width, column = i % width;
    combined_lane sum(out[i]);
    for (std::int64_t p = starts[target]; p < starts[target + 1]; ++p) {
      sum = sum + combined_lane(rows[static_cast<std::uint64_t>(order[p]) * width + column]);
    }
    out[i] = numeric::elementwise::canonical(sum).v;
  }
};

/// Sums, or products, of the first elements along [outer][count][inner]: one after the other.
template <bool IsProduct>
struct cumulated {
  const float* x;
  float* y;
  std::uint64_t count, inner;

  POTL_BODY void operator()(std::uint64_t i) const {
    const std::uint64_t first = i / inner * count * inner + i % inner;
    combined_lane value(x[first]);
    for (std::uint64_t k = 0; k < count; ++k) {
      const std::uint64_t place = first + k * inner;
      const combined_lane next(x[place]);
      if (k != 0) value = IsProduct ? value * next : value + next;
      y[place] = numeric::elementwise::canonical(value).v;
    }
  }
};

/// Along one axis, where the window of an output lies, and its part of the divisor.
struct pool_axis {
  const std::int64_t* windows;  ///< begin, end, extent of each output
  std::int64_t inputs, outputs;

  POTL_BODY std::int64_t begin(std::int64_t output) const { return windows[3 * output]; }
  POTL_BODY std::int64_t end(std::int64_t output) const { return windows[3 * output + 1]; }
  POTL_BODY std::int64_t extent(std::int64_t output) const { return windows[3 * output + 2]; }
  POTL_BODY bool has(std::int64_t output, std::int64_t input) const {
    return begin(output) <= input && input < end(output);
  }
};
struct pool_axes {
  pool_axis z, y, x;
  std::int64_t divisor;  ///< 0: the product of the extents

  POTL_BODY float divided_by(std::int64_t i, std::int64_t j, std::int64_t k) const {
    return static_cast<float>(divisor != 0 ? divisor : z.extent(i) * y.extent(j) * x.extent(k));
  }
};

/// The mean of each window of a plane: numeric::pool().
struct pooled {
  pool_axes axes;
  const float* from;
  float* to;

  POTL_BODY void operator()(std::uint64_t at) const {
    const auto& [z, y, x, divisor] = axes;
    const auto item = static_cast<std::int64_t>(at);
    const std::int64_t k = item % x.outputs, j = item / x.outputs % y.outputs;
    const std::int64_t i = item / x.outputs / y.outputs % z.outputs;
    const std::int64_t plane = item / x.outputs / y.outputs / z.outputs;
    combined_lane sum(0.0F);
    bool is_empty = true;
    for (std::int64_t d = z.begin(i); d < z.end(i); ++d) {
      for (std::int64_t h = y.begin(j); h < y.end(j); ++h) {
        const float* const row = from + ((plane * z.inputs + d) * y.inputs + h) * x.inputs;
        for (std::int64_t w = x.begin(k); w < x.end(k); ++w) {
          sum = sum + combined_lane(row[w]);
          is_empty = false;
        }
      }
    }
    to[at] = is_empty ? 0.0F : (sum / combined_lane(axes.divided_by(i, j, k))).v;
  }
};

/// The gradient of an input of a plane: numeric::pool_gradient().
struct pooled_gradient {
  pool_axes axes;
  const float* dy;
  float* dx;

  POTL_BODY void operator()(std::uint64_t at) const {
    const auto& [z, y, x, divisor] = axes;
    const auto item = static_cast<std::int64_t>(at);
    const std::int64_t w = item % x.inputs, h = item / x.inputs % y.inputs;
    const std::int64_t d = item / x.inputs / y.inputs % z.inputs;
    const std::int64_t plane = item / x.inputs / y.inputs / z.inputs;
    combined_lane sum(0.0F);
    for (std::int64_t i = 0; i < z.outputs; ++i) {
      if (!z.has(i, d)) continue;
      for (std::int64_t j = 0; j < y.outputs; ++j) {
        if (!y.has(j, h)) continue;
        const float* const row = dy + ((plane * z.outputs + i) * y.outputs + j) * x.outputs;
        for (std::int64_t k = 0; k < x.outputs; ++k) {
          if (!x.has(k, w)) continue;
          sum = sum + combined_lane(row[k]) / combined_lane(axes.divided_by(i, j, k));
        }
      }
    }
    dx[at] = sum.v;
  }
};

/// The weighted sum over the taps of an output: numeric::resample().
struct resampled {
  resampling of;
  const float* x;
  float* y;

  POTL_BODY void operator()(std::uint64_t at) const {
    const auto item = static_cast<std::int64_t>(at);
    const std::int64_t output = item / of.inner % of.outputs;
    const std::int64_t outer = item / of.inner / of.outputs;
    const float* const from = x + outer * of.inputs * of.inner + item % of.inner;
    combined_lane sum(0.0F);
    const std::int64_t begin = of.first[output];
    for (std::int64_t tap = begin; tap < of.first[output + 1]; ++tap) {
      const combined_lane next =
          combined_lane(of.weights[tap]) * combined_lane(from[of.positions[tap] * of.inner]);
      sum = tap == begin ? next : sum + next;
    }
    y[at] = numeric::elementwise::canonical(sum).v;
  }
};

/// 1 where the value is below the limit.
struct bernoulli_draws {
  random_key key;
  std::uint64_t limit;
  bool is_certain;
  float* out;
  POTL_BODY void operator()(std::uint64_t i) const {
    out[i] = is_certain || random_bits(key, i) < limit ? 1.0F : 0.0F;
  }
};

/// low + u width in double, rounded once, and at most `largest`.
struct uniform_draws {
  random_key key;
  double low, width;
  float largest;
  float* out;
  POTL_BODY void operator()(std::uint64_t i) const {
    const double u = static_cast<double>(random_bits(key, i) >> 11) * 0x1p-53;
    const auto value = static_cast<float>(low + u * width);
    out[i] = value < largest ? value : largest;
  }
};

}  // namespace potl::cuda
