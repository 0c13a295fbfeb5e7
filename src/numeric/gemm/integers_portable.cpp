// SPDX-License-Identifier: Apache-2.0
// Integers in plain loops, not cut into digits.
#include <algorithm>

#include "numeric/gemm/digits.hpp"
#include "numeric/gemm/kernels.hpp"
#include "numeric/gemm/largest.hpp"

namespace potl::numeric::detail {
namespace {

constexpr int rows = 4;
constexpr int columns = 32;
constexpr int bytes = 4;  // of an integer in panels

// An integer of up to 24 bits takes two int16, the low half first.
std::int32_t joined(const std::int16_t* from) noexcept {
  return static_cast<std::int32_t>(static_cast<std::uint16_t>(from[0])) + from[1] * 65536;
}

void multiply(const tile<std::int16_t, std::int64_t>& t) {
  for (int i = 0; i < t.rows; ++i) {
    std::int64_t sum[columns] = {};
    for (std::int64_t k = 0; k < t.depth; ++k) {
      const std::int64_t a = joined(t.a + (k * rows + i) * 2);
      const std::int16_t* b = t.b + k * columns * 2;
      for (int j = 0; j < t.columns; ++j) sum[j] += a * joined(b + j * 2);
    }
    std::int64_t* c = t.c + i * t.c_row;
    for (int j = 0; j < t.columns; ++j) c[j] = t.first ? sum[j] : c[j] + sum[j];
  }
}

template <int Bits>
void pack(const panel<float, std::int16_t>& p) {
  constexpr double limit = (1 << (Bits - 1)) - 1;
  for (std::int64_t k = 0; k < p.depth; ++k) {
    std::int16_t* to = p.to + k * p.width * 2;
    std::fill(to, to + p.width * 2, std::int16_t{0});
    for (int lane = 0; lane < p.lanes; ++lane) {
      const double x = static_cast<double>(p.from[p.at_term(k) + p.at(lane)]);
      // 1.5 * 2^52 leaves no room for a fraction: the sum is rounded to an integer.
      const double rounded = (x * p.scale[lane] + 0x1.8p52) - 0x1.8p52;
      // The comparisons turn what a line with NaN or infinities holds into a number.
      const double q = rounded > limit ? limit : rounded > -limit ? rounded : -limit;
      const auto integer = static_cast<std::int32_t>(q);
      to[2 * lane] = static_cast<std::int16_t>(integer & 0xffff);
      to[2 * lane + 1] = static_cast<std::int16_t>(integer >> 16);
    }
  }
}

std::int64_t scale_sums(const scaling& s, place* doubtful) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < s.rows; ++i) {
    for (std::int64_t j = 0; j < s.columns; ++j) {
      const std::int64_t sum = s.sums[i * s.sums_row + j];
      // The one rounding; a power of two then moves the value, where it stays normal.
      const double y =
          static_cast<double>(static_cast<float>(sum)) * (s.row_scale[i] * s.column_scale[j]);
      s.y[i * s.y_row + j] = static_cast<float>(y);
      if (sum != 0 && y < 0x1p-126 && y > -0x1p-126) doubtful[count++] = {i, j};
    }
  }
  return count;
}

constexpr kernels_integer table{
    {rows, columns, multiply, pack<24>, pack<24>, 1, bytes, bytes, integer_chunk_24},
    {rows, columns, multiply, pack<16>, pack<16>, 1, bytes, bytes, integer_chunk},
    scale_sums,
    largest,
    largest_seen};

}  // namespace

const kernels_integer& portable_integer() noexcept { return table; }

}  // namespace potl::numeric::detail
