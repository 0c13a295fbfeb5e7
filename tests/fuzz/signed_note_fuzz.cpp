// SPDX-License-Identifier: Apache-2.0
// Any bytes: parsing ends, and what it accepts formats to the same bytes.
#include <cstdlib>

#include <potl/crypto/detail/signed_note.hpp>

#include "fuzz.hpp"

POTL_FUZZ_TARGET(signed_note_fuzz) {
  const potl::bytes_view bytes(data, size);
  const auto note = potl::parse_note(bytes);
  if (!note) return 0;
  const auto text = potl::format_note(*note);
  if (!text || *text != std::string_view(reinterpret_cast<const char*>(data), size)) std::abort();
  static const potl::public_key key =
      potl::signing_key::from_seed(potl::bytes_view(potl::digest{})).value().verifier();
  if (potl::verify_note(*note, key)) std::abort();
  return 0;
}
