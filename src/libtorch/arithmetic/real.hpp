// SPDX-License-Identifier: Apache-2.0
// Small things that the kernels of neural-network operators share.
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "operand.hpp"

namespace potl::libtorch::dispatch {

using sizes = c10::SmallVector<std::int64_t, 6>;

/// Product of the sizes of dimensions [first, last).
inline std::int64_t product(c10::IntArrayRef of, std::int64_t first, std::int64_t last) {
  std::int64_t out = 1;
  for (std::int64_t i = first; i < last; ++i) out *= of[static_cast<std::size_t>(i)];
  return out;
}

/// A row-major operand of a kernel that computes in place: the tensor itself where it has that
/// form, else a copy, which `finish` copies back.
class in_place {
 public:
  in_place(operator_name name, const at::Tensor& target, c10::ScalarType type)
      : target_(target), work_(row_major(name, target, type)) {}
  in_place(operator_name name, const at::Tensor& target)
      : in_place(name, target, compute_type(name, target.scalar_type())) {}
  const at::Tensor& work() const { return work_; }
  void finish() const {
    if (!work_.is_same(target_)) target_.copy_(work_);
  }

 private:
  at::Tensor target_;
  at::Tensor work_;
};

/// The value of an optional tensor, undefined when it is absent.
inline at::Tensor value_or_undefined(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? *tensor : at::Tensor();
}

}  // namespace potl::libtorch::dispatch
