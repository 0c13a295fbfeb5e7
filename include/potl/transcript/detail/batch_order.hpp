// SPDX-License-Identifier: Apache-2.0
// Batches in order: the permutation of an epoch is computed once for all of its steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <potl/transcript/job.hpp>

namespace potl::transcript {

class batch_order {
 public:
  /// Refers to the job.
  explicit batch_order(const job& agreed) : agreed_(agreed) {}
  /// Sample ids of a step, valid until the next call. Throws usage for a step that is not the
  /// job's.
  std::span<const std::int64_t> of(std::uint64_t step);

 private:
  const job& agreed_;
  std::uint64_t epoch_ = 0;
  std::vector<std::int64_t> ids_;
};

}  // namespace potl::transcript
