// SPDX-License-Identifier: Apache-2.0
// Capture, restore, randomness and data roots of the LibTorch adapter. One behaviour a test; prints
// what failed and exits 1, or prints the root of a data set, which the Python package must compute
// as well.
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include <potl/libtorch/libtorch.hpp>

#include "expect.hpp"

namespace {

namespace pl = potl::libtorch;
using optimizer_list = std::vector<std::shared_ptr<torch::optim::Optimizer>>;

potl::errc code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const potl::exception& e) {
    return e.details().code;
  }
  return potl::errc::internal;
}

/// A second name for the last weight, for it or for a copy.
enum class again { no, tied, copied };

struct NetImpl : torch::nn::Module {
  explicit NetImpl(again kind = again::no, std::int64_t width = 6) {
    first = register_module("first", torch::nn::Linear(5, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
    last = register_module("last", torch::nn::Linear(width, 3));
    if (kind == again::tied) second = register_parameter("again", last->weight);
    if (kind == again::copied) second = register_parameter("again", last->weight.detach().clone());
    last->bias.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor out = torch::relu(norm(first(x)));
    out = pl::dropout(out, 0.25, is_training());
    return second.defined() ? last(out) + at::linear(out, second) : last(out);
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor second;
};
TORCH_MODULE(Net);

const pl::tensors& data() {
  static const pl::tensors made = [] {
    at::Tensor x = at::arange(40 * 5, at::kFloat).reshape({40, 5}).mul_(0.37).sin_();
    return pl::tensors{x, at::arange(40, at::kLong).remainder_(3)};
  }();
  return made;
}

using make_optimizers = std::function<optimizer_list(Net&)>;

optimizer_list momentum(Net& net) {
  return {std::make_shared<torch::optim::SGD>(
      net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9).nesterov(true))};
}
optimizer_list adam(Net& net) {
  return {std::make_shared<torch::optim::Adam>(net->parameters(),
                                               torch::optim::AdamOptions(0.01).amsgrad(true))};
}
optimizer_list adamw_two_groups(Net& net) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(net->first->parameters(),
                      std::make_unique<torch::optim::AdamWOptions>(0.002));
  groups.emplace_back(net->last->parameters());
  return {std::make_shared<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(0.01)),
          std::make_shared<torch::optim::SGD>(net->norm->parameters(), 0.1)};
}

pl::builder builder_of(const make_optimizers& optimizers, again kind = again::no) {
  return [=] {
    Net net(kind);
    pl::task out;
    out.model = net.ptr();
    out.optimizers = optimizers(net);
    out.data = data();
    out.losses = [net](const pl::tensors& batch) mutable {
      return torch::nn::functional::cross_entropy(
          net(batch[0]), batch[1],
          torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
    };
    out.batch_size = 8;
    out.epochs = 4;
    out.accumulate = 2;
    out.grad_clip = 1.0;
    return out;
  };
}

potl::transcript::job job_of(const pl::builder& build, std::uint64_t seed = 3) {
  return pl::make_job(build, {.seed = seed, .checkpoint_every = 5});
}

void a_restored_state_trains_on_to_the_same_bits(const pl::builder& build) {
  pl::workload original(build, job_of(build));
  for (std::uint64_t step = 1; step <= 4; ++step) original.run_step(step);
  const potl::transcript::state middle = original.capture();
  for (std::uint64_t step = 5; step <= 9; ++step) original.run_step(step);

  pl::workload other(build, job_of(build));
  other.load_state(middle, 4);
  EXPECT(other.capture().state_digest() == middle.state_digest());
  EXPECT(other.step() == 4);
  for (std::uint64_t step = 5; step <= 9; ++step) other.run_step(step);
  EXPECT(other.capture().state_digest() == original.capture().state_digest());

  // Back in the same task, where gradients and optimizer state of later steps are still there.
  original.load_state(middle, 4);
  EXPECT(original.capture().state_digest() == middle.state_digest());
}

void every_tensor_is_part_of_the_digest() {
  const pl::builder build = builder_of(momentum);
  pl::workload work(build, job_of(build));
  work.run_step(1);
  const potl::digest before = work.capture().state_digest();
  const at::NoGradGuard no_grad;
  const auto changes = [&](const at::Tensor& tensor) {
    const at::Tensor saved = tensor.clone();
    tensor.view(-1)[0].add_(1);
    const bool out = work.capture().state_digest() != before;
    tensor.copy_(saved);
    return out;
  };
  for (const at::Tensor& one : work.task().model->parameters()) EXPECT(changes(one));
  for (const at::Tensor& one : work.task().model->buffers()) EXPECT(changes(one));
  for (const auto& [owner, kept] : work.task().optimizers[0]->state()) {
    EXPECT(changes(static_cast<torch::optim::SGDParamState&>(*kept).momentum_buffer()));
  }
  EXPECT(work.capture().state_digest() == before);
  work.task().model->eval();
  potl::transcript::snapshot_memory memory;
  EXPECT(pl::capture_task(work.task(), 1, 0, memory).state_digest() != before);
}

void what_had_no_gradient_is_seen() {
  const pl::builder build = [] {
    pl::task out = builder_of(adam)();
    out.data[0] = out.data[0].clone();
    out.data[0].select(1, 2).zero_();
    return out;
  };
  pl::workload work(build, job_of(build));
  const auto masks = [&] {
    std::map<std::string, std::vector<std::uint8_t>> out;
    for (const potl::checks::still_elements& one : work.still()) {
      for (const std::string& path : one.paths) out[path] = one.mask;
    }
    return out;
  };
  work.expect(1, 3);
  EXPECT(masks()["model/parameters/first.bias"] == std::vector<std::uint8_t>(6, 1));
  for (std::uint64_t step = 1; step <= 3; ++step) work.run_step(step);
  auto found = masks();
  const std::vector<std::uint8_t> weight = found["model/parameters/first.weight"];
  EXPECT(weight.size() == 30);
  for (std::size_t i = 0; i < weight.size(); ++i) EXPECT(weight[i] == (i % 5 == 2 ? 1 : 0));
  EXPECT(weight == found["optimizers/0/state/0"]);
  EXPECT(!found.contains("model/parameters/last.weight"));
  EXPECT(found["model/parameters/last.bias"] == std::vector<std::uint8_t>(3, 1));  // frozen
}

void averages_of_what_had_no_gradient_are_seen() {
  const pl::builder build = [] {
    pl::task out = builder_of(adam)();
    out.data[0] = out.data[0].clone();
    out.data[0].select(1, 2).zero_();
    const at::Tensor weight = pl::tensors_of(*out.model).parameters.at("first.weight");
    const auto keep = [&](const char* name) {
      return out.model->register_buffer(name, at::zeros_like(weight).detach());
    };
    const at::Tensor teacher = keep("teacher"), slow = keep("slow"), square = keep("square");
    out.initialize = [=](torch::nn::Module& model, std::uint64_t seed) {
      pl::initialize(model, seed);
      const at::NoGradGuard no_grad;
      teacher.copy_(weight);
    };
    out.losses = [=, plain = out.losses](const pl::tensors& batch) {
      const at::NoGradGuard no_grad;
      teacher.mul_(0.9).add_(weight, 0.1);
      slow.add_(weight - slow, 0.25);
      square.add_(weight * weight, 0.1);
      const at::AutoGradMode with_gradients(true);
      return plain(batch);
    };
    return out;
  };
  pl::workload work(build, job_of(build));
  work.expect(1, 3);
  for (std::uint64_t step = 1; step <= 3; ++step) work.run_step(step);
  std::map<std::string, potl::checks::still_elements> found;
  for (const potl::checks::still_elements& one : work.still()) found[one.paths.back()] = one;
  const auto weight = found["model/parameters/first.weight"];
  EXPECT(weight.mask.size() == 30 && weight.roundings == 0);
  for (const char* average : {"model/buffers/teacher", "model/buffers/slow"}) {
    EXPECT(found[average].mask == weight.mask);
    EXPECT(found[average].roundings == 6);  // two passes of each step
  }
  EXPECT(!found.contains("model/buffers/square"));
}

void complex_weights_are_judged_as_others() {
  const pl::builder build = [] {
    pl::task out;
    out.model = std::make_shared<torch::nn::Module>();
    out.data = {data()[0].clone()};
    out.data[0].select(1, 2).zero_();
    const at::Tensor made = at::complex(data()[0][0], data()[0][1]);
    const at::Tensor weight = out.model->register_parameter("weight", made);
    const at::Tensor slow = out.model->register_buffer("slow", made.detach().clone());
    out.initialize = [](torch::nn::Module&, std::uint64_t) {};
    out.optimizers = {std::make_shared<torch::optim::Adam>(out.model->parameters(), 0.01)};
    out.losses = [=](const pl::tensors& batch) {
      slow.mul_(0.9).add_(weight.detach(), 0.1);
      return at::view_as_real(batch[0] * weight).square().sum({1, 2});
    };
    out.batch_size = 8;
    out.epochs = 4;
    return out;
  };
  const potl::transcript::job job = job_of(build);
  pl::workload work(build, job), other(build, job);
  work.expect(1, 1);
  work.run_step(1);
  std::map<std::string, potl::checks::still_elements> found;
  for (const potl::checks::still_elements& one : work.still()) found[one.paths.back()] = one;
  EXPECT(found["model/parameters/weight"].mask == std::vector<std::uint8_t>({0, 0, 1, 0, 0}));
  EXPECT(found["model/buffers/slow"].mask == found["model/parameters/weight"].mask);
  const potl::transcript::state after = work.capture();
  other.load_state(after, 1);  // the real parts of squares are negative
  EXPECT(other.capture().state_digest() == after.state_digest());
  other.load_state(pl::workload(build, job).capture(), 0);
  other.perturb(1);
  other.run_step(1);
  EXPECT(other.capture().state_digest() != after.state_digest());
}

void tied_weights_are_one_tensor() {
  const pl::builder tied = builder_of(momentum, again::tied);
  pl::workload work(tied, job_of(tied));
  const potl::transcript::state state = work.capture();
  std::string paths;
  for (const auto* tensor : state.tensors()) paths += tensor->path + " ";
  EXPECT(paths.find("parameters/again ") != std::string::npos);
  EXPECT(paths.find("parameters/last.weight ") == std::string::npos);  // an alias of the first
  work.load_state(state, 0);
  const pl::builder untied = builder_of(momentum, again::copied);
  pl::workload other(untied, job_of(untied));
  std::string why;
  try {
    other.load_state(state, 0);
  } catch (const potl::exception& e) {
    why = e.what();
  }
  EXPECT(why.find("last.weight: tied to model/parameters/again") != std::string::npos);
}

void a_state_of_another_model_is_refused() {
  const pl::builder build = builder_of(momentum);
  const pl::builder other = builder_of(adam);
  pl::workload work(build, job_of(build)), foreign(other, job_of(other));
  foreign.run_step(1);
  const potl::transcript::state state = foreign.capture();
  EXPECT(code_of([&] { work.load_state(state, 1); }) == potl::errc::mismatch);
}

void a_state_of_another_step_or_recipe_is_refused() {
  const pl::builder build = builder_of(momentum);
  pl::workload work(build, job_of(build));
  const potl::transcript::state start = work.capture();
  EXPECT(code_of([&] { work.load_state(start, 1); }) == potl::errc::mismatch);
  auto& options = work.task().optimizers[0]->param_groups()[0].options();
  static_cast<torch::optim::SGDOptions&>(options).weight_decay(0.5);
  EXPECT(code_of([&] { work.load_state(start, 0); }) == potl::errc::mismatch);
}

void initial_weights_are_a_function_of_the_seed() {
  const pl::builder build = builder_of(momentum);
  torch::manual_seed(1);
  const potl::digest first = job_of(build).initial_state;
  torch::manual_seed(2);
  EXPECT(job_of(build).initial_state == first);
  EXPECT(job_of(build, 4).initial_state != first);
  const pl::task task = pl::build_task(build, 3);
  const pl::module_tensors all = pl::tensors_of(*task.model);
  const at::Tensor& weight = all.parameters.at("first.weight");
  EXPECT(weight.abs().max().item<double>() <= 1 / std::sqrt(5.0));
  EXPECT(weight.abs().max().item<double>() > 0.8 / std::sqrt(5.0));
  EXPECT(all.parameters.at("norm.weight").eq(1).all().item<bool>());
  EXPECT(all.parameters.at("norm.bias").eq(0).all().item<bool>());
}

void a_parameter_without_default_needs_an_own_initialiser() {
  torch::nn::Module module;
  module.register_parameter("scale", torch::ones({3}));
  EXPECT(code_of([&] { pl::initialize(module, 1); }) == potl::errc::unsupported);
}

void a_task_that_is_not_the_jobs_is_refused() {
  const pl::builder build = builder_of(momentum);
  const potl::transcript::job job = job_of(build);
  const auto differs = [&](const std::function<void(pl::task&)>& change) {
    const pl::builder other = [&] {
      pl::task out = build();
      change(out);
      return out;
    };
    return code_of([&] { pl::workload(other, job); }) == potl::errc::usage;
  };
  EXPECT(!differs([](pl::task&) {}));
  EXPECT(differs([](pl::task& of) { of.batch_size = 4; }));
  EXPECT(differs([](pl::task& of) { of.grad_clip.reset(); }));
  EXPECT(differs([](pl::task& of) { of.code = "other"; }));
  EXPECT(differs([](pl::task& of) { of.data[1] = of.data[1].clone().fill_(0); }));
  EXPECT(differs([](pl::task& of) { of.optimizers[0]->param_groups()[0].options().set_lr(1); }));
}

void hidden_state_is_refused() {
  const pl::builder plain = builder_of(momentum);
  const auto counts_in = [&](const std::function<std::shared_ptr<int>()>& counter) {
    const pl::builder build = [&plain, counter] {
      pl::task out = plain();
      out.losses = [losses = out.losses, calls = counter()](const pl::tensors& batch) {
        return losses(batch) * (1.0 + 0.1 * (*calls)++);
      };
      return out;
    };
    return code_of([&] { job_of(build); });
  };
  EXPECT(counts_in([] { return std::make_shared<int>(0); }) == potl::errc::unsupported);
  const auto shared = std::make_shared<int>(0);
  EXPECT(counts_in([=] { return shared; }) == potl::errc::unsupported);
}

void an_exact_arithmetic_needs_its_component() {
  const pl::builder build = builder_of(momentum);
  EXPECT(job_of(build).arithmetic == "stock");
  std::string why;
  try {
    pl::make_job(build, {.seed = 3, .arithmetic = "ord32"});
  } catch (const potl::exception& e) {
    EXPECT(e.details().code == potl::errc::unsupported);
    why = e.details().remedy;
  }
  EXPECT(why.find("potl::libtorch::exact_block") != std::string::npos);
  const auto of = [&](const pl::job_options& options) {
    return code_of([&] { pl::make_job(build, options); });
  };
  EXPECT(of({.seed = 3, .arithmetic = "rn53"}) == potl::errc::usage);
  EXPECT(of({.seed = 3, .store_every = 10}) ==
         potl::errc::usage);  // nobody could derive the others
}

void a_number_that_makes_no_training_is_named() {
  const auto says = [](const std::function<void(pl::task&)>& change, const std::string& what,
                       const pl::job_options& options = {.seed = 3, .checkpoint_every = 5}) {
    const pl::builder plain = builder_of(momentum);
    const pl::builder build = [&] {
      pl::task out = plain();
      change(out);
      return out;
    };
    try {
      pl::make_job(build, options);
    } catch (const potl::exception& e) {
      if (e.details().code == potl::errc::usage && !e.details().remedy.empty() &&
          e.details().message.find(what) != std::string::npos) {
        return true;
      }
      std::printf("%s\n", e.what());
    } catch (const std::exception& e) {
      std::printf("%s\n", e.what());
    }
    return false;
  };
  EXPECT(says([](pl::task& t) { t.model = nullptr; }, "no model"));
  EXPECT(says([](pl::task& t) { t.optimizers.clear(); }, "no optimizer"));
  EXPECT(says([](pl::task& t) { t.losses = nullptr; }, "no losses"));
  EXPECT(says([](pl::task& t) { t.batch_size = 0; }, "batch_size is 0"));
  EXPECT(says([](pl::task& t) { t.epochs = 0; }, "epochs is 0"));
  EXPECT(says([](pl::task& t) { t.accumulate = t.batch_size + 1; }, "accumulate is"));
  EXPECT(says([](pl::task& t) { t.grad_clip = -1; }, "grad_clip is -1"));
  EXPECT(says([](pl::task& t) { t.grad_clip = NAN; }, "grad_clip is nan"));
  EXPECT(says([](pl::task& t) { t.data = {at::Tensor()}; }, "no samples"));
  EXPECT(says([](pl::task& t) { t.data = {at::zeros({0, 5}), at::zeros({0})}; }, "no samples"));
  EXPECT(says([](pl::task& t) { t.data[1] = t.data[1].slice(0, 1); },
              "column 1 of the data set has 39 rows, and column 0 has 40"));
  EXPECT(says([](pl::task& t) { t.data.push_back(at::zeros({})); },
              "column 2 of the data set has no rows"));
  EXPECT(says(
      [](pl::task& t) {
        t.batch_size = 1000;
        t.drop_last = true;
      },
      "an epoch of 40 samples has no batch of 1000"));
  const auto rates = [](std::vector<double> all) {
    return [all](pl::task& t) { t.rates = [all](std::uint64_t) { return all; }; };
  };
  EXPECT(says(rates({0.1, 0.1}), "gives step 1 2 rates for 1 parameter group"));
  EXPECT(says(rates({NAN}), "a learning rate of step 1 is not finite"));
  EXPECT(says([](pl::task&) {}, "seed is 9007199254740992", {.seed = std::uint64_t{1} << 53}));
  EXPECT(says([](pl::task&) {}, "the job has no seed", {.checkpoint_every = 5}));
  EXPECT(says([](pl::task&) {}, "no arithmetic \"ord23\"", {.arithmetic = "ord23"}));
}

void learning_rates_come_from_the_job() {
  const pl::builder plain = builder_of(momentum);
  const pl::builder build = [&] {
    pl::task out = plain();
    out.rates = [](std::uint64_t step) { return std::vector<double>{step <= 5 ? 0.1 : 0.01}; };
    return out;
  };
  const potl::transcript::job job = job_of(build);
  EXPECT(job.rates.size() == 2);
  pl::workload work(build, job);
  EXPECT(work.run_step(5).rates.at(0) == 0.1);
  EXPECT(work.run_step(6).rates.at(0) == 0.01);
}

void the_users_generator_is_left_alone() {
  const pl::builder build = builder_of(momentum);
  pl::workload work(build, job_of(build));
  torch::manual_seed(5);
  const at::Tensor expected = at::rand({4});
  torch::manual_seed(5);
  work.run_step(1);
  EXPECT(at::rand({4}).equal(expected));
}

void dropout_follows_the_step() {
  const pl::builder build = builder_of(momentum);
  pl::workload work(build, job_of(build));
  const potl::transcript::state start = work.capture();
  const double first = work.run_step(1).loss;
  work.load_state(start, 0);
  torch::manual_seed(99);
  EXPECT(work.run_step(1).loss == first);
  const at::Tensor ones = at::ones({10000});
  pl::seed_generator(potl::derive_key(1, "test"));
  const at::Tensor kept = pl::dropout(ones, 0.25, true);
  EXPECT(std::abs(kept.mean().item<double>() - 1) < 0.05);
  EXPECT(pl::dropout(ones, 0.25, false).equal(ones));
}

void an_interrupted_recording_goes_on_where_it_stopped(const std::string& path) {
  const pl::builder build = builder_of(adam);
  const potl::transcript::job job = job_of(build);
  const potl::signing_key key = potl::signing_key::generate();
  {
    pl::workload work(build, job);
    pl::recorder run(path, work, key);
    for (int i = 0; i < 8; ++i) run.step();
  }
  pl::workload work(build, job);
  pl::recorder run(path, work, key);
  EXPECT(work.step() == 5);  // the last checkpoint
  run.step();
  const std::string published = run.publish();
  while (!run.done()) run.step();
  const std::string commitment = run.finish();
  pl::workload whole(build, job);
  for (std::uint64_t step = 1; step <= job.steps; ++step) whole.run_step(step);
  EXPECT(whole.capture().state_digest() == work.capture().state_digest());
  const auto evidence = potl::transcript::evidence::open({.directory = path,
                                                          .client_job = job,
                                                          .commitment = commitment,
                                                          .published = {published}})
                            .value();
  for (const potl::finding& one : evidence.findings()) {
    EXPECT(one.result != potl::outcome::reject && one.result != potl::outcome::inconclusive);
  }
  EXPECT(evidence.superseded().size() == 1);
  // All that was recorded until then: the steps after the sixth and the end of the run follow.
  const auto note = potl::transcript::parse_run_note(published).value().note.note;
  EXPECT(note.size + (job.steps - 6) + 1 == evidence.records());
}

void a_recording_begins_and_ends_with_the_run(const std::string& path) {
  const pl::builder build = builder_of(momentum);
  const potl::transcript::job job = job_of(build);
  const potl::signing_key key = potl::signing_key::generate();
  pl::workload used(build, job);
  used.run_step(1);
  EXPECT(code_of([&] { pl::recorder(path, used, key); }) == potl::errc::usage);
  EXPECT(!std::filesystem::exists(path));
  static_assert(
      !std::is_constructible_v<pl::recorder, std::string, pl::workload&, potl::signing_key>);
  static_assert(!std::is_move_constructible_v<pl::recorder>);
  pl::workload work(build, job);
  pl::recorder run(path, work, key);
  run.step();
  EXPECT(code_of([&] { run.finish(); }) == potl::errc::usage);
  while (!run.done()) run.step();  // what was refused has ended nothing
  EXPECT(!run.finish().empty());
}

void a_key_that_the_job_does_not_pin_records_nothing(const std::string& path) {
  const pl::builder build = builder_of(momentum);
  const potl::signing_key key = potl::signing_key::generate();
  const auto job = pl::make_job(
      build,
      {.seed = 3, .checkpoint_every = 5, .trainer = potl::signing_key::generate().verifier()});
  pl::workload work(build, job);
  EXPECT(code_of([&] { pl::recorder(path, work, key); }) == potl::errc::usage);
  EXPECT(!std::filesystem::exists(path));
}

void memory_formats_survive() {
  pl::describer describe;
  const at::Tensor image =
      at::arange(48, at::kFloat).reshape({1, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  potl::transcript::snapshot_memory memory;
  const auto state = potl::transcript::capture(describe(image, "x"), memory).value();
  const auto& saved = std::get<potl::transcript::state_tensor>(state.root().content);
  EXPECT(saved.memory_format == "channels_last");
  const at::Tensor live = at::zeros_like(image);
  pl::restorer restore;
  restore(live, state.root(), "x");
  EXPECT(live.equal(image));
}

}  // namespace

#include "adapter_beside.hpp"
#include "adapter_noise.hpp"
#include "adapter_refusals.hpp"

int main(int count, char** words) {
  if (count != 2) return 2;
  at::set_num_threads(1);
  for (const auto& make :
       {make_optimizers(momentum), make_optimizers(adam), make_optimizers(adamw_two_groups)}) {
    a_restored_state_trains_on_to_the_same_bits(builder_of(make));
  }
  a_restored_state_trains_on_to_the_same_bits(builder_of(adam, again::tied));
  every_tensor_is_part_of_the_digest();
  what_had_no_gradient_is_seen();
  averages_of_what_had_no_gradient_are_seen();
  complex_weights_are_judged_as_others();
  tied_weights_are_one_tensor();
  flags_that_the_build_does_not_set_are_refused();
  options_that_the_build_does_not_set_are_refused();
  a_model_that_is_not_made_by_the_build_is_refused();
  what_no_pass_can_restore_is_refused();
  losses_without_a_gradient_are_refused();
  moments_and_counts_that_no_steps_make_are_refused();
  optimizer_state_is_compared();
  a_running_variance_below_zero_is_refused();
  a_running_variance_that_the_build_leaves_below_zero_is_no_square();
  updates_are_counted_from_what_the_build_has_counted_and_in_each_group();
  losses_other_than_the_jobs_are_refused();
  an_optimizer_of_another_model_is_refused();
  an_optimizer_derived_from_torchs_is_refused();
  a_sparse_gradient_is_refused();
  what_is_not_finite_is_refused_before_anybody_trains();
  what_had_no_gradient_is_found_where_a_parameter_is_in_two_groups();
  a_folder_with_other_files_records_nothing(words[1] + std::string("-other"));
  what_happens_beside_the_recorded_steps_is_refused(words[1] + std::string("-beside"));
  a_state_of_another_model_is_refused();
  a_state_of_another_step_or_recipe_is_refused();
  initial_weights_are_a_function_of_the_seed();
  a_parameter_without_default_needs_an_own_initialiser();
  a_task_that_is_not_the_jobs_is_refused();
  hidden_state_is_refused();
  an_exact_arithmetic_needs_its_component();
  a_number_that_makes_no_training_is_named();
  learning_rates_come_from_the_job();
  recomputing_a_loss_changes_nothing();
  rough_sums_are_off_by_some_units_of_roundoff_and_nothing_else_is();
  sums_are_never_left_as_they_are_in_silence();
  rough_sums_reach_backward_passes_and_change_no_version();
  a_job_in_stock_arithmetic_is_rough_where_asked();
  what_divides_by_nothing_that_it_keeps_is_linear();
  the_users_generator_is_left_alone();
  autocast_around_a_step_is_no_part_of_it();
  dropout_follows_the_step();
  gradients_are_finite_where_their_squares_are_not();
  nothing_writes_to_what_inference_made();
  a_client_in_inference_mode_trains_as_others();
  threads_draw_their_own_numbers();
  memory_formats_survive();
  a_key_that_the_job_does_not_pin_records_nothing(words[1]);
  an_interrupted_recording_goes_on_where_it_stopped(words[1]);
  a_recording_begins_and_ends_with_the_run(words[1] + std::string("-whole"));
  if (failures == 0) {
    const at::Tensor whole = at::arange(12, at::kFloat).reshape({4, 3});
    std::printf("%s\n", pl::data_root({whole, at::arange(4, at::kLong)}).hex().c_str());
  }
  return status();
}
