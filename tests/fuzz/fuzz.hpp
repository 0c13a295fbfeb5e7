// SPDX-License-Identifier: Apache-2.0
// All targets are in one program, which links and compiles the parsers once: `potl_fuzz
// --target=json_fuzz`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace potl::fuzzing {

using target = int (*)(const std::uint8_t* data, std::size_t size);

/// A target's name, known from before main() on.
struct registered {
  registered(const char* name, target run);
};

}  // namespace potl::fuzzing

/// POTL_FUZZ_TARGET(name) { ... }: what libFuzzer calls with `data` and `size`.
#define POTL_FUZZ_TARGET(name)                                           \
  static int name(const std::uint8_t* data, std::size_t size);           \
  static const potl::fuzzing::registered name##_registered{#name, name}; \
  static int name(const std::uint8_t* data, std::size_t size)
