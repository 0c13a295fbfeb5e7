// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/gemm.hpp>

#include "gemm.hpp"
#include "runtime.hpp"

namespace potl::cuda {
namespace {

using numeric::matrix;
using tile = gemm_tile<128, 128, 8>;

__global__ void __launch_bounds__(tile::threads, 2) multiply_tile(products p) {
  using block = device_block<tile::threads>;
  __shared__ gemm_memory<tile, block> memory;
  block here;
  multiply_ordered<tile>(here, memory, p);
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
  const auto tiles = static_cast<std::uint64_t>(tiles_down<tile>(p)) *
                     static_cast<std::uint64_t>(tiles_across<tile>(p));
  const unsigned grid = grid_of(tiles * static_cast<std::uint64_t>(batch.count));
  multiply_tile<<<grid, tile::threads, 0, as_stream(stream)>>>(p);
  require(cudaGetLastError());
}

}  // namespace potl::cuda
