// SPDX-License-Identifier: Apache-2.0
// Which kernels make a reduction, a norm or a softmax, on any device: stream_device.hpp, or a
// simulated one. Private. Shapes are those of the CPU's functions of the same names.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/normalization.hpp>
#include <potl/numeric/reduction.hpp>

#include "normalization.hpp"
#include "reduction.hpp"

namespace potl::cuda {

using values_of = listed_terms<sums::term::value>;

inline std::uint64_t size_of(std::int64_t value) {
  if (value < 0) throw exception({errc::usage, "a shape has a negative size", ""});
  return static_cast<std::uint64_t>(value);
}
/// Kernels that share elements out among rows or channels count in 32 bits.
inline std::uint32_t narrow(std::uint64_t value) {
  if (value > std::numeric_limits<std::uint32_t>::max())
    throw exception({errc::usage, "a tensor has more than 2^32 elements", "cut the batch"});
  return static_cast<std::uint32_t>(value);
}

/// What the caller has no use for needs memory of its own.
template <class Device>
class kept_or_own {
 public:
  kept_or_own(const Device& device, float* kept, std::uint64_t count)
      : own_(device, kept == nullptr ? count : 0), at_(kept == nullptr ? own_.data() : kept) {}
  float* data() const { return at_; }

 private:
  typename Device::template numbers<float> own_;
  float* at_;
};

template <class Device, class Terms>
void reduce_once(const Device& device, const term_layout& l, const Terms& terms, float* out) {
  if (l.is_across()) {
    device.run(reduction_blocks<true>(l), reduction_body<true, Terms>{l, terms, out});
  } else {
    device.run(reduction_blocks<false>(l), reduction_body<false, Terms>{l, terms, out});
  }
}

/// out[outer][inner] = the result of the terms.
template <class Device, class Terms>
void reduce_terms(const Device& device, const term_layout& l, const Terms& terms, float* out) {
  if (l.outer * l.inner == 0) return;
  if (l.chunks() == 1) return reduce_once(device, l, terms, out);
  typename Device::template numbers<float> parts(device, l.outer * l.chunks() * l.inner);
  reduce_once(device, l, terms, parts.data());
  using join = typename Terms::join;
  constexpr auto again = std::is_same_v<join, sums::adding>        ? sums::term::value
                         : std::is_same_v<join, sums::multiplying> ? sums::term::factor
                                                                   : sums::term::maximum;
  using upper = listed_terms<again>;
  reduce_terms(device, term_layout::plain(l.outer, l.chunks(), l.inner),
               upper{parts.data(), nullptr, nullptr, nullptr, false}, out);
}

template <class Device>
void reduce(const Device& device, numeric::reduction kind, const numeric::reduction_shape& shape,
            const float* x, float* y) {
  using numeric::reduction;
  using sums::term;
  const std::uint64_t outer = size_of(shape.outer), inner = size_of(shape.inner);
  const auto l = term_layout::plain(outer, size_of(shape.count), inner);
  const float n = static_cast<float>(l.count);
  switch (kind) {
    case reduction::sum:
    case reduction::mean:
      reduce_terms(device, l, values_of{x, nullptr, nullptr, nullptr, false}, y);
      if (kind == reduction::mean) device.each(outer * inner, finished<finish::quotient>{y, n, y});
      return;
    case reduction::sum_of_squares:
    case reduction::norm:
      reduce_terms(device, l, listed_terms<term::square>{x, nullptr, nullptr, nullptr, false}, y);
      if (kind == reduction::norm) device.each(outer * inner, finished<finish::root>{y, n, y});
      return;
    case reduction::product:
      return reduce_terms(device, l,
                          listed_terms<term::factor>{x, nullptr, nullptr, nullptr, false}, y);
    case reduction::maximum:
      if (l.count == 0 && outer * inner != 0)
        throw exception({errc::usage, "there is no extreme of nothing", ""});
      return reduce_terms(device, l,
                          listed_terms<term::maximum>{x, nullptr, nullptr, nullptr, false}, y);
    default:
      throw exception({errc::usage, "this reduction has no CUDA form", "compute it on the CPU"});
  }
}

/// Mean and reciprocal of the terms of each result; `into` has what else comes of the squares.
template <class Device>
void moments(const Device& device, const term_layout& l, const float* x, float* mean,
             const spread& into) {
  const std::uint64_t results = l.outer * l.inner;
  reduce_terms(device, l, values_of{x, nullptr, nullptr, nullptr, false}, mean);
  device.each(results, finished<finish::quotient>{mean, into.n, mean});
  typename Device::template numbers<float> squares(device, results);
  reduce_terms(device, l, listed_terms<sums::term::deviation>{x, nullptr, mean, nullptr, false},
               squares.data());
  spread all = into;
  all.squares = squares.data();
  all.mean = mean;
  device.each(results, all);
}

/// numeric::variance() of at least one term; `mean` is written, too.
template <class Device>
void variance(const Device& device, const numeric::reduction_shape& shape, const float* x,
              double correction, float* mean, float* result) {
  const std::uint64_t results = size_of(shape.outer) * size_of(shape.inner);
  const auto l =
      term_layout::plain(size_of(shape.outer), size_of(shape.count), size_of(shape.inner));
  reduce(device, numeric::reduction::mean, shape, x, mean);
  reduce_terms(device, l, listed_terms<sums::term::deviation>{x, nullptr, mean, nullptr, false},
               result);
  const double left = static_cast<double>(l.count) - correction;
  const float freedom = static_cast<float>(left > 0.0 ? left : 0.0);
  device.each(results, finished<finish::quotient>{result, freedom, result});
}

template <class Device>
void layer_norm(const Device& device, const numeric::layer_norm_forward<float>& w) {
  const std::uint64_t rows = size_of(w.rows), count = size_of(w.count);
  const share_of group{narrow(count), narrow(rows)}, weight{1, group.size};
  narrow(rows * count);
  const kept_or_own mean(device, w.mean, rows), reciprocal(device, w.reciprocal, rows);
  moments(device, term_layout::plain(rows, count, 1), w.x, mean.data(),
          {nullptr, nullptr, static_cast<float>(count), static_cast<float>(w.epsilon), 0.0F,
           reciprocal.data(), nullptr, nullptr});
  if (w.y == nullptr) return;
  device.each(rows * count, normalized{w.x, mean.data(), reciprocal.data(), w.weight, w.bias, w.y,
                                       group, weight});
}

template <class Device>
void layer_norm(const Device& device, const numeric::layer_norm_backward<float>& w) {
  using sums::term;
  const std::uint64_t rows = size_of(w.rows), count = size_of(w.count);
  const share_of group{narrow(count), narrow(rows)}, weight{1, group.size};
  narrow(rows * count);
  // The sums over rows come first: dx may be dy.
  const auto down = term_layout::plain(1, rows, count), along = term_layout::plain(rows, count, 1);
  if (w.dweight != nullptr)
    reduce_terms(device, down, listed_terms<term::weighted>{w.dy, w.x, w.mean, w.reciprocal, true},
                 w.dweight);
  if (w.dbias != nullptr)
    reduce_terms(device, down, values_of{w.dy, nullptr, nullptr, nullptr, true}, w.dbias);
  if (w.dx == nullptr) return;
  typename Device::template numbers<float> first(device, rows), second(device, rows);
  reduce_terms(device, along, layer_slopes<false>{w.dy, w.weight, nullptr, nullptr, nullptr},
               first.data());
  reduce_terms(device, along, layer_slopes<true>{w.dy, w.weight, w.x, w.mean, w.reciprocal},
               second.data());
  device.each(rows * count, normalized_slope<true>{w.dy, w.x, w.mean, w.reciprocal, w.weight,
                                                   first.data(), second.data(),
                                                   static_cast<float>(count), w.dx, group, weight});
}

template <class Device>
void batch_norm(const Device& device, const numeric::batch_norm_forward<float>& w) {
  const std::uint64_t batch = size_of(w.batch), channels = size_of(w.channels),
                      size = size_of(w.size);
  const share_of channel{narrow(size), narrow(channels)};
  narrow(batch * channels * size);
  const kept_or_own mean(device, w.mean, channels), reciprocal(device, w.reciprocal, channels);
  const float epsilon = static_cast<float>(w.epsilon);
  if (w.training) {
    moments(
        device, term_layout::of_channels(batch, channels, size), w.x, mean.data(),
        {nullptr, nullptr, static_cast<float>(batch * size), epsilon,
         static_cast<float>(w.momentum), reciprocal.data(), w.running_mean, w.running_variance});
  } else {
    // Divided by 1: as they are.
    device.each(channels, copied{w.running_mean, mean.data()});
    device.each(channels, spread{w.running_variance, nullptr, 1.0F, epsilon, 0.0F,
                                 reciprocal.data(), nullptr, nullptr});
  }
  if (w.y == nullptr) return;
  device.each(batch * channels * size, normalized{w.x, mean.data(), reciprocal.data(), w.weight,
                                                  w.bias, w.y, channel, channel});
}

template <class Device>
void batch_norm(const Device& device, const numeric::batch_norm_backward<float>& w) {
  using sums::term;
  if (!w.training)
    throw exception({errc::usage, "batch norm has a gradient in training only", "use the CPU"});
  const std::uint64_t batch = size_of(w.batch), channels = size_of(w.channels),
                      size = size_of(w.size);
  const share_of channel{narrow(size), narrow(channels)};
  narrow(batch * channels * size);
  const kept_or_own first(device, w.dbias, channels), second(device, w.dweight, channels);
  const auto l = term_layout::of_channels(batch, channels, size);
  reduce_terms(device, l, values_of{w.dy, nullptr, nullptr, nullptr, false}, first.data());
  reduce_terms(device, l, listed_terms<term::weighted>{w.dy, w.x, w.mean, w.reciprocal, false},
               second.data());
  if (w.dx == nullptr) return;
  device.each(batch * channels * size,
              normalized_slope<false>{w.dy, w.x, w.mean, w.reciprocal, w.weight, first.data(),
                                      second.data(), static_cast<float>(batch * size), w.dx,
                                      channel, channel});
}

/// Along the last dimension: shape.inner is 1.
inline term_layout rows_of(const numeric::reduction_shape& shape) {
  if (shape.inner != 1)
    throw exception({errc::usage, "on a GPU softmax runs along the last dimension",
                     "make the tensor contiguous with that dimension last"});
  const auto out = term_layout::plain(size_of(shape.outer), size_of(shape.count), 1);
  narrow(out.outer * out.count);
  return out;
}

/// softmax, log_softmax or logsumexp, which has no element of empty rows.
template <row_result Kind, class Device>
void softmax(const Device& device, const numeric::reduction_shape& shape, const float* x,
             float* y) {
  const term_layout l = rows_of(shape);
  if (l.count == 0) return;
  typename Device::template numbers<float> largest(device, l.outer), sum(device, l.outer);
  reduce(device, numeric::reduction::maximum, shape, x, largest.data());
  reduce_terms(device, l, exponentials{x, largest.data()}, sum.data());
  const std::uint64_t width = Kind == row_result::logsumexp ? 1 : l.count;
  device.each(l.outer * width,
              softmax_rows<Kind>{x, nullptr, largest.data(), sum.data(), y, narrow(width)});
}

template <row_result Kind, class Device>
void softmax_backward(const Device& device, const numeric::reduction_shape& shape, const float* dy,
                      const float* y, float* dx) {
  using sums::term;
  const term_layout l = rows_of(shape);
  typename Device::template numbers<float> sum(device, l.outer);
  if constexpr (Kind == row_result::softmax_slope) {
    reduce_terms(device, l, listed_terms<term::product_of_two>{dy, y, nullptr, nullptr, false},
                 sum.data());
  } else {
    reduce_terms(device, l, values_of{dy, nullptr, nullptr, nullptr, false}, sum.data());
  }
  device.each(l.outer * l.count,
              softmax_rows<Kind>{dy, y, nullptr, sum.data(), dx, narrow(l.count)});
}

}  // namespace potl::cuda
