// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <potl/numeric/rounding_log.hpp>

namespace {

using namespace potl::numeric;

rounding_log draw_log(std::uint64_t values, double density, std::mt19937_64& random) {
  rounding_log out{32, values, {}};
  std::geometric_distribution<std::uint64_t> gap(density);
  for (std::uint64_t at = gap(random); at < values; at += 1 + gap(random)) {
    out.entries.push_back({at, (random() & 1) != 0});
  }
  return out;
}

potl::errc refusal(const std::vector<std::uint8_t>& bytes) {
  const auto decoded = decode_rounding_log(bytes);
  REQUIRE_FALSE(decoded);
  return decoded.why().code;
}

}  // namespace

TEST_CASE("a rounding log comes back from its bytes") {
  std::mt19937_64 random(1);
  for (const std::uint64_t values : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{7},
                                     std::uint64_t{1000}, std::uint64_t{1} << 40}) {
    for (const double density : {1e-9, 1e-3, 0.1, 0.5, 0.999}) {
      if (static_cast<double>(values) * density > 1e6) continue;
      const rounding_log log = draw_log(values, density, random);
      const auto bytes = encode_rounding_log(log);
      const auto back = decode_rounding_log(bytes);
      INFO(values << " " << density);
      REQUIRE(back.has_value());
      CHECK(*back == log);
    }
  }
  const rounding_log last{23, max_logged_values, {{max_logged_values - 1, true}}};
  CHECK(*decode_rounding_log(encode_rounding_log(last)) == last);
}

TEST_CASE("every other byte string is refused: flipping any bit gives an error or another log") {
  std::mt19937_64 random(2);
  for (const double density : {0.003, 0.05, 0.6}) {
    const rounding_log log = draw_log(2000, density, random);
    const auto bytes = encode_rounding_log(log);
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      auto changed = bytes;
      changed[bit / 8] = static_cast<std::uint8_t>(changed[bit / 8] ^ (1U << (bit % 8)));
      const auto decoded = decode_rounding_log(changed);
      if (!decoded) continue;
      REQUIRE_FALSE(*decoded == log);
      REQUIRE(encode_rounding_log(*decoded) == changed);
    }
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      REQUIRE_FALSE(decode_rounding_log({bytes.data(), size}));
    }
    auto longer = bytes;
    longer.push_back(0);
    REQUIRE_FALSE(decode_rounding_log(longer));
  }
}

TEST_CASE("random bytes behind a valid header decode to nothing or to their own encoding") {
  std::mt19937_64 random(3);
  int decoded = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const rounding_log log = draw_log(40, 0.3, random);
    auto bytes = encode_rounding_log(log);
    for (std::size_t i = 20; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(random());
    const auto back = decode_rounding_log(bytes);
    if (!back) continue;
    ++decoded;
    REQUIRE(encode_rounding_log(*back) == bytes);
  }
  CHECK(decoded > 100);
}

TEST_CASE("counts that the bytes cannot hold are refused before memory is taken") {
  auto bytes = encode_rounding_log({32, 1000, {{5, true}}});
  const auto counts = [&](std::uint64_t values, std::uint64_t entries) {
    auto out = bytes;
    for (std::size_t i = 0; i < 8; ++i) {
      out[4 + i] = static_cast<std::uint8_t>(values >> (8 * i));
      out[12 + i] = static_cast<std::uint8_t>(entries >> (8 * i));
    }
    out[2] = static_cast<std::uint8_t>(rice_parameter(values, entries));
    return out;
  };
  CHECK(refusal(counts(1000, 1000)) == potl::errc::malformed);
  CHECK(refusal(counts(10, 11)) == potl::errc::malformed);
  CHECK(refusal(counts(max_logged_values + 1, 1)) == potl::errc::malformed);
  CHECK(refusal(counts(max_logged_values, default_max_log_entries + 1)) == potl::errc::limit);
  bytes[0] = 2;
  CHECK(refusal(bytes) == potl::errc::unsupported);
}

TEST_CASE("the length is within 1 % of the entropy") {
  std::mt19937_64 random(4);
  for (const double p : {0.1, 1e-2, 2e-3, 1.2e-4}) {
    const auto values = static_cast<std::uint64_t>(200000 / p);
    const rounding_log log = draw_log(values, p, random);
    const double bits = 8.0 * static_cast<double>(encode_rounding_log(log).size());
    const double entropy = -p * std::log2(p) - (1 - p) * std::log2(1 - p) + p;
    INFO(p << " " << bits / static_cast<double>(values) / entropy);
    CHECK(bits < 1.013 * entropy * static_cast<double>(values));
  }
}

TEST_CASE("logs that are none are refused by the encoder") {
  CHECK_THROWS_AS(encode_rounding_log({22, 10, {}}), potl::exception);
  CHECK_THROWS_AS(encode_rounding_log({32, 10, {{10, true}}}), potl::exception);
  CHECK_THROWS_AS(encode_rounding_log({32, 10, {{3, true}, {3, false}}}), potl::exception);
}

TEST_CASE("the digest of a rounding log has its domain") {
  const auto bytes = encode_rounding_log({32, 1000, {{5, true}, {900, false}}});
  CHECK(rounding_log_digest(bytes).hex() ==
        "0cf3a0767e71deb5d4e663eab8ba85ea09a5b9fda36b43a93f559012e9f4a76a");
}
