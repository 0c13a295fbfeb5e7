// SPDX-License-Identifier: Apache-2.0
// Kernels for tensors that are not on the CPU, in float32. Operators know them by this table: the
// code for a device is a module of its own, which is loaded where there is such a device
// (python/bindings_cuda), and in tests is simulated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

#include <potl/core/detail/rng.hpp>
#include <potl/core/digest.hpp>
#include <potl/cuda/combine.hpp>
#include <potl/cuda/digest.hpp>
#include <potl/cuda/pooling.hpp>
#include <potl/cuda/queue.hpp>
#include <potl/cuda/resampling.hpp>
#include <potl/cuda/update.hpp>
#include <potl/numeric/combine.hpp>
#include <potl/numeric/convolution.hpp>
#include <potl/numeric/detail/normalization.hpp>
#include <potl/numeric/elementwise.hpp>
#include <potl/numeric/gemm.hpp>
#include <potl/numeric/reduction.hpp>

namespace potl::libtorch::dispatch {

/// The functions of include/potl/cuda by the same names.
class device_kernels {
 public:
  device_kernels() = default;
  device_kernels(const device_kernels&) = delete;
  device_kernels& operator=(const device_kernels&) = delete;
  virtual ~device_kernels() = default;

  using shape = numeric::reduction_shape;
  template <class Element>
  using matrix = numeric::matrix<Element>;

  virtual void content_roots(std::span<const cuda::device_bytes> tensors, digest* roots,
                             cuda::queue stream) const = 0;

  virtual void gemm(numeric::arithmetic mode, const numeric::gemm_batch& batch,
                    matrix<const float> a, matrix<const float> b, matrix<float> c,
                    cuda::queue stream) const = 0;
  virtual void convolve(numeric::arithmetic mode, const numeric::convolution& geometry,
                        const float* x, const float* w, float* y, cuda::queue stream) const = 0;
  virtual void convolve_input_gradient(numeric::arithmetic mode,
                                       const numeric::convolution& geometry, const float* dy,
                                       const float* w, float* dx, cuda::queue stream) const = 0;
  virtual void convolve_weight_gradient(numeric::arithmetic mode,
                                        const numeric::convolution& geometry, const float* x,
                                        const float* dy, float* dw, cuda::queue stream) const = 0;
  using near_ties = std::vector<numeric::near_tie>;
  virtual near_ties gemm_log64(const numeric::gemm_batch& batch, matrix<const float> a,
                               matrix<const float> b, matrix<float> c, int bits,
                               cuda::queue stream) const = 0;
  virtual near_ties convolve_log64(const numeric::convolution& geometry, const float* x,
                                   const float* w, float* y, int bits,
                                   cuda::queue stream) const = 0;
  virtual near_ties convolve_input_gradient_log64(const numeric::convolution& geometry,
                                                  const float* dy, const float* w, float* dx,
                                                  int bits, cuda::queue stream) const = 0;
  virtual near_ties convolve_weight_gradient_log64(const numeric::convolution& geometry,
                                                   const float* x, const float* dy, float* dw,
                                                   int bits, cuda::queue stream) const = 0;

  virtual void apply(numeric::unary function, const float* x, float* y, std::size_t count,
                     cuda::queue stream) const = 0;
  virtual void apply(numeric::gradient function, const float* dy, const float* of, float* dx,
                     std::size_t count, cuda::queue stream) const = 0;
  virtual void combine(const cuda::combined& of, float* out, std::size_t count,
                       cuda::queue stream) const = 0;

  virtual void reduce(numeric::reduction kind, const shape& of, const float* x, float* y,
                      cuda::queue stream) const = 0;
  virtual void variance(const shape& of, const float* x, double correction, float* mean,
                        float* result, cuda::queue stream) const = 0;
  virtual void cumulate(bool is_product, const shape& of, const float* x, float* y,
                        cuda::queue stream) const = 0;
  virtual void pool(const cuda::pool_windows& of, const float* x, float* y,
                    cuda::queue stream) const = 0;
  virtual void pool_gradient(const cuda::pool_windows& of, const float* dy, float* dx,
                             cuda::queue stream) const = 0;
  virtual void resample(const cuda::resampling& of, const float* x, float* y,
                        cuda::queue stream) const = 0;
  virtual void softmax(const shape& of, const float* x, float* y, cuda::queue stream) const = 0;
  virtual void log_softmax(const shape& of, const float* x, float* y, cuda::queue stream) const = 0;
  virtual void logsumexp(const shape& of, const float* x, float* y, cuda::queue stream) const = 0;
  virtual void softmax_backward(const shape& of, const float* dy, const float* y, float* dx,
                                cuda::queue stream) const = 0;
  virtual void log_softmax_backward(const shape& of, const float* dy, const float* y, float* dx,
                                    cuda::queue stream) const = 0;
  virtual void nll_losses(const shape& of, const float* x, const std::int64_t* targets,
                          const float* weights, std::int64_t ignore, float* losses,
                          float* sample_weights, cuda::queue stream) const = 0;
  virtual void nll_backward(const shape& of, const float* dy, const float* total,
                            const std::int64_t* targets, const float* weights, std::int64_t ignore,
                            float* dx, bool by_sample, cuda::queue stream) const = 0;
  virtual void norm(const numeric::layer_norm_forward<float>& work, cuda::queue stream) const = 0;
  virtual void norm(const numeric::layer_norm_backward<float>& work, cuda::queue stream) const = 0;
  virtual void norm(const numeric::batch_norm_forward<float>& work, cuda::queue stream) const = 0;
  virtual void norm(const numeric::batch_norm_backward<float>& work, cuda::queue stream) const = 0;

  virtual void add_rows(std::int64_t targets, std::int64_t width, const std::int64_t* starts,
                        const std::int64_t* order, const float* rows, float* out,
                        cuda::queue stream) const = 0;
  virtual void fill_bernoulli(float* out, std::size_t count, random_key key, double probability,
                              cuda::queue stream) const = 0;
  virtual void fill_uniform(float* out, std::size_t count, random_key key, double low, double high,
                            cuda::queue stream) const = 0;
  virtual void sgd(const numeric::sgd_options& options, std::span<const cuda::sgd_tensor> tensors,
                   cuda::queue stream) const = 0;
  virtual void adam(const numeric::adam_options& options,
                    std::span<const cuda::adam_tensor> tensors, cuda::queue stream) const = 0;
};

/// Has tensors of this kind of device computed by these kernels, in all threads, from now on. Tests
/// give the CPU simulated ones, or null to take them back.
void use_device(c10::DeviceType type, const device_kernels* kernels) noexcept;

/// Whether there are kernels for this kind of device.
bool is_known(c10::DeviceType type) noexcept;
/// Whether there are kernels for the device that a tensor is on.
bool is_on_device(const at::Tensor& tensor) noexcept;

/// torch's memory of the current device, for its current stream.
class torch_memory final : public cuda::stream_allocator {
 public:
  explicit torch_memory(c10::Allocator* of) : of_(of) {}
  void* take(std::size_t bytes) const override { return of_->raw_allocate(bytes); }
  void give_back(void* memory) const noexcept override { of_->raw_deallocate(memory); }

 private:
  c10::Allocator* of_;
};

/// A call of kernels for the device of a tensor, which is the current one meanwhile.
class device_call {
 public:
  explicit device_call(const at::Tensor& on);
  const device_kernels* operator->() const noexcept { return kernels_; }
  const device_kernels& operator*() const noexcept { return *kernels_; }
  cuda::queue queue() const noexcept { return {stream_, memory_ ? &*memory_ : nullptr}; }

 private:
  const device_kernels* kernels_;
  c10::OptionalDeviceGuard guard_;
  void* stream_ = nullptr;
  std::optional<torch_memory> memory_;
};

}  // namespace potl::libtorch::dispatch
