// SPDX-License-Identifier: Apache-2.0
// From results of phases, one after the other, to the places in the target where they take turns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "block_grid.hpp"
#include "gather.hpp"

namespace potl::numeric::conv {

/// Phases that take turns along the last dimension.
std::int64_t phases_beside(const gather& what);

/// The results of one row and image of a block: phases `first` ... first + phases_beside() - 1,
/// each `distance` behind the one before it. `plane` is where the row's target begins.
void write_lines(const gather& what, const kernels& with, std::size_t first, const block& here,
                 const float* from, std::int64_t distance, float* plane);

/// Where in the target a result of a row is stored, counted within a block; negative where the grid
/// reaches beyond the target.
std::int64_t target_index(const gather& what, std::size_t p, const block& here, std::int64_t group,
                          std::int64_t row, std::int64_t result);

}  // namespace potl::numeric::conv
