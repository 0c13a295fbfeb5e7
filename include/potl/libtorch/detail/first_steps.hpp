// SPDX-License-Identifier: Apache-2.0
// Digests of where a job's first steps end, as the Python package pins them
// (docs/decisions/0048-an-exact-job-pins-where-its-first-steps-end.md).
//
// What a task computes with LibTorch has the same bits everywhere in an exact arithmetic. What it
// computes with anything else, such as std::exp, need not: a trainer is told so at once, and a
// verifier accuses nobody by it. Cannot see a difference that only later steps have.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <potl/crypto/hasher.hpp>
#include <potl/encoding/json.hpp>
#include <potl/transcript/job.hpp>
#include <potl/transcript/state.hpp>

namespace potl::libtorch::detail {

inline constexpr const char* first_steps_name = "first_steps";

/// Whether a job in this arithmetic says where its first steps end. In log64 the bits follow the
/// trainer's rounding log.
inline bool are_pinned(const transcript::job& job) {
  return job.arithmetic != "stock" && job.arithmetic != "log64";
}

/// The digest of a step's end: the state after it and the loss that it reports.
inline std::string end_of(const digest& state, double loss) {
  if (std::isnan(loss)) loss = std::numeric_limits<double>::quiet_NaN();
  const auto bits = std::bit_cast<std::uint64_t>(loss);
  std::vector<std::uint8_t> number;
  for (int shift = 56; shift >= 0; shift -= 8) {
    number.push_back(static_cast<std::uint8_t>(bits >> shift));
  }
  constexpr std::string_view prefix("potl.step.v1\0", 13);
  return sha256().update(as_bytes_view(prefix)).update(state.bytes).update(number).finish().hex();
}

/// What a job pins, the first step's end first.
inline std::vector<std::string> agreed_ends(const transcript::job& job) {
  std::vector<std::string> out;
  const auto document = parse_json(as_bytes_view(job.text));
  const json_value* task = document && are_pinned(job) ? document->find("task") : nullptr;
  const json_value* pins = task == nullptr ? nullptr : task->find(first_steps_name);
  const json_value::array* list = pins == nullptr ? nullptr : pins->if_array();
  if (list == nullptr) return out;
  for (const json_value& one : *list) {
    if (const std::string* end = one.if_string()) out.push_back(*end);
  }
  return out;
}

/// Says that a step ended otherwise, and what to do.
inline std::string other_end(std::size_t step) {
  return "step " + std::to_string(step) +
         " ends in other bits on this machine than on the one that made the job. What task::losses "
         "or forward() computes outside of LibTorch, as by std::exp, depends on the machine: "
         "compute it with LibTorch or in integers, or use a machine like that one. And compare the "
         "program with the one that made the job, and the files that it reads";
}

}  // namespace potl::libtorch::detail
