// SPDX-License-Identifier: Apache-2.0
// Public test vectors lie beside the repository. A test that needs them warns and returns when they
// are not there.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "catch.hpp"

namespace potl_test {

std::filesystem::path vectors(const std::string& folder);

/// A file of tests/ that other languages read, too.
std::filesystem::path test_file(const std::string& name);

inline bool have_vectors(const std::string& folder) {
  if (std::filesystem::exists(vectors(folder))) return true;
  WARN("skipped: ../shared/vectors/" + folder + " is not there");
  return false;
}

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace potl_test
