// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/gemm.hpp>

#include <potl/core/error.hpp>

#include "product_layers.hpp"
#include "stream_device.hpp"

namespace potl::cuda {
namespace {

using numeric::matrix;

void multiply(const product_form& form, const numeric::gemm_batch& batch, matrix<const float> a,
              matrix<const float> b, matrix<float> c, queue stream) {
  if (a.rows != c.rows || b.columns != c.columns || a.columns != b.rows || batch.count < 0) {
    throw exception({errc::usage, "the shapes of a product do not fit", ""});
  }
  multiply(stream_device(stream), form, products{batch, a, b, c});
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
