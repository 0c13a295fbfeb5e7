// SPDX-License-Identifier: Apache-2.0
// Gradients of a LibTorch task for spot-checked trainings. Prints what failed and exits 1.
#include <torch/torch.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <potl/libtorch/libtorch.hpp>

#include "expect.hpp"

namespace gradients_test {
namespace {

namespace pl = potl::libtorch;
namespace checks = potl::checks;

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const potl::exception& e) {
    return std::string(potl::to_string(e.details().code)) + ": " + e.details().message;
  }
  return "";
}

bool begins(const std::string& text, const std::string& with) {
  return text.compare(0, with.size(), with) == 0;
}

/// What a step does that a worker could not do alone.
enum class oddity { none, counts, reaches_now_and_then, is_double };

struct NetImpl : torch::nn::Module {
  explicit NetImpl(oddity kind) : kind_(kind) {
    first = register_module("first", torch::nn::Linear(5, 6));
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    last = register_module("last", torch::nn::Linear(6, 3));
    last->bias.set_requires_grad(false);
    scale = register_buffer("scale", at::full({1}, 1.5));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor out = torch::relu(norm(first(x)));
    out = pl::dropout(out, 0.25, is_training()) * scale.clone();
    if (kind_ == oddity::counts) scale.detach().add_(1);
    if (kind_ == oddity::reaches_now_and_then && at::rand({}).item<double>() < 0.5) {
      return at::linear(out, last->weight.detach(), last->bias);
    }
    return last(out);
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor scale;

 private:
  oddity kind_;
};
TORCH_MODULE(Net);

pl::builder builder_of(bool exact, oddity kind = oddity::none) {
  return [=] {
    Net net(kind);
    const auto type = kind == oddity::is_double ? at::kDouble : at::kFloat;
    if (type == at::kDouble) net->to(type);
    pl::task out;
    out.model = net.ptr();
    out.optimizers = {std::make_shared<torch::optim::SGD>(
        net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01))};
    const at::Tensor x = at::arange(40 * 5, at::kFloat).reshape({40, 5}).mul_(0.37).sin_();
    out.data = {x.to(type), at::arange(40, at::kLong).remainder_(3)};
    out.losses = [net](const pl::tensors& batch) mutable {
      return torch::cross_entropy_loss(net(batch[0]), batch[1], {}, at::Reduction::None);
    };
    out.batch_size = 8;
    out.epochs = 5;
    out.accumulate = 2;
    out.grad_clip = 0.5;
    out.rates = [](std::uint64_t step) { return std::vector<double>{step <= 12 ? 0.05 : 0.01}; };
    if (exact) out.exact = pl::exact_block;
    return out;
  };
}

potl::transcript::job job_of(const pl::builder& build, const std::string& arithmetic) {
  return pl::make_job(build, {.seed = 3, .checkpoint_every = 5, .arithmetic = arithmetic});
}

/// A trusted side that updates with LibTorch's own SGD.
class own_updates final : public checks::guarded_training {
 public:
  own_updates(const pl::builder& build, const potl::transcript::job& job)
      : job_(job), work_(build, job) {
    torch::nn::Module& model = *work_.task().model;
    for (const auto& list : {model.parameters(), model.buffers()}) {
      for (const at::Tensor& one : list) all_.push_back(one.detach());
    }
  }
  std::uint64_t step() override { return step_; }
  std::vector<potl::bytes_view> weights() override {
    std::vector<potl::bytes_view> out;
    for (const at::Tensor& one : all_) {
      out.emplace_back(static_cast<const std::uint8_t*>(one.const_data_ptr()), one.nbytes());
    }
    return out;
  }
  void update(std::uint64_t step, std::span<float> gradient, double /*norm*/,
              double /*loss*/) override {
    const pl::task& task = work_.task();
    const std::vector<at::Tensor> parameters = work_.parameters();
    const float* from = gradient.data();
    for (const at::Tensor& one : parameters) {
      if (!one.requires_grad()) continue;
      one.mutable_grad() = at::empty_like(one);
      std::memcpy(one.grad().mutable_data_ptr(), from, one.nbytes());
      from += one.numel();
    }
    pl::set_rates(task, *job_.rates_at(step));
    const auto block = job_.arithmetic == "stock" ? nullptr : pl::exact_block({});
    torch::nn::utils::clip_grad_norm_(parameters, *task.grad_clip);
    task.optimizers.front()->step();
    step_ = step;
  }
  void keep() override {}
  void finalise(std::uint64_t /*step*/) override {}
  void roll_back() override { rolled_back = true; }

  std::vector<at::Tensor> parameters() const { return work_.parameters(); }
  bool rolled_back = false;

 private:
  const potl::transcript::job& job_;
  pl::workload work_;
  std::vector<at::Tensor> all_;
  std::uint64_t step_ = 0;
};

void a_guarded_training_has_the_bits_of_the_workloads_own(bool exact, const std::string& mode) {
  const pl::builder build = builder_of(exact);
  const auto job = job_of(build, mode);
  own_updates training(build, job);
  pl::gradients worker(build, job), checker(build, job);
  const std::string secret = "a secret of both sides";
  auto [left, right] = checks::spot_check_socket::pair();
  checks::spot_check_served served;
  std::thread serving([&, end = std::move(right)]() mutable {
    served = checks::serve(std::move(end), potl::as_bytes_view(secret),
                           [&](const std::string&) -> checks::gradient_source& { return worker; });
  });
  checks::spot_check_options options;
  options.probabilities.assign(job.steps, 0.5);
  options.clip = 0.5;
  options.segment = 5;
  options.background = false;  // one generator of LibTorch's for both sides
  const auto found = checks::guard(std::move(left), potl::as_bytes_view(secret), job.text, training,
                                   checker, options);
  serving.join();
  EXPECT(found.end == checks::spot_check_end::finished);
  EXPECT(found.checked > 0 && found.largest == 0);
  EXPECT(served.steps == 25 && !training.rolled_back);

  pl::workload alone(build, job);
  for (std::uint64_t step = 1; step <= job.steps; ++step) {
    const pl::step_result done = alone.run_step(step);
    EXPECT(done.loss == found.entries[step - 1].loss);
  }
  const std::vector<at::Tensor> guarded = training.parameters(), own = alone.parameters();
  for (std::size_t i = 0; i < own.size(); ++i) EXPECT(at::equal(guarded[i], own[i]));
}

/// At the job's initial weights.
std::vector<float> gradient_of(pl::gradients& source, potl::bytes_view weights, std::uint64_t step,
                               std::uint64_t way = 0) {
  std::uint64_t elements = 0;
  for (const auto& one : source.tensors()) elements += one.elements;
  std::vector<float> out(elements);
  source.gradient(step, weights, way, out);
  return out;
}

void tensors_are_those_that_get_a_gradient() {
  const pl::builder build = builder_of(false);
  pl::gradients source(build, job_of(build, "stock"));
  std::string names;
  for (const auto& one : source.tensors()) {
    names += one.name + " " + std::to_string(one.elements) + ", ";
  }
  EXPECT(names == "first.weight 30, first.bias 6, norm.weight 6, norm.bias 6, last.weight 18, ");
  // The frozen bias, and mean, variance and count of the norm, and the scale.
  EXPECT(source.weights_bytes() == 4 * (66 + 3 + 6 + 6 + 1) + 8);
  EXPECT(source.weights().size() == source.weights_bytes());
}

void nothing_is_kept_between_two_steps() {
  const pl::builder build = builder_of(false);
  const auto job = job_of(build, "stock");
  pl::gradients source(build, job);
  const std::vector<std::uint8_t> initial = source.weights();
  EXPECT(initial == pl::gradients(build, job).weights());
  const std::vector<float> first = gradient_of(source, initial, 4);
  std::vector<std::uint8_t> others = initial;
  std::memset(others.data(), 0, others.size() / 2);
  EXPECT(gradient_of(source, others, 4) != first);
  EXPECT(gradient_of(source, initial, 5) != first);
  EXPECT(gradient_of(source, initial, 4) == first);
}

void other_ways_differ_where_the_arithmetic_may() {
  for (const std::string mode : {"stock", "stock with others", "ord32"}) {
    const pl::builder build = builder_of(mode != "stock");
    pl::gradients source(build, job_of(build, mode.substr(0, 5)));
    const std::vector<std::uint8_t> initial = source.weights();
    const std::vector<float> usual = gradient_of(source, initial, 2);
    std::vector<float> other = gradient_of(source, initial, 2, 1);
    EXPECT((other == usual) == (mode == "ord32"));
    for (std::size_t i = 0; i < usual.size(); ++i) {
      other[i] -= usual[i];
      EXPECT(std::abs(other[i]) < 1e-4);
    }
    EXPECT(gradient_of(source, initial, 2) == usual);
  }
}

void what_depends_on_more_than_weights_is_refused() {
  const auto open = [](oddity kind) {
    const pl::builder build = builder_of(false, kind);
    return pl::gradients(build, job_of(build, "stock"));
  };
  EXPECT(begins(refusal([&] { open(oddity::counts); }), "unsupported: a step changes scale"));
  EXPECT(begins(refusal([&] { open(oddity::is_double); }),
                "unsupported: the gradient of first.weight is CPUDoubleType"));
  const pl::builder build = builder_of(false, oddity::reaches_now_and_then);
  pl::gradients source(build, job_of(build, "stock"));
  const std::vector<std::uint8_t> initial = source.weights();
  std::string found;
  for (std::uint64_t step = 2; step <= 20 && found.empty(); ++step) {
    found = refusal([&] { gradient_of(source, initial, step); });
  }
  EXPECT(begins(found, "unsupported: step "));
  EXPECT(found.find("gives other parameters a gradient than step 1") != std::string::npos);
  EXPECT(begins(refusal([&] { gradient_of(source, initial, 0); }), "usage"));
  EXPECT(begins(refusal([&] { gradient_of(source, initial, 26); }), "usage"));
  const potl::bytes_view less{initial.data(), initial.size() - 1};
  EXPECT(begins(refusal([&] { gradient_of(source, less, 1); }), "usage"));
}

}  // namespace

int run() {
  at::set_num_threads(1);
  tensors_are_those_that_get_a_gradient();
  nothing_is_kept_between_two_steps();
  other_ways_differ_where_the_arithmetic_may();
  what_depends_on_more_than_weights_is_refused();
  a_guarded_training_has_the_bits_of_the_workloads_own(false, "stock");
  a_guarded_training_has_the_bits_of_the_workloads_own(true, "ord32");
  return status();
}

}  // namespace gradients_test
