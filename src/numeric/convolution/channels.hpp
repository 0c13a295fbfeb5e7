// SPDX-License-Identifier: Apache-2.0
// The operands of a weight gradient as lines in memory: over all images and positions, a channel of
// dy, and a channel of x as a tap sees it.
#pragma once

#include <cstdint>

#include <potl/numeric/convolution.hpp>
#include <potl/numeric/detail/rounding_session.hpp>

namespace potl::numeric::conv {

/// to[i] = line[from + i step] for i < count; 0 where that is beyond the line.
void copy_line(const float* line, std::int64_t size, std::int64_t from, std::int64_t step,
               std::int64_t count, float* to);

void copy_channel(const convolution& g, const float* dy, std::int64_t channel, float* to);
/// Padding is written out.
void see_channel(const convolution& g, const float* x, std::int64_t channel, std::int64_t tap,
                 float* to);

/// weight_gradient_operands(), faster.
element_operands channel_operands(const convolution& g, const float* x, const float* dy);

}  // namespace potl::numeric::conv
