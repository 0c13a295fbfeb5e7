// SPDX-License-Identifier: Apache-2.0
// xint24 and xint16: integers in the place of floats, so that sums are exact.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "numeric/gemm/modes.hpp"

namespace potl::numeric::detail {
namespace {

__extension__ using wide = __int128;

/// Integers q with x = q 2^-scale, or not finite.
struct scaled_line {
  std::vector<std::int32_t> q;
  int scale = 0;
  bool finite = true;
};

scaled_line quantised(int bits, const float* x, std::int64_t terms, std::int64_t stride) {
  std::uint32_t top = 1;
  for (std::int64_t k = 0; k < terms; ++k) {
    top = std::max(top, (std::bit_cast<std::uint32_t>(x[k * stride]) >> 23) & 0xff);
  }
  scaled_line out;
  out.finite = top != 255;
  if (!out.finite) return out;
  // All |x| < 2^(top - 126).
  out.scale = bits - 1 + 126 - static_cast<int>(top);
  const double factor = std::ldexp(1.0, out.scale);
  const auto limit = static_cast<double>((1 << (bits - 1)) - 1);
  out.q.reserve(static_cast<std::size_t>(terms));
  for (std::int64_t k = 0; k < terms; ++k) {
    // 1.5 * 2^52 leaves no room for a fraction: the sum is rounded to an integer.
    const double rounded = (static_cast<double>(x[k * stride]) * factor + 0x1.8p52) - 0x1.8p52;
    out.q.push_back(static_cast<std::int32_t>(std::clamp(rounded, -limit, limit)));
  }
  return out;
}

// sum * 2^-scale with one rounding; |sum| < 2^126.
float scaled_back(wide sum, int scale) noexcept {
  const bool negative = sum < 0;
  wide size = negative ? -sum : sum;
  bool rest = false;
  while (size >= (wide{1} << 53)) {  // to odd: the second rounding then sees the same
    rest = rest || (size & 1) != 0;
    size >>= 1;
    --scale;
  }
  const auto odd = static_cast<std::int64_t>(size) | (rest ? 1 : 0);
  const double value = std::ldexp(static_cast<double>(odd), -scale);
  return static_cast<float>(negative ? -value : value) + 0.0F;
}

}  // namespace

void scaled_integers(int bits, matrix<const float> a, matrix<const float> b, matrix<float> c,
                     const executor& threads) {
  std::vector<scaled_line> columns;
  for (std::int64_t j = 0; j < b.columns; ++j) {
    columns.push_back(quantised(bits, b.data + j * b.column_stride, b.rows, b.row_stride));
  }
  threads.run(static_cast<std::size_t>(a.rows), [&](std::size_t task) {
    const auto i = static_cast<std::int64_t>(task);
    const scaled_line row = quantised(bits, a.data + i * a.row_stride, a.columns, a.column_stride);
    for (std::int64_t j = 0; j < b.columns; ++j) {
      const scaled_line& column = columns[static_cast<std::size_t>(j)];
      if (!row.finite || !column.finite) {
        c(i, j) = std::numeric_limits<float>::quiet_NaN();
        continue;
      }
      wide sum = 0;
      for (std::size_t k = 0; k < row.q.size(); ++k) {
        sum += std::int64_t{row.q[k]} * column.q[k];
      }
      c(i, j) = scaled_back(sum, row.scale + column.scale);
    }
  });
}

}  // namespace potl::numeric::detail
