// SPDX-License-Identifier: Apache-2.0
// Attention in log64.
#pragma once

#include <tuple>

#include "attention.hpp"

namespace potl::libtorch::dispatch {

/// Operands whose shapes fit, in the type that the caller has.
struct attention_operands {
  at::Tensor query, keys, value, mask;
  bool is_causal = false;
  std::optional<double> scale;
};
using attention_gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// Writes `output`, which has the sizes of the result.
attention_result logged_attention(const attention_operands& of, const at::Tensor& output);
attention_gradients logged_attention_backward(const attention_operands& of,
                                              const at::Tensor& gradient);

}  // namespace potl::libtorch::dispatch
