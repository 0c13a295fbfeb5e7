// SPDX-License-Identifier: Apache-2.0
// own_check FOLDER MOST: records a training of one weight, verifies it with replay and the check of
// docs/guide/adding_a_check_cpp.md, and prints the report.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "largest_weight.hpp"

namespace {

using namespace potl;
using namespace potl::transcript;

/// Adds one to its weight, which starts at one, in each step.
class counter {
 public:
  void load_state(const state&, std::uint64_t step) { weight_[0] = static_cast<float>(step + 1); }
  step_outcome run_step(std::uint64_t step, std::span<const std::int64_t>) {
    weight_[0] = static_cast<float>(step + 1);
    return {1.0 / static_cast<double>(step), {0.1}, false, 1};
  }
  state capture() {
    state_tensor tensor;
    tensor.type = dtype::f32;
    tensor.memory_format = "contiguous";
    tensor.dims = {1};
    tensor.bytes = {reinterpret_cast<const std::uint8_t*>(weight_.data()), sizeof(float)};
    state_map parameters{{std::string("weight"), state_value{tensor}}};
    state_map model{{std::string("parameters"), state_value{std::move(parameters)}}};
    state_map tree{{std::string("model"), state_value{std::move(model)}}};
    return potl::transcript::capture(state_value{std::move(tree)}, memory_).value();
  }
  double batch_loss(std::uint64_t step, std::span<const std::int64_t>) {
    return 1.0 / static_cast<double>(step);
  }
  subset_outcome subset_loss(std::span<const std::int64_t>) { return {}; }
  void perturb(std::uint64_t) {}

 private:
  std::array<float, 1> weight_{1};
  snapshot_memory memory_;
};

std::string train(const std::string& directory, const job& agreed, const signing_key& key) {
  counter work;
  writer log = writer::create({directory, "own", 2, 1}, agreed, key).value();
  log.append_initial(work.capture()).value();
  const std::array rates{0.1};
  for (std::uint64_t step = 1; step <= agreed.steps; ++step) {
    const std::vector<std::int64_t> ids = agreed.sample_ids(step);
    step_entry entry;
    entry.step = step;
    entry.epoch = agreed.epoch_of(step);
    entry.sample_ids = ids;
    entry.loss = work.run_step(step, ids).loss;
    entry.rates = rates;
    entry.checkpoint = agreed.is_checkpoint(step);
    log.append_step(work.capture(), entry).value();
  }
  log.close().value();
  return commit_run(directory, key).value();
}

}  // namespace

int main(int, char** arguments) {
  const std::string directory = std::string(arguments[1]) + "/run";
  std::array<std::uint8_t, 32> seed{};
  seed.fill(1);
  const signing_key key = signing_key::from_seed(seed).value();
  job wanted;
  wanted.seed = 7;
  wanted.steps = 6;
  wanted.epochs = 2;
  wanted.batch_size = 4;
  wanted.checkpoint_every = 2;
  wanted.max_segment = 2;
  wanted.data_count = 10;
  wanted.initial_state = counter().capture().state_digest();
  wanted.rates = {{6, {0.1}}};
  wanted.trainer = digest{key.verifier().raw()};
  const job agreed = parse_job(as_bytes_view(format_job(wanted).value())).value();
  evidence_options where;
  where.directory = directory;
  where.client_job = agreed;
  where.commitment = train(directory, agreed, key);
  const evidence run = evidence::open(where).value();

  own::add_largest_weight();
  own::weight_options most;
  most.most = std::strtod(arguments[2], nullptr);
  verify_options options;
  options.ledger = std::string(arguments[1]) + "/ledger.json";
  counter workload;
  const json_value report = potl::verify(run, workload, options, checks::replay_options{}, most);
  std::printf("%s\n", canonical_json(report).c_str());
  return exit_code(verdict::accepted);
}
