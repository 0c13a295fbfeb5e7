// SPDX-License-Identifier: Apache-2.0
// The job made of a task: the C++ counterpart of potl.Job.create.
//
//   const auto job = potl::libtorch::make_job(build, {.seed = 7, .checkpoint_every = 20});
//   potl::write_file_atomically("job.json", potl::as_bytes_view(job.text)).value();
#pragma once

#include <torch/version.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <potl/crypto/signature.hpp>
#include <potl/libtorch/workload.hpp>
#include <potl/transcript/job.hpp>

namespace potl::libtorch {

struct job_options {
  std::uint64_t seed = 0;
  std::uint64_t checkpoint_every = 1;
  std::uint64_t max_segment = 0;  ///< 0: checkpoint_every
  double tolerance_cap = 0.1;     ///< see transcript::job
  std::uint64_t max_resumes = 16;
  std::optional<public_key> trainer = std::nullopt;  ///< absent: who trains is left open
};

namespace detail {

/// Runs with one thread, where LibTorch's CPU kernels are deterministic.
class one_thread {
 public:
  one_thread() { at::set_num_threads(1); }
  one_thread(const one_thread&) = delete;
  one_thread& operator=(const one_thread&) = delete;
  ~one_thread() { at::set_num_threads(before_); }

 private:
  int before_ = at::get_num_threads();
};

inline digest after_two_steps(const builder& build, const transcript::job& job, bool restored) {
  workload first(build, job, false);
  first.run_step(1);
  if (!restored) {
    first.run_step(2);
    return first.capture().state_digest();
  }
  workload second(build, job, false);
  second.load_state(first.capture(), 1);
  second.run_step(2);
  return second.capture().state_digest();
}

}  // namespace detail

/// Trains two steps, without and with a restored state in between, and compares. Throws
/// potl::exception (unsupported) when the outcome depends on something that is neither in the state
/// nor in the job.
inline void require_replayable(const builder& build, const transcript::job& job) {
  if (job.steps < 2) return;
  const detail::one_thread scope;
  const digest straight = detail::after_two_steps(build, job, false);
  if (detail::after_two_steps(build, job, false) != straight) {
    throw exception({errc::unsupported, "two builds of the task train differently",
                     "keep nothing outside the task, and draw from LibTorch's CPU generator"});
  }
  if (detail::after_two_steps(build, job, true) != straight) {
    throw exception(
        {errc::unsupported,
         "a restored state trains on differently: something else changes while training",
         "register it as a buffer"});
  }
}

namespace detail {

inline std::vector<transcript::rate_run> rate_table(const task& of, std::uint64_t steps) {
  std::vector<transcript::rate_run> out;
  const std::vector<double> constant = rates_of(of);
  for (std::uint64_t step = 1; step <= steps; ++step) {
    std::vector<double> rates = of.rates ? of.rates(step) : constant;
    if (rates.size() != constant.size()) {
      throw exception({errc::usage, "task::rates must give every parameter group its rate", ""});
    }
    if (out.empty() || out.back().rates != rates) {
      out.push_back({1, std::move(rates)});
    } else if (!of.rates) {
      out.back().steps = steps;
      break;
    } else {
      ++out.back().steps;
    }
  }
  return out;
}

}  // namespace detail

/// The job of a task: data, initial state and learning rates are computed here, by the client, and
/// six steps are trained to see that they can be replayed. Throws potl::exception: usage for what
/// makes no job, unsupported for what cannot be captured or replayed.
inline transcript::job make_job(const builder& build, const job_options& options) {
  const task made = build_task(build, options.seed);
  transcript::snapshot_memory memory;
  transcript::job out;
  out.seed = options.seed;
  out.epochs = made.epochs;
  out.batch_size = made.batch_size;
  out.accumulate = made.accumulate;
  out.drop_last = made.drop_last;
  out.checkpoint_every = options.checkpoint_every;
  out.max_segment = options.max_segment == 0 ? options.checkpoint_every : options.max_segment;
  out.data_count = sample_count(made.data);
  out.data_root = data_root(made.data);
  out.steps = out.steps_per_epoch() * out.epochs;
  out.initial_state = capture_task(made, 0, 0, memory).state_digest();
  out.rates = detail::rate_table(made, out.steps);
  out.tolerance_cap = options.tolerance_cap;
  out.max_resumes = options.max_resumes;
  out.max_superseded = options.max_resumes * out.max_segment;
  if (options.trainer) out.trainer = digest{options.trainer->raw()};
  const json_value environment = json_value::of({{"libtorch", TORCH_VERSION}});
  const std::string text =
      transcript::format_job(out, canonical_json(describe_task(made)), canonical_json(environment))
          .value();
  transcript::job agreed = transcript::parse_job(as_bytes_view(text)).value();
  require_replayable(build, agreed);
  return agreed;
}

}  // namespace potl::libtorch
