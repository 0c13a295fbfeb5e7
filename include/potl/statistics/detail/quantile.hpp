// SPDX-License-Identifier: Apache-2.0
// Logarithm, normal quantile and inverse error function whose bits are the same on every machine:
// operations that IEEE 754 defines to the last bit, in a fixed order.
//
// Accuracy: normal_quantile and erfinv are within 1e-15 of the exact value, relatively.
// Source: Wichura, "Algorithm AS 241: The percentage points of the normal distribution", Applied
// Statistics 37 (1988), routine PPND16.
#pragma once

namespace potl {

/// The natural logarithm of a positive finite number, within 1 ulp, from exact operations only.
/// NaN below 0, minus infinity at 0.
double exact_log(double x) noexcept;

/// The x with P(Z <= x) = p for a standard normal Z. Infinite at 0 and 1, NaN outside of [0, 1].
double normal_quantile(double p) noexcept;

/// The y with erf(y) = x. Infinite at -1 and 1, NaN outside of [-1, 1].
double erfinv(double x) noexcept;

}  // namespace potl
