// SPDX-License-Identifier: Apache-2.0
// The only file that differs between a release build and one with test hooks.
#include <potl/core/rules.hpp>

#ifdef POTL_TEST_HOOKS
#include <array>
#include <atomic>
#include <cstddef>
#endif

namespace potl {

#ifdef POTL_TEST_HOOKS

namespace {
std::array<std::atomic<bool>, rules.size()> disabled{};
}

bool rule_enabled(std::string_view id) noexcept {
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (rules[i].id == id) return !disabled[i];
  }
  return true;
}

bool set_rule_enabled(std::string_view id, bool enabled) noexcept {
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (rules[i].id == id) {
      disabled[i] = !enabled;
      return true;
    }
  }
  return false;
}

#else

bool rule_enabled(std::string_view) noexcept { return true; }

#endif

}  // namespace potl
