// SPDX-License-Identifier: Apache-2.0
#include "shared_vectors.hpp"

namespace potl_test {

std::filesystem::path vectors(const std::string& folder) {
  return std::filesystem::path(POTL_SOURCE_DIR) / ".." / "shared" / "vectors" / folder;
}

}  // namespace potl_test
