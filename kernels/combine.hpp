// SPDX-License-Identifier: Apache-2.0
// The bodies of weighted sums, square roots, sums of rows and random numbers: items of for_items().
// Private: needs block.hpp's macros.
//
// Exact because an element is one list of IEEE operations, or of operations on bits, on its own
// operands; the templates are the CPU's with one lane.
#pragma once

#include <cstdint>

#include <potl/core/detail/rng.hpp>
#include <potl/cuda/combine.hpp>

#include "block.hpp"
#include "numeric/elementwise/combinations.hpp"

namespace potl::cuda {

using combined_lane = numeric::elementwise::single<float>;

POTL_BODY combined_lane at(const operand& of, std::uint64_t i) {
  return combined_lane(of.data[of.is_single ? 0 : i]);
}

enum class weighted { add_scaled, lerp, lerp_by_number, addcmul, addcdiv };
/// c is lerp's weight, unless that is the scalar.
template <weighted Kind>
struct weighted_sum {
  operand a, b, c;
  float scalar;
  float* out;

  POTL_BODY void operator()(std::uint64_t i) const {
    const combined_lane x = at(a, i), y = at(b, i), s(scalar);
    combined_lane value;
    if constexpr (Kind == weighted::add_scaled) {
      value = fma(s, y, x);
    } else if constexpr (Kind == weighted::lerp) {
      value = lerp(x, y, at(c, i));
    } else if constexpr (Kind == weighted::lerp_by_number) {
      value = lerp(x, y, s);
    } else if constexpr (Kind == weighted::addcmul) {
      value = fma(s * y, at(c, i), x);
    } else {
      value = fma(s, y / at(c, i), x);
    }
    out[i] = canonical(value).v;
  }
};

struct square_roots {
  const float* x;
  float* y;
  POTL_BODY void operator()(std::uint64_t i) const {
    y[i] = canonical(sqrt(combined_lane(x[i]))).v;
  }
};

struct powers {
  operand x, y;
  float* out;
  POTL_BODY void operator()(std::uint64_t i) const {
    using namespace numeric::elementwise;
    out[i] = compute<numeric::binary::pow>(at(x, i), at(y, i)).v;
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
    out[i] = canonical(sum).v;
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
