// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <potl/core/error.hpp>

#include "gather.hpp"
#include "weight_gradient.hpp"

namespace potl::numeric {
namespace {

void require(bool good, const char* what) {
  if (!good) throw exception({errc::usage, std::string("convolution: ") + what, ""});
}

void require_ord32(arithmetic mode) {
  if (mode != arithmetic::ord32)
    throw exception(
        {errc::unsupported, std::string("convolution in ") + to_string(mode), "use ord32"});
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
  require_ord32(mode);
  conv::run(conv::forward_gather(geometry, x, w, y), conv::active_kernels(), threads);
}

void convolve_input_gradient(arithmetic mode, const convolution& geometry, const float* dy,
                             const float* w, float* dx, const executor& threads) {
  require_ord32(mode);
  conv::run(conv::input_gradient_gather(geometry, dy, w, dx), conv::active_kernels(), threads);
}

void convolve_weight_gradient(arithmetic mode, const convolution& geometry, const float* x,
                              const float* dy, float* dw, const executor& threads) {
  require_ord32(mode);
  conv::weight_gradient(geometry, x, dy, dw, conv::active_kernels(), threads);
}

}  // namespace potl::numeric
