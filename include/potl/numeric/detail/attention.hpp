// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention, forward and backward, without a matrix of all scores.
//
// Claims: every bit is a function of the operands, the shape and the mode. For one head:
//   S = (Q K^T) scale, + mask       P = softmax of each row of S       O = P V
//   dP = dO V^T     dS = softmax_backward(dP, P) scale     dQ = dS K     dK = dS^T Q     dV = P^T
//   dO
// Products in brackets and those with V, K, Q and dO are dot products of the mode
// (numeric/gemm.hpp; of double: gemm_ord64), scale and mask one IEEE operation each, softmax and
// its gradient those of numeric/detail/softmax.hpp. A place that the mask leaves out has S = -inf;
// a row without any place has P = 0. With `causal`, query i sees keys 0 to i. Queries are taken in
// blocks of 128. A block's products leave out the keys that none of its queries may see under
// `causal`. dK and dV are sums over the blocks in their order, first over those of the first head
// of the query that shares the key, then the next; keys that nobody sees get +0. Assumes
// round-to-nearest without flush-to-zero. Memory: 128 rows of scores (two in the backward pass) for
// each thread. Refuses log64, whose products have a log, and shapes that do not fit:
// potl::exception (usage). Source: Dao et al., "FlashAttention" (2022), for the blocks; the order
// of softmax is not theirs.
#pragma once

#include <array>
#include <cstdint>

#include <potl/numeric/arithmetic.hpp>
#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

struct attention_shape {
  std::int64_t batch = 1, heads = 1;
  std::int64_t key_heads = 1;  ///< divides heads: so many neighbours share keys and values
  std::int64_t queries = 0, keys = 0;
  std::int64_t width = 0;        ///< of queries and keys
  std::int64_t value_width = 0;  ///< of values and results
  bool causal = false;
  double scale = 1.0;
};

/// Elements [batch][head][row][column] with these strides.
template <class Element>
struct head_view {
  Element* data = nullptr;
  std::array<std::int64_t, 4> strides{};
};

/// [batch][head][query][key]; at most one of the two.
template <class Real>
struct attention_mask {
  head_view<const bool> kept;   ///< false: left out
  head_view<const Real> added;  ///< to the scores
};

template <class Real>
struct attention_forward {
  attention_shape shape;
  head_view<const Real> query, keys, values;
  attention_mask<Real> mask;
  head_view<Real> output;     ///< neighbouring columns are neighbours
  Real* logsumexp = nullptr;  ///< [batch][head][query], of the rows of S; may be null
};
template <class Real>
struct attention_backward {
  attention_shape shape;
  head_view<const Real> gradient, query, keys, values;
  attention_mask<Real> mask;
  head_view<Real> dquery, dkeys, dvalues;  ///< neighbouring columns are neighbours
};

void attention(arithmetic mode, const attention_forward<float>& work, const executor& workers);
void attention(arithmetic mode, const attention_backward<float>& work, const executor& workers);
/// In double, the chains of ord32.
void attention(const attention_forward<double>& work, const executor& workers);
void attention(const attention_backward<double>& work, const executor& workers);

}  // namespace potl::numeric
