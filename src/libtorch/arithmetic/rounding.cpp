// SPDX-License-Identifier: Apache-2.0
#include "rounding.hpp"

#include "operand.hpp"

namespace potl::libtorch::dispatch {
namespace {

thread_local numeric::rounding_session* installed = nullptr;

}  // namespace

numeric::rounding_session* rounding() noexcept { return installed; }

void install_rounding(numeric::rounding_session* session) noexcept { installed = session; }

numeric::log64_options rounding_options() noexcept {
  if (installed == nullptr) return {block_bits(), 0};
  return {installed->bits(), installed->order()};
}

void feed(std::string_view kind, const at::Tensor& result,
          const std::vector<numeric::near_tie>& ties, const numeric::element_operands& operands) {
  if (installed == nullptr) return;
  installed->apply(kind, mutable_values<float>(result), ties, operands);
}

}  // namespace potl::libtorch::dispatch
