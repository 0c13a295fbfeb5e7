// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/detail/dsse.hpp>

#include <string>

namespace potl::detail {

std::vector<std::uint8_t> dsse_message(std::string_view payload_type, bytes_view payload) {
  const std::string head = "DSSEv1 " + std::to_string(payload_type.size()) + " " +
                           std::string(payload_type) + " " + std::to_string(payload.size()) + " ";
  std::vector<std::uint8_t> out(head.begin(), head.end());
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

}  // namespace potl::detail
