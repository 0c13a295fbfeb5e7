// SPDX-License-Identifier: Apache-2.0
// What a pass leaves of a model that it must not change.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <exception>
#include <vector>

#include <potl/core/error.hpp>

namespace potl::libtorch::detail {

/// Brings a model back to what it was: forward passes move buffers, and a teacher's parameters.
class unchanged {
 public:
  explicit unchanged(torch::nn::Module& model) : kept_(model.buffers()) {
    const std::vector<at::Tensor> parameters = model.parameters();
    kept_.insert(kept_.end(), parameters.begin(), parameters.end());
    // Nothing moves what was made in inference mode, and nothing may write to it.
    std::erase_if(kept_, [](const at::Tensor& one) { return one.is_inference(); });
    for (const at::Tensor& one : kept_) saved_.push_back(one.detach().clone());
  }
  unchanged(const unchanged&) = delete;
  unchanged& operator=(const unchanged&) = delete;
  ~unchanged() {
    try {
      restore();
    } catch (const std::exception&) {  // what ends the pass says more
    }
  }

  /// Throws potl::exception (unsupported) where a forward pass left nothing to restore into.
  void restore() {
    const at::NoGradGuard no_grad;
    for (; !kept_.empty(); kept_.pop_back(), saved_.pop_back()) {
      if (kept_.back().sizes() != saved_.back().sizes() ||
          kept_.back().scalar_type() != saved_.back().scalar_type()) {
        throw exception({errc::unsupported,
                         "a forward pass gives a tensor of the model another shape or element type",
                         "register it with its final shape, and write into it"});
      }
      kept_.back().copy_(saved_.back());
    }
  }

 private:
  std::vector<at::Tensor> kept_, saved_;
};

}  // namespace potl::libtorch::detail
