// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/update.hpp>

#include "numeric/elementwise/scalars.hpp"
#include "runtime.hpp"
#include "update.hpp"

namespace potl::cuda {
namespace {

using numeric::elementwise::adam_scalars;
using numeric::elementwise::sgd_scalars;

constexpr unsigned update_threads = 256;
using update_block = device_block<update_threads>;

__global__ void __launch_bounds__(update_threads)
    sgd_pieces(const updated_tensors all, const sgd_scalars<float> scalars) {
  update_block here;
  update_sgd(here, all, scalars);
}
__global__ void __launch_bounds__(update_threads)
    adam_pieces(const updated_tensors all, const adam_scalars<float> scalars) {
  update_block here;
  update_adam(here, all, scalars);
}

/// run(tensors, blocks) for as many tensors at a time as a launch takes.
template <class Tensor, class Convert, class Run>
void in_launches(std::span<const Tensor> tensors, const Convert& convert, const Run& run) {
  updated_tensors all{};
  std::uint64_t pieces = 0;
  const auto flush = [&] {
    if (pieces != 0) run(all, grid_of(pieces));
    all.count = pieces = 0;
  };
  for (const Tensor& one : tensors) {
    if (all.count == updated_tensors::most) flush();
    updated_tensor& to = all.of[all.count++];
    to = convert(one);
    to.count = one.count;
    to.first = pieces;
    pieces += (one.count + update_piece - 1) / update_piece;
  }
  flush();
}

[[noreturn]] void missing(const char* what) { throw exception({errc::usage, what, ""}); }

}  // namespace

void sgd(const numeric::sgd_options& options, std::span<const sgd_tensor> tensors, void* stream) {
  const auto scalars = numeric::elementwise::scalars_of<float>(options);
  for (const sgd_tensor& one : tensors) {
    if (scalars.has_momentum && one.momentum == nullptr && one.count != 0)
      missing("SGD with momentum needs its memory");
  }
  in_launches(
      tensors,
      [](const sgd_tensor& one) {
        return updated_tensor{one.parameters, one.gradients, one.momentum, nullptr, nullptr, 0, 0};
      },
      [&](const updated_tensors& all, unsigned grid) {
        sgd_pieces<<<grid, update_threads, 0, as_stream(stream)>>>(all, scalars);
        require(cudaGetLastError());
      });
}

void adam(const numeric::adam_options& options, std::span<const adam_tensor> tensors,
          void* stream) {
  const bool amsgrad = !tensors.empty() && tensors.front().largest != nullptr;
  for (const adam_tensor& one : tensors) {
    if ((one.largest != nullptr) != amsgrad)
      missing("amsgrad needs its memory for all tensors, or for none");
  }
  const auto scalars = numeric::elementwise::scalars_of<float>(options, amsgrad);
  in_launches(
      tensors,
      [](const adam_tensor& one) {
        return updated_tensor{
            one.parameters, one.gradients, one.mean, one.square, one.largest, 0, 0};
      },
      [&](const updated_tensors& all, unsigned grid) {
        adam_pieces<<<grid, update_threads, 0, as_stream(stream)>>>(all, scalars);
        require(cudaGetLastError());
      });
}

}  // namespace potl::cuda
