// SPDX-License-Identifier: Apache-2.0
// The delivered model against the last committed state.
//
// Claims: every parameter and every buffer of the last state is in the file under its name, with
// the same dtype, dims and bits, and nothing else is; only buffers that the verifier's own task
// keeps out of `state_dict()` may be left out. Tied weights may appear once or several times. A
// last state that is withheld or damaged is a finding here too. Without a file, a note names the
// digest of the only model that the report vouches for. That the last committed state is finite
// (finite.hpp) is looked at either way.
// Assumes that names in the file are those of `state_dict()`.
// Cost: reading the last checkpoint once, and the file twice (for its SHA-256), in pieces of 4 MiB;
// one that is larger than the last state's tensors and a header of 8 MiB is refused before any of
// it is read.
// Cannot detect: what the code does that loads it; what is written to the file afterwards. (What is
// written while it is read makes the verdict inconclusive.)
// Source: soundness.md rule 13, attacks A11 and A30.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <potl/core/finding.hpp>
#include <potl/encoding/detail/safetensors.hpp>
#include <potl/evidence/evidence.hpp>
#include <potl/transcript/state.hpp>

namespace potl::checks {

/// SHA-256 over "potl.model.v1" 0x00 and, for each tensor of parameters and buffers (aliases under
/// their own name too) in byte order of names: length and bytes of name and dtype name, rank, dims,
/// content root; numbers as little-endian 64-bit integers.
digest model_digest(const transcript::state_value& state);

/// Names of buffers that a delivered file may lack; nothing where no task says which: then a file
/// that lacks some is inconclusive.
using optional_buffers = std::optional<std::vector<std::string>>;

/// The comparison itself. The file is read in pieces; links are followed. Throws missing.
/// inconclusive where it cannot be read, is written to meanwhile, or is no safetensors file: nobody
/// signed it.
finding compare_model_file(const transcript::state_value& state, const std::string& path,
                           const optional_buffers& may_lack = std::vector<std::string>{});

/// Reads both sides, looks for what is not finite, and compares. `path` empty: the note.
std::vector<finding> judge_model(const transcript::evidence& run,
                                 const std::optional<std::string>& path,
                                 const optional_buffers& may_lack = std::vector<std::string>{});

}  // namespace potl::checks
