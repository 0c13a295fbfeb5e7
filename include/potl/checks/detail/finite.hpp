// SPDX-License-Identifier: Apache-2.0
// Numbers in a recorded state that no honest training leaves there.
//
// Claims: finds a NaN in any parameter, buffer, average or optimizer state, and an infinity in any
// parameter or optimizer tensor that the agreed initial state does not have in the same place.
// Infinities of plain floats (the best metric before there is one) are for schema.hpp. Those of
// buffers are looked at where the verifier's own first steps say which buffers are masks that come
// and go; without them they are ordinary.
// Assumes: trees as docs/format/transcript.md defines them.
// Cost: one pass over the tensors; the initial state is loaded only when an infinity was found.
// Cannot detect: large but finite values; anything in user objects (`state=` of a task), whose
// floats may mean what they like.
// Source: soundness.md rule 7, attack A12: a weight that no output depends on may hold a NaN
// through any number of replays that end in the recorded bits.
#pragma once

#include <string>
#include <vector>

#include <potl/core/result.hpp>
#include <potl/evidence/evidence.hpp>
#include <potl/transcript/state.hpp>

namespace potl::checks {

/// Such as "model/parameters/w holds NaN", or empty. `initial` may be null: then no infinity of a
/// parameter is excused. `masks`: paths of the buffers that may hold an infinity where the initial
/// state has none; null: all of them.
std::string not_finite(const transcript::state_value& recorded,
                       const transcript::state_value* initial,
                       const std::vector<std::string>* masks = nullptr);

/// The same, with the run's state at step 0. Fails when that is needed and this machine cannot read
/// it; one that the prover withholds excuses nothing.
result<std::string> not_finite(const transcript::evidence& run,
                               const transcript::state_value& recorded);

}  // namespace potl::checks
