// SPDX-License-Identifier: Apache-2.0
// What is said where a first step ends in other bits than a job pins (transcript/first_steps.hpp).
#pragma once

#include <cstdint>
#include <string>

#include <potl/transcript/first_steps.hpp>

namespace potl::libtorch::detail {

inline std::string other_end(std::uint64_t step) {
  return "step " + std::to_string(step) +
         " ends in other bits on this machine than on the one that made the job. What task::losses "
         "or forward() computes outside of LibTorch, as by std::exp, depends on the machine: "
         "compute it with LibTorch or in integers, or use a machine like that one. And compare the "
         "program with the one that made the job, and the files that it reads";
}

}  // namespace potl::libtorch::detail
