// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention, as several operators are made of it.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace potl::libtorch::dispatch {

struct attention_result {
  at::Tensor output;     ///< [batch, heads, queries, width of the values]
  at::Tensor logsumexp;  ///< [batch, heads, queries], float32 or float64
};

/// softmax(Q K^T scale + mask) V. Q is [batch, heads, queries, width], K and V have keys instead of
/// queries and perhaps fewer heads, each for a group of Q's. A mask of bool keeps where it is true,
/// another is added; it broadcasts to [batch, heads, queries, keys]. A row that is masked
/// altogether gives 0. `scale` is 1 / sqrt(width) when absent.
attention_result attention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& value,
                           const at::Tensor& mask, bool is_causal, std::optional<double> scale);

}  // namespace potl::libtorch::dispatch
