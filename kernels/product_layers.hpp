// SPDX-License-Identifier: Apache-2.0
// Products of matrices in all modes, on any device (layers.hpp). Private.
#pragma once

#include <cstdint>

#include "chunks.hpp"
#include "double_layers.hpp"
#include "modes.hpp"

namespace potl::cuda {

template <class Tile>
std::int64_t tiles_of(const products& p) {
  return tiles_down<Tile>(p) * tiles_across<Tile>(p) * p.batch.count;
}

template <class Tile, class Device>
void run_whole(const Device& device, const products& p) {
  device.run(static_cast<std::uint64_t>(tiles_of<Tile>(p)), ordered_products<Tile, false>{p, {}});
}

/// Whether so many tiles keep nearly all multiprocessors at work until the end, several at a time.
inline bool is_even(std::int64_t tiles, std::int64_t multiprocessors) {
  const std::int64_t each = (tiles + multiprocessors - 1) / multiprocessors;
  return each >= 3 && tiles * 8 >= each * multiprocessors * 7;
}

template <class Device>
void run_in_chunks(const Device& device, const products& p) {
  using part = ordered_products<large_tile, true>;
  in_chunks(
      device, p.batch.count, p.c.rows, p.c.columns, p.a.columns, part{p, {}},
      [&](const chunk_sums& sums, std::int64_t chunks) {
        device.run(static_cast<std::uint64_t>(tiles_of<large_tile>(p) * chunks), part{p, sums});
      });
}

/// Products whose shapes fit. Which tiles are used decides how many blocks there are, and no bit.
template <class Device>
void multiply(const Device& device, const product_form& form, const products& p) {
  if (p.batch.count == 0 || p.c.rows <= 0 || p.c.columns <= 0) return;
  if (form.integer_bits() != 0) return multiply_integers(device, form.integer_bits(), p);
  if (form.is_rounded()) return multiply_rounded(device, form.bits, p, form.ties);
  const std::int64_t multiprocessors = device.multiprocessors();
  // Half of a larger tile would be empty.
  const bool is_narrow = p.c.rows <= small_tile::rows || p.c.columns <= small_tile::columns;
  if (is_narrow && tiles_of<small_tile>(p) >= 4 * multiprocessors) {
    run_whole<small_tile>(device, p);
  } else if (tiles_of<large_tile>(p) >= enough_blocks) {
    run_whole<large_tile>(device, p);
  } else if (is_even(tiles_of<medium_tile>(p), multiprocessors)) {
    run_whole<medium_tile>(device, p);
  } else if (chunks_of(p.a.columns) == 1) {
    run_whole<small_tile>(device, p);
  } else {
    run_in_chunks(device, p);
  }
}

}  // namespace potl::cuda
