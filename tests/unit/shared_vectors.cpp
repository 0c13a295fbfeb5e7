// SPDX-License-Identifier: Apache-2.0
#include "shared_vectors.hpp"

namespace potl_test {

std::filesystem::path vectors(const std::string& folder) {
  return std::filesystem::path(POTL_SOURCE_DIR) / ".." / "shared" / "vectors" / folder;
}

std::filesystem::path test_file(const std::string& name) {
  return std::filesystem::path(POTL_SOURCE_DIR) / "tests" / name;
}

}  // namespace potl_test
