// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/softmax.hpp>

#include <array>
#include <atomic>

#include "drive.hpp"

namespace potl::numeric {
namespace reductions {
namespace {

/// Neighbouring columns that become rows together.
constexpr std::size_t tile = 16;

/// rows(first row, rows): for inner 1.
/// Otherwise columns are copied into rows, `Arrays` of them, and the last one's rows back.
template <class Real, std::size_t Arrays, class Rows>
void as_rows(const sizes& s, const std::array<const Real*, Arrays>& in, Real* out,
             std::size_t out_count, const executor& workers, const Rows& rows) {
  if (s.outer == 0 || s.inner == 0) return;
  if (s.inner == 1) {
    for_items(s.outer, s.count, workers, [&](std::size_t first, std::size_t last) {
      std::array<const Real*, Arrays> from;
      for (std::size_t k = 0; k < Arrays; ++k) from[k] = in[k] + first * s.count;
      rows(from, out + first * out_count, last - first);
    });
    return;
  }
  const std::size_t tiles = (s.inner + tile - 1) / tile;
  for_items(s.outer * tiles, tile * s.count, workers, [&](std::size_t first, std::size_t last) {
    std::vector<Real> buffers(Arrays * tile * s.count), results(tile * out_count);
    for (std::size_t item = first; item < last; ++item) {
      const std::size_t outer = item / tiles, column = item % tiles * tile;
      const std::size_t width = std::min(tile, s.inner - column);
      std::array<const Real*, Arrays> from;
      for (std::size_t k = 0; k < Arrays; ++k) {
        Real* buffer = buffers.data() + k * tile * s.count;
        const Real* x = in[k] + outer * s.count * s.inner + column;
        for (std::size_t i = 0; i < s.count; ++i)
          for (std::size_t j = 0; j < width; ++j) buffer[j * s.count + i] = x[i * s.inner + j];
        from[k] = buffer;
      }
      rows(from, results.data(), width);
      Real* y = out + outer * out_count * s.inner + column;
      for (std::size_t i = 0; i < out_count; ++i)
        for (std::size_t j = 0; j < width; ++j) y[i * s.inner + j] = results[j * out_count + i];
    }
  });
}

template <class Real>
using one_operand = void (*)(const Real*, Real*, std::size_t, std::size_t);
template <class Real>
using two_operands = void (*)(const Real*, const Real*, Real*, std::size_t, std::size_t);

template <class Real>
void forward(one_operand<Real> kernel, const reduction_shape& shape, const Real* x, Real* y,
             bool one_result, const executor& workers) {
  const sizes s = checked(shape);
  const std::size_t out_count = one_result ? 1 : s.count;
  as_rows<Real, 1>(s, {x}, y, out_count, workers, [&](const auto& in, Real* out, std::size_t rows) {
    kernel(in[0], out, rows, s.count);
  });
}
template <class Real>
void backward(two_operands<Real> kernel, const reduction_shape& shape, const Real* dy,
              const Real* y, Real* dx, const executor& workers) {
  const sizes s = checked(shape);
  as_rows<Real, 2>(s, {dy, y}, dx, s.count, workers,
                   [&](const auto& in, Real* out, std::size_t rows) {
                     kernel(in[0], in[1], out, rows, s.count);
                   });
}

/// sample(i, the place of its target in x, its weight) for those that count, ignored(i) for others.
template <class Real, class Sample, class Ignored>
void each_target(const reduction_shape& shape, const std::int64_t* targets, const Real* weights,
                 std::int64_t ignore, const executor& workers, const Sample& sample,
                 const Ignored& ignored) {
  const sizes s = checked(shape);
  std::atomic<bool> fits{true};
  for_items(s.outer * s.inner, 1, workers, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const std::int64_t target = targets[i];
      if (target == ignore) {
        ignored(i);
      } else if (target < 0 || target >= shape.count) {
        fits = false;
      } else {
        const std::size_t t = static_cast<std::size_t>(target);
        sample(i, (i / s.inner * s.count + t) * s.inner + i % s.inner,
               weights == nullptr ? Real{1} : weights[t]);
      }
    }
  });
  if (!fits)
    throw exception({errc::usage, "a target is not a class", "targets are in [0, classes)"});
}

}  // namespace
}  // namespace reductions

using namespace reductions;

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is a type
#define POTL_DEFINE(Real)                                                                          \
  void softmax(const reduction_shape& shape, const Real* x, Real* y, const executor& workers) {    \
    const auto rows = [](const Real* in, Real* out, std::size_t n, std::size_t count) {            \
      active<Real>().softmax(in, out, nullptr, n, count);                                          \
    };                                                                                             \
    forward<Real>(rows, shape, x, y, false, workers);                                              \
  }                                                                                                \
  void softmax_row(const Real* x, Real* y, std::int64_t count, Real* logsumexp) {                  \
    active<Real>().softmax(x, y, logsumexp, 1, checked({1, count, 1}).count);                      \
  }                                                                                                \
  void log_softmax(const reduction_shape& shape, const Real* x, Real* y,                           \
                   const executor& workers) {                                                      \
    forward<Real>(active<Real>().log_softmax, shape, x, y, false, workers);                        \
  }                                                                                                \
  void logsumexp(const reduction_shape& shape, const Real* x, Real* y, const executor& workers) {  \
    forward<Real>(active<Real>().logsumexp, shape, x, y, true, workers);                           \
  }                                                                                                \
  void softmax_backward(const reduction_shape& shape, const Real* dy, const Real* y, Real* dx,     \
                        const executor& workers) {                                                 \
    backward<Real>(active<Real>().softmax_backward, shape, dy, y, dx, workers);                    \
  }                                                                                                \
  void log_softmax_backward(const reduction_shape& shape, const Real* dy, const Real* y, Real* dx, \
                            const executor& workers) {                                             \
    backward<Real>(active<Real>().log_softmax_backward, shape, dy, y, dx, workers);                \
  }                                                                                                \
  void nll_losses(const reduction_shape& shape, const Real* x, const std::int64_t* targets,        \
                  const Real* weights, std::int64_t ignore, Real* losses, Real* sample_weights,    \
                  const executor& workers) {                                                       \
    each_target<Real>(                                                                             \
        shape, targets, weights, ignore, workers,                                                  \
        [&](std::size_t i, std::size_t place, Real weight) {                                       \
          losses[i] = canonical(-(weight * x[place]));                                             \
          if (sample_weights != nullptr) sample_weights[i] = weight;                               \
        },                                                                                         \
        [&](std::size_t i) {                                                                       \
          losses[i] = 0;                                                                           \
          if (sample_weights != nullptr) sample_weights[i] = 0;                                    \
        });                                                                                        \
  }                                                                                                \
  void nll_slopes(const reduction_shape& shape, const Real* slopes, bool one_slope,                \
                  const std::int64_t* targets, const Real* weights, std::int64_t ignore, Real* dx, \
                  const executor& workers) {                                                       \
    each_target<Real>(                                                                             \
        shape, targets, weights, ignore, workers,                                                  \
        [&](std::size_t i, std::size_t place, Real weight) {                                       \
          dx[place] = canonical(slopes[one_slope ? 0 : i] * weight);                               \
        },                                                                                         \
        [](std::size_t) {});                                                                       \
  }
// NOLINTEND(bugprone-macro-parentheses)
POTL_DEFINE(float)
POTL_DEFINE(double)
#undef POTL_DEFINE

}  // namespace potl::numeric
