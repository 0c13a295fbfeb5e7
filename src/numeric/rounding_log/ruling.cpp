// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/rounding_referee.hpp>

#include <algorithm>
#include <cmath>

namespace potl::numeric {

const char* to_string(log_fault fault) noexcept {
  switch (fault) {
    case log_fault::none: return "none";
    case log_fault::not_committed: return "not_committed";
    case log_fault::other_log: return "other_log";
    case log_fault::malformed: return "malformed";
    case log_fault::wrong_size: return "wrong_size";
    case log_fault::outside_window: return "outside_window";
    case log_fault::wrong_direction: return "wrong_direction";
    case log_fault::missing_entry: return "missing_entry";
  }
  return "unknown";
}

element_ruling rule_on(const dot_operands& operands, int bits, std::optional<bool> logged) {
  const exact_sum exact = exact_dot(operands);
  element_ruling out;
  out.value = exact.round_to(bits);
  out.exact = exact.to_odd();
  out.window = exact_window(operands);
  const bool finite = exact.is_finite() && std::isfinite(out.window);
  if (!finite) {
    if (logged) out.fault = log_fault::outside_window;
    return out;
  }
  const double size = std::fabs(out.exact);
  const tie nearest = exact.nearest_tie(bits);
  const double error = out.window / 2;
  out.distance = nearest.distance;
  out.step = 2 * (nearest.midpoint - static_cast<double>(nearest.lower));
  if (!logged) {
    // The trainer compares W with the step at |x| - W, which is at least |s| - 2 W.
    const double quarter = grid_spacing(std::max(size - 2 * out.window, 0.0), bits) / 4;
    if (out.window > 0 && out.window < quarter && exact.is_within(nearest.midpoint, error)) {
      out.fault = log_fault::missing_entry;
    }
    return out;
  }
  // |x| - W is at most |s| here.
  if (!(out.window > 0 && out.window < grid_spacing(size, bits) / 4 &&
        exact.is_within(nearest.midpoint, out.window + error))) {
    out.fault = log_fault::outside_window;
    return out;
  }
  const float wanted = *logged ? nearest.upper : nearest.lower;
  if (wanted == out.value) return out;
  if (!exact.is_within(nearest.midpoint, error)) {
    out.fault = log_fault::wrong_direction;
    return out;
  }
  out.value = wanted;
  out.flipped = true;
  return out;
}

}  // namespace potl::numeric
