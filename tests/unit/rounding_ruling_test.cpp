// SPDX-License-Identifier: Apache-2.0
// The rule at single elements, at chosen distances from a tie.
#include "catch.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/numeric/detail/rounding_referee.hpp>

namespace {

using namespace potl::numeric;

struct element {
  std::vector<float> a, b;

  dot_operands operands() const {
    return {static_cast<std::int64_t>(a.size()), a.data(), 1, b.data(), 1};
  }
  log_fault fault(int bits, std::optional<bool> logged) const {
    return rule_on(operands(), bits, logged).fault;
  }
};

/// 1 + 2^-24, a tie of float32, and `windows` times W more.
element beside_tie(double windows) {
  element out{{1.0F, 0x1p-24F, 0x1.8p-60F}, {1.0F, 1.0F, 1.0F}};
  out.a[2] = static_cast<float>(windows * exact_window(out.operands()));
  return out;
}

constexpr std::optional<bool> unlogged = std::nullopt;

}  // namespace

TEST_CASE("the rule changes where the distance passes E, W and W + E") {
  for (const double windows : {0.25, 0.45}) {
    const element one = beside_tie(windows);
    CHECK(one.fault(32, unlogged) == log_fault::missing_entry);
    CHECK(one.fault(32, true) == log_fault::none);
    CHECK(one.fault(32, false) == log_fault::none);
    CHECK(rule_on(one.operands(), 32, true).value == 1.0F + 0x1p-23F);
    CHECK_FALSE(rule_on(one.operands(), 32, true).flipped);
    CHECK(rule_on(one.operands(), 32, false).value == 1.0F);
    CHECK(rule_on(one.operands(), 32, false).flipped);
  }
  for (const double windows : {0.55, 0.95, 1.05, 1.45}) {
    const element one = beside_tie(windows);
    CHECK(one.fault(32, unlogged) == log_fault::none);
    CHECK(one.fault(32, true) == log_fault::none);
    CHECK(one.fault(32, false) == log_fault::wrong_direction);
    CHECK(rule_on(one.operands(), 32, false).value == 1.0F + 0x1p-23F);
  }
  for (const double windows : {1.55, 1.9, 2.5, 1000.0}) {
    const element one = beside_tie(windows);
    CHECK(one.fault(32, unlogged) == log_fault::none);
    CHECK(one.fault(32, true) == log_fault::outside_window);
    CHECK(one.fault(32, false) == log_fault::outside_window);
  }
}

TEST_CASE("exact sums are never logged, and their ties accuse nobody") {
  const element tie{{1.0F, 0x1p-24F}, {1.0F, 1.0F}};
  CHECK(tie.fault(32, unlogged) == log_fault::none);
  CHECK(rule_on(tie.operands(), 32, unlogged).value == 1.0F);
  CHECK(tie.fault(32, true) == log_fault::outside_window);
  CHECK(tie.fault(32, false) == log_fault::outside_window);
}

TEST_CASE("where the window reaches a quarter of a step the exact value counts, not the log") {
  const element wide{{1e8F, 1.0F, 0x1p-24F, 0x1p-60F, -1e8F}, {1, 1, 1, 1, 1}};
  CHECK(exact_window(wide.operands()) > 0x1p-25);
  CHECK(wide.fault(32, unlogged) == log_fault::none);
  CHECK(rule_on(wide.operands(), 32, unlogged).value == 1.0F + 0x1p-23F);
  CHECK(wide.fault(32, true) == log_fault::outside_window);
  CHECK(wide.fault(32, false) == log_fault::outside_window);
}

TEST_CASE("below a power of two the smaller step decides: such a trainer rounds exactly") {
  // The last tie below 2, W between a quarter of the steps on either side.
  const element edge{{76800.0F, 2 - 0x1p-15F, 0x1p-70F, -76800.0F}, {76800.0F, 1, 1, 76800.0F}};
  const double window = exact_window(edge.operands());
  CHECK(window > 0.26 * 0x1p-14);
  CHECK(window < 0.45 * 0x1p-14);
  CHECK(edge.fault(23, unlogged) == log_fault::none);
  CHECK(edge.fault(23, true) == log_fault::outside_window);
}

TEST_CASE("what is not finite is never logged") {
  const element infinite{{std::numeric_limits<float>::infinity(), 1}, {1, 1}};
  CHECK(infinite.fault(32, unlogged) == log_fault::none);
  CHECK(std::isinf(rule_on(infinite.operands(), 32, unlogged).value));
  CHECK(infinite.fault(32, true) == log_fault::outside_window);
}

TEST_CASE("operands are read from chunks that belong to the committed tensor") {
  std::vector<float> tensor(10000);
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<float>(i);
  const potl::bytes_view bytes(reinterpret_cast<const std::uint8_t*>(tensor.data()), 40000);
  const potl::digest root = potl::content_root(bytes);
  const auto open = [&](std::uint64_t index) {
    const std::size_t from = index * potl::content_chunk_bytes;
    const std::size_t size = std::min(potl::content_chunk_bytes, bytes.size() - from);
    const auto chunk = bytes.subspan(from, size);
    return opened_chunk{index, {chunk.begin(), chunk.end()}, *potl::open_chunk(bytes, index)};
  };
  const std::vector<opened_chunk> chunks{open(0), open(2)};
  CHECK(*open_operand(root, 40000, chunks, {0, 9999, -1, 4095}) ==
        std::vector<float>{0, 9999, 0, 4095});
  CHECK(open_operand(root, 40000, chunks, {4096}).why().code == potl::errc::missing);
  CHECK(open_operand(root, 40000, chunks, {10000}).why().code == potl::errc::malformed);
  CHECK(open_operand(root, 40000, chunks, {-2}).why().code == potl::errc::malformed);
  auto forged = chunks;
  forged[1].bytes[5] ^= 1;
  CHECK(open_operand(root, 40000, forged, {0}).why().code == potl::errc::mismatch);
  CHECK_FALSE(open_operand(root, 40000, {chunks[1], chunks[0]}, {0}));
}

TEST_CASE("a fraud proof has one encoding, and no other length is read") {
  const element one = beside_tie(2);
  const fraud_proof proof{log_fault::outside_window, 7, {1, 2, 3}, {{5, one.a, one.b}}};
  const auto bytes = encode(proof);
  CHECK(*decode_fraud_proof(bytes) == proof);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    REQUIRE_FALSE(decode_fraud_proof({bytes.data(), size}));
  }
  auto changed = bytes;
  changed.push_back(0);
  CHECK_FALSE(decode_fraud_proof(changed));
  changed = bytes;
  changed[1] = 9;
  CHECK_FALSE(decode_fraud_proof(changed));
  changed = bytes;
  changed[0] = 2;
  CHECK(decode_fraud_proof(changed).why().code == potl::errc::unsupported);
  changed = bytes;  // a row of 2^64 - 1 terms
  std::fill_n(changed.begin() + 2 + 8 + 8 + 3 + 8 + 8, 8, std::uint8_t{0xff});
  CHECK_FALSE(decode_fraud_proof(changed));
}
