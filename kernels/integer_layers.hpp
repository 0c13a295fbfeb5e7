// SPDX-License-Identifier: Apache-2.0
// Products in xint24 and xint16 from floats to floats, on any device (layers.hpp). Private.
#pragma once

#include <algorithm>
#include <cstdint>

#include "chunks.hpp"
#include "integers.hpp"

namespace potl::cuda {

/// Bytes that the operands of several products take at a time, as integers.
constexpr std::int64_t most_plane_bytes = std::int64_t{1} << 30;
/// k of a chunk at least, where chunks are there to keep a device busy.
constexpr std::int64_t least_integer_chunk = 512;

template <class T>
constexpr T filled_up(T count, T to) {
  return (count + to - 1) / to * to;
}

/// An item: a zero.
template <class T>
struct cleared {
  T* data;
  POTL_BODY void operator()(std::uint64_t i) const { data[i] = T{}; }
};

/// C of products in memory with strides.
struct stored_targets {
  numeric::matrix<float> c;
  std::int64_t step;
  POTL_BODY gemm_target of(std::int64_t product) const {
    gemm_target out{c};
    out.c.data += product * step;
    return out;
  }
  /// As gemm_log64() counts them.
  POTL_BODY std::uint64_t index(std::int64_t product, std::int64_t row, std::int64_t column) const {
    return static_cast<std::uint64_t>((product * c.rows + row) * c.columns + column);
  }
};

/// Memory for an operand's integers, and how they get there.
template <unsigned Digits, class Device>
class integer_operand {
  using form = integer_form<Digits>;

 public:
  /// `lines` of a tile, `depth` of a step: the operand is filled up to these.
  template <class Lines>
  integer_operand(const Device& device, const Lines& from, std::int64_t first,
                  std::int64_t products, bool is_shared, operand_side side, std::int64_t lines,
                  std::int64_t depth)
      : lines_(filled_up(from.count(), lines)),
        slices_(filled_up(from.depth(), depth) / form::depth),
        count_(is_shared ? 1 : products),
        words_(device, static_cast<std::uint64_t>(count_ * lines_ / 64 * slices_ *
                                                  byte_planes::slice_words<Digits>)),
        largest_(device, static_cast<std::uint64_t>(count_ * lines_)),
        planes_{words_.data(), largest_.data(), lines_, slices_, is_shared, side} {
    const largest_of_lines<Lines> largest{from, first, planes_};
    if (largest.parts() != 1) {
      device.each(static_cast<std::uint64_t>(count_ * lines_),
                  cleared<std::uint32_t>{planes_.largest});
    }
    device.run(static_cast<std::uint64_t>(count_ * largest.groups() * largest.parts()), largest);
    const bytes_of_lines<Digits, Lines> bytes{from, first, planes_};
    device.run(static_cast<std::uint64_t>(count_ * (lines_ / bytes.lines) * bytes.parts()), bytes);
  }
  const byte_planes& planes() const { return planes_; }

 private:
  std::int64_t lines_, slices_, count_;
  typename Device::template numbers<std::uint32_t> words_, largest_;
  byte_planes planes_;
};

/// The k of a chunk, a multiple of `unit`: all of them, unless more blocks are wanted or their sums
/// do not fit.
inline std::int64_t integer_chunk(std::int64_t depth, std::int64_t tiles, std::int64_t most,
                                  std::int64_t unit) {
  const std::int64_t wanted = (enough_blocks + tiles - 1) / tiles;
  const std::int64_t share =
      std::min(most, std::max(least_integer_chunk, (depth + wanted - 1) / wanted));
  const std::int64_t chunks = std::max<std::int64_t>(1, (depth + share - 1) / share);
  return filled_up<std::int64_t>(std::max<std::int64_t>(1, (depth + chunks - 1) / chunks), unit);
}

/// C of `products` products of lines of A and lines of B, by blocks with a body `Tiles`. An operand
/// that is shared is the same in all of them.
template <unsigned Digits, class Tiles, class Device, class A, class B, class Targets>
void multiply_tiles(const Device& device, const A& a, const B& b, const Targets& targets,
                    std::int64_t products, bool a_is_shared, bool b_is_shared) {
  const std::int64_t rows = a.count(), columns = b.count(), depth = a.depth();
  if (products <= 0 || rows <= 0 || columns <= 0) return;
  const auto bytes = [&](std::int64_t lines) {
    return filled_up<std::int64_t>(lines, 128) * Digits * filled_up<std::int64_t>(depth, 64);
  };
  const std::int64_t each = (a_is_shared ? 0 : bytes(rows)) + (b_is_shared ? 0 : bytes(columns));
  const std::int64_t at_once =
      std::clamp<std::int64_t>(most_plane_bytes / std::max<std::int64_t>(each, 1), 1, products);
  for (std::int64_t first = 0; first < products; first += at_once) {
    const std::int64_t count = std::min(at_once, products - first);
    const integer_operand<Digits, Device> left(device, a, first, count, a_is_shared,
                                               operand_side::left, Tiles::rows, Tiles::depth);
    const integer_operand<Digits, Device> right(device, b, first, count, b_is_shared, Tiles::right,
                                                Tiles::columns, Tiles::depth);
    Tiles tiles{{targets, first, left.planes(), right.planes(), rows, columns, 0, 1,
                 split_sums{nullptr, rows, columns}}};
    auto& work = tiles.work;
    work.chunk =
        integer_chunk(depth, tiles.tiles() * count, integer_form<Digits>::chunk, Tiles::depth);
    work.chunks = std::max<std::int64_t>((depth + work.chunk - 1) / work.chunk, 1);
    const auto blocks = static_cast<std::uint64_t>(tiles.tiles() * count * work.chunks);
    if (work.chunks == 1) {
      device.run(blocks, tiles);
      continue;
    }
    const auto size = static_cast<std::uint64_t>(count * rows * columns);
    typename Device::template numbers<split_sum> sums(device, size);
    work.sums.data = sums.data();
    device.each(size, cleared<split_sum>{sums.data()});
    device.run(blocks, tiles);
    device.each(size, rounded_integers<Digits, Targets>{targets, first, left.planes(),
                                                        right.planes(), work.sums});
  }
}

template <unsigned Digits, class Device, class A, class B, class Targets>
void multiply_integers(const Device& device, const A& a, const B& b, const Targets& targets,
                       std::int64_t products, bool a_is_shared, bool b_is_shared) {
  using narrow = integer_products<Digits, Targets>;
  using wide = wide_integer_products<Digits, Targets>;
  const auto multiply = device.multiplies_rows()
                            ? &multiply_tiles<Digits, wide, Device, A, B, Targets>
                            : &multiply_tiles<Digits, narrow, Device, A, B, Targets>;
  multiply(device, a, b, targets, products, a_is_shared, b_is_shared);
}

/// bits: 24 or 16.
template <class Device, class A, class B, class Targets>
void multiply_integers(const Device& device, int bits, const A& a, const B& b,
                       const Targets& targets, std::int64_t products, bool a_is_shared,
                       bool b_is_shared) {
  bits == 24 ? multiply_integers<3>(device, a, b, targets, products, a_is_shared, b_is_shared)
             : multiply_integers<2>(device, a, b, targets, products, a_is_shared, b_is_shared);
}

/// Products in memory with strides.
template <class Device>
void multiply_integers(const Device& device, int bits, const products& p) {
  multiply_integers(device, bits, stored_lines{p.a, p.batch.a_stride},
                    stored_lines{columns_of(p.b), p.batch.b_stride},
                    stored_targets{p.c, p.batch.c_stride}, p.batch.count, p.batch.a_stride == 0,
                    p.batch.b_stride == 0);
}

}  // namespace potl::cuda
