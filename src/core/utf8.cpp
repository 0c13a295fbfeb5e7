// SPDX-License-Identifier: Apache-2.0
#include <potl/core/detail/utf8.hpp>

#include <cstddef>
#include <cstdint>

namespace potl {
namespace {

// How many bytes follow this lead byte, and which range the first of them must lie in (RFC 3629,
// section 4: the narrower ranges are what excludes overlong forms and surrogates).
struct lead_rule {
  std::size_t following;
  std::uint8_t lowest;
  std::uint8_t highest;
  bool valid;
};

lead_rule rule_for(std::uint8_t lead) noexcept {
  if (lead < 0x80) return {0, 0, 0, true};
  if (lead >= 0xC2 && lead <= 0xDF) return {1, 0x80, 0xBF, true};
  if (lead == 0xE0) return {2, 0xA0, 0xBF, true};
  if (lead == 0xED) return {2, 0x80, 0x9F, true};
  if (lead >= 0xE1 && lead <= 0xEF) return {2, 0x80, 0xBF, true};
  if (lead == 0xF0) return {3, 0x90, 0xBF, true};
  if (lead >= 0xF1 && lead <= 0xF3) return {3, 0x80, 0xBF, true};
  if (lead == 0xF4) return {3, 0x80, 0x8F, true};
  return {0, 0, 0, false};
}

}  // namespace

bool is_utf8(std::string_view text) noexcept {
  std::size_t i = 0;
  while (i < text.size()) {
    const lead_rule rule = rule_for(static_cast<std::uint8_t>(text[i]));
    if (!rule.valid || rule.following >= text.size() - i) return false;
    for (std::size_t k = 1; k <= rule.following; ++k) {
      const auto byte = static_cast<std::uint8_t>(text[i + k]);
      const std::uint8_t lowest = k == 1 ? rule.lowest : 0x80;
      const std::uint8_t highest = k == 1 ? rule.highest : 0xBF;
      if (byte < lowest || byte > highest) return false;
    }
    i += 1 + rule.following;
  }
  return true;
}

}  // namespace potl
