// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/rounding_audit.hpp>

#include <algorithm>

#include "crypto/base64.hpp"

namespace potl::checks {
namespace {

// A finding carries its proof as text. A proof is one dot product and the log of its step.
constexpr std::size_t max_proof_bytes = std::size_t{4} << 20;

std::string text_of(const std::optional<numeric::fraud_proof>& proof) {
  if (!proof) return "";
  const std::vector<std::uint8_t> bytes = numeric::encode(*proof);
  return bytes.size() > max_proof_bytes ? "" : potl::detail::to_base64(bytes);
}

}  // namespace

void add(rounding_summary& to, const numeric::step_audit& step) {
  to.values += step.values;
  to.entries += step.entries;
  to.corrections += step.corrections;
  to.rejected += step.rejected;
  to.moved_l2 = std::max(to.moved_l2, step.moved_l2);
  to.reachable_l2 = std::max(to.reachable_l2, step.reachable_l2);
  for (const numeric::log_rejection& each : step.rejections) {
    if (to.rejections.size() == numeric::max_rejections) break;
    to.rejections.push_back(
        {step.step, numeric::to_string(each.fault), each.message, text_of(each.proof)});
  }
}

}  // namespace potl::checks
