// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/arithmetic.hpp>

namespace potl::numeric {

const char* to_string(arithmetic mode) noexcept {
  switch (mode) {
    case arithmetic::ord32: return "ord32";
    case arithmetic::cr32: return "cr32";
    case arithmetic::log64: return "log64";
    case arithmetic::xint24: return "xint24";
    case arithmetic::xint16: return "xint16";
  }
  return "unknown";
}

std::optional<arithmetic> arithmetic_from(std::string_view name) noexcept {
  for (const arithmetic mode : arithmetics)
    if (name == to_string(mode)) return mode;
  return std::nullopt;
}

}  // namespace potl::numeric
