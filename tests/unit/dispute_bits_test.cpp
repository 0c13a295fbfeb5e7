// SPDX-License-Identifier: Apache-2.0
// Transcripts in which a bit was turned.
#include "catch.hpp"

#include <optional>
#include <string>

#include "dispute_fixture.hpp"

using namespace potl;
using namespace potl::dispute;

namespace {

/// Turns bits of each line in turn, in every position that `chosen` names.
template <class Chosen>
std::uint64_t turn_bits(const Chosen& chosen) {
  const dispute_of about({3, 2, 40}, fault{2, 0, 0}, {});
  table at(about);
  at.play();
  const auto lines = lines_of(at.judge.transcript());
  std::optional<proceedings> before;
  std::uint64_t turned = 0;
  for (const std::string& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        if (!chosen(i, bit)) continue;
        std::string broken = line;
        broken[i] = static_cast<char>(static_cast<unsigned char>(broken[i]) ^ (1U << bit));
        ++turned;
        // A copy for each would cost more than reading the line.
        if (before ? before->append(broken).has_value()
                   : proceedings::begin(about.known, broken).has_value()) {
          FAIL("bit " << bit << " of byte " << i << " is not looked at: " << line);
        }
      }
    }
    if (before) {
      before->append(line).value();  // nothing has changed
    } else {
      before.emplace(proceedings::begin(about.known, line).value());
    }
  }
  REQUIRE(before->state().decided()->winner() == party::auditor);
  return turned;
}

}  // namespace

TEST_CASE("one turned bit in each byte of a transcript is refused") {
  REQUIRE(turn_bits([](std::size_t i, unsigned bit) { return i % 8 == bit; }) > 10'000);
}

TEST_CASE("every turned bit of a transcript is refused", "[.][dispute_all]") {
  REQUIRE(turn_bits([](std::size_t, unsigned) { return true; }) > 80'000);
}
