// SPDX-License-Identifier: Apache-2.0
// Copies that turn matrices on the way: between channels last and channels first, or of a
// transposed operand. torch's own take several times as long.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace potl::libtorch::dispatch {

/// A copy like torch's clone; undefined where nothing is turned, or too little to be worth it.
at::Tensor turned(const at::Tensor& x, std::optional<at::MemoryFormat> format);

/// to.copy_(x), of sizes and a type that are the same.
void turn_into(const at::Tensor& to, const at::Tensor& x);

/// x.contiguous(format)
at::Tensor in_format(const at::Tensor& x, at::MemoryFormat format = at::MemoryFormat::Contiguous);

}  // namespace potl::libtorch::dispatch
