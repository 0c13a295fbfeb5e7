// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648, section 4) with padding, in its one canonical form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl::detail {

std::string to_base64(bytes_view bytes);
/// malformed unless to_base64 of the outcome is `text`.
result<std::vector<std::uint8_t>> from_base64(std::string_view text);

}  // namespace potl::detail
