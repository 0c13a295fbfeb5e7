// SPDX-License-Identifier: Apache-2.0
// Any bytes, as a rounding log and a fraud proof: no crash, and what is accepted has one encoding,
// which is the input.
#include <algorithm>
#include <cstdlib>

#include <potl/numeric/detail/rounding_referee.hpp>

#include "fuzz.hpp"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

POTL_FUZZ_TARGET(rounding_log_fuzz) {
  using namespace potl::numeric;
  const potl::bytes_view input(data, size);
  const auto same = [&](const std::vector<std::uint8_t>& again) {
    return std::equal(again.begin(), again.end(), input.begin(), input.end());
  };
  if (const auto log = decode_rounding_log(input, 1 << 16)) {
    require(same(encode_rounding_log(*log)));
    require(!log->entries.empty() || size == 20);
  }
  if (const auto proof = decode_fraud_proof(input)) {
    require(same(encode(*proof)));
    referee_facts facts;
    facts.committed = rounding_log_digest(proof->log);
    facts.values = 100;
    facts.bind = [](const fraud_element&) -> potl::status { return potl::unit{}; };
    static_cast<void>(referee(*proof, facts).has_value());
  }
  return 0;
}
