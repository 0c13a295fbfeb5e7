// SPDX-License-Identifier: Apache-2.0
// What the blocking of a matrix product (blocked.hpp) asks of an instruction set: a tile of the
// product, and copies of operands in the order in which tiles read them. Each body is a table of
// functions; files compiled for one instruction set hold nothing else.
#pragma once

#include <cstdint>

#include "numeric/levels.hpp"

namespace potl::numeric::detail {

/// Memory that is read soon: so many bytes for each k of a tile. A hint.
struct upcoming {
  const void* from = nullptr;
  std::int64_t step = 0;
};

/// C[i][j] (+)= the chain over k of A[i][k] B[k][j], for one tile and one chunk of k.
template <class Packed, class Sum = Packed>
struct tile {
  const Packed* a = nullptr;  ///< (i, k) lies at a[i * a_row + k * a_step]; one of the two is 1
  std::int64_t a_row = 1;
  std::int64_t a_step = 0;
  const Packed* b = nullptr;  ///< (k, j) lies at b[k * b_step + j]
  std::int64_t b_step = 0;
  Sum* c = nullptr;  ///< (i, j) lies at c[i * c_row + j]
  std::int64_t c_row = 0;
  std::int64_t depth = 0;  ///< number of k, at least 1
  int rows = 0;            ///< 1 to the table's
  int columns = 0;         ///< 1 to the table's
  bool first = true;       ///< C is set, not added to
  bool last = true;        ///< NaN are made canonical
  bool streamed = false;   ///< C is not needed soon: whole cache lines may bypass the caches
  upcoming next_a, next_b;
};

/// to[k * width + lane] = from[lane * lane_stride + order(k) * step], zero for lanes beyond
/// `lanes`. Where lanes are more than the width, lane - width is the first of the next panel.
/// Of integers, lanes beyond `lanes` may stay as they are: what tiles make of them is not used.
/// Integers with lane_at: from[lane_at[lane] + order(k)]. Runs of neighbours are lanes where
/// lane_stride is 1, else terms.
template <class From, class Packed>
struct panel {
  const From* from = nullptr;
  std::int64_t lane_stride = 1;
  std::int64_t step = 0;
  std::int64_t depth = 0;
  int lanes = 0;
  int width = 0;
  const std::int64_t* order = nullptr;  ///< null: ascending
  const double* scale = nullptr;        ///< integers: factors of the lanes, powers of two or 0
  const std::int64_t* lane_at = nullptr;
  Packed* to = nullptr;
  std::int64_t next_panel = 0;  ///< Packed between panels; 0: there is one

  std::int64_t at(int lane) const noexcept {
    return lane_at == nullptr ? lane * lane_stride : lane_at[lane];
  }
  std::int64_t at_term(std::int64_t k) const noexcept {
    return (order == nullptr ? k : order[k]) * step;
  }
};

/// The functions for one instruction set: operands of type From, multiplied as Packed, added as
/// Sum. Integers take several Packed each, and lie in an order of their own.
template <class From, class Packed, class Sum = Packed>
struct kernels {
  int rows = 0;     ///< of the largest tile
  int columns = 0;  ///< of the largest tile
  void (*multiply)(const tile<Packed, Sum>&) = nullptr;
  void (*pack_rows)(const panel<From, Packed>&) = nullptr;     ///< of A
  void (*pack_columns)(const panel<From, Packed>&) = nullptr;  ///< of B
  int terms = 1;  ///< k that are packed together: depths are filled up to a multiple
  int row_bytes = sizeof(Packed);     ///< of panels, per element of A
  int column_bytes = sizeof(Packed);  ///< per element of B
  std::int64_t chunk = 0;             ///< integers: most k of a tile, a multiple of `terms`
  bool packs_several = false;  ///< whether pack_columns takes several panels, of adjacent lanes
  void (*drain)() = nullptr;   ///< after streamed tiles, before others may read C; null: none are

  /// Packed in panels of A and of B, for each k.
  constexpr std::int64_t row_words() const noexcept {
    return std::int64_t{rows} * row_bytes / std::int64_t{sizeof(Packed)};
  }
  constexpr std::int64_t column_words() const noexcept {
    return std::int64_t{columns} * column_bytes / std::int64_t{sizeof(Packed)};
  }
};

/// y = Rnd_b(x) for an area of sums, and where Rnd_b(x - w) and Rnd_b(x + w) differ in any bit.
struct rounding {
  const double* sums = nullptr;  ///< NaN are canonical
  std::int64_t sums_row = 0;
  const double* row_bound = nullptr;  ///< w = row_bound[i] * column_norm[j]
  const double* column_norm = nullptr;
  float* y = nullptr;
  std::int64_t y_row = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  int bits = 32;
};

/// Without values of its own: arrays with room for many are made for each tile.
struct place {
  std::int64_t row;
  std::int64_t column;
};

/// y = sum * row_scale[i] * column_scale[j] with one rounding, for an area of sums.
struct scaling {
  const std::int64_t* sums = nullptr;
  std::int64_t sums_row = 0;
  const double* row_scale = nullptr;  ///< powers of two, or NaN
  const double* column_scale = nullptr;
  float* y = nullptr;
  std::int64_t y_row = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Rows or columns of an operand: term k of line i lies at from[i * stride + k * step].
struct lines {
  const float* from = nullptr;
  std::int64_t stride = 0;
  std::int64_t step = 1;
  std::int64_t terms = 0;
  std::int64_t count = 0;
};

/// Sums of every eighth product, and how much more the exact ones are, nearly.
struct twofold {
  static constexpr int lanes = 8;
  double sum[lanes];
  double low[lanes];
  bool exact;  ///< no addition to `sum` was rounded
};

using kernels_f32 = kernels<float, float>;
using kernels_f64 = kernels<double, double>;

/// float32 operands multiplied in float64.
struct kernels_widening {
  kernels<float, double> product;
  /// Writes y, and to `doubtful` the places in doubt, at most rows * columns; returns how many.
  std::int64_t (*round)(const rounding&, place* doubtful) = nullptr;
  /// The eight lanes of norm() of rounding.hpp, per line.
  void (*squares)(const lines&, double* lanes) = nullptr;
  /// Products of the terms of two lines.
  void (*products)(const lines& a, const lines& b, twofold&) = nullptr;
};

using kernels_scaled = kernels<float, std::int16_t, std::int64_t>;

/// float32 operands as integers, their sums exact.
struct kernels_integer {
  kernels_scaled bits24;
  kernels_scaled bits16;
  /// Writes y, and to `doubtful` the places whose result is subnormal and may be rounded twice.
  std::int64_t (*scale)(const scaling&, place* doubtful) = nullptr;
  /// The largest bits of |x|, per line.
  void (*largest)(const lines&, std::uint32_t* bits) = nullptr;
  /// For each i < count, the largest of from[offsets[k] + i]. Reads up to 15 elements beyond.
  void (*largest_seen)(const std::uint32_t* from, const std::int64_t* offsets,
                       std::int64_t offset_count, std::int64_t count,
                       std::uint32_t* bits) = nullptr;
  /// Faster, for integers of at most 255 * 128; without functions where there is none. Rows,
  /// columns and the bytes of rows are those of bits16.
  kernels_scaled bits16_short{};
};

POTL_LEVELS(kernels_f32, f32)
POTL_LEVELS(kernels_f64, f64)
POTL_LEVELS(kernels_widening, widening)
const kernels_integer& portable_integer() noexcept;
#if defined(__x86_64__)
const kernels_integer& avx2_integer() noexcept;
const kernels_integer& avx512_integer() noexcept;
const kernels_integer& vnni_integer() noexcept;
const kernels_integer& amx_integer() noexcept;
#endif

}  // namespace potl::numeric::detail
