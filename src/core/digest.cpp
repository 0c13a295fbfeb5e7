// SPDX-License-Identifier: Apache-2.0
#include <potl/core/digest.hpp>

namespace potl {
namespace {

constexpr char digits[] = "0123456789abcdef";

int nibble(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::string digest::hex() const {
  std::string text;
  text.reserve(2 * size);
  for (std::uint8_t byte : bytes) {
    text.push_back(digits[byte >> 4]);
    text.push_back(digits[byte & 15]);
  }
  return text;
}

result<digest> digest::from_hex(std::string_view text) {
  if (text.size() != 2 * size)
    return error{errc::malformed, "a digest has 64 hexadecimal digits", ""};
  digest out;
  for (std::size_t i = 0; i < size; ++i) {
    const int high = nibble(text[2 * i]);
    const int low = nibble(text[2 * i + 1]);
    if (high < 0 || low < 0)
      return error{errc::malformed, "a digest has lower-case hexadecimal digits only", ""};
    out.bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return out;
}

}  // namespace potl
