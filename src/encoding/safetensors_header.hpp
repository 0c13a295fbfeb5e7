// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file as it is written there, before its offsets are checked.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <potl/encoding/detail/safetensors.hpp>

namespace potl::detail {

struct safetensors_entry {
  std::string name;
  potl::dtype type = potl::dtype::u8;
  std::vector<std::uint64_t> dims;
  std::array<std::uint64_t, 2> offsets{};
};

struct safetensors_header {
  safetensors_metadata metadata;           ///< sorted by name
  std::vector<safetensors_entry> entries;  ///< sorted by name
};

/// Parses the JSON text between the length and the data. Names are unique afterwards.
result<safetensors_header> parse_safetensors_header(bytes_view text,
                                                    const safetensors_limits& limits);

}  // namespace potl::detail
