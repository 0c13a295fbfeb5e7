// SPDX-License-Identifier: Apache-2.0
// potl._cuda: the kernels of include/potl/cuda for reproducible operators under torch, which
// potl._torch takes as a table. Linked with simulated launchers it is the tests' potl._simulated.
#include <vector>

#include <pybind11/pybind11.h>

#include <potl/core/error.hpp>
#include <potl/cuda/accumulation.hpp>
#include <potl/cuda/combine.hpp>
#include <potl/cuda/convolution.hpp>
#include <potl/cuda/digest.hpp>
#include <potl/cuda/elementwise.hpp>
#include <potl/cuda/gemm.hpp>
#include <potl/cuda/pooling.hpp>
#include <potl/cuda/random.hpp>
#include <potl/cuda/reduction.hpp>
#include <potl/cuda/resampling.hpp>
#include <potl/cuda/update.hpp>

#include "libtorch/arithmetic/device.hpp"

namespace py = pybind11;

namespace {

using potl::cuda::queue;
using potl::libtorch::dispatch::device_kernels;
using potl::numeric::arithmetic;

class kernels final : public device_kernels {
 public:
  void content_roots(std::span<const potl::cuda::device_bytes> tensors, potl::digest* roots,
                     queue stream) const override {
    potl::cuda::content_roots(tensors, roots, stream);
  }

  void gemm(arithmetic mode, const potl::numeric::gemm_batch& batch, matrix<const float> a,
            matrix<const float> b, matrix<float> c, queue stream) const override {
    potl::cuda::gemm(mode, batch, a, b, c, stream);
  }
  void convolve(arithmetic mode, const potl::numeric::convolution& geometry, const float* x,
                const float* w, float* y, queue stream) const override {
    potl::cuda::convolve(mode, geometry, x, w, y, stream);
  }
  void convolve_input_gradient(arithmetic mode, const potl::numeric::convolution& geometry,
                               const float* dy, const float* w, float* dx,
                               queue stream) const override {
    potl::cuda::convolve_input_gradient(mode, geometry, dy, w, dx, stream);
  }
  void convolve_weight_gradient(arithmetic mode, const potl::numeric::convolution& geometry,
                                const float* x, const float* dy, float* dw,
                                queue stream) const override {
    potl::cuda::convolve_weight_gradient(mode, geometry, x, dy, dw, stream);
  }

  near_ties gemm_log64(const potl::numeric::gemm_batch& batch, matrix<const float> a,
                       matrix<const float> b, matrix<float> c, int bits,
                       queue stream) const override {
    return potl::cuda::gemm_log64(batch, a, b, c, bits, stream);
  }
  near_ties convolve_log64(const potl::numeric::convolution& geometry, const float* x,
                           const float* w, float* y, int bits, queue stream) const override {
    return potl::cuda::convolve_log64(geometry, x, w, y, bits, stream);
  }
  near_ties convolve_input_gradient_log64(const potl::numeric::convolution& geometry,
                                          const float* dy, const float* w, float* dx, int bits,
                                          queue stream) const override {
    return potl::cuda::convolve_input_gradient_log64(geometry, dy, w, dx, bits, stream);
  }
  near_ties convolve_weight_gradient_log64(const potl::numeric::convolution& geometry,
                                           const float* x, const float* dy, float* dw, int bits,
                                           queue stream) const override {
    return potl::cuda::convolve_weight_gradient_log64(geometry, x, dy, dw, bits, stream);
  }

  void apply(potl::numeric::unary function, const float* x, float* y, std::size_t count,
             queue stream) const override {
    potl::cuda::apply(function, x, y, count, stream);
  }
  void apply(potl::numeric::gradient function, const float* dy, const float* of, float* dx,
             std::size_t count, queue stream) const override {
    potl::cuda::apply(function, dy, of, dx, count, stream);
  }
  void combine(const potl::cuda::combined& of, float* out, std::size_t count,
               queue stream) const override {
    potl::cuda::combine(of, out, count, stream);
  }

  void reduce(potl::numeric::reduction kind, const shape& of, const float* x, float* y,
              queue stream) const override {
    potl::cuda::reduce(kind, of, x, y, stream);
  }
  void variance(const shape& of, const float* x, double correction, float* mean, float* result,
                queue stream) const override {
    potl::cuda::variance(of, x, correction, mean, result, stream);
  }
  void cumulate(bool is_product, const shape& of, const float* x, float* y,
                queue stream) const override {
    potl::cuda::cumulate(is_product, of, x, y, stream);
  }
  void pool(const potl::cuda::pool_windows& of, const float* x, float* y,
            queue stream) const override {
    potl::cuda::pool(of, x, y, stream);
  }
  void pool_gradient(const potl::cuda::pool_windows& of, const float* dy, float* dx,
                     queue stream) const override {
    potl::cuda::pool_gradient(of, dy, dx, stream);
  }
  void resample(const potl::cuda::resampling& of, const float* x, float* y,
                queue stream) const override {
    potl::cuda::resample(of, x, y, stream);
  }
  void softmax(const shape& of, const float* x, float* y, queue stream) const override {
    potl::cuda::softmax(of, x, y, stream);
  }
  void log_softmax(const shape& of, const float* x, float* y, queue stream) const override {
    potl::cuda::log_softmax(of, x, y, stream);
  }
  void logsumexp(const shape& of, const float* x, float* y, queue stream) const override {
    potl::cuda::logsumexp(of, x, y, stream);
  }
  void softmax_backward(const shape& of, const float* dy, const float* y, float* dx,
                        queue stream) const override {
    potl::cuda::softmax_backward(of, dy, y, dx, stream);
  }
  void log_softmax_backward(const shape& of, const float* dy, const float* y, float* dx,
                            queue stream) const override {
    potl::cuda::log_softmax_backward(of, dy, y, dx, stream);
  }
  void nll_losses(const shape& of, const float* x, const std::int64_t* targets,
                  const float* weights, std::int64_t ignore, float* losses, float* sample_weights,
                  queue stream) const override {
    potl::cuda::nll_losses(of, x, targets, weights, ignore, losses, sample_weights, stream);
  }
  void nll_backward(const shape& of, const float* dy, const float* total,
                    const std::int64_t* targets, const float* weights, std::int64_t ignore,
                    float* dx, bool by_sample, queue stream) const override {
    potl::cuda::nll_backward(of, dy, total, targets, weights, ignore, dx, by_sample, stream);
  }
  void norm(const potl::numeric::layer_norm_forward<float>& work, queue stream) const override {
    potl::cuda::layer_norm(work, stream);
  }
  void norm(const potl::numeric::layer_norm_backward<float>& work, queue stream) const override {
    potl::cuda::layer_norm(work, stream);
  }
  void norm(const potl::numeric::batch_norm_forward<float>& work, queue stream) const override {
    potl::cuda::batch_norm(work, stream);
  }
  void norm(const potl::numeric::batch_norm_backward<float>& work, queue stream) const override {
    potl::cuda::batch_norm(work, stream);
  }

  void add_rows(std::int64_t targets, std::int64_t width, const std::int64_t* starts,
                const std::int64_t* order, const float* rows, float* out,
                queue stream) const override {
    potl::cuda::add_rows(targets, width, starts, order, rows, out, stream);
  }
  void fill_bernoulli(float* out, std::size_t count, potl::random_key key, double probability,
                      queue stream) const override {
    potl::cuda::fill_bernoulli(out, count, key, probability, stream);
  }
  void fill_uniform(float* out, std::size_t count, potl::random_key key, double low, double high,
                    queue stream) const override {
    potl::cuda::fill_uniform(out, count, key, low, high, stream);
  }
  void sgd(const potl::numeric::sgd_options& options,
           std::span<const potl::cuda::sgd_tensor> tensors, queue stream) const override {
    potl::cuda::sgd(options, tensors, stream);
  }
  void adam(const potl::numeric::adam_options& options,
            std::span<const potl::cuda::adam_tensor> tensors, queue stream) const override {
    potl::cuda::adam(options, tensors, stream);
  }
};

}  // namespace

PYBIND11_MODULE(POTL_MODULE_NAME, module) {
  module.doc() = "Kernels for CUDA devices (see potl.deterministic).";
  static const kernels all;
  module.def("kernels", [] { return py::capsule(static_cast<const device_kernels*>(&all)); });
}
