// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/gemm.hpp>

#include <potl/core/error.hpp>

#include "chunks.hpp"
#include "double_layers.hpp"
#include "modes.hpp"
#include "stream_device.hpp"

namespace potl::cuda {
namespace {

using numeric::matrix;

template <class Tile>
std::int64_t tiles_of(const products& p) {
  return tiles_down<Tile>(p) * tiles_across<Tile>(p) * p.batch.count;
}

template <class Tile>
void run_whole(const products& p, queue stream) {
  stream_device(stream).run(static_cast<std::uint64_t>(tiles_of<Tile>(p)),
                            ordered_products<Tile, false>{p, {}});
}

void run_in_chunks(const products& p, queue stream) {
  using part = ordered_products<large_tile, true>;
  const stream_device device(stream);
  in_chunks(
      device, p.batch.count, p.c.rows, p.c.columns, p.a.columns, part{p, {}},
      [&](const chunk_sums& sums, std::int64_t chunks) {
        device.run(static_cast<std::uint64_t>(tiles_of<large_tile>(p) * chunks), part{p, sums});
      });
}

void multiply(const product_form& form, const numeric::gemm_batch& batch, matrix<const float> a,
              matrix<const float> b, matrix<float> c, queue stream) {
  if (a.rows != c.rows || b.columns != c.columns || a.columns != b.rows || batch.count < 0) {
    throw exception({errc::usage, "the shapes of a product do not fit", ""});
  }
  const products p{batch, a, b, c};
  if (batch.count == 0 || c.rows <= 0 || c.columns <= 0) return;
  if (form.integer_bits() != 0) {
    multiply_integers(stream_device(stream), form.integer_bits(), p);
  } else if (form.is_rounded()) {
    multiply_rounded(stream_device(stream), form.bits, p, form.ties);
  } else if (tiles_of<large_tile>(p) >= enough_blocks) {
    run_whole<large_tile>(p, stream);
  } else if (chunks_of(a.columns) == 1) {
    run_whole<small_tile>(p, stream);
  } else {
    run_in_chunks(p, stream);
  }
}

}  // namespace

void gemm(numeric::arithmetic mode, const numeric::gemm_batch& batch, matrix<const float> a,
          matrix<const float> b, matrix<float> c, queue stream) {
  multiply(plain_form(mode), batch, a, b, c, stream);
}

std::vector<numeric::near_tie> gemm_log64(const numeric::gemm_batch& batch, matrix<const float> a,
                                          matrix<const float> b, matrix<float> c, int bits,
                                          queue stream) {
  std::vector<numeric::near_tie> ties;
  multiply(logged_form(bits, ties), batch, a, b, c, stream);
  return ties;
}

}  // namespace potl::cuda
