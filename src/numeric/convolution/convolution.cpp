// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/convolution_operands.hpp>

#include "channels.hpp"
#include "gather.hpp"
#include "geometry.hpp"
#include "integers.hpp"
#include "pointwise.hpp"
#include "weight_gradient.hpp"

namespace potl::numeric {
namespace {

void require(bool good, const char* what) {
  if (!good) throw exception({errc::usage, std::string("convolution: ") + what, ""});
}

int bits_of(arithmetic mode) {
  require(mode != arithmetic::log64, "log64 has functions of its own");
  return mode == arithmetic::xint24 ? 24 : 16;
}

// Sums of no terms. Blocks and their windows need some.
bool are_zeros(const conv::gather& what) {
  if (what.channels != 0) return false;
  std::fill_n(what.target, what.batch * what.groups * what.rows * conv::volume(what.target_size),
              0.0F);
  return true;
}

bool are_zeros(const convolution& g, float* dw) {
  if (g.batch != 0) return false;
  std::fill_n(dw, g.out_channels * (g.in_channels / g.groups) * conv::volume(g.kernel), 0.0F);
  return true;
}

std::vector<near_tie> run_rounded(arithmetic mode, const log64_options& options,
                                  const conv::gather& what, const element_operands& operands,
                                  const executor& threads) {
  if (are_zeros(what)) return {};
  conv::rounded_results results(mode, options, operands, what.target, threads);
  conv::run(what, conv::active_kernels(), threads, results);
  return results.finish();
}

std::vector<near_tie> weight_gradient_rounded(arithmetic mode, const log64_options& options,
                                              const convolution& geometry, const float* x,
                                              const float* dy, float* dw, const executor& threads) {
  if (are_zeros(geometry, dw)) return {};
  conv::rounded_results results(mode, options, conv::channel_operands(geometry, x, dy), dw,
                                threads);
  conv::weight_gradient(geometry, x, dy, dw, conv::active_kernels(), threads, results);
  return results.finish();
}

void run(arithmetic mode, const conv::gather& what, const element_operands& operands,
         const executor& threads) {
  if (mode == arithmetic::ord32)
    conv::run(what, conv::active_kernels(), threads);
  else if (mode == arithmetic::cr32)
    run_rounded(mode, {}, what, operands, threads);
  else if (const int bits = bits_of(mode); !are_zeros(what))
    conv::integer_gather(bits, what, conv::active_kernels(), threads);
}

}  // namespace

std::array<std::int64_t, 3> convolution::output() const {
  require(batch >= 0 && in_channels >= 0 && out_channels >= 0, "negative size");
  require(groups >= 1 && in_channels % groups == 0 && out_channels % groups == 0,
          "groups do not divide the channels");
  std::array<std::int64_t, 3> sizes{};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    require(input[axis] >= 0 && padding[axis] >= 0, "negative size");
    require(kernel[axis] >= 1 && stride[axis] >= 1 && dilation[axis] >= 1,
            "kernel, stride and dilation are at least 1");
    const std::int64_t room =
        input[axis] + 2 * padding[axis] - dilation[axis] * (kernel[axis] - 1) - 1;
    require(room >= 0, "the kernel is larger than the padded input");
    sizes[axis] = room / stride[axis] + 1;
  }
  return sizes;
}

void convolve(arithmetic mode, const convolution& geometry, const float* x, const float* w,
              float* y, const executor& threads) {
  if (mode == arithmetic::ord32 && conv::is_product(geometry, conv::active_kernels(), threads))
    return conv::pointwise(geometry, x, w, y, conv::active_kernels(), threads);
  run(mode, conv::forward_gather(geometry, x, w, y), convolution_operands(geometry, x, w), threads);
}

void convolve_input_gradient(arithmetic mode, const convolution& geometry, const float* dy,
                             const float* w, float* dx, const executor& threads) {
  if (mode == arithmetic::ord32 && conv::is_product(geometry, conv::active_kernels(), threads))
    return conv::pointwise_input_gradient(geometry, dy, w, dx, conv::active_kernels(), threads);
  run(mode, conv::input_gradient_gather(geometry, dy, w, dx),
      input_gradient_operands(geometry, dy, w), threads);
}

void convolve_weight_gradient(arithmetic mode, const convolution& geometry, const float* x,
                              const float* dy, float* dw, const executor& threads) {
  if (mode == arithmetic::ord32)
    conv::weight_gradient(geometry, x, dy, dw, conv::active_kernels(), threads);
  else if (mode == arithmetic::cr32)
    weight_gradient_rounded(mode, {}, geometry, x, dy, dw, threads);
  else if (const int bits = bits_of(mode); !are_zeros(geometry, dw))
    conv::integer_weight_gradient(bits, geometry, x, dy, dw, conv::active_kernels(), threads);
}

std::vector<near_tie> convolve_log64(const convolution& geometry, const float* x, const float* w,
                                     float* y, const log64_options& options,
                                     const executor& threads) {
  return run_rounded(arithmetic::log64, options, conv::forward_gather(geometry, x, w, y),
                     convolution_operands(geometry, x, w), threads);
}

std::vector<near_tie> convolve_input_gradient_log64(const convolution& geometry, const float* dy,
                                                    const float* w, float* dx,
                                                    const log64_options& options,
                                                    const executor& threads) {
  return run_rounded(arithmetic::log64, options, conv::input_gradient_gather(geometry, dy, w, dx),
                     input_gradient_operands(geometry, dy, w), threads);
}

std::vector<near_tie> convolve_weight_gradient_log64(const convolution& geometry, const float* x,
                                                     const float* dy, float* dw,
                                                     const log64_options& options,
                                                     const executor& threads) {
  return weight_gradient_rounded(arithmetic::log64, options, geometry, x, dy, dw, threads);
}

}  // namespace potl::numeric
