// SPDX-License-Identifier: Apache-2.0
// Whether a tensor moves as an average of another does.
//
// Claims: what is found starts with the other's values, or as zeros, and is after each step a sum
// of what it was and of the other's values before and after the step, each times a factor, but for
// roundings.
// Cost: a few passes over both tensors, and least squares over 65,536 elements for each step.
// Cannot see: averages of at most three numbers, in another shape, of what starts as one number
// everywhere and rests, and of what is not a floating point number.
#pragma once

#include <cstdint>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/dtype.hpp>

namespace potl::numeric {

/// The values of one tensor, initially and after each of some steps.
struct tensor_course {
  dtype type{};
  std::vector<std::uint64_t> dims;
  std::vector<bytes_view> values;  ///< of all elements each; an empty one stands for zeros
};

/// Whether `own` is a copy or an average of `other`. Precondition: as many values of both, at least
/// one.
bool is_average(const tensor_course& own, const tensor_course& other);

}  // namespace potl::numeric
