// SPDX-License-Identifier: Apache-2.0
// What follows the sums: means, norms, softmax and losses, each element an item of for_items().
// Private: needs block.hpp's macros.
//
// Exact because every element is one list of IEEE operations on its operands and the sums that
// reduction.hpp computed: those of numeric/detail/normalization.hpp and numeric/detail/softmax.hpp.
#pragma once

#include "reduction.hpp"

namespace potl::cuda {

/// values / n, or their square roots; `to` may be `values`.
enum class finish { quotient, root };
template <finish Kind>
struct finished {
  const float* values;
  float n;
  float* to;

  POTL_BODY void operator()(std::uint64_t i) const {
    const lane value(values[i]);
    to[i] = canonical(Kind == finish::root ? sqrt(value) : value / lane(n)).v;
  }
};

struct copied {
  const float* from;
  float* to;
  POTL_BODY void operator()(std::uint64_t i) const { to[i] = from[i]; }
};

/// From the sums of squared deviations: reciprocals, and the running statistics unless those are
/// null.
struct spread {
  const float *squares, *mean;
  float n, epsilon, momentum;
  float *reciprocal, *running_mean, *running_variance;

  POTL_BODY void operator()(std::uint64_t i) const {
    const lane sum(squares[i]), one(1.0F), count(n), taken(momentum);
    reciprocal[i] = canonical(one / sqrt(sum / count + lane(epsilon))).v;
    const lane kept = one - taken;
    if (running_mean != nullptr) {
      const lane before(running_mean[i]);
      running_mean[i] = canonical(fma(taken, lane(mean[i]), before * kept)).v;
    }
    if (running_variance != nullptr) {
      const lane before(running_variance[i]);
      running_variance[i] = canonical(fma(taken, sum / (count - one), before * kept)).v;
    }
  }
};

/// Which mean and which weight an element has: i / size % count.
struct share_of {
  std::uint32_t size, count;
  POTL_BODY std::uint32_t operator()(std::uint64_t i) const {
    return static_cast<std::uint32_t>(i) / size % count;
  }
};

/// y = fma((x - m) r, w, b); w and b may be null.
struct normalized {
  const float *x, *m, *r, *w, *b;
  float* y;
  share_of group, weight;

  POTL_BODY void operator()(std::uint64_t i) const {
    const std::uint32_t g = group(i), k = weight(i);
    const lane h = (lane(x[i]) - lane(m[g])) * lane(r[g]);
    // -0 is what a sum with nothing added needs.
    const lane factor(w == nullptr ? 1.0F : w[k]), added(b == nullptr ? -0.0F : b[k]);
    y[i] = canonical(fma(h, factor, added)).v;
  }
};

/// dx from a = first / n and b = second / n. ForRows, layer norm: ((dy w - a) - h b) r; otherwise
/// ((dy - a) - h b) (r w).
template <bool ForRows>
struct normalized_slope {
  const float *dy, *x, *m, *r, *w, *first, *second;
  float n;
  float* dx;
  share_of group, weight;

  POTL_BODY void operator()(std::uint64_t i) const {
    const std::uint32_t g = group(i);
    const lane scale(r[g]), times(w == nullptr ? 1.0F : w[weight(i)]), terms(n);
    const lane h = (lane(x[i]) - lane(m[g])) * scale;
    const lane a = lane(first[g]) / terms, b = lane(second[g]) / terms;
    const lane slope = ForRows ? lane(dy[i]) * times : lane(dy[i]);
    const lane factor = ForRows ? scale : scale * times;
    dx[i] = canonical(((slope - a) - h * b) * factor).v;
  }
};

/// Rows of `count` elements, of which there are the sum and, forwards, the largest. x is dy where
/// the result is a slope. logsumexp has one element for each row.
enum class row_result { softmax, log_softmax, logsumexp, softmax_slope, log_softmax_slope };
template <row_result Kind>
struct softmax_rows {
  const float *x, *y, *largest, *sum;
  float* out;
  std::uint32_t count;

  POTL_BODY void operator()(std::uint64_t i) const {
    using numeric::unary;
    using numeric::elementwise::compute;
    const std::uint32_t row = static_cast<std::uint32_t>(i) / count;
    const lane total(sum[row]);
    if constexpr (Kind == row_result::logsumexp) {
      out[i] = canonical(exponentials::anchored(largest[row]) + compute<unary::log>(total)).v;
      return;
    }
    const lane one(x[i]);
    lane value;
    if constexpr (Kind == row_result::softmax) {
      value = sums::exp_down(one - exponentials::anchored(largest[row])) / total;
    } else if constexpr (Kind == row_result::log_softmax) {
      value = (one - exponentials::anchored(largest[row])) - compute<unary::log>(total);
    } else if constexpr (Kind == row_result::softmax_slope) {
      value = lane(y[i]) * (one - total);
    } else {
      value = one - compute<unary::exp>(lane(y[i])) * total;
    }
    out[i] = canonical(value).v;
  }
};

/// Losses of samples, numeric::nll_losses(); a target that is no class has the loss NaN.
struct target_losses {
  const float *x, *weights;
  const std::int64_t* targets;
  std::int64_t classes, inner, ignore;
  float *losses, *sample_weights;

  POTL_BODY void operator()(std::uint64_t i) const {
    const std::int64_t target = targets[i], sample = static_cast<std::int64_t>(i);
    lane loss(0.0F), weight(0.0F);
    if (target != ignore) {
      loss = weight = lane(canonical_nan());
      if (target >= 0 && target < classes) {
        weight = lane(weights == nullptr ? 1.0F : weights[target]);
        const std::int64_t at = (sample / inner * classes + target) * inner + sample % inner;
        loss = canonical(negative(weight * lane(x[at])));
      }
    }
    losses[i] = loss.v;
    if (sample_weights != nullptr) sample_weights[i] = weight.v;
  }
};

/// dx = -(dy / total) w at the target, else 0, where dy is one number, or one for each sample;
/// `total` may be null. All of a sample whose target is no class: NaN, as its loss.
struct target_slopes {
  const float *dy, *total, *weights;
  const std::int64_t* targets;
  std::int64_t classes, inner, ignore;
  float* dx;
  bool by_sample;

  POTL_BODY void operator()(std::uint64_t i) const {
    const std::int64_t at = static_cast<std::int64_t>(i), across = classes * inner;
    const std::int64_t c = at / inner % classes;
    const std::int64_t sample = at / across * inner + at % inner, target = targets[sample];
    lane slope(0.0F);
    if (target != ignore && (target < 0 || target >= classes)) {
      slope = lane(canonical_nan());
    } else if (target != ignore && target == c) {
      slope = lane(dy[by_sample ? sample : 0]);
      if (total != nullptr) slope = slope / lane(*total);
      slope = negative(slope);
      if (weights != nullptr) slope = slope * lane(weights[c]);
      slope = canonical(slope);
    }
    dx[i] = slope.v;
  }
};

}  // namespace potl::cuda
