// SPDX-License-Identifier: Apache-2.0
// The trusted side: owns the weights, makes every update, and computes the gradients of a few steps
// again, for which alone it links the task.
//
//   guard DATA FOLDER ADDRESS KEY
//
// DATA is a safetensors file with "images" (float32, n x 1 x 8 x 8) and "labels" (int64, n). FOLDER
// is the guard's own: it holds the last final state, from which the same command goes on, and one
// guard at a time trains in it. ADDRESS is the worker's, KEY a file with the secret that both
// share. Exit status: 0 accepted, 1 rejected, 2 usage, 3 inconclusive and errors.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <potl/checks/spot_check.hpp>
#include <potl/checks/spot_check_sgd.hpp>
#include <potl/core/directory_lock.hpp>
#include <potl/core/file.hpp>
#include <potl/statistics/displacement.hpp>
#include <potl/transcript/job.hpp>

#include "task.hpp"

namespace {

namespace checks = potl::checks;

/// What FOLDER/state holds: 32 bytes of the job's id, two numbers, weights, and momentum if there
/// is any.
struct kept {
  potl::digest job;
  std::uint64_t stopped = 0;  ///< sessions that ended at a check; the certificate counts them
  checks::sgd_state state;
};

void write(const std::string& path, const kept& what) {
  std::vector<std::uint8_t> out(what.job.bytes.begin(), what.job.bytes.end());
  const auto add = [&](const void* from, std::size_t size) {
    const auto* const bytes = static_cast<const std::uint8_t*>(from);
    out.insert(out.end(), bytes, bytes + size);
  };
  add(&what.stopped, sizeof what.stopped);
  add(&what.state.step, sizeof what.state.step);
  add(what.state.weights.data(), what.state.weights.size() * sizeof(float));
  add(what.state.momentum.data(), what.state.momentum.size() * sizeof(float));
  potl::write_file_atomically(path, out).value();
}

/// `fresh`, unless there is a file.
kept read(const std::string& path, kept fresh) {
  const auto found = potl::read_file(path, 1 << 30);
  if (!found && found.why().code == potl::errc::missing) return fresh;
  const std::vector<std::uint8_t>& bytes = found.value();
  std::size_t at = 0;
  const auto take = [&](void* to, std::size_t size) {
    if (bytes.size() - at < size) throw std::runtime_error(path + " is cut off");
    std::memcpy(to, bytes.data() + at, size);
    at += size;
  };
  kept out;
  take(out.job.bytes.data(), out.job.bytes.size());
  if (out.job != fresh.job) throw std::runtime_error(path + " is of another job");
  take(&out.stopped, sizeof out.stopped);
  take(&out.state.step, sizeof out.state.step);
  out.state.weights.resize(fresh.state.weights.size());
  take(out.state.weights.data(), out.state.weights.size() * sizeof(float));
  if (at == bytes.size()) return out;
  out.state.momentum.resize(out.state.weights.size());
  take(out.state.momentum.data(), out.state.momentum.size() * sizeof(float));
  return out;
}

int report(const std::vector<potl::finding>& findings) {
  bool accepted = true, rejected = false;
  for (const potl::finding& one : findings) {
    std::printf("%s: %s\n", one.rule.c_str(), one.reason.c_str());
    accepted = accepted && one.result == potl::outcome::pass;
    rejected = rejected || one.result == potl::outcome::reject;
  }
  std::printf("verdict: %s\n", rejected ? "rejected" : accepted ? "accepted" : "inconclusive");
  return rejected ? 1 : accepted ? 0 : 3;
}

int train(const std::string& data, const std::string& folder, const std::string& address,
          potl::bytes_view key) {
  // Two guards would take each other's states for their own, and count no check of the other's.
  potl::create_directory(folder).value();
  const auto alone = potl::directory_lock::take(folder, "another guard trains in " + folder,
                                                "end it first, or name another folder")
                         .value();
  const std::string path = folder + "/state";
  const std::string text = example::make_job(data);
  const auto job = potl::transcript::parse_job(potl::as_bytes_view(text)).value();
  example::opened task = example::open_task(data, text);
  kept now = read(path, {job.id(), 0, {0, std::move(task.weights), {}}});
  if (now.state.step > 0) {
    std::printf("goes on after step %llu\n", static_cast<unsigned long long>(now.state.step));
  }

  checks::sgd_recipe recipe;
  recipe.clip = example::clip;
  recipe.momentum = example::momentum;
  for (std::uint64_t step = 1; step <= job.steps; ++step) {
    recipe.rates.push_back(job.rates_at(step)->front());
  }
  checks::spot_check_options options;
  options.clip = recipe.clip;
  // An exact arithmetic has the same bits everywhere; LibTorch's own kernels round differently.
  options.tolerance = job.arithmetic == "stock" ? 1e-3 * recipe.clip : 0;
  options.segment = job.checkpoint_every;
  const auto responses =
      potl::statistics::gradient_responses(recipe.rates, {.momentum = recipe.momentum}).value();
  const auto plan = potl::statistics::plan_displacement(responses, {.clip = recipe.clip,
                                                                    .tolerance = options.tolerance,
                                                                    .displacement = {},
                                                                    .steps_at_risk = 10})
                        .value();
  options.probabilities = plan.probabilities;

  checks::spot_check_sgd training(now.state, recipe);
  training.finalised = [&](const checks::sgd_state& state) {
    now.state = state;
    write(path, now);
  };
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  auto socket = checks::spot_check_socket::connect(address, until).value();
  const checks::spot_check_result found =
      checks::guard(std::move(socket), key, text, training, *task.gradients, options);
  const auto findings = checks::judge_spot_check(found, plan.certificate, now.stopped);
  const bool at_a_check = found.end == checks::spot_check_end::caught ||
                          found.end == checks::spot_check_end::doubtful ||
                          found.end == checks::spot_check_end::diverged;
  if (at_a_check) {
    ++now.stopped;
    write(path, now);
  }
  return report(findings);
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) {
    std::fprintf(stderr, "usage: %s DATA FOLDER ADDRESS KEY\n", words[0]);
    return 2;
  }
  try {
    return train(words[1], words[2], words[3], potl::read_file(words[4], 1 << 16).value());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
