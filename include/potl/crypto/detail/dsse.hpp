// SPDX-License-Identifier: Apache-2.0
// What a signature of a DSSE envelope is over (Dead Simple Signing Envelope, protocol v1.0.2).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <potl/core/digest.hpp>

namespace potl::detail {

/// PAE of the protocol: "DSSEv1", then length in bytes and bytes of each, separated by spaces.
std::vector<std::uint8_t> dsse_message(std::string_view payload_type, bytes_view payload);

}  // namespace potl::detail
