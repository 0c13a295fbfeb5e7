// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them in reasons.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

namespace potl::checks {

/// Three significant digits, e.g. "0.0123", "1.2e-07", "12".
inline std::string text(double value) {
  std::array<char, 40> buffer{};
  if (value == std::floor(value) && std::fabs(value) < 1e9) {
    std::snprintf(buffer.data(), buffer.size(), "%.0f", value);
  } else {
    std::snprintf(buffer.data(), buffer.size(), "%.3g", value);
  }
  return buffer.data();
}

inline std::string text(std::uint64_t value) { return std::to_string(value); }

/// Enough digits to tell two losses apart.
inline std::string precise(double value) {
  std::array<char, 40> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.9g", value);
  return buffer.data();
}

inline std::string percent(double share) { return text(100 * share) + " %"; }

/// Ends the reason where the same work comes to two results on the verifier's machine.
inline constexpr const char* in_two_ways =
    " in two ways here (if the task keeps something outside of its state, make it part of the "
    "state; otherwise this machine computes wrongly: verify on another one)";

}  // namespace potl::checks
