// SPDX-License-Identifier: Apache-2.0
// Any bytes: no crash. A text that is accepted has one canonical form, which parses to the same
// value and is its own canonical form.
#include <algorithm>
#include <cstdlib>

#include <potl/encoding/json.hpp>

#include "fuzz.hpp"

POTL_FUZZ_TARGET(json_fuzz) {
  const potl::bytes_view text(data, size);
  const potl::result<potl::json_value> value = potl::parse_json(text);
  if (!value) return 0;
  const std::string canonical = potl::canonical_json(*value);
  const potl::result<potl::json_value> again = potl::parse_json(potl::as_bytes_view(canonical));
  if (!again || !(*again == *value)) std::abort();
  if (!potl::is_canonical(potl::as_bytes_view(canonical))) std::abort();
  if (potl::is_canonical(text) !=
      (potl::as_bytes_view(canonical).size() == size &&
       std::equal(text.begin(), text.end(), canonical.begin(),
                  [](std::uint8_t a, char b) { return a == static_cast<std::uint8_t>(b); })))
    std::abort();
  return 0;
}
