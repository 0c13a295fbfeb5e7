// SPDX-License-Identifier: Apache-2.0
// What the first steps of a task show: whether this machine ends them as the job pins
// (transcript/first_steps.hpp), and what optimizers keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <set>
#include <string>
#include <vector>

#include <potl/checks/workload.hpp>
#include <potl/core/error.hpp>
#include <potl/libtorch/detail/optimizer_state.hpp>
#include <potl/transcript/first_steps.hpp>

namespace potl::libtorch::detail {

inline std::string other_end(std::uint64_t step) {
  return "step " + std::to_string(step) +
         " ends in other bits on this machine than on the one that made the job. What task::losses "
         "or forward() computes outside of LibTorch, as by std::exp, depends on the machine: "
         "compute it with LibTorch or in integers, or use a machine like that one. And compare the "
         "program with the one that made the job, and the files that it reads";
}

/// The parameters, by number, for which each optimizer keeps something after two steps of what
/// `make` gives. Throws internal where these cannot be run, which is no fault of a recorded state.
std::vector<std::set<std::int64_t>> kept_after_two_steps(std::size_t optimizers, auto&& make) {
  std::vector<std::set<std::int64_t>> out(optimizers);
  try {
    const auto own = make();
    for (const std::uint64_t step : {1, 2}) own->run_step(step);
    for (std::size_t i = 0; i < optimizers; ++i)
      out[i] = numbers_kept_by(*own->task().optimizers[i]);
  } catch (const std::exception& thrown) {
    throw exception({errc::internal,
                     "the first two steps, which show what optimizers keep, fail here: " +
                         checks::trouble_of(thrown).message,
                     ""});
  }
  return out;
}

}  // namespace potl::libtorch::detail
