// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <potl/core/error.hpp>
#include <potl/cuda/elementwise.hpp>

#include <string>

#include "numeric/elementwise/functions.hpp"

namespace potl::cuda {
namespace {

using numeric::unary;
namespace lanes = numeric::elementwise;

constexpr unsigned threads = 256;

template <unary Function, class Real>
__global__ void each(const Real* x, Real* y, std::size_t count) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    y[i] = lanes::compute<Function>(lanes::single<Real>(x[i])).v;
}

void require(cudaError_t status) {
  if (status == cudaSuccess) return;
  throw exception({errc::io, std::string("CUDA: ") + cudaGetErrorString(status), ""});
}

template <unary Function, class Real>
void launch(const Real* x, Real* y, std::size_t count, void* stream) {
  constexpr std::size_t most = 65536;
  const std::size_t blocks = (count + threads - 1) / threads;
  const auto grid = static_cast<unsigned>(blocks < most ? blocks : most);
  each<Function><<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(x, y, count);
  require(cudaGetLastError());
}

template <class Real>
void apply_any(unary function, const Real* x, Real* y, std::size_t count, void* stream) {
  if (count == 0) return;
  switch (function) {
    case unary::exp: return launch<unary::exp>(x, y, count, stream);
    case unary::exp2: return launch<unary::exp2>(x, y, count, stream);
    case unary::expm1: return launch<unary::expm1>(x, y, count, stream);
    case unary::log: return launch<unary::log>(x, y, count, stream);
    case unary::log2: return launch<unary::log2>(x, y, count, stream);
    case unary::log10: return launch<unary::log10>(x, y, count, stream);
    case unary::log1p: return launch<unary::log1p>(x, y, count, stream);
    case unary::rsqrt: return launch<unary::rsqrt>(x, y, count, stream);
    case unary::sin: return launch<unary::sin>(x, y, count, stream);
    case unary::cos: return launch<unary::cos>(x, y, count, stream);
    case unary::tan: return launch<unary::tan>(x, y, count, stream);
    case unary::sinh: return launch<unary::sinh>(x, y, count, stream);
    case unary::cosh: return launch<unary::cosh>(x, y, count, stream);
    case unary::tanh: return launch<unary::tanh>(x, y, count, stream);
    case unary::sigmoid: return launch<unary::sigmoid>(x, y, count, stream);
    case unary::log_sigmoid: return launch<unary::log_sigmoid>(x, y, count, stream);
    case unary::softplus: return launch<unary::softplus>(x, y, count, stream);
    case unary::erf: return launch<unary::erf>(x, y, count, stream);
    case unary::erfc: return launch<unary::erfc>(x, y, count, stream);
    case unary::gelu: return launch<unary::gelu>(x, y, count, stream);
    case unary::gelu_tanh: return launch<unary::gelu_tanh>(x, y, count, stream);
    case unary::silu: return launch<unary::silu>(x, y, count, stream);
    case unary::mish: return launch<unary::mish>(x, y, count, stream);
    case unary::erfinv: break;
  }
  throw exception({errc::usage, "this function has no CUDA form", "compute it on the CPU"});
}

template <class Real>
class device_memory {
 public:
  explicit device_memory(std::size_t count) { require(cudaMalloc(&at_, count * sizeof(Real))); }
  ~device_memory() { cudaFree(at_); }
  device_memory(const device_memory&) = delete;
  device_memory& operator=(const device_memory&) = delete;
  Real* get() const { return static_cast<Real*>(at_); }

 private:
  void* at_ = nullptr;
};

template <class Real>
void through_device(unary function, const Real* x, Real* y, std::size_t count) {
  if (count == 0) return;
  const device_memory<Real> there(count);
  require(cudaMemcpy(there.get(), x, count * sizeof(Real), cudaMemcpyHostToDevice));
  apply_any(function, there.get(), there.get(), count, nullptr);
  require(cudaMemcpy(y, there.get(), count * sizeof(Real), cudaMemcpyDeviceToHost));
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
void apply_from_host(unary function, const float* x, float* y, std::size_t count) {
  through_device(function, x, y, count);
}
void apply_from_host(unary function, const double* x, double* y, std::size_t count) {
  through_device(function, x, y, count);
}

}  // namespace potl::cuda
