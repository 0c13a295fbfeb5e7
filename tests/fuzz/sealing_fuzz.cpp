// SPDX-License-Identifier: Apache-2.0
// Any bytes: as a head, as frames and as keys they end without a crash, and open nothing that
// nobody sealed. What was sealed opens to the same bytes, and altered does not.
#include <algorithm>
#include <cstdlib>

#include <potl/crypto/sealing.hpp>

#include "fuzz.hpp"

POTL_FUZZ_TARGET(sealing_fuzz) {
  const potl::bytes_view all(data, size);
  static const potl::opening_key key = potl::opening_key::generate();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)potl::sealing_key::from_pem(text);
  (void)potl::opening_key::from_pem(text);

  const potl::bytes_view head = all.first(std::min(size, potl::sealing_key::size));
  const potl::bytes_view rest = all.subspan(head.size());
  auto stranger = potl::frame_opener::begin(key, head, {});
  if (stranger && stranger->open(rest, (size & 1) != 0)) std::abort();

  potl::frame_sealer sealer(key.sealer(), head);
  auto opener = potl::frame_opener::begin(key, sealer.head(), head);
  auto frame = sealer.seal(rest, true);
  const std::size_t at = size * 7919 % frame.size();
  frame[at] ^= 1;
  if (opener->open(frame, true)) std::abort();
  frame[at] ^= 1;
  if (opener->open(frame, false)) std::abort();
  const auto opened = opener->open(frame, true);
  if (!opened || !std::equal(opened->begin(), opened->end(), rest.begin(), rest.end()))
    std::abort();
  return 0;
}
