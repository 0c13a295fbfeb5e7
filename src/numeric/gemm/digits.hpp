// SPDX-License-Identifier: Apache-2.0
// How integers are cut into digits for panels (tile_integer.hpp says why).
#pragma once

#include <cstdint>

namespace potl::numeric::detail {

/// Terms whose products of digits are added in int32.
constexpr std::int64_t integer_chunk = 256;
/// Fewer where a panel of three digits would not stay in the first cache.
constexpr std::int64_t integer_chunk_24 = 192;

struct digits_24 {
  static constexpr int count = 3;
  static constexpr int limit = (1 << 23) - 1;
};
struct digits_16_rows {
  static constexpr int count = 2;
  static constexpr int limit = (1 << 15) - 1;
};
struct digits_16_columns {
  static constexpr int count = 1;
  static constexpr int limit = (1 << 15) - 1;
};

}  // namespace potl::numeric::detail
