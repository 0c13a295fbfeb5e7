// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/elementwise.hpp>

#include <array>
#include <utility>

#include <potl/core/error.hpp>

#include "elementwise.hpp"
#include "stream_device.hpp"

namespace potl::cuda {
namespace {

using numeric::gradient;
using numeric::unary;

template <unary Function, class Real>
void launch(const Real* x, Real* y, std::size_t count, const stream_device& device) {
  if constexpr (Function == unary::erfinv) {
    throw exception({errc::usage, "this function has no CUDA form", "compute it on the CPU"});
  } else {
    device.each(count, one_operand<Function, Real>{x, y});
  }
}
template <gradient Function>
void launch(const float* dy, const float* operand, float* dx, std::size_t count,
            const stream_device& device) {
  device.each(count, two_operands<Function, float>{dy, operand, dx});
}

constexpr std::size_t functions = static_cast<std::size_t>(unary::mish) + 1;
constexpr std::size_t gradients = static_cast<std::size_t>(gradient::mish) + 1;

template <class Real>
void apply_any(unary function, const Real* x, Real* y, std::size_t count, queue stream) {
  constexpr auto all = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{&launch<static_cast<unary>(I), Real>...};
  }
  (std::make_index_sequence<functions>{});
  all.at(static_cast<std::size_t>(function))(x, y, count, stream_device(stream));
}

}  // namespace

void apply(unary function, const float* x, float* y, std::size_t count, queue stream) {
  apply_any(function, x, y, count, stream);
}
void apply(unary function, const double* x, double* y, std::size_t count, queue stream) {
  apply_any(function, x, y, count, stream);
}
void apply(gradient function, const float* dy, const float* operand, float* dx, std::size_t count,
           queue stream) {
  constexpr auto all = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{&launch<static_cast<gradient>(I)>...};
  }
  (std::make_index_sequence<gradients>{});
  all.at(static_cast<std::size_t>(function))(dy, operand, dx, count, stream_device(stream));
}

}  // namespace potl::cuda
