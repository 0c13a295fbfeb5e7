// SPDX-License-Identifier: Apache-2.0
// Batches of matrices in double, for kernels that take one matrix after the other.
#pragma once

#include <potl/numeric/detail/decomposition.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "numeric/ranges.hpp"
#include "operand.hpp"

namespace potl::libtorch::dispatch {

inline void require_matrices(const char* name, const at::Tensor& a) {
  require_plain(name, a);
  TORCH_CHECK(a.dim() >= 2, name, ": The input tensor A must have at least 2 dimensions.");
  if (a.is_complex()) {
    refuse(std::string(name) + " of complex numbers is not reproducible",
           "compute it outside the block, and let the result enter as an operand");
  }
  TORCH_CHECK(a.scalar_type() == at::kFloat || a.scalar_type() == at::kDouble, name,
              ": expected float32 or float64, got ", a.scalar_type());
}
inline void require_square(const char* name, const at::Tensor& a) {
  require_matrices(name, a);
  TORCH_CHECK(a.size(-1) == a.size(-2), name,
              ": A must be batches of square matrices, but they are ", a.size(-2), " by ",
              a.size(-1), " matrices");
}

inline c10::IntArrayRef without_last(const at::Tensor& x) {
  return x.sizes().slice(0, static_cast<std::size_t>(x.dim() - 1));
}
/// Whether b, beside matrices a, is one vector, or one for each of them.
inline bool is_vector_beside(const at::Tensor& a, const at::Tensor& b) {
  return b.dim() == 1 || (a.dim() - 1 == b.dim() && b.sizes() == without_last(a));
}

/// A copy in double, row-major, to compute in.
inline at::Tensor work_of(const at::Tensor& a) {
  return a.to(at::kDouble).clone(at::MemoryFormat::Contiguous);
}
inline numeric::double_matrix matrix(const at::Tensor& work, std::int64_t index) {
  const std::int64_t rows = work.size(-2), columns = work.size(-1);
  return {work.mutable_data_ptr<double>() + index * rows * columns, rows, columns};
}
inline std::vector<std::int64_t> batch_of(const at::Tensor& a,
                                          std::initializer_list<std::int64_t> more = {}) {
  std::vector<std::int64_t> out(a.sizes().begin(), a.sizes().end() - 2);
  out.insert(out.end(), more);
  return out;
}
inline std::int64_t count_of(const at::Tensor& a) {
  std::int64_t count = 1;
  for (std::int64_t i = 0; i < a.dim() - 2; ++i) count *= a.size(i);
  return count;
}
/// body(index) for each matrix of a batch.
template <class Body>
void each(const at::Tensor& a, const Body& body) {
  const std::int64_t cost = a.size(-1) * a.size(-2) * std::min(a.size(-1), a.size(-2));
  numeric::for_ranges(executor(), count_of(a), cost, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace potl::libtorch::dispatch
