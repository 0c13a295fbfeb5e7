// SPDX-License-Identifier: Apache-2.0
// xint24 and xint16: integers in the place of floats, so that sums are exact.
#include <algorithm>
#include <bit>
#include <limits>
#include <memory>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "numeric/gemm/blocked.hpp"
#include "numeric/gemm/modes.hpp"
#include "numeric/gemm/pieces.hpp"
#include "numeric/gemm/scaled.hpp"
#include "numeric/gemm/scaled_back.hpp"
#include "numeric/gemm/share_lines.hpp"

namespace potl::numeric::detail {

scales::scales(std::span<const std::uint32_t> largest, int bits)
    : up(largest.size()), down(largest.size()) {
  const auto power = [](std::uint32_t exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
  };
  std::uint32_t fraction = 0;
  for (std::size_t i = 0; i < largest.size(); ++i) {
    fraction = std::max(fraction, largest[i] & 0x7fffff);
    const std::uint32_t exponent = std::max(1U, largest[i] >> 23);
    const bool finite = exponent != 255;
    // All |x| < 2^(exponent - 126).
    const std::uint32_t scale = static_cast<std::uint32_t>(bits - 1 + 126) - exponent;
    up[i] = finite ? power(scale) : 0.0;
    down[i] = finite ? power(-scale) : std::numeric_limits<double>::quiet_NaN();
  }
  // Where the integer of the largest element is short, those of all are.
  are_short = bits == 16 && fraction <= 0x7f0000;
}

void scale_back(const kernels_integer& body, const scaling& s) {
  for (std::int64_t top = 0; top < s.rows; top += piece_side) {
    for (std::int64_t left = 0; left < s.columns; left += piece_side) {
      const scaling piece{s.sums + top * s.sums_row + left,
                          s.sums_row,
                          s.row_scale + top,
                          s.column_scale + left,
                          s.y + top * s.y_row + left,
                          s.y_row,
                          std::min(piece_side, s.rows - top),
                          std::min(piece_side, s.columns - left)};
      place doubtful[piece_elements];
      const std::int64_t count = body.scale(piece, doubtful);
      for (std::int64_t at = 0; at < count; ++at) {
        const auto [i, j] = doubtful[at];
        piece.y[i * piece.y_row + j] = scaled_back(piece.sums[i * piece.sums_row + j],
                                                   piece.row_scale[i] * piece.column_scale[j]);
      }
    }
  }
}

// Tiles of AMX take 64 terms at a time: of fewer than these, most would be filled up.
[[maybe_unused]] constexpr std::int64_t least_of_tiles = 48;

// Whether the operating system keeps tiles for this process. Linux keeps them from the moment that
// a process asks for them, in all its threads; it refuses where a thread handles signals on a stack
// that has no room for them, and sets no such stack afterwards. Who needs no tiles does not ask.
[[maybe_unused]] static bool tiles_are_granted() noexcept {
#if defined(__x86_64__) && defined(__linux__)
  static const bool granted = [] {
    constexpr long get_permissions = 0x1022, ask_permission = 0x1023, contents = 18;
    unsigned long all = 0;
    return syscall(SYS_arch_prctl, ask_permission, contents) == 0 &&
           syscall(SYS_arch_prctl, get_permissions, &all) == 0 && (all >> contents & 1) != 0;
  }();
  return granted;
#else
  return false;
#endif
}

const kernels_integer& active_integer([[maybe_unused]] std::int64_t terms) {
#if defined(__x86_64__)
  switch (active_isa()) {
    case isa::portable:
    case isa::neon: break;
    case isa::avx2: return avx2_integer();
    case isa::avx512: return avx512_integer();
    case isa::vnni: return vnni_integer();
    case isa::amx:
      return terms >= least_of_tiles && tiles_are_granted() ? amx_integer() : vnni_integer();
  }
#endif
  return portable_integer();
}

namespace {

scales scales_of(const kernels_integer& body, const lines& l, int bits, const executor& threads) {
  std::vector<std::uint32_t> top(static_cast<std::size_t>(l.count));
  share_lines(l, threads, [&](const lines& part, std::int64_t first) {
    body.largest(part, top.data() + first);
  });
  return {top, bits};
}

struct to_scaled {
  const kernels_integer& body;
  const scales& row;
  const scales& column;
  matrix<float> c;
  static constexpr bool finishes = true;

  void finish(const area& part, const std::int64_t* sums, std::int64_t sums_row) const {
    for_pieces(part, sums, sums_row, [&](const area& here, const std::int64_t* from) {
      finish_piece(here, from, sums_row);
    });
  }

 private:
  void finish_piece(const area& here, const std::int64_t* sums, std::int64_t sums_row) const {
    write_piece(c, here, [&](float* y, std::int64_t y_row) {
      scale_back(body, {sums, sums_row, row.down.data() + here.row,
                        column.down.data() + here.column, y, y_row, here.rows, here.columns});
    });
  }
};

/// For sums that need more than 64 bits: each part of the terms is added to them.
struct to_wide {
  wide* sums = nullptr;
  std::int64_t columns = 0;
  static constexpr bool finishes = true;
  void finish(const area& part, const std::int64_t* from, std::int64_t from_row) const noexcept {
    for (std::int64_t i = 0; i < part.rows; ++i) {
      for (std::int64_t j = 0; j < part.columns; ++j) {
        sums[(part.row + i) * columns + part.column + j] += from[i * from_row + j];
      }
    }
  }
};

}  // namespace

void scaled_integers(int bits, matrix<const float> a, matrix<const float> b, matrix<float> c,
                     const executor& threads) {
  // Sums are the same from either side.
  if (c.column_stride != 1 && c.row_stride == 1) {
    return scaled_integers(bits, b.transposed(), a.transposed(), c.transposed(), threads);
  }
  const kernels_integer& body = active_integer(a.columns);
  const scales row = scales_of(body, rows_of(a), bits, threads);
  const scales column = scales_of(body, rows_of(b.transposed()), bits, threads);
  const kernels_scaled& tiles = tiles_of(body, bits, row.are_short && column.are_short);
  const auto multiply = [&](matrix<const float> left, matrix<const float> right,
                            const auto& output) {
    const product<float, std::int16_t, std::int64_t> p{
        tiles, left, right, tiles.chunk, nullptr, threads, row.up.data(), column.up.data()};
    multiply_blocked(p, output);
  };
  const std::int64_t most_terms = most_terms_of(bits);
  if (a.columns <= most_terms) return multiply(a, b, to_scaled{body, row, column, c});
  const auto size = static_cast<std::size_t>(c.rows * c.columns);
  const auto sums = std::make_unique<wide[]>(size);
  for (std::int64_t k = 0; k < a.columns; k += most_terms) {
    matrix<const float> left = a, right = b;
    left.data += k * a.column_stride;
    right.data += k * b.row_stride;
    left.columns = right.rows = std::min(most_terms, a.columns - k);
    multiply(left, right, to_wide{sums.get(), c.columns});
  }
  for (std::int64_t i = 0; i < c.rows; ++i) {
    for (std::int64_t j = 0; j < c.columns; ++j) {
      c(i, j) = scaled_back(
          sums[static_cast<std::size_t>(i * c.columns + j)],
          row.down[static_cast<std::size_t>(i)] * column.down[static_cast<std::size_t>(j)]);
    }
  }
}

}  // namespace potl::numeric::detail
