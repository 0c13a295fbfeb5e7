// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/normalization.hpp>

#include <cmath>

#include "drive.hpp"

namespace potl::numeric {
namespace reductions {
namespace {

std::size_t size_of(std::int64_t value) {
  if (value < 0) throw exception({errc::usage, "a shape has a negative size", ""});
  return static_cast<std::size_t>(value);
}

template <class Real>
void layer_forward(const layer_norm_forward<Real>& w, const executor& workers) {
  const std::size_t rows = size_of(w.rows), count = size_of(w.count);
  const auto& kernel = active<Real>();
  for_items(rows, count, workers, [&](std::size_t first, std::size_t last) {
    for (std::size_t row = first; row < last; ++row) {
      const Real* x = w.x + row * count;
      Real mean, reciprocal;
      kernel.moments(x, static_cast<Real>(w.epsilon), count, &mean, &reciprocal);
      if (w.y != nullptr)
        kernel.normalize(x, mean, reciprocal, w.weight, w.bias, false, w.y + row * count, count);
      if (w.mean != nullptr) w.mean[row] = mean;
      if (w.reciprocal != nullptr) w.reciprocal[row] = reciprocal;
    }
  });
}

template <class Real>
void layer_backward(const layer_norm_backward<Real>& w, const executor& workers) {
  const std::size_t rows = size_of(w.rows), count = size_of(w.count);
  const auto& kernel = active<Real>();
  // The sums over rows come first: dx may be dy.
  const sizes down{1, rows, count};
  if (w.dweight != nullptr && count != 0)
    reduce_columns<Real>(term::weighted, {w.dy, w.x, w.mean, w.reciprocal, false}, down, w.dweight,
                         workers);
  if (w.dbias != nullptr && count != 0)
    reduce_columns<Real>(term::value, {w.dy, nullptr, nullptr, nullptr, false}, down, w.dbias,
                         workers);
  if (w.dx == nullptr) return;
  for_items(rows, count, workers, [&](std::size_t first, std::size_t last) {
    for (std::size_t row = first; row < last; ++row) {
      const std::size_t at = row * count;
      kernel.normalize_backward(w.dy + at, w.x + at, w.mean[row], w.reciprocal[row], w.weight,
                                w.dx + at, count);
    }
  });
}

/// T over channel c of [batch][channels][size]: segments(n) gives the operands of sample n.
template <class Real>
class channel_sum {
 public:
  explicit channel_sum(std::size_t batch, std::size_t size)
      : batch_(batch), size_(size), buffer_(std::min(chunk, batch * size)) {}

  /// Samples are `stride` elements apart, with one m and r.
  Real sum(term kind, const operands<Real>& o, std::size_t stride) {
    if (size_ % 32 != 0) {
      return sum(kind, [&](std::size_t n) {
        return operands<Real>{o.x + n * stride, shifted(o.y, n * stride), o.m, o.r, false};
      });
    }
    Real total = 0;
    active<Real>().pieces(kind, o, batch_, size_, stride, &total);
    return total;
  }

  template <class Segment>
  Real sum(term kind, const Segment& segment) {
    const auto& kernel = active<Real>();
    partial_.clear();
    std::size_t used = 0;
    for (std::size_t n = 0; n < batch_; ++n) {
      const operands<Real> whole = segment(n);
      for (std::size_t i = 0; i < size_;) {
        const std::size_t take = std::min(size_ - i, chunk - used);
        const operands<Real> part{whole.x + i, shifted(whole.y, i), whole.m, whole.r, false};
        kernel.terms(kind, part, take, buffer_.data() + used);
        i += take;
        used += take;
        if (used == chunk) flush(used);
      }
    }
    if (used != 0) flush(used);
    if (partial_.size() == 1) return partial_[0];
    Real total = 0;
    kernel.rows(term::value, {partial_.data(), nullptr, nullptr, nullptr, false}, 1,
                partial_.size(), &total);
    return total;
  }

 private:
  void flush(std::size_t& used) {
    partial_.push_back(0);
    active<Real>().rows(term::value, {buffer_.data(), nullptr, nullptr, nullptr, false}, 1, used,
                        &partial_.back());
    used = 0;
  }

  std::size_t batch_, size_;
  std::vector<Real> buffer_, partial_;
};

struct dimensions {
  std::size_t batch, channels, size;
  std::size_t at(std::size_t n, std::size_t c) const { return (n * channels + c) * size; }
};

template <class Real>
void group_forward(const group_norm_forward<Real>& w, const executor& workers) {
  const dimensions d{size_of(w.batch), size_of(w.channels), size_of(w.size)};
  const std::size_t groups = size_of(w.groups);
  if (groups == 0 || d.channels % groups != 0)
    throw exception({errc::usage, "groups do not divide the channels", ""});
  const std::size_t wide = d.channels / groups, count = wide * d.size;
  const auto& kernel = active<Real>();
  for_items(d.batch * groups, count, workers, [&](std::size_t first, std::size_t last) {
    for (std::size_t item = first; item < last; ++item) {
      const std::size_t channel = item % groups * wide, at = item * count;
      Real mean, reciprocal;
      kernel.moments(w.x + at, static_cast<Real>(w.epsilon), count, &mean, &reciprocal);
      for (std::size_t c = 0; w.y != nullptr && c < wide; ++c)
        kernel.normalize(w.x + at + c * d.size, mean, reciprocal, shifted(w.weight, channel + c),
                         shifted(w.bias, channel + c), true, w.y + at + c * d.size, d.size);
      if (w.mean != nullptr) w.mean[item] = mean;
      if (w.reciprocal != nullptr) w.reciprocal[item] = reciprocal;
    }
  });
}

template <class Real>
void group_backward(const group_norm_backward<Real>& w, const executor& workers) {
  const dimensions d{size_of(w.batch), size_of(w.channels), size_of(w.size)};
  const std::size_t groups = size_of(w.groups);
  if (groups == 0 || d.channels % groups != 0)
    throw exception({errc::usage, "groups do not divide the channels", ""});
  const std::size_t wide = d.channels / groups, count = wide * d.size;
  const auto& kernel = active<Real>();
  if (w.dweight != nullptr || w.dbias != nullptr) {
    for_items(d.channels, d.batch * d.size, workers, [&](std::size_t first, std::size_t last) {
      channel_sum<Real> sums(d.batch, d.size);
      for (std::size_t c = first; c < last; ++c) {
        const auto segment = [&](std::size_t n) {
          const std::size_t row = n * groups + c / wide;
          return operands<Real>{w.dy + d.at(n, c), w.x + d.at(n, c), w.mean + row,
                                w.reciprocal + row, false};
        };
        if (w.dweight != nullptr) w.dweight[c] = sums.sum(term::weighted, segment);
        if (w.dbias != nullptr) w.dbias[c] = sums.sum(term::value, segment);
      }
    });
  }
  if (w.dx == nullptr) return;
  for_items(d.batch * groups, count, workers, [&](std::size_t first, std::size_t last) {
    std::vector<Real> weight(w.weight == nullptr ? 0 : count);
    for (std::size_t item = first; item < last; ++item) {
      for (std::size_t i = 0; i < weight.size(); i += d.size)
        std::fill_n(weight.begin() + static_cast<std::ptrdiff_t>(i), d.size,
                    w.weight[item % groups * wide + i / d.size]);
      const std::size_t at = item * count;
      kernel.normalize_backward(w.dy + at, w.x + at, w.mean[item], w.reciprocal[item],
                                weight.empty() ? nullptr : weight.data(), w.dx + at, count);
    }
  });
}

/// Operands of channel c of what is [batch][channels][size]; m and r are [channels].
template <class Real>
operands<Real> of_channel(const operands<Real>& o, const dimensions& d, std::size_t c) {
  return {o.x + d.at(0, c), shifted(o.y, d.at(0, c)), shifted(o.m, c), shifted(o.r, c), false};
}

/// T over each channel.
template <class Real>
void channel_sums(term kind, const operands<Real>& o, const dimensions& d, Real* out,
                  const executor& workers) {
  if (d.size == 1) {
    operands<Real> columns = o;
    columns.by_column = true;
    return reduce_columns(kind, columns, {1, d.batch, d.channels}, out, workers);
  }
  for_items(d.channels, d.batch * d.size, workers, [&](std::size_t first, std::size_t last) {
    channel_sum<Real> sums(d.batch, d.size);
    for (std::size_t c = first; c < last; ++c)
      out[c] = sums.sum(kind, of_channel(o, d, c), d.channels * d.size);
  });
}

template <class Real>
void sums_of_channels(const channel_shape& shape, const Real* x, Real* y, const executor& workers) {
  const dimensions d{size_of(shape.batch), size_of(shape.channels), size_of(shape.size)};
  channel_sums<Real>(term::value, {x, nullptr, nullptr, nullptr, false}, d, y, workers);
}

/// rows(first, last) for samples of which each channel has one element.
template <class Rows>
void for_samples(const dimensions& d, const executor& workers, const Rows& rows) {
  for_items(d.batch, d.channels, workers,
            [&](std::size_t first, std::size_t last) { rows(first * d.channels, last - first); });
}

/// Whether each channel is worked on from its sums to its results, while it is in the caches.
bool one_by_one(const dimensions& d, const executor& workers) {
  return d.size > 1 && d.channels >= workers.concurrency();
}

/// all(sums, c) for each channel.
template <class Real, class All>
void for_channels(const dimensions& d, const executor& workers, const All& all) {
  for_items(d.channels, d.batch * d.size, workers, [&](std::size_t first, std::size_t last) {
    channel_sum<Real> sums(d.batch, d.size);
    for (std::size_t c = first; c < last; ++c) all(sums, c);
  });
}

template <class Real>
void batch_forward(const batch_norm_forward<Real>& w, const executor& workers) {
  const dimensions d{size_of(w.batch), size_of(w.channels), size_of(w.size)};
  if (d.channels == 0) return;
  const Real epsilon = static_cast<Real>(w.epsilon), momentum = static_cast<Real>(w.momentum);
  const Real kept = Real{1} - momentum;
  const Real count = static_cast<Real>(d.batch * d.size);
  std::vector<Real> mean(d.channels), reciprocal(d.channels);
  const operands<Real> values{w.x, nullptr, nullptr, nullptr, false};
  const operands<Real> deviations{w.x, nullptr, mean.data(), nullptr, false};
  const auto finish = [&](std::size_t c, Real squares) {
    reciprocal[c] = canonical(Real{1} / std::sqrt(squares / count + epsilon));
    if (w.running_mean != nullptr)
      w.running_mean[c] = canonical(std::fma(momentum, mean[c], w.running_mean[c] * kept));
    if (w.running_variance != nullptr)
      w.running_variance[c] =
          canonical(std::fma(momentum, squares / (count - Real{1}), w.running_variance[c] * kept));
  };
  const auto& kernel = active<Real>();
  const auto apply = [&](std::size_t n, std::size_t c) {
    const std::size_t at = d.at(n, c);
    kernel.normalize(w.x + at, mean[c], reciprocal[c], shifted(w.weight, c), shifted(w.bias, c),
                     true, w.y + at, d.size);
  };
  const bool together = w.training && one_by_one(d, workers);
  if (together) {
    for_channels<Real>(d, workers, [&](channel_sum<Real>& sums, std::size_t c) {
      const std::size_t stride = d.channels * d.size;
      mean[c] = canonical(sums.sum(term::value, of_channel(values, d, c), stride) / count);
      finish(c, sums.sum(term::deviation, of_channel(deviations, d, c), stride));
      for (std::size_t n = 0; w.y != nullptr && n < d.batch; ++n) apply(n, c);
    });
  } else if (w.training) {
    channel_sums<Real>(term::value, values, d, mean.data(), workers);
    for (Real& one : mean) one = canonical(one / count);
    channel_sums<Real>(term::deviation, deviations, d, reciprocal.data(), workers);
    for (std::size_t c = 0; c < d.channels; ++c) finish(c, reciprocal[c]);
  } else {
    std::copy(w.running_mean, w.running_mean + d.channels, mean.begin());
    for (std::size_t c = 0; c < d.channels; ++c)
      reciprocal[c] = canonical(Real{1} / std::sqrt(w.running_variance[c] + epsilon));
  }
  if (w.y != nullptr && d.size == 1) {
    for_samples(d, workers, [&](std::size_t at, std::size_t rows) {
      kernel.normalize_columns(w.x + at, mean.data(), reciprocal.data(), w.weight, w.bias, w.y + at,
                               rows, d.channels);
    });
  } else if (w.y != nullptr && !together) {
    for_items(d.batch * d.channels, d.size, workers, [&](std::size_t first, std::size_t last) {
      for (std::size_t item = first; item < last; ++item)
        apply(item / d.channels, item % d.channels);
    });
  }
  if (w.mean != nullptr) std::copy(mean.begin(), mean.end(), w.mean);
  if (w.reciprocal != nullptr) std::copy(reciprocal.begin(), reciprocal.end(), w.reciprocal);
}

template <class Real>
void batch_backward(const batch_norm_backward<Real>& w, const executor& workers) {
  const dimensions d{size_of(w.batch), size_of(w.channels), size_of(w.size)};
  if (d.channels == 0) return;
  const Real count = static_cast<Real>(d.batch * d.size);
  std::vector<Real> of_dy, of_product;
  Real *dbias = w.dbias, *dweight = w.dweight;
  const bool slopes = w.dx != nullptr && w.training;
  if (dbias == nullptr && slopes) {
    of_dy.resize(d.channels);
    dbias = of_dy.data();
  }
  if (dweight == nullptr && slopes) {
    of_product.resize(d.channels);
    dweight = of_product.data();
  }
  const operands<Real> values{w.dy, nullptr, nullptr, nullptr, false};
  const operands<Real> products{w.dy, w.x, w.mean, w.reciprocal, false};
  const auto& kernel = active<Real>();
  const auto factor = [&](std::size_t c) {
    return w.weight == nullptr ? w.reciprocal[c] : w.reciprocal[c] * w.weight[c];
  };
  const auto apply = [&](std::size_t n, std::size_t c) {
    const std::size_t at = d.at(n, c);
    if (w.training) {
      kernel.normalize_slope(w.dy + at, w.x + at, w.mean[c], w.reciprocal[c], dbias[c] / count,
                             dweight[c] / count, factor(c), w.dx + at, d.size);
    } else {
      kernel.normalize(w.dy + at, Real{0}, factor(c), nullptr, nullptr, true, w.dx + at, d.size);
    }
  };
  if (one_by_one(d, workers)) {
    return for_channels<Real>(d, workers, [&](channel_sum<Real>& sums, std::size_t c) {
      const std::size_t stride = d.channels * d.size;
      if (dbias != nullptr) dbias[c] = sums.sum(term::value, of_channel(values, d, c), stride);
      if (dweight != nullptr)
        dweight[c] = sums.sum(term::weighted, of_channel(products, d, c), stride);
      for (std::size_t n = 0; w.dx != nullptr && n < d.batch; ++n) apply(n, c);
    });
  }
  if (dbias != nullptr) channel_sums<Real>(term::value, values, d, dbias, workers);
  if (dweight != nullptr) channel_sums<Real>(term::weighted, products, d, dweight, workers);
  if (w.dx == nullptr) return;
  if (d.size == 1) {
    std::vector<Real> a(d.channels), b(d.channels), factors(d.channels);
    for (std::size_t c = 0; c < d.channels; ++c) {
      factors[c] = factor(c);
      if (!w.training) continue;
      a[c] = dbias[c] / count;
      b[c] = dweight[c] / count;
    }
    return for_samples(d, workers, [&](std::size_t at, std::size_t rows) {
      if (w.training) {
        kernel.slope_columns(w.dy + at, w.x + at, w.mean, w.reciprocal, a.data(), b.data(),
                             factors.data(), w.dx + at, rows, d.channels);
      } else {
        kernel.normalize_columns(w.dy + at, a.data(), factors.data(), nullptr, nullptr, w.dx + at,
                                 rows, d.channels);
      }
    });
  }
  for_items(d.batch * d.channels, d.size, workers, [&](std::size_t first, std::size_t last) {
    for (std::size_t item = first; item < last; ++item) apply(item / d.channels, item % d.channels);
  });
}

}  // namespace
}  // namespace reductions

using namespace reductions;

void layer_norm(const layer_norm_forward<float>& w, const executor& e) { layer_forward(w, e); }
void layer_norm(const layer_norm_forward<double>& w, const executor& e) { layer_forward(w, e); }
void layer_norm(const layer_norm_backward<float>& w, const executor& e) { layer_backward(w, e); }
void layer_norm(const layer_norm_backward<double>& w, const executor& e) { layer_backward(w, e); }
void group_norm(const group_norm_forward<float>& w, const executor& e) { group_forward(w, e); }
void group_norm(const group_norm_forward<double>& w, const executor& e) { group_forward(w, e); }
void group_norm(const group_norm_backward<float>& w, const executor& e) { group_backward(w, e); }
void group_norm(const group_norm_backward<double>& w, const executor& e) { group_backward(w, e); }
void batch_norm(const batch_norm_forward<float>& w, const executor& e) { batch_forward(w, e); }
void batch_norm(const batch_norm_forward<double>& w, const executor& e) { batch_forward(w, e); }
void batch_norm(const batch_norm_backward<float>& w, const executor& e) { batch_backward(w, e); }
void batch_norm(const batch_norm_backward<double>& w, const executor& e) { batch_backward(w, e); }

void sum_channels(const channel_shape& shape, const float* x, float* y, const executor& e) {
  sums_of_channels(shape, x, y, e);
}
void sum_channels(const channel_shape& shape, const double* x, double* y, const executor& e) {
  sums_of_channels(shape, x, y, e);
}

}  // namespace potl::numeric
