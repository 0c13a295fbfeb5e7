// SPDX-License-Identifier: Apache-2.0
// Where a job's first steps end, as it pins them: task.first_steps
// (docs/decisions/0048-an-exact-job-pins-where-its-first-steps-end.md).
//
// What a task computes with torch has the same bits everywhere in an exact arithmetic. What it
// computes with anything else, such as std::exp, need not: a trainer is told so at once, and a
// verifier accuses nobody by it. Cannot see a difference that only later steps have.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/transcript/job.hpp>

namespace potl::transcript {

/// The member of a job's "task".
inline constexpr std::string_view first_steps_name = "first_steps";

/// The most steps that are pinned: as many as a trial takes.
inline constexpr std::uint64_t max_first_steps = 2;

/// Whether a job in this arithmetic says where its first steps end. In log64 the bits follow the
/// trainer's rounding log.
bool pins_first_steps(std::string_view arithmetic);

/// SHA-256("potl.step.v1" 0x00, the state's digest, the loss that the step reports), the loss as a
/// double, most significant byte first; every NaN is one.
digest end_of_step(const digest& state, double loss);

/// What a job pins, step 1 first; empty where it pins nothing. malformed: something else than
/// digests of the first steps, since a job's "task" may be any object.
result<std::vector<digest>> first_steps_of(const job& agreed);

}  // namespace potl::transcript
