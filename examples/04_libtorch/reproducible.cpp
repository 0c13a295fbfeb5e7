// SPDX-License-Identifier: Apache-2.0
// A training whose weights have the same bits on every machine, with any number of threads: prints
// their digest.
//
//   reproducible [MODE [THREADS]]
//
// MODE is ord32 (default), cr32, xint24, xint16 or log64.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include <potl/crypto/hasher.hpp>
#include <potl/libtorch/arithmetic.hpp>

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    convolution = register_module("convolution",
                                  torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(8));
    last = register_module("last", torch::nn::Linear(8 * 16, 10));
  }
  torch::Tensor forward(const torch::Tensor& images) {
    return last(torch::max_pool2d(torch::gelu(norm(convolution(images))), 2).flatten(1));
  }
  torch::nn::Conv2d convolution{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear last{nullptr};
};
TORCH_MODULE(Net);

// Weights and data from integers, so that they are the same everywhere.
torch::Tensor pattern(torch::IntArrayRef sizes, std::int64_t period) {
  const auto count = c10::multiply_integers(sizes);
  const auto steps = torch::arange(count, torch::kLong).mul(7919).remainder(period);
  return steps.to(torch::kFloat).div(static_cast<double>(period)).sub(0.5).reshape(sizes);
}

std::string digest_of(Net& net) {
  potl::sha256 hash;
  for (const torch::Tensor& weight : net->parameters()) {
    const torch::Tensor plain = weight.detach().contiguous();
    hash.update({static_cast<const std::uint8_t*>(plain.const_data_ptr()), plain.nbytes()});
  }
  return hash.finish().hex();
}

std::string train(potl::numeric::arithmetic mode) {
  const potl::libtorch::deterministic_guard guard(mode);
  Net net;
  {
    const torch::NoGradGuard no_graph;
    for (torch::Tensor& weight : net->parameters()) weight.copy_(pattern(weight.sizes(), 1009));
  }
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const torch::Tensor images = pattern({64, 1, 8, 8}, 65537);
  const torch::Tensor labels = torch::arange(64, torch::kLong).remainder(10);
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    torch::cross_entropy_loss(net(images), labels).backward();
    optimizer.step();
  }
  return digest_of(net);
}

}  // namespace

int main(int count, char** words) {
  const auto mode = potl::numeric::arithmetic_from(count > 1 ? words[1] : "ord32");
  if (!mode || count > 3) {
    std::fputs("usage: reproducible [MODE [THREADS]]\n", stderr);
    return 2;
  }
  if (count == 3) torch::set_num_threads(std::atoi(words[2]));
  try {
    std::printf("%s\n", train(*mode).c_str());
  } catch (const potl::libtorch::not_reproducible& error) {
    std::fprintf(stderr, "not reproducible: %s\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
