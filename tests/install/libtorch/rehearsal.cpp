// SPDX-License-Identifier: Apache-2.0
// One training from its job to its report, in any arithmetic, honest or not: what the tests of the
// adapter play.
//
//   exact_programs rehearsal RUN [NAME=VALUE]...
//
// RUN is a new directory; RUN.json becomes the report. Names:
//   arithmetic  of the job; auto by default
//   exact       0: the task brings no exact arithmetic
//   optimizer   sgd (default), adam, or adam_alone without decay
//   dark        1: some inputs are 0 in all samples
//   teacher     1: the model keeps an average of its first weights
//   seed        of the job; 7 by default
//   way         in which the trainer computes, as another machine would (workload::perturb)
//   losses      other: the client's losses are others than those of the job and the trainer
//   gradients   client or trainer: whose gradients are others, of the same losses
//   plain       1: without dropout
//   store       store_every; chosen by default
//   threads     of the verifier; the trainer has one, or as many as `trainers` says
//   interrupt   the step after which recording stops; another workload resumes it
//   trace       a step that the trainer traces in the end
//   cheat       stock, lazy, between, flood, unlogged, swap, copied, start, or one of forger.hpp's
//   by          how much a cheat changes
// Exit status: 0 accepted, 1 rejected, 3 inconclusive, 2 anything else.
#include <torch/torch.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include <potl/libtorch/libtorch.hpp>
#include <potl/numeric/rounding_log.hpp>

#include "forger.hpp"

namespace rehearsal {
namespace {

using words = std::map<std::string, std::string>;

constexpr std::uint64_t samples = 320, segment = 2;

// From integers, so that they are the same in Python.
at::Tensor pattern(at::IntArrayRef sizes, std::int64_t period) {
  const auto steps = at::arange(c10::multiply_integers(sizes), at::kLong).mul(7919);
  return steps.remainder(period).to(at::kFloat).div(double(period)).sub(0.5).reshape(sizes);
}

struct NetImpl : torch::nn::Module {
  NetImpl(double probability, bool bias) : probability_(probability) {
    first =
        register_module("first", torch::nn::Linear(torch::nn::LinearOptions(100, 40).bias(bias)));
    norm = register_module("norm", torch::nn::BatchNorm1d(40));
    last = register_module("last", torch::nn::Linear(40, 5));
  }
  at::Tensor forward(const at::Tensor& x) {
    return last(pl::dropout(at::gelu(norm(first(x))), probability_, is_training()));
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};

 private:
  double probability_;
};
TORCH_MODULE(Net);

pl::task build(const words& told) {
  // A bias before a norm has gradients of rounding errors alone, and some of them are 0.
  Net net(told.count("plain") != 0 ? 0.0 : 0.1, told.count("dark") == 0);
  pl::task out;
  out.model = net.ptr();
  if (told.at("optimizer") == "adam") {
    out.optimizers = {std::make_shared<torch::optim::Adam>(
        net->parameters(), torch::optim::AdamOptions(0.01).amsgrad(true).weight_decay(0.01))};
  } else if (told.at("optimizer") == "adam_alone") {
    out.optimizers = {std::make_shared<torch::optim::Adam>(net->parameters(), 0.01)};
  } else {
    out.optimizers = {std::make_shared<torch::optim::SGD>(
        net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9))};
  }
  out.data = {pattern({samples, 100}, 65537),
              at::arange(std::int64_t{samples}, at::kLong).remainder(5)};
  if (told.count("dark") != 0) out.data[0].slice(1, 0, dark).zero_();
  at::Tensor teacher;
  if (told.count("teacher") != 0) {
    teacher = net->register_buffer("teacher", at::zeros_like(net->first->weight).detach());
  }
  out.losses = [net, teacher](const pl::tensors& batch) mutable {
    if (teacher.defined()) {
      const at::NoGradGuard no_grad;
      teacher.mul_(0.9).add_(net->first->weight, 0.1);
    }
    return torch::cross_entropy_loss(net(batch[0]), batch[1], {}, at::Reduction::None);
  };
  out.batch_size = 16;
  out.epochs = 2;
  out.accumulate = 2;
  out.grad_clip = 1.0;
  if (told.at("exact") == "1") out.exact = pl::exact_block;
  return out;
}

// As code outside of LibTorch may make them on another machine.
std::function<at::Tensor(const pl::tensors&)> with_other_gradients(
    std::function<at::Tensor(const pl::tensors&)> losses) {
  return [losses = std::move(losses)](const pl::tensors& batch) {
    const at::Tensor out = losses(batch);
    return out + (out - out.detach()) * 1e-6;
  };
}

// Results far from a tie logged as near one, so that their direction would be the trainer's choice.
std::vector<std::uint8_t> flooded(const std::vector<std::uint8_t>& bytes) {
  potl::numeric::rounding_log log = potl::numeric::decode_rounding_log(bytes).value();
  std::map<std::uint64_t, bool> entries;
  for (const auto& one : log.entries) entries[one.position] = one.up;
  for (std::uint64_t at = 0; at < log.values; at += 64) entries.emplace(at, true);
  log.entries.clear();
  for (const auto& [position, up] : entries) log.entries.push_back({position, up});
  return potl::numeric::encode_rounding_log(log);
}

// The trainer's own loop: the two halves of recorder::step().
void record_to(std::uint64_t last, pl::workload& work, pl::recorder& run, const forgery& how) {
  const std::string& cheat = how.cheat;
  while (work.step() < last) {
    const std::uint64_t step = work.step() + 1;
    const std::vector<std::int64_t> all = work.agreed().sample_ids(step);
    const bool lazy = cheat == "lazy" || (cheat == "between" && step == 3);
    pl::step_result done = cheat == "copied" && step == forged_step
                               ? skipped(work, step, all)
                               : work.run_step(step, std::span(all).first(lazy ? 4 : all.size()));
    if (cheat == "flood") done.rounding_log = flooded(done.rounding_log);
    if (cheat == "unlogged") done.rounding_log.clear();
    forge(how, work, done);
    run.append(done);
  }
}

std::string train(const std::string& path, words told, const potl::transcript::job& job,
                  const potl::signing_key& key) {
  const std::string cheat = told["cheat"];
  forgery how{cheat, std::stod(told["by"]), {}};
  const auto recipe = [&] {
    pl::task out = build(told);
    if (cheat == "stock") out.exact = [](const pl::block_options&) { return nullptr; };
    if (told["gradients"] == "trainer") out.losses = with_other_gradients(out.losses);
    return out;
  };
  const std::uint64_t interrupt = std::stoull(told["interrupt"]);
  if (interrupt != 0) {
    pl::workload work(recipe, job);
    pl::recorder run(path, work, key);
    record_to(interrupt, work, run, {});
  }
  potl::transcript::job own = job;
  if (cheat == "rate") {
    for (auto& stretch : own.rates) {
      for (double& one : stretch.rates) one *= how.by;
    }
  }
  if (cheat == "splice") {
    ++own.seed;
    pl::workload other(recipe, own, false);
    for (std::uint64_t step = 1; step <= forged_step; ++step) other.run_step(step);
    how.elsewhere = other.capture();
    own = job;
  }
  pl::workload work(recipe, own, cheat.empty());
  work.perturb(std::stoull(told["way"]));
  if (cheat == "start") weights_in_the_dark(work).add_(how.by);
  pl::recorder run(path, work, key);
  if (cheat == "swap") {  // what was resumed is not what was recorded
    const at::NoGradGuard no_grad;
    for (const at::Tensor& one : work.task().model->parameters()) one.data().mul_(1.01);
  }
  record_to(job.steps, work, run, how);
  const std::string commitment = run.finish();
  pl::save_model(*work.task().model, path + ".safetensors").value();
  if (const std::uint64_t traced = std::stoull(told["trace"]); traced != 0) {
    potl::transcript::write_trace(path, pl::trace(path, work, traced)).value();
  }
  return commitment;
}

int verify(const std::string& path, const words& told, const potl::transcript::job& job,
           const std::string& commitment) {
  potl::transcript::evidence_options where;
  where.directory = path;
  where.client_job = job;
  where.commitment = commitment;
  const auto run = potl::transcript::evidence::open(where).value();
  const auto recipe = [&] {
    pl::task out = build(told);
    if (told.at("gradients") == "client") out.losses = with_other_gradients(out.losses);
    if (told.count("losses") != 0) {
      out.losses = [theirs = out.losses](const pl::tensors& batch) { return theirs(batch) * 1.01; };
    }
    return out;
  };
  pl::workload work(recipe, job);
  potl::verify_options options;
  options.ledger = "";
  options.nonce = potl::derive_key(7, "rehearsal");  // the same draw each time
  options.model = path + ".safetensors";
  options.policy = potl::policy::for_detection(0.95, 0.2);
  const potl::json_value report =
      potl::verify(run, work, options, potl::checks::pev_options{},
                   potl::checks::replay_options{.samples = job.segments()});
  potl::write_file_atomically(path + ".json", potl::as_bytes_view(potl::canonical_json(report)))
      .value();
  const std::string& verdict = *report.find("verdict")->if_string();
  return verdict == "accepted" ? 0 : verdict == "rejected" ? 1 : 3;
}

}  // namespace

int run(int count, char** given) {
  words told{{"arithmetic", "auto"}, {"exact", "1"}, {"optimizer", "sgd"}, {"threads", "1"},
             {"interrupt", "0"},     {"cheat", ""},  {"trace", "0"},       {"by", "0"},
             {"gradients", ""},      {"way", "0"},   {"seed", "7"},        {"trainers", "1"}};
  for (int i = 2; i < count; ++i) {
    const std::string word = given[i];
    told[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  }
  try {
    at::set_num_threads(1);
    const std::string path = given[1];
    const potl::signing_key key = potl::signing_key::generate();
    pl::job_options options;
    options.seed = std::stoull(told["seed"]);
    options.checkpoint_every = segment;
    options.arithmetic = told["arithmetic"];
    if (told.count("store") != 0) options.store_every = std::stoull(told["store"]);
    options.trainer = key.verifier();
    const potl::transcript::job job = pl::make_job([&] { return build(told); }, options);
    at::set_num_threads(std::stoi(told["trainers"]));
    const std::string commitment = train(path, told, job, key);
    at::set_num_threads(std::stoi(told["threads"]));
    return verify(path, told, job, commitment);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}

}  // namespace rehearsal
