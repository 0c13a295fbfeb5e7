// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/gemm.hpp>

#include <potl/core/error.hpp>

#include "chunks.hpp"
#include "stream_device.hpp"

namespace potl::cuda {
namespace {

using numeric::matrix;

template <class Tile>
std::int64_t tiles_of(const products& p) {
  return tiles_down<Tile>(p) * tiles_across<Tile>(p) * p.batch.count;
}

template <class Tile>
void run_in(const products& p, void* stream) {
  const stream_device device(stream);
  const std::int64_t tiles = tiles_of<Tile>(p);
  if (tiles >= enough_blocks || chunks_of(p.a.columns) == 1) {
    device.run(static_cast<std::uint64_t>(tiles), ordered_products<Tile, false>{p, {}});
    return;
  }
  in_chunks(device, p.batch.count, p.c.rows, p.c.columns, p.a.columns,
            ordered_products<Tile, true>{p, {}}, [&](const chunk_sums& sums, std::int64_t chunks) {
              device.run(static_cast<std::uint64_t>(tiles * chunks),
                         ordered_products<Tile, true>{p, sums});
            });
}

}  // namespace

void gemm(numeric::arithmetic mode, const numeric::gemm_batch& batch, matrix<const float> a,
          matrix<const float> b, matrix<float> c, void* stream) {
  if (mode != numeric::arithmetic::ord32) {
    throw exception({errc::usage, "this arithmetic has no CUDA form", "use ord32"});
  }
  if (a.rows != c.rows || b.columns != c.columns || a.columns != b.rows || batch.count < 0) {
    throw exception({errc::usage, "the shapes of a product do not fit", ""});
  }
  const products p{batch, a, b, c};
  if (batch.count == 0 || c.rows <= 0 || c.columns <= 0) return;
  if (tiles_of<large_tile>(p) * chunks_of(a.columns) < enough_blocks) {
    run_in<small_tile>(p, stream);
  } else {
    run_in<large_tile>(p, stream);
  }
}

}  // namespace potl::cuda
