// SPDX-License-Identifier: Apache-2.0
// log64 in a block: products and convolutions of float32 are rounded, and hand their near ties to
// the session of a trainer or an auditor (numeric/detail/rounding_session.hpp) that the thread has
// installed. Without one, results are rounded by default and nothing is logged: then another order
// of summation gives other bits near ties. All that is not a dot product is as in ord32.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <potl/numeric/detail/rounding_session.hpp>
#include <potl/numeric/gemm.hpp>

namespace potl::libtorch::dispatch {

/// The session of this thread; null: none. It must outlive its installation.
numeric::rounding_session* rounding() noexcept;
void install_rounding(numeric::rounding_session* session) noexcept;

/// Bits of the block that this thread is in, for products without a session (guard.cpp).
int block_bits() noexcept;

/// What the kernels of log64 take: the session's bits and order, or the block's bits.
numeric::log64_options rounding_options() noexcept;

/// Hands the near ties of a float32 result to the session, which may change elements of it.
void feed(std::string_view kind, const at::Tensor& result,
          const std::vector<numeric::near_tie>& ties, const numeric::element_operands& operands);
/// The same of a result on a device. Refuses an audit, which may change any element.
void feed_there(std::string_view kind, const at::Tensor& result,
                const std::vector<numeric::near_tie>& ties);

}  // namespace potl::libtorch::dispatch
