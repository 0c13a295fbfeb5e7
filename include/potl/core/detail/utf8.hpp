// SPDX-License-Identifier: Apache-2.0
// UTF-8 as RFC 3629 defines it: shortest forms only, no surrogates, nothing above U+10FFFF.
#pragma once

#include <string_view>

namespace potl {

/// Whether `text` is well-formed UTF-8. Reads every byte at most once.
bool is_utf8(std::string_view text) noexcept;

}  // namespace potl
