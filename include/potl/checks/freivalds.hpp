// SPDX-License-Identifier: Apache-2.0
// Freivalds' check: is C = A B, for the price of a few vectors instead of a product?
//
// Claims: for each row i and each secret Gaussian vector r, the residual (A (B r) - C r)_i of an
// honest C lies within the sound bound, whatever the order of its sums, but for a probability of
// `false_alarm` in all. An error E of row i is missed by one vector with probability at most
// 0.8 bound_i / |E_i|, by k vectors with the k-th power of that. Integer products are exact: a
// wrong one passes with probability 2^-61 for each vector. Convolutions of more than a few images,
// and the gradients of weights, have vectors that are products of two: bounds are about 4 times as
// large then, and with t = bound_i / |E_i| one vector misses with probability 0.64 t (2 + ln(1/t)).
// Assumes: A, B and C are fixed before the vectors are drawn, and the vectors stay secret while C
// can still be changed. What computed C supplies none of the vectors' products.
// Cost: one pass over A, B and C for up to eight vectors; rows + columns + depth float64 numbers
// for each vector. Convolutions: one pass over both tensors, and one channel for each vector and
// the bounds, of as many images; of a few images, room for what one of them multiplies.
// Cannot detect: errors below the bound, which grow with the depth; operands that are false
// themselves (where they come from is another check's question).
// Sources: R. Freivalds, "Probabilistic machines can use less running time" (1977); bounds: Higham,
// "Accuracy and Stability of Numerical Algorithms", section 3.1; docs/reference/freivalds.md.
#pragma once

#include <cstdint>
#include <optional>

#include <potl/core/digest.hpp>
#include <potl/numeric/convolution.hpp>
#include <potl/numeric/detail/executor.hpp>
#include <potl/numeric/detail/matrix.hpp>
#include <potl/numeric/gemm.hpp>

namespace potl::checks {

/// How a product is checked.
struct freivalds_options {
  int probes = 4;             ///< secret vectors, 1 to 64
  double false_alarm = 1e-9;  ///< probability that an honest product of this call is inconsistent
  /// Unit roundoff at which C was rounded when it was stored, e.g. 2^-8 for bfloat16; 0 stands for
  /// that of C's own type.
  double stored = 0;
  /// What the vectors are drawn from, e.g. to repeat a check. Fresh where it is not given. Nobody
  /// who computes C may know it.
  std::optional<digest> key;
};

/// What the residuals of a product say.
enum class freivalds_outcome {
  consistent,    ///< as products of this type are
  unusual,       ///< within the sound bound, but further off than such arithmetic usually is
  inconsistent,  ///< beyond the sound bound: no order of sums gives this
  not_finite,    ///< a NaN or an infinity in A, B or C, or numbers too large to compare
};

/// "consistent", "unusual", "inconsistent" or "not finite".
const char* to_string(freivalds_outcome outcome) noexcept;

/// What a check found, and the numbers behind it.
struct freivalds_result {
  freivalds_outcome outcome = freivalds_outcome::consistent;
  double worst = 0;        ///< largest residual, as a share of its sound bound
  double usual = 0;        ///< largest residual, as a share of what is usual
  std::int64_t row = -1;   ///< where `worst` is: the row of C, counted through all products
  double rounding = 0;     ///< root mean square of the residuals over |A| |B|: 2^-24 is float32's
  double false_alarm = 0;  ///< bound on the probability that an honest product is inconsistent
  std::int64_t compared = 0;  ///< residuals, over all rows and vectors

  /// Consistent. What is unusual neither holds nor is rejected: compute it again.
  bool holds() const noexcept { return outcome == freivalds_outcome::consistent; }
  /// Inconsistent, or beyond all numbers.
  bool rejected() const noexcept {
    return outcome == freivalds_outcome::inconsistent || outcome == freivalds_outcome::not_finite;
  }
};

/// Is C = A B? Any strides. Throws potl::exception (usage) for shapes that do not fit, and options
/// out of range.
freivalds_result freivalds(numeric::matrix<const float> a, numeric::matrix<const float> b,
                           numeric::matrix<const float> c, const freivalds_options& options = {},
                           const numeric::executor& threads = numeric::inline_executor());
freivalds_result freivalds(numeric::matrix<const double> a, numeric::matrix<const double> b,
                           numeric::matrix<const double> c, const freivalds_options& options = {},
                           const numeric::executor& threads = numeric::inline_executor());

/// Many products of one shape, each with vectors of its own (numeric/gemm.hpp has the layout).
freivalds_result freivalds(const numeric::gemm_batch& batch, numeric::matrix<const float> a,
                           numeric::matrix<const float> b, numeric::matrix<const float> c,
                           const freivalds_options& options = {},
                           const numeric::executor& threads = numeric::inline_executor());

/// What is added to products: the matrix of the first one, and how far apart they lie. A bias has
/// rows with a stride of 0.
struct freivalds_addend {
  numeric::matrix<const float> first;
  std::int64_t stride = 0;
};

/// Is C = A B + D? The addend is one more term of each sum.
freivalds_result freivalds(const numeric::gemm_batch& batch, numeric::matrix<const float> a,
                           numeric::matrix<const float> b, const freivalds_addend& d,
                           numeric::matrix<const float> c, const freivalds_options& options = {},
                           const numeric::executor& threads = numeric::inline_executor());

/// Is y the convolution of x with w, plus the bias of its channel unless that is null? A row is a
/// position of an image; with more than twice as many images as vectors, that of all images.
freivalds_result freivalds_convolution(
    const numeric::convolution& geometry, const float* x, const float* w, const float* bias,
    const float* y, const freivalds_options& options = {},
    const numeric::executor& threads = numeric::inline_executor());
/// Is dx the gradient of its input? Rows as above.
freivalds_result freivalds_input_gradient(
    const numeric::convolution& geometry, const float* dy, const float* w, const float* dx,
    const freivalds_options& options = {},
    const numeric::executor& threads = numeric::inline_executor());
/// Is dw the gradient of its weights? A row is a channel of the input.
freivalds_result freivalds_weight_gradient(
    const numeric::convolution& geometry, const float* x, const float* dy, const float* dw,
    const freivalds_options& options = {},
    const numeric::executor& threads = numeric::inline_executor());

/// Is C = A B in whole numbers? Computed modulo 2^61 - 1, with one vector unless `probes` says
/// more. Throws usage also where a product of these operands could exceed 2^60.
bool freivalds_exact(numeric::matrix<const std::int32_t> a, numeric::matrix<const std::int32_t> b,
                     numeric::matrix<const std::int64_t> c, int probes = 1,
                     const std::optional<digest>& key = {});

}  // namespace potl::checks
