// SPDX-License-Identifier: Apache-2.0
// Convolutions in xint24 and xint16. Blocks of operands are read through windows and made integers
// in panels, as the tiles of matrix products take them; sums are exact, so that their order is
// free.
#pragma once

#include <cstdint>
#include <vector>

#include "gather.hpp"
#include "numeric/gemm/scaled.hpp"
#include "numeric/gemm/scaled_back.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {

/// Workspaces of the workers, `bytes` for each; allocated as one, so that few pages are new.
class workspaces {
 public:
  workspaces(std::int64_t workers, std::int64_t bytes)
      : floats_(divide_up(bytes, 64) * 16), memory_(workers * floats_) {}
  float* of(std::int64_t worker) const noexcept { return memory_.get() + worker * floats_; }

 private:
  std::int64_t floats_;
  buffer memory_;
};

/// The part of a workspace that begins at `from`, which moves behind it.
template <class Element>
Element* take(float*& from, std::int64_t count) noexcept {
  auto* const begin = reinterpret_cast<Element*>(from);
  from += divide_up(count * std::int64_t{sizeof(Element)}, 64) * 16;
  return begin;
}
template <class Element>
constexpr std::int64_t bytes_of(std::int64_t count) noexcept {
  return divide_up(count * std::int64_t{sizeof(Element)}, 64) * 64;
}

void integer_gather(int bits, const gather& what, const kernels& with, const executor& threads);
void integer_weight_gradient(int bits, const convolution& g, const float* x, const float* dy,
                             float* dw, const kernels& with, const executor& threads);

}  // namespace potl::numeric::conv
