// SPDX-License-Identifier: Apache-2.0
// Any bytes, as an envelope and as the payload of one that is signed: opening ends, and what opens
// is what signing the report again would give.
#include <cstdlib>
#include <string>

#include <potl/attestation.hpp>
#include <potl/crypto/detail/dsse.hpp>

#include "crypto/base64.hpp"
#include "fuzz.hpp"

POTL_FUZZ_TARGET(attestation_fuzz) {
  static const potl::signing_key key =
      potl::signing_key::from_seed(potl::bytes_view(potl::digest{})).value();
  const potl::attested held{.model = {}, .job = potl::digest{}, .commitment = {}};
  const potl::bytes_view bytes(data, size);
  static_cast<void>(potl::open_attestation(bytes, key.verifier(), held));
  constexpr const char* type = "application/vnd.in-toto+json";
  const auto signature = key.sign(potl::detail::dsse_message(type, bytes));
  const std::string envelope = potl::canonical_json(
      potl::json_value::of({{"payload", potl::detail::to_base64(bytes)},
                            {"payloadType", type},
                            {"signatures", potl::json_value::array{potl::json_value::of(
                                               {{"sig", potl::detail::to_base64(signature)}})}}}));
  const auto got = potl::open_attestation(potl::as_bytes_view(envelope), key.verifier(), held);
  if (!got) {
    if (got.why().code == potl::errc::internal) std::abort();
    return 0;
  }
  const auto again = potl::sign_attestation(got->report, key, got->signed_at);
  if (!again || !potl::open_attestation(potl::as_bytes_view(*again), key.verifier(), held)) {
    std::abort();
  }
  return 0;
}
