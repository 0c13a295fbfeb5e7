// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/elementwise.hpp>

#include <array>
#include <utility>

#include "elementwise.hpp"
#include "runtime.hpp"

namespace potl::cuda {
namespace {

using numeric::gradient;
using numeric::unary;

constexpr unsigned threads = 256;
using block = device_block<threads>;

template <unary Function, class Real>
__global__ void __launch_bounds__(threads) one(const Real* x, Real* y, std::uint64_t count) {
  block here;
  map_one<Function>(here, gridDim.x, x, y, count);
}
template <gradient Function>
__global__ void __launch_bounds__(threads)
    slope(const float* dy, const float* operand, float* dx, std::uint64_t count) {
  block here;
  map_two<Function>(here, gridDim.x, dy, operand, dx, count);
}

template <unary Function, class Real>
void launch(const Real* x, Real* y, std::size_t count, cudaStream_t queue) {
  if constexpr (Function == unary::erfinv) {
    throw exception({errc::usage, "this function has no CUDA form", "compute it on the CPU"});
  } else {
    one<Function><<<items_grid(count, threads), threads, 0, queue>>>(x, y, count);
  }
}
template <gradient Function>
void launch(const float* dy, const float* operand, float* dx, std::size_t count,
            cudaStream_t queue) {
  slope<Function><<<items_grid(count, threads), threads, 0, queue>>>(dy, operand, dx, count);
}

constexpr std::size_t functions = static_cast<std::size_t>(unary::mish) + 1;
constexpr std::size_t gradients = static_cast<std::size_t>(gradient::mish) + 1;

template <class Real>
void apply_any(unary function, const Real* x, Real* y, std::size_t count, void* stream) {
  constexpr auto all = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{&launch<static_cast<unary>(I), Real>...};
  }(std::make_index_sequence<functions>{});
  if (count == 0) return;
  all.at(static_cast<std::size_t>(function))(x, y, count, as_stream(stream));
  require(cudaGetLastError());
}

}  // namespace

bool has_device() noexcept {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

void apply(unary function, const float* x, float* y, std::size_t count, void* stream) {
  apply_any(function, x, y, count, stream);
}
void apply(unary function, const double* x, double* y, std::size_t count, void* stream) {
  apply_any(function, x, y, count, stream);
}
void apply(gradient function, const float* dy, const float* operand, float* dx, std::size_t count,
           void* stream) {
  constexpr auto all = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{&launch<static_cast<gradient>(I)>...};
  }(std::make_index_sequence<gradients>{});
  if (count == 0) return;
  all.at(static_cast<std::size_t>(function))(dy, operand, dx, count, as_stream(stream));
  require(cudaGetLastError());
}

}  // namespace potl::cuda
