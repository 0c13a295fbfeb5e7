// SPDX-License-Identifier: Apache-2.0
// The inner loops of one instruction set: a tile of results, and the copies that feed it.
//
// All three directions reduce to the same tile: rows that differ in one operand times vectors of
// lanes that differ in the other, and one chain of fused multiply-adds per element, along the
// depth. Lanes never share a chain, so that their number has no influence on the bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "numeric/levels.hpp"

namespace potl::numeric::conv {

inline constexpr std::int64_t longest = 512;  // terms of a chunk

/// c[row * c_row + vector * lanes + lane] (+)= the chain over k of
/// a[k * a_step + row] * b[offsets[k] + vectors[vector] + lane]. NaN is stored as 0x7fc00000, or as
/// 0x7ff8000000000000 where sums are double.
template <class Sum>
struct tile_task {
  std::int64_t depth;
  const Sum* a;
  std::int64_t a_step;
  const float* b;
  const std::int64_t* offsets;
  const std::int64_t* vectors;
  Sum* c;
  std::int64_t c_row;
  std::int64_t last;  ///< lanes that are stored of the last vector; b is read as if it were all
  bool add;           ///< to what c holds; else c is overwritten
};

/// A run of a line: `length` elements at `source`, which follow those of the run before.
struct segment {
  std::int64_t source;
  std::int64_t length;
};

/// target[k * width ...] = the segments at source + offsets[k], for each k. Writes nothing beyond a
/// row, reads nothing beyond the segments.
struct pack_task {
  const float* source;
  const std::int64_t* offsets;
  std::int64_t depth;
  const segment* segments;
  std::int64_t count;
  float* target;
  std::int64_t width;
};

/// Lines of a plane, each of `pitch` elements: `low` zeros, `count` elements of a line of the
/// source, every step-th, and zeros; before and after them lines of zeros. Writes up to 32 elements
/// beyond the last line.
struct plane_task {
  const float* source;
  std::int64_t source_line;
  std::int64_t step;  ///< 1 or 2
  std::int64_t lines, low, count, pitch;
  float* target;
  std::int64_t before = 0, after = 0;
  float outside = 0;  ///< a variable: of a constant, compilers make calls of memset for a few bytes
};

/// c[line * c_line + i] = the chain over k of weights[k] * b[offsets[k] + line * b_line + i], for i
/// < length. Reads up to 15 elements beyond a line.
struct filter_task {
  std::int64_t depth;
  const float* weights;
  const std::int64_t* offsets;
  const float* b;
  std::int64_t b_line;
  std::int64_t lines, length;
  float* c;
  std::int64_t c_line;
};

/// c[i] = the sum over k of weights[k] * x, where x is b[offsets[k] + i] rounded to the grid of
/// integers: (x + grid[i]) - grid[i]. The sum is exact, and rounded to c. NaN is canonical. Reads
/// up to 15 elements beyond.
struct grid_task {
  std::int64_t depth;
  const double* weights;
  const std::int64_t* offsets;
  const float* b;
  const double* grid;
  std::int64_t count;
  float* c;
};

/// c[tap] += the sum over i < count of a[i] * b[taps[tap] + i]; all sums are exact.
struct dots_task {
  std::int64_t count;  ///< a multiple of 16
  const float* a;
  const float* b;
  const std::int64_t* taps;
  std::int64_t tap_count;
  double* c;
};

/// c[i * c_row + j] (+)= the chain over k of b[offsets[k] + at(i)] * a[k * a_row + j], for i < rows
/// and j < vectors * lanes, where at(i) is i, 2 i, or places[i] + i % run for a run of 1 or 3. NaN
/// is stored as 0x7fc00000. Chains that were stored before go on where `begun` points, by c_row.
struct line_task {
  std::int64_t depth;
  const float* a;
  std::int64_t a_row;
  const float* b;
  const std::int64_t* offsets;
  const std::int64_t* places;
  const float* begun;  ///< null: chains begin with +0
  float* c;
  std::int64_t c_row;
  bool add;
};

constexpr int most_line_vectors = 2, most_line_rows = 14;

struct row_run {
  const float* from;
  std::int64_t length;
};

/// c[i * c_row + j] (+)= the chain over k of a_k[i * a_row] * b[k * b_row + j], for i < rows and j
/// < vectors * lanes, where a_k are the elements of the runs, each `a` further. NaN is stored as
/// 0x7fc00000.
struct rows_task {
  const row_run* runs;
  std::int64_t count;
  std::int64_t a, a_row;
  const float* b;
  std::int64_t b_row;
  const float* next;  ///< what is read soon, a cache line for each k at next[k * next_row]
  std::int64_t next_row;
  float* copy;  ///< of what copying tiles read of b, one k after the other; others leave it alone
  float* c;
  std::int64_t c_row;
  bool add;
};

struct row_tiles {
  int rows;  ///< of the largest
  void (*tile[most_line_vectors + 1][most_line_rows + 1])(const rows_task&);
  void (*copying[most_line_vectors + 1][most_line_rows + 1])(const rows_task&);
};

struct line_tiles {
  int rows;  ///< of the largest
  void (*tile[most_line_vectors + 1][most_line_rows + 1])(const line_task&);
  void (*every_second[most_line_vectors + 1][most_line_rows + 1])(const line_task&);
  /// By places in runs of 1 and 3, the latter for multiples of 3 rows.
  void (*scattered[most_line_vectors + 1][most_line_rows + 1])(const line_task&);
  void (*by_three[most_line_vectors + 1][most_line_rows + 1])(const line_task&);
};

constexpr int most_taps = 12;

/// c[tap * c_tap + lane] = the chain over k of a[k * lanes + lane] * b[offsets[k] + taps[tap] +
/// lane], for one vector of lanes.
struct taps_task {
  std::int64_t depth;
  const float* a;
  const float* b;
  const std::int64_t* offsets;
  const std::int64_t* taps;
  std::int64_t count;  ///< of taps, at most most_taps
  float* c;
  std::int64_t c_tap;
};

constexpr int most_vectors = 4;
constexpr int most_rows = 14;

/// Rows of the largest tile with so many vectors.
using rows_by_vectors = std::array<int, most_vectors + 1>;

template <class Sum>
struct tiles_of {
  std::int64_t lanes;
  rows_by_vectors rows;
  void (*tile[most_vectors + 1][most_rows + 1])(const tile_task<Sum>&);
};

struct kernels {
  tiles_of<float> single;
  tiles_of<double> wide;
  void (*pack)(const pack_task&);
  void (*fill_plane)(const plane_task&);
  void (*filter)(const filter_task&);
  /// grid[i] = grid_of(largest[i], bits); whether no element is rounded beyond its limit.
  bool (*grids)(const std::uint32_t* largest, std::int64_t count, int bits, double* grid);
  void (*filter_on_grid)(const grid_task&);
  void (*dots)(const dots_task&);
  /// target[i] = source[i] rounded to the grid, between -limit and limit
  void (*round_to_grid)(const float* source, std::int64_t count, double grid, double limit,
                        float* target);
  line_tiles line;
  row_tiles rows;
  void (*taps)(const taps_task&);
  /// target[column * target_row + row] = source[row * source_row + column]
  void (*transpose)(const float* source, std::int64_t source_row, std::int64_t rows,
                    std::int64_t columns, float* target, std::int64_t target_row);
  /// target[i] = source[2 * i], reading nothing beyond
  void (*every_second)(const float* source, std::int64_t count, float* target);
  /// target[2 * i] = even[i], target[2 * i + 1] = odd[i]
  void (*interleave)(const float* even, const float* odd, std::int64_t count, float* target);
  /// target[i] += source[i], NaN as 0x7fc00000
  void (*add)(const float* source, std::int64_t count, float* target);
  /// target[i] += source[i]^2
  void (*add_squares)(const float* source, std::int64_t count, double* target);
  /// target[i] = factor * the root of the sum of source[offsets[k] + i]
  void (*root_of_sums)(const double* source, const std::int64_t* offsets, std::int64_t depth,
                       double factor, std::int64_t count, double* target);
};

POTL_LEVELS(kernels, kernels)

inline const tiles_of<float>& tiles_for(const kernels& with, float) noexcept { return with.single; }
inline const tiles_of<double>& tiles_for(const kernels& with, double) noexcept { return with.wide; }

}  // namespace potl::numeric::conv
