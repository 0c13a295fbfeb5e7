// SPDX-License-Identifier: Apache-2.0
// A report that a verifier has signed, for those who trust the verifier and verify nothing again:
// an in-toto statement v1 in a DSSE envelope, which other tools read too (docs/format/
// attestation.md).
//
// Claims: what open_attestation returns was signed by the holder of the key, and is about the files
// that it was compared with. Cannot detect: whether the signer verified anything, or well; a stolen
// key; a newer report of the same signer that says otherwise.
// Cost: linear in the report; a model is read once, for its SHA-256. A hostile envelope costs less
// than 128 MB.
//
//   const json_value report = potl::verify(run, work, {.model = "model.safetensors"}, ...);
//   const std::string text = potl::sign_attestation(report, key, "2026-11-27T20:00:00Z").value();
//   const attestation got =
//       potl::open_attestation(as_bytes_view(text), key.verifier(),
//                              {.model = "model.safetensors"}).value();
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/signature.hpp>
#include <potl/encoding/json.hpp>

namespace potl {

/// Of an envelope.
inline constexpr std::size_t max_attestation_bytes = std::size_t{12} << 20;

/// What a signer says.
struct attestation {
  json_value report;      ///< docs/format/report.schema.json
  std::string signed_at;  ///< UTC, as "2026-11-27T20:00:00Z"; the signer's word
};

/// What the reader of an attestation has in hand. At least one is needed: the signer may have
/// signed reports of other trainings.
struct attested {
  std::optional<std::string> model;       ///< path of the delivered file
  std::optional<digest> job;              ///< transcript::job::id()
  std::optional<std::string> commitment;  ///< the prover's signed note
  std::optional<digest> trainer = {};     ///< transcript::job::trainer, who may not be the signer
};

/// The text of the envelope. usage: `report` is none, or is about no run that could be opened, it
/// accepts without a finding that passes or beside one that rejects, the key is that of the
/// report's trainer, or the time is not written as in `attestation`; limit: it is longer than
/// open_attestation reads.
result<std::string> sign_attestation(const json_value& report, const signing_key& key,
                                     std::string_view signed_at);

/// Opens an envelope, and compares. A commitment is the one of the report if job, root and number
/// of records are, and the trainer that the report names has signed it. malformed: it is no
/// attestation, or the commitment is none; mismatch: the key has not signed it, it is the run's
/// trainer's by the report or by what is held, or it is about another job, commitment or model;
/// missing: it says nothing about what is compared; usage: nothing is.
result<attestation> open_attestation(bytes_view text, const public_key& signer,
                                     const attested& held);

}  // namespace potl
