// SPDX-License-Identifier: Apache-2.0
// The only file that differs between a release build and one with test hooks.
#include <potl/core/file.hpp>
#include <potl/core/rules.hpp>

#include "file_system.hpp"

#ifdef POTL_TEST_HOOKS
#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>
#endif

namespace potl {

#ifdef POTL_TEST_HOOKS

namespace {
std::array<std::atomic<bool>, rules.size()> disabled{};
std::function<void(const std::string&, std::uint64_t)> observer;
}  // namespace

void set_read_observer(std::function<void(const std::string&, std::uint64_t)> told) {
  observer = std::move(told);
}

void detail::observe_read(const std::string& path, std::uint64_t bytes) {
  if (observer) observer(path, bytes);
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

void detail::observe_read(const std::string&, std::uint64_t) {}

#endif

}  // namespace potl
