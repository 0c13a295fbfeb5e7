// SPDX-License-Identifier: Apache-2.0
// Any bytes: no crash. A record that is accepted has one encoding, which is the input.
#include <algorithm>
#include <cstdlib>

#include <potl/transcript/detail/record.hpp>

#include "fuzz.hpp"

POTL_FUZZ_TARGET(record_fuzz) {
  const potl::bytes_view input(data, size);
  const potl::result<potl::transcript::record> got = potl::transcript::decode(input);
  if (!got) return 0;
  const std::vector<std::uint8_t> again = potl::transcript::encode(*got);
  if (!std::equal(again.begin(), again.end(), input.begin(), input.end())) std::abort();
  return 0;
}
