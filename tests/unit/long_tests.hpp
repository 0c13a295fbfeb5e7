// SPDX-License-Identifier: Apache-2.0
// Whether a test that has a long version runs it.
#pragma once

#include <cstdlib>
#include <string_view>

namespace potl::test {

/// POTL_FULL=1, as `make test-full` sets it.
inline bool is_full() {
  const char* value = std::getenv("POTL_FULL");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace potl::test
