// SPDX-License-Identifier: Apache-2.0
// The delivered model against the last committed state.
//
// Claims: every parameter of the last state is in the file under its name, with the same dtype,
// dims and bits; so is every buffer that the file has; nothing else is in it. Tied weights may
// appear once or several times. Without a file, a note names the digest of the only model that the
// report vouches for. That the last committed state is finite (finite.hpp) is looked at either way.
// Assumes that names in the file are those of `state_dict()`.
// Cost: reading the last checkpoint and the file once.
// Cannot detect: buffers that are left out of the file (non-persistent ones are, rightly; the
// finding lists them), and what the code does that loads it.
// Source: SOUNDNESS rule 13, attacks A11 and A30.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <potl/core/finding.hpp>
#include <potl/transcript/evidence.hpp>
#include <potl/transcript/safetensors.hpp>
#include <potl/transcript/state.hpp>

namespace potl::checks {

/// SHA-256 over "potl.model.v1" 0x00 and, for each tensor of parameters and buffers (aliases under
/// their own name too) in byte order of names: length and bytes of name and dtype name, rank, dims,
/// content root; numbers as little-endian 64-bit integers.
digest model_digest(const transcript::state_value& state);

/// The comparison itself.
finding compare_model(const transcript::state_value& state, const safetensors_view& delivered);

/// Reads both sides, looks for what is not finite, and compares. `path` empty: the note.
std::vector<finding> judge_model(const transcript::evidence& run,
                                 const std::optional<std::string>& path);

}  // namespace potl::checks
