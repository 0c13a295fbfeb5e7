// SPDX-License-Identifier: Apache-2.0
// Choices within kernels, without memory of their own: new pages take longer than a formula.
#pragma once

#include <ATen/core/Tensor.h>

namespace potl::libtorch::dispatch {

/// out = x < bound ? yes : no, of tensors of one floating type; `out` may be one of the others.
at::Tensor if_below(const at::Tensor& x, double bound, const at::Tensor& yes, const at::Tensor& no,
                    const at::Tensor& out);

}  // namespace potl::libtorch::dispatch
