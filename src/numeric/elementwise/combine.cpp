// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/combine.hpp>

#include "kernels.hpp"
#include "parallel.hpp"
#include "scalars.hpp"

namespace potl::numeric {
namespace elementwise {
namespace {

/// Elements that are worth a task: these kernels wait for memory.
constexpr std::size_t block = 16384;

template <class Real>
void combined(combination kind, std::span<const Real> a, std::span<const Real> b,
              std::span<const Real> c, double scalar, std::span<Real> out,
              const executor& workers) {
  require_lengths_or_one(out.size(), {a.size(), b.size(), c.size()});
  const auto& kernel = active<Real>();
  const auto from = [](std::span<const Real> values, std::size_t first) {
    return values.size() == 1 ? stream<Real>{values.data(), 0}
                              : stream<Real>{values.data() + first, 1};
  };
  for_blocks(out.size(), block, workers, [&](std::size_t first, std::size_t last) {
    kernel.combine(kind, from(a, first), from(b, first), from(c, first), static_cast<Real>(scalar),
                   out.data() + first, last - first);
  });
}

template <class Real>
void sgd_update(const sgd_options& options, std::span<Real> p, std::span<const Real> g,
                std::span<Real> m, const executor& workers) {
  require_lengths(p.size(), {g.size()});
  const auto scalars = scalars_of<Real>(options);
  if (scalars.has_momentum) require_lengths(p.size(), {m.size()});
  const auto& kernel = active<Real>();
  for_blocks(p.size(), block, workers, [&](std::size_t first, std::size_t last) {
    kernel.sgd(&scalars, p.data() + first, g.data() + first,
               scalars.has_momentum ? m.data() + first : nullptr, last - first);
  });
}

template <class Real>
void adam_update(const adam_options& options, std::span<Real> p, std::span<const Real> g,
                 std::span<Real> m, std::span<Real> v, std::span<Real> u, const executor& workers) {
  require_lengths(p.size(), {g.size(), m.size(), v.size()});
  const bool amsgrad = !u.empty();
  if (amsgrad) require_lengths(p.size(), {u.size()});
  const auto scalars = scalars_of<Real>(options, amsgrad);
  const auto& kernel = active<Real>();
  for_blocks(p.size(), block, workers, [&](std::size_t first, std::size_t last) {
    kernel.adam(&scalars, p.data() + first, g.data() + first, m.data() + first, v.data() + first,
                amsgrad ? u.data() + first : nullptr, last - first);
  });
}

template <class Real>
softplus_scalars<Real> softplus_of(double beta, double threshold) {
  return {static_cast<Real>(beta), static_cast<Real>(threshold)};
}
template <class Real>
elu_scalars<Real> elu_of(const elu_options& options, bool of_result) {
  return {static_cast<Real>(options.alpha * options.scale), static_cast<Real>(options.scale),
          static_cast<Real>(options.input_scale), of_result};
}

template <class Real, class Kernel>
void one_with(const void* scalars, Kernel kernel, std::span<const Real> x, std::span<Real> y,
              const executor& workers) {
  require_lengths(y.size(), {x.size()});
  for_blocks(y.size(), block, workers, [&](std::size_t first, std::size_t last) {
    kernel(scalars, x.data() + first, y.data() + first, last - first);
  });
}
template <class Real, class Kernel>
void slope_with(const void* scalars, Kernel kernel, std::span<const Real> dy,
                std::span<const Real> x, std::span<Real> dx, const executor& workers) {
  require_lengths(dx.size(), {dy.size(), x.size()});
  for_blocks(dx.size(), block, workers, [&](std::size_t first, std::size_t last) {
    kernel(scalars, dy.data() + first, x.data() + first, dx.data() + first, last - first);
  });
}

}  // namespace
}  // namespace elementwise

using namespace elementwise;

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is a type
#define POTL_DEFINE(Real)                                                                         \
  void add_scaled(std::span<const Real> a, std::span<const Real> b, double alpha,                 \
                  std::span<Real> out, const executor& workers) {                                 \
    combined<Real>(combination::add_scaled, a, b, b, alpha, out, workers);                        \
  }                                                                                               \
  void lerp(std::span<const Real> a, std::span<const Real> b, std::span<const Real> weight,       \
            std::span<Real> out, const executor& workers) {                                       \
    combined<Real>(combination::lerp, a, b, weight, 0.0, out, workers);                           \
  }                                                                                               \
  void addcmul(std::span<const Real> a, std::span<const Real> b, std::span<const Real> c,         \
               double value, std::span<Real> out, const executor& workers) {                      \
    combined<Real>(combination::addcmul, a, b, c, value, out, workers);                           \
  }                                                                                               \
  void addcdiv(std::span<const Real> a, std::span<const Real> b, std::span<const Real> c,         \
               double value, std::span<Real> out, const executor& workers) {                      \
    combined<Real>(combination::addcdiv, a, b, c, value, out, workers);                           \
  }                                                                                               \
  void sgd(const sgd_options& options, std::span<Real> parameters,                                \
           std::span<const Real> gradients, std::span<Real> momentum, const executor& workers) {  \
    sgd_update(options, parameters, gradients, momentum, workers);                                \
  }                                                                                               \
  void adam(const adam_options& options, std::span<Real> parameters,                              \
            std::span<const Real> gradients, std::span<Real> mean, std::span<Real> square,        \
            std::span<Real> largest, const executor& workers) {                                   \
    adam_update(options, parameters, gradients, mean, square, largest, workers);                  \
  }                                                                                               \
  void softplus(std::span<const Real> x, double beta, double threshold, std::span<Real> y,        \
                const executor& workers) {                                                        \
    const auto scalars = softplus_of<Real>(beta, threshold);                                      \
    one_with(&scalars, active<Real>().softplus, x, y, workers);                                   \
  }                                                                                               \
  void softplus_gradient(std::span<const Real> dy, std::span<const Real> x, double beta,          \
                         double threshold, std::span<Real> dx, const executor& workers) {         \
    const auto scalars = softplus_of<Real>(beta, threshold);                                      \
    slope_with(&scalars, active<Real>().softplus_slope, dy, x, dx, workers);                      \
  }                                                                                               \
  void elu(const elu_options& options, std::span<const Real> x, std::span<Real> y,                \
           const executor& workers) {                                                             \
    const auto scalars = elu_of<Real>(options, false);                                            \
    one_with(&scalars, active<Real>().elu, x, y, workers);                                        \
  }                                                                                               \
  void elu_gradient(const elu_options& options, bool of_result, std::span<const Real> dy,         \
                    std::span<const Real> operand, std::span<Real> dx, const executor& workers) { \
    const auto scalars = elu_of<Real>(options, of_result);                                        \
    slope_with(&scalars, active<Real>().elu_slope, dy, operand, dx, workers);                     \
  }
// NOLINTEND(bugprone-macro-parentheses)
POTL_DEFINE(float)
POTL_DEFINE(double)
#undef POTL_DEFINE

}  // namespace potl::numeric
