// SPDX-License-Identifier: Apache-2.0
// Which number a JSON literal is, independently of locale and rounding mode.
#pragma once

#include <string_view>

#include <potl/encoding/json.hpp>

namespace potl::detail {

/// The number spelled by `literal`, which follows the JSON grammar. Malformed when nothing that is
/// kept would spell it: integers that a double rounds, overflow, and underflow to zero.
result<json_value> json_number_from(std::string_view literal);

}  // namespace potl::detail
