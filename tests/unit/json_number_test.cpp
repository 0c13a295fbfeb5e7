// SPDX-License-Identifier: Apache-2.0
// The deterministic number sequence that RFC 8785's authors publish hashes of: the text of each
// double, in order, hashed over the first 10,000 lines.
#include <openssl/evp.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "catch.hpp"
#include "shared_vectors.hpp"

#include <potl/core/digest.hpp>
#include <potl/encoding/json.hpp>

namespace {

potl::digest sha256(const void* data, std::size_t size) {
  potl::digest out;
  REQUIRE(EVP_Digest(data, size, out.bytes.data(), nullptr, EVP_sha256(), nullptr) == 1);
  return out;
}

// The first numbers of the sequence, read from the description that publishes it.
std::vector<std::uint64_t> listed_numbers(const std::string& text) {
  std::vector<std::uint64_t> out;
  const std::size_t begin = text.find("staticU64s = ");
  const std::size_t end = text.find("])", begin);
  REQUIRE(end != std::string::npos);
  for (std::size_t i = text.find("0x", begin); i < end; i = text.find("0x", i + 1))
    out.push_back(std::stoull(text.substr(i + 2, 16), nullptr, 16));
  return out;
}

}  // namespace

TEST_CASE("ten thousand doubles are spelled as ECMAScript spells them") {
  if (!potl_test::have_vectors("jcs-rfc8785")) return;
  std::vector<std::uint64_t> numbers =
      listed_numbers(potl_test::contents(potl_test::vectors("jcs-rfc8785") / "testdata/README.md"));
  for (std::uint64_t i = 0; i < 2000; ++i) numbers.push_back(0x0010000000000000u + i);
  potl::digest block;
  while (numbers.size() < 10000) {
    block = sha256(block.bytes.data(), block.bytes.size());
    for (std::size_t i = 0; i < 4; ++i) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, block.bytes.data() + 8 * i, 8);
      double value = 0;
      std::memcpy(&value, &bits, 8);
      if (value != 0 && std::isfinite(value)) numbers.push_back(bits);
    }
  }
  numbers.resize(10000);

  std::string file;
  for (const std::uint64_t bits : numbers) {
    double value = 0;
    std::memcpy(&value, &bits, 8);
    std::array<char, 20> hexadecimal{};
    std::snprintf(hexadecimal.data(), hexadecimal.size(), "%llx,",
                  static_cast<unsigned long long>(bits));
    const std::string spelled = potl::canonical_json(potl::json_value(value));
    REQUIRE(potl::parse_json(potl::as_bytes_view(spelled)).value() == potl::json_value(value));
    file += hexadecimal.data() + spelled + "\n";
  }
  REQUIRE(file.size() == 399022);
  REQUIRE(sha256(file.data(), file.size()).hex() ==
          "b9f7a8e75ef22a835685a52ccba7f7d6bdc99e34b010992cbc5864cd12be6892");
}
