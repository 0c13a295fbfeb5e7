// SPDX-License-Identifier: Apache-2.0
// What the forward pass and the input gradient have in common: every result is a sum over
// (channel, tap) of a weight times an element that lies at a fixed distance from the result's
// place on a grid. The input gradient of a convolution with stride s is s such sums per dimension,
// one for each phase, with grids that interleave.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <potl/numeric/convolution.hpp>

#include "rounded_results.hpp"
#include "tile.hpp"

namespace potl::numeric::conv {

/// One dimension. Grid position q reads, for a tap in slot s that is shifted by d, the element
/// (q + d) * step + starts[s] of the source, +0 outside. Slots are the phases of the step.
struct axis {
  std::int64_t grid = 1;
  std::int64_t source = 1;
  std::int64_t step = 1;
  std::vector<std::int64_t> starts;
  std::int64_t reach = 0;  ///< the largest shift
};

struct tap {
  std::int64_t weight = 0;  ///< its index in the kernel
  std::array<std::int64_t, 3> slot{}, shift{};
};

/// The results at first + q * write_step of the target.
struct phase {
  std::array<std::int64_t, 3> first{};
  std::vector<tap> taps;
};

struct gather {
  std::int64_t batch = 0, groups = 1;
  std::int64_t channels = 0, rows = 0;  ///< per group: of the source, and of the target
  std::array<axis, 3> axes;
  std::array<std::int64_t, 3> target_size{}, write_step{1, 1, 1};
  std::vector<phase> phases;  ///< all of the last dimension for one of the others, then the next
  const float* weights = nullptr;
  std::int64_t weight_group = 0, weight_row = 0, weight_channel = 0;
  const float* source = nullptr;
  float* target = nullptr;
};

gather forward_gather(const convolution& g, const float* x, const float* w, float* y);
gather input_gradient_gather(const convolution& g, const float* dy, const float* w, float* dx);

void run(const gather& what, const kernels& with, const executor& threads);
/// The same by tiles, which serve any shape; run() takes a faster way where there is one.
void run_tiles(const gather& what, const kernels& with, const executor& threads);
/// Sums in double, rounded.
void run(const gather& what, const kernels& with, const executor& threads,
         rounded_results& results);

}  // namespace potl::numeric::conv
