// SPDX-License-Identifier: Apache-2.0
// Memory that is read soon and that no hardware foresees: asked for between tiles, so that it comes
// while they compute.
#pragma once

#include <algorithm>
#include <cstdint>

#include "workers.hpp"

namespace potl::numeric::conv {

/// So many lines of one length, so far apart.
struct stretch {
  const float* from = nullptr;
  std::int64_t count = 0, distance = 0, length = 0;

  /// Asks for one of so many parts of it.
  void fetch(std::int64_t part, std::int64_t parts) const {
    constexpr std::int64_t floats = 16;  // of a cache line
    // How far into a cache line they begin: all of them as the first one, or anywhere.
    const auto first =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(from) / sizeof(float) % floats);
    const std::int64_t into = distance % floats == 0 ? first : floats - 1;
    const std::int64_t each = divide_up(into + length, floats), all = count * each;
    std::int64_t at = all * part / parts, line = at / std::max<std::int64_t>(each, 1);
    std::int64_t within = at - line * each;
    for (const std::int64_t end = all * (part + 1) / parts; at < end; ++at) {
      __builtin_prefetch(from + line * distance + within * floats, 0, 2);
      if (++within == each) {
        within = 0;
        ++line;
      }
    }
  }
};

}  // namespace potl::numeric::conv
