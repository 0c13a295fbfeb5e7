// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/update.hpp>

#include <potl/core/error.hpp>

#include "numeric/elementwise/scalars.hpp"
#include "stream_device.hpp"
#include "update.hpp"

namespace potl::cuda {
namespace {

/// run(tensors, blocks) for as many tensors at a time as a launch takes.
template <class Tensor, class Convert, class Run>
void in_launches(std::span<const Tensor> tensors, const Convert& convert, const Run& run) {
  updated_tensors all{};
  std::uint64_t pieces = 0;
  const auto flush = [&] {
    if (pieces != 0) run(all, pieces);
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

void sgd(const numeric::sgd_options& options, std::span<const sgd_tensor> tensors, queue stream) {
  auto scalars = numeric::elementwise::scalars_of<float>(options);
  for (const sgd_tensor& one : tensors) {
    if (scalars.has_momentum && one.momentum == nullptr && one.count != 0)
      missing("SGD with momentum needs its memory");
  }
  in_launches(
      tensors,
      [](const sgd_tensor& one) {
        return updated_tensor{one.parameters, one.gradients, one.momentum, nullptr, nullptr, 0, 0};
      },
      [&](const updated_tensors& all, std::uint64_t pieces) {
        stream_device(stream).run(pieces, sgd_update<decltype(scalars)>{{}, all, scalars});
      });
}

void adam(const numeric::adam_options& options, std::span<const adam_tensor> tensors,
          queue stream) {
  const bool amsgrad = !tensors.empty() && tensors.front().largest != nullptr;
  for (const adam_tensor& one : tensors) {
    if ((one.largest != nullptr) != amsgrad)
      missing("amsgrad needs its memory for all tensors, or for none");
  }
  auto scalars = numeric::elementwise::scalars_of<float>(options, amsgrad);
  in_launches(
      tensors,
      [](const adam_tensor& one) {
        return updated_tensor{
            one.parameters, one.gradients, one.mean, one.square, one.largest, 0, 0};
      },
      [&](const updated_tensors& all, std::uint64_t pieces) {
        stream_device(stream).run(pieces, adam_update<decltype(scalars)>{{}, all, scalars});
      });
}

}  // namespace potl::cuda
