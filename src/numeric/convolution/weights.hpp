// SPDX-License-Identifier: Apache-2.0
// Weights in the order in which the tiles of a gather read them: term by term, the rows of a panel
// side by side.
#pragma once

#include <cstdint>

#include "gather.hpp"
#include "stretch.hpp"

namespace potl::numeric::conv {

/// Some rows of one group's weights, and some terms of a phase, which are its taps, channel by
/// channel.
struct weight_block {
  const phase& of;
  std::int64_t group, row, rows;
  std::int64_t begin, end;
};

/// target[(term - begin) * width + row]
void pack_weights(const gather& what, const weight_block& block, const kernels& with, float* target,
                  std::int64_t width);

/// What packing them reads.
stretch memory_of(const gather& what, const weight_block& block);

}  // namespace potl::numeric::conv
