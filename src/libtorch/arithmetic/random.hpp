// SPDX-License-Identifier: Apache-2.0
// Where random operators have their numbers from: an operator draws a 126-bit subkey from the torch
// generator that it was given, and fills from Philox (core/detail/rng.hpp). The position in the
// sequence stays in torch's generator state, so that activation checkpointing works. The values are
// those of python/potl/_task/_random.py, which does the same outside of blocks.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include <ATen/core/Generator.h>

#include <potl/core/detail/rng.hpp>

#include "fallback.hpp"
#include "forms.hpp"
#include "mode.hpp"

namespace potl::libtorch::dispatch {

using optional_generator = std::optional<at::Generator>;

/// Counts a draw.
random_key subkey(const optional_generator& generator);

/// The function of a random operator. A lenient block draws as the steps do that it is compared
/// with, by torch's own kernel: noise with other numbers in it would hide every cheat.
template <class Operator, auto Function, class Type = std::remove_pointer_t<decltype(Function)>>
struct drawing;

template <class Operator, auto Function, class Result, class... Arguments>
struct drawing<Operator, Function, Result(Arguments...)> {
  static Result call(keys_t keys, Arguments... arguments) {
    if (lets_through()) {
      return Operator::redispatch(keys & below, std::forward<Arguments>(arguments)...);
    }
    return Function(std::forward<Arguments>(arguments)...);
  }
};

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
