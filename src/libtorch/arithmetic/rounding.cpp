// SPDX-License-Identifier: Apache-2.0
#include "rounding.hpp"

#include <memory>
#include <string>

#include "mode.hpp"
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

void feed_there(std::string_view kind, const at::Tensor& result,
                const std::vector<numeric::near_tie>& ties) {
  if (installed == nullptr) return;
  if (installed->role() == numeric::log_role::auditor) {
    refuse("an audit in log64 on " + result.device().str(),
           "have build() leave the model on the CPU: any machine can audit what a GPU trained");
  }
  // A trainer's session reads what it logs, and no page of memory comes for the rest.
  const auto size = static_cast<std::size_t>(result.numel());
  const auto rounded = std::make_unique_for_overwrite<float[]>(size);
  for (const numeric::near_tie& one : ties) {
    rounded[one.index] = numeric::round_to(one.value, installed->bits());
  }
  installed->apply(kind, {rounded.get(), size}, ties, nullptr);
}

}  // namespace potl::libtorch::dispatch
