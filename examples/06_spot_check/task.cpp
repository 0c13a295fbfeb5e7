// SPDX-License-Identifier: Apache-2.0
// The task with LibTorch: the only file of the example that knows it.
#include "task.hpp"

#include <torch/torch.h>

#include <cstring>
#include <stdexcept>

#include <potl/libtorch/libtorch.hpp>

namespace example {
namespace {

potl::libtorch::builder builder_of(const std::string& path) {
  const auto data = potl::libtorch::read_tensors(path, {"images", "labels"}).value();
  return [data] {
    torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(64, 32), torch::nn::ReLU(),
                              torch::nn::Linear(32, 10));
    potl::libtorch::task out;
    out.model = net.ptr();
    out.optimizers = {std::make_shared<torch::optim::SGD>(
        net->parameters(), torch::optim::SGDOptions(0.1).momentum(momentum))};
    out.data = data;
    out.losses = [net](const potl::libtorch::tensors& batch) mutable {
      return torch::cross_entropy_loss(net->forward(batch[0]), batch[1], {}, at::Reduction::None);
    };
    out.batch_size = 64;
    out.epochs = 4;
    out.drop_last = true;
    out.grad_clip = clip;
    out.rates = [](std::uint64_t step) { return std::vector<double>{step <= 84 ? 0.1 : 0.02}; };
#ifdef WITH_EXACT_ARITHMETIC  // potl::libtorch_arithmetic is linked
    out.exact = potl::libtorch::exact_block;
#endif
    return out;
  };
}

}  // namespace

std::string make_job(const std::string& data) {
  return potl::libtorch::make_job(builder_of(data), {.seed = 7, .checkpoint_every = 8}).text;
}

opened open_task(const std::string& data, const std::string& job) {
  auto found = std::make_unique<potl::libtorch::gradients>(
      builder_of(data), potl::transcript::parse_job(potl::as_bytes_view(job)).value());
  const std::vector<std::uint8_t> bytes = found->weights();
  std::uint64_t elements = 0;
  for (const auto& one : found->tensors()) elements += one.elements;
  // The guard's SGD wants weights that lie as their gradients do: no buffers, nothing frozen.
  if (bytes.size() != elements * sizeof(float)) throw std::logic_error("not all weights are moved");
  opened out{std::move(found), std::vector<float>(elements)};
  std::memcpy(out.weights.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace example
