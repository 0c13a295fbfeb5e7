// SPDX-License-Identifier: Apache-2.0
// Where random operators have their numbers from: an operator draws a 126-bit subkey from the torch
// generator that it was given, and fills from Philox (core/detail/rng.hpp). The position in the
// sequence stays in torch's generator state, so that activation checkpointing works. The values are
// those of python/potl/_task/_random.py, which does the same outside of blocks.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include <ATen/core/Generator.h>

#include <potl/core/detail/rng.hpp>

#include "mode.hpp"

namespace potl::libtorch::dispatch {

using optional_generator = std::optional<at::Generator>;

/// Counts a draw.
random_key subkey(const optional_generator& generator);

/// fill(part, number of its first element) for parts of `out`, in parallel.
template <class Value, class Fill>
void in_parts(std::span<Value> out, const Fill& fill) {
  constexpr std::size_t most = 1 << 14;
  executor().run((out.size() + most - 1) / most, [&](std::size_t part) {
    const std::size_t first = part * most;
    fill(out.subspan(first, std::min(most, out.size() - first)), first);
  });
}

}  // namespace potl::libtorch::dispatch
