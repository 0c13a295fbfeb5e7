// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <vector>

#include <potl/core/detail/rng.hpp>
#include <potl/crypto/detail/prf.hpp>
#include <potl/crypto/hasher.hpp>

namespace {

const potl::digest key = potl::derive_key(7, "test");
const potl::random_key bits = potl::to_random_key(key);

}  // namespace

TEST_CASE("Philox4x32-10 gives the known answers of Random123") {
  using block = potl::philox_block;
  REQUIRE(potl::philox4x32({0, 0, 0, 0}, {0, 0}) ==
          block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint32_t ones = 0xffffffff;
  REQUIRE(potl::philox4x32({ones, ones, ones, ones}, {ones, ones}) ==
          block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  REQUIRE(potl::philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                           {0xa4093822, 0x299f31d0}) ==
          block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("key, stream and index reach Philox as little-endian words") {
  const potl::random_key pi{0x299f31d0a4093822, 0x0370734413198a2e};
  const auto pair = potl::random_pair(pi, 0x85a308d3243f6a88);
  REQUIRE(pair[0] == 0x94fdccebd16cfe09);
  REQUIRE(pair[1] == 0x24126ea15001e420);
}

TEST_CASE("uniform_below rejects exactly the values that would bias it") {
  const auto with = [](std::uint64_t bound, std::vector<std::uint64_t> values) {
    std::size_t used = 0;
    const std::uint64_t result = potl::uniform_below(bound, [&] { return values.at(used++); });
    return std::make_pair(result, used);
  };
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  REQUIRE(with(1, {most}) == std::make_pair(std::uint64_t{0}, std::size_t{1}));
  REQUIRE(with(std::uint64_t{1} << 63, {most}).second == 1);
  // 2^64 mod 10 = 6: the top six values are rejected.
  REQUIRE(with(10, {most, most - 5, most - 6}) == std::make_pair(std::uint64_t{9}, std::size_t{3}));
  REQUIRE(with(most, {most, 5}) == std::make_pair(std::uint64_t{5}, std::size_t{2}));
}

TEST_CASE("derived keys differ in every argument and are what the header says") {
  using potl::derive_key;
  std::vector<std::uint8_t> message;
  const auto add = [&](std::uint64_t value) {
    for (int i = 0; i < 8; ++i) message.push_back(static_cast<std::uint8_t>(value >> 8 * i));
  };
  for (char c : std::string_view("potl.prf.v1\0", 12)) {
    message.push_back(static_cast<std::uint8_t>(c));
  }
  add(7);
  add(5);
  for (char c : std::string_view("order")) message.push_back(static_cast<std::uint8_t>(c));
  add(2);
  add(3);
  add(std::uint64_t{1} << 40);
  REQUIRE(derive_key(7, "order", {3, std::uint64_t{1} << 40}) == potl::sha256_of(message));

  const std::vector<potl::digest> keys{
      derive_key(7, "order", {3, 4}), derive_key(8, "order", {3, 4}), derive_key(7, "orde", {3, 4}),
      derive_key(7, "order", {3}),    derive_key(7, "order", {4, 3}), derive_key(7, "order")};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) REQUIRE(keys[i] != keys[j]);
  }
}

TEST_CASE("a permutation holds every index once, and its bits never change") {
  REQUIRE(potl::permutation(key, 0).empty());
  REQUIRE(potl::permutation(key, 1) == std::vector<std::int64_t>{0});
  auto order = potl::permutation(key, 1797);
  const potl::digest golden = potl::sha256_of(potl::bytes_view(
      reinterpret_cast<const std::uint8_t*>(order.data()), order.size() * sizeof(order[0])));
  CHECK(golden.hex() == "01b17118ab65e62f8832862979e846ac99373a3b80dde7eb7c81c6e39b55b5fe");
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) {
    REQUIRE(order[i] == static_cast<std::int64_t>(i));
  }
}

TEST_CASE("all 24 permutations of four elements are equally likely") {
  // Fixed keys: the outcome does not vary. 60.0 is exceeded by chi-squared with 23 degrees of
  // freedom with a probability of 4e-5, so a fair shuffle was very unlikely to need other keys.
  std::map<std::vector<std::int64_t>, int> counts;
  const int draws = 24000;
  for (std::uint64_t i = 0; i < draws; ++i) {
    ++counts[potl::permutation(potl::derive_key(1, "shuffle", {i}), 4)];
  }
  REQUIRE(counts.size() == 24);
  double chi_squared = 0;
  for (const auto& [order, count] : counts) {
    const double difference = count - draws / 24.0;
    chi_squared += difference * difference / (draws / 24.0);
  }
  REQUIRE(chi_squared < 60.0);
}

TEST_CASE("an impossible permutation is refused before memory is asked for") {
  REQUIRE_THROWS_AS(potl::permutation(key, std::uint64_t{1} << 41), potl::exception);
}
