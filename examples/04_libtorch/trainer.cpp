// SPDX-License-Identifier: Apache-2.0
// A complete LibTorch trainer in one file: agrees on a job, trains a small convolutional net,
// records and commits, then verifies the run as its client would, and prints the verdict.
//
//   trainer DATA RUN [--cheat lazy|deliver]
//
// DATA is a safetensors file with "images" (float32, n x 1 x 8 x 8) and "labels" (int64, n). RUN is
// a new directory; beside it appear RUN.json (the report) and RUN.safetensors (the model).
// Exit status: 0 accepted, 1 rejected, 2 usage, 3 inconclusive and errors.
#include <torch/torch.h>

#include <cstdio>
#include <exception>
#include <span>
#include <string>

#include <potl/checks/telemetry_sampler.hpp>
#include <potl/crypto/challenge.hpp>
#include <potl/libtorch/libtorch.hpp>
#include <potl/verify.hpp>

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first =
        register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(8));
    last = register_module("last", torch::nn::Linear(8 * 4 * 4, 10));
  }
  torch::Tensor forward(const torch::Tensor& images) {
    torch::Tensor out = torch::max_pool2d(torch::relu(norm(first(images))), 2).flatten(1);
    return last(potl::libtorch::dropout(out, 0.1, is_training()));
  }
  torch::nn::Conv2d first{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear last{nullptr};
};
TORCH_MODULE(Net);

// The recipe. Client and trainer build it alike; everything random follows the job's seed.
potl::libtorch::task build(const potl::libtorch::tensors& data) {
  Net net;
  potl::libtorch::task out;
  out.model = net.ptr();
  out.optimizers = {std::make_shared<torch::optim::SGD>(
      net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9))};
  out.data = data;
  out.losses = [net](const potl::libtorch::tensors& batch) mutable {
    return torch::cross_entropy_loss(net(batch[0]), batch[1], {}, at::Reduction::None);
  };
  out.batch_size = 64;
  out.epochs = 6;
  out.drop_last = true;
  out.rates = [](std::uint64_t step) { return std::vector<double>{step <= 100 ? 0.05 : 0.01}; };
#ifdef WITH_EXACT_ARITHMETIC  // potl::libtorch_arithmetic is linked
  out.exact = potl::libtorch::exact_block;
#endif
  return out;
}

// The trainer's side: gives the commitment.
std::string train(const std::string& path, const potl::libtorch::builder& build,
                  const potl::transcript::job& job, const potl::signing_key& key,
                  const std::string& cheat) {
  potl::libtorch::workload work(build, job, cheat.empty());  // false: compares nothing
  potl::libtorch::recorder run(path, work, key);
  potl::checks::telemetry_sampler telemetry(path + "/telemetry.log");
  telemetry.start().value();
  while (!run.done()) {
    potl::libtorch::step_result done;
    if (cheat == "lazy") {
      // A quarter of the price: each step trains on 16 of the 64 samples that its record names.
      const auto ids = job.sample_ids(work.step() + 1);
      done = work.run_step(work.step() + 1, std::span(ids).first(16));
      run.append(done);
    } else {
      done = run.step();
    }
    telemetry.mark_step(done.step, job.epoch_of(done.step));
    if (done.step % 28 == 0) std::printf("step %3d  loss %.4f\n", int(done.step), done.loss);
  }
  telemetry.stop().value();
  const std::string commitment = run.finish();
  if (cheat == "deliver") {
    const torch::NoGradGuard no_grad;
    work.task().model->parameters().back().add_(0.01);  // after the commitment
  }
  potl::libtorch::save_model(*work.task().model, path + ".safetensors").value();
  return commitment;
}

// The client's side: gives the exit status.
int verify(const std::string& path, const potl::libtorch::builder& build,
           const potl::transcript::job& job, const std::string& commitment) {
  potl::transcript::evidence_options where;
  where.directory = path;
  where.client_job = job;
  where.commitment = commitment;
  const auto run = potl::transcript::evidence::open(where).value();
  potl::libtorch::workload work(build, job);
  potl::verify_options options;
  options.ledger = "";  // both sides in one program: a trial. A client leaves this line out
  options.model = path + ".safetensors";
  options.policy = potl::policy::for_detection(0.95, 0.2);
  const potl::json_value report =
      potl::verify(run, work, options, potl::checks::telemetry_options{},
                   potl::checks::pev_options{}, potl::checks::replay_options{.samples = 12});
  potl::write_file_atomically(path + ".json", potl::as_bytes_view(potl::canonical_json(report)))
      .value();
  std::printf("%s\n", report.find("sentence")->if_string()->c_str());
  const std::string& verdict = *report.find("verdict")->if_string();
  std::printf("verdict: %s\n", verdict.c_str());
  return verdict == "accepted" ? 0 : verdict == "rejected" ? 1 : 3;
}

}  // namespace

int main(int count, char** words) {
  const std::string cheat = count == 5 && words[3] == std::string("--cheat") ? words[4] : "";
  if (count != 3 && cheat != "lazy" && cheat != "deliver") {
    std::fprintf(stderr, "usage: %s DATA RUN [--cheat lazy|deliver]\n", words[0]);
    return 2;
  }
  try {
    const std::string path = words[2];
    const auto data = potl::libtorch::read_tensors(words[1], {"images", "labels"}).value();
    const potl::libtorch::builder recipe = [&] { return build(data); };
    const potl::signing_key key = potl::signing_key::generate();
    const potl::transcript::job job = potl::libtorch::make_job(
        recipe, {.seed = 7, .checkpoint_every = 9, .trainer = key.verifier()});
    const std::string commitment = train(path, recipe, job, key, cheat);
    return verify(path, recipe, job, commitment);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
