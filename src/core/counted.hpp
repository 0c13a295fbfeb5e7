// SPDX-License-Identifier: Apache-2.0
// Numbers of things, as people read them in messages.
#pragma once

#include <cstdint>
#include <string>

namespace potl {

/// "1 step", "2 steps".
inline std::string counted(std::uint64_t count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

}  // namespace potl
