// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <potl/crypto/challenge.hpp>

namespace {

using potl::as_bytes_view;
using potl::digest;
using potl::errc;

digest seed_of(std::uint64_t number) {
  return potl::sha256_of(as_bytes_view("seed " + std::to_string(number)));
}

}  // namespace

TEST_CASE("a challenge depends on the nonce, the commitment and the label") {
  const digest a = seed_of(1);
  const digest b = seed_of(2);
  const digest seed = potl::challenge_seed(a, b, "replay");
  REQUIRE(seed == potl::challenge_seed(a, b, "replay"));
  REQUIRE(seed != potl::challenge_seed(b, a, "replay"));
  REQUIRE(seed != potl::challenge_seed(b, b, "replay"));
  REQUIRE(seed != potl::challenge_seed(a, a, "replay"));
  REQUIRE(seed != potl::challenge_seed(a, b, "pev"));
}

TEST_CASE("what is drawn never changes: a verification can be repeated years later") {
  const digest seed = potl::challenge_seed(seed_of(1), seed_of(2), "replay");
  REQUIRE(potl::draw_without_replacement(seed, 1000, 6).value() ==
          std::vector<std::uint64_t>{96, 991, 810, 863, 927, 685});
}

TEST_CASE("nonces differ, in every byte") {
  const digest first = potl::fresh_nonce();
  digest same;
  same.bytes.fill(1);
  for (int i = 0; i < 40; ++i) {
    const digest next = potl::fresh_nonce();
    REQUIRE(next != first);
    for (std::size_t k = 0; k < digest::size; ++k) same.bytes[k] &= next.bytes[k] == first.bytes[k];
  }
  REQUIRE(same == digest{});
}

TEST_CASE("the stream is HMAC in counter mode, cut into little-endian integers") {
  const digest key = seed_of(3);
  potl::keyed_stream stream(key);
  std::array<std::uint8_t, 8> counter{};
  for (std::uint8_t block = 0; block < 3; ++block) {
    counter[0] = block;
    const digest expected = potl::hmac_sha256(key, counter);
    for (std::size_t word = 0; word < 4; ++word) {
      std::uint64_t value = 0;
      for (std::size_t i = 8; i-- > 0;) value = value << 8 | expected.bytes[8 * word + i];
      REQUIRE(stream.next() == value);
    }
  }
}

TEST_CASE("a restarted stream is a new one, wherever the old one was") {
  potl::keyed_stream stream(seed_of(3));
  for (int values = 0; values < 6; ++values) {
    for (int i = 0; i < values; ++i) stream.next();
    stream.restart(seed_of(4));
    potl::keyed_stream other(seed_of(4));
    for (int i = 0; i < 9; ++i) REQUIRE(stream.next() == other.next());
  }
}

TEST_CASE("a draw has no repetition and stays below the population") {
  for (std::uint64_t population : {1u, 2u, 7u, 100u}) {
    for (std::uint64_t count = 0; count <= population; ++count) {
      const auto drawn = potl::draw_without_replacement(seed_of(count), population, count).value();
      const std::set<std::uint64_t> distinct(drawn.begin(), drawn.end());
      REQUIRE(distinct.size() == count);
      REQUIRE((distinct.empty() || *distinct.rbegin() < population));
    }
  }
}

TEST_CASE("a sorted draw holds the same indices") {
  auto drawn = potl::draw_without_replacement(seed_of(1), 1000, 50).value();
  std::sort(drawn.begin(), drawn.end());
  REQUIRE(potl::draw_sorted(seed_of(1), 1000, 50).value() == drawn);
}

TEST_CASE("populations of 10^12 and of 2^64-1 cost what is drawn") {
  for (std::uint64_t population : {std::uint64_t{1000000000000}, ~std::uint64_t{0}}) {
    const auto drawn = potl::draw_without_replacement(seed_of(9), population, 10000).value();
    REQUIRE(std::set<std::uint64_t>(drawn.begin(), drawn.end()).size() == 10000);
    REQUIRE(*std::max_element(drawn.begin(), drawn.end()) > population / 2);
  }
}

TEST_CASE("an impossible draw is an error, an unreasonable one meets the limit") {
  REQUIRE(potl::draw_without_replacement(seed_of(1), 5, 6).why().code == errc::usage);
  REQUIRE(
      potl::draw_without_replacement(seed_of(1), ~std::uint64_t{0}, ~std::uint64_t{0}).why().code ==
      errc::limit);
  REQUIRE_THROWS_AS(potl::keyed_stream(seed_of(1)).below(0), potl::exception);
}

TEST_CASE("every ordered pair of six is drawn equally often") {
  // Fixed seeds: the outcome does not vary. With 29 degrees of freedom, chi-squared exceeds 80
  // with a probability of 1e-6.
  std::map<std::vector<std::uint64_t>, int> counts;
  const int draws = 30000;
  for (std::uint64_t i = 0; i < draws; ++i) {
    ++counts[potl::draw_without_replacement(seed_of(i), 6, 2).value()];
  }
  REQUIRE(counts.size() == 30);
  double chi_squared = 0;
  for (const auto& [pair, count] : counts) {
    chi_squared += (count - draws / 30.0) * (count - draws / 30.0) / (draws / 30.0);
  }
  REQUIRE(chi_squared < 80.0);
}

TEST_CASE("values of the unit interval are multiples of 2^-53 below 1") {
  potl::keyed_stream stream(seed_of(5));
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double value = stream.unit_interval();
    REQUIRE((value >= 0 && value < 1));
    sum += value;
  }
  // Six standard deviations (0.0029): exceeded with a probability of 2e-9.
  REQUIRE(std::abs(sum / 10000 - 0.5) < 6 * 0.00289);
}
