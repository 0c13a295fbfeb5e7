// SPDX-License-Identifier: Apache-2.0
#include "weights.hpp"

#include <algorithm>

#include "workers.hpp"

namespace potl::numeric::conv {
namespace {

const float* start_of(const gather& what, const weight_block& block) {
  return what.weights + block.group * what.weight_group + block.row * what.weight_row;
}

}  // namespace

void pack_weights(const gather& what, const weight_block& block, const kernels& with, float* target,
                  std::int64_t width) {
  const std::vector<tap>& kernel = block.of.taps;
  const auto taps = static_cast<std::int64_t>(kernel.size());
  const std::int64_t begin = block.begin, end = block.end, rows = block.rows;
  const float* const from = start_of(what, block);
  bool all = true;  // the taps lie one after the other
  for (std::int64_t t = 0; t < taps; ++t)
    all = all && kernel[static_cast<std::size_t>(t)].weight == kernel[0].weight + t;
  if (all && what.weight_channel == taps) {
    with.transpose(from + begin, what.weight_row, rows, end - begin, target, width);
    return;
  }
  for (std::int64_t k = begin; k < end;) {
    const std::int64_t channel = k / taps, first = k % taps;
    const std::int64_t some = std::min(taps - first, end - k);
    const float* const here = from + channel * what.weight_channel;
    float* to = target + (k - begin) * width;
    if (all && taps > 1)
      with.transpose(here + kernel[0].weight + first, what.weight_row, rows, some, to, width);
    else
      for (std::int64_t t = first; t < first + some; ++t, to += width) {
        const float* const one = here + kernel[static_cast<std::size_t>(t)].weight;
        if (what.weight_row == 1)
          std::copy_n(one, rows, to);
        else
          for (std::int64_t row = 0; row < rows; ++row) to[row] = one[row * what.weight_row];
      }
    k += some;
  }
}

stretch memory_of(const gather& what, const weight_block& block) {
  const auto taps = static_cast<std::int64_t>(block.of.taps.size());
  if (taps == 0) return {};
  const std::int64_t channel = block.begin / taps;
  const std::int64_t channels = divide_up(block.end, taps) - channel;
  const float* const from = start_of(what, block) + channel * what.weight_channel;
  if (what.weight_row > what.weight_channel)
    return {from, block.rows, what.weight_row, channels * what.weight_channel};
  return {from, channels, what.weight_channel, block.rows * what.weight_row};
}

}  // namespace potl::numeric::conv
