// SPDX-License-Identifier: Apache-2.0
// The job made of a task: the C++ counterpart of potl.Job.create.
//
//   const auto job = potl::libtorch::make_job(build, {.seed = 7, .checkpoint_every = 20});
//   potl::write_file_atomically("job.json", potl::as_bytes_view(job.text)).value();
#pragma once

#include <c10/util/Exception.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <potl/checks/detail/finite.hpp>
#include <potl/crypto/signature.hpp>
#include <potl/libtorch/workload.hpp>
#include <potl/transcript/job.hpp>

namespace potl::libtorch {

struct job_options {
  /// Below 2^53: everything random follows from it. Has to be given.
  std::optional<std::uint64_t> seed = std::nullopt;
  std::uint64_t checkpoint_every = 1;  ///< steps of a segment, the unit that a verifier draws
  std::uint64_t max_segment = 0;       ///< after potl prune; 0: checkpoint_every
  /// "ord32", "cr32", "log64", "xint24" or "xint16", in which a replay has the same bits on every
  /// machine; they need task::exact. "stock": LibTorch's own kernels. "auto" is ord32 where the
  /// task names task::exact and the steps that make_job tries have a form in it, else stock.
  std::string arithmetic = "auto";
  /// Steps between the states that are stored, a multiple of checkpoint_every; verifiers derive
  /// those between. Needs an exact arithmetic. Absent: all are stored, but in an exact arithmetic
  /// without max_segment no more than 20 states or 2 GB, whichever is more.
  std::optional<std::uint64_t> store_every = std::nullopt;
  double tolerance_cap = transcript::job().tolerance_cap;
  std::uint64_t max_resumes = transcript::job().max_resumes;
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

/// Where the first steps end, which are those that the trial takes.
struct first_steps {
  std::vector<digest> ends;  ///< as a job pins them
  transcript::state after;
};

inline first_steps try_steps(const builder& build, const transcript::job& job,
                             std::uint64_t steps) {
  workload work(build, job, false);
  std::vector<digest> ends;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    const double loss = work.run_step(step).loss;
    if (!transcript::pins_first_steps(job.arithmetic)) continue;
    ends.push_back(transcript::end_of_step(work.capture().state_digest(), loss));
  }
  return {std::move(ends), work.capture()};
}

/// The state after the first steps, the last of them from a restored state.
inline transcript::state after_restored(const builder& build, const transcript::job& job,
                                        std::uint64_t steps) {
  workload first(build, job, false);
  for (std::uint64_t step = 1; step < steps; ++step) first.run_step(step);
  workload second(build, job, false);
  second.load_state(first.capture(), steps - 1);
  second.run_step(steps);
  return second.capture();
}

}  // namespace detail

/// Trains two steps, without and with a restored state in between, and compares; gives where they
/// end. Throws potl::exception (unsupported) when the outcome depends on something that is
/// neither in the state nor in the job, and not_reproducible when the job's arithmetic has no form
/// of an operator.
inline detail::first_steps require_replayable(const builder& build, const transcript::job& job) {
  const std::uint64_t steps = std::min<std::uint64_t>(2, job.steps);
  const detail::one_thread scope;
  detail::first_steps straight = detail::try_steps(build, job, steps);
  const digest wanted = straight.after.state_digest();
  const detail::first_steps again = detail::try_steps(build, job, steps);
  if (again.after.state_digest() != wanted || again.ends != straight.ends) {
    throw exception({errc::unsupported, "two builds of the task train differently",
                     "keep nothing outside the task, and draw from LibTorch's CPU generator"});
  }
  if (detail::after_restored(build, job, steps).state_digest() != wanted) {
    throw exception(
        {errc::unsupported,
         "a restored state trains on differently: something else changes while training",
         "register as a buffer what training changes, and draw from LibTorch's CPU generator"});
  }
  return straight;
}

namespace detail {

inline std::vector<transcript::rate_run> rate_table(const task& of, std::uint64_t steps) {
  std::vector<transcript::rate_run> out;
  const std::vector<double> constant = rates_of(of);
  for (std::uint64_t step = 1; step <= steps; ++step) {
    std::vector<double> rates = of.rates ? of.rates(step) : constant;
    if (rates.size() != constant.size()) {
      misuse("task::rates gives step " + std::to_string(step) + " " + std::to_string(rates.size()) +
                 " rates for " + std::to_string(constant.size()) + " parameter groups",
             "give every group of every optimizer one");
    }
    if (!std::all_of(rates.begin(), rates.end(), [](double one) { return std::isfinite(one); })) {
      misuse("a learning rate of step " + std::to_string(step) + " is not finite", "use a number");
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

/// Everything that the task says of itself: the arithmetic and what is stored are left out.
inline transcript::job draft_of(const task& made, const job_options& options) {
  transcript::snapshot_memory memory;
  transcript::job out;
  out.seed = *options.seed;
  out.epochs = made.epochs;
  out.batch_size = made.batch_size;
  out.accumulate = made.accumulate;
  out.drop_last = made.drop_last;
  out.checkpoint_every = options.checkpoint_every;
  out.max_segment = options.max_segment == 0 ? options.checkpoint_every : options.max_segment;
  out.data_count = sample_count(made.data);
  out.data_root = data_root(made.data);
  out.steps = out.steps_per_epoch() * out.epochs;
  if (out.steps == 0) {
    misuse("an epoch of " + std::to_string(out.data_count) + " samples has no batch of " +
               std::to_string(out.batch_size),
           "use a smaller batch_size, or drop_last = false");
  }
  out.initial_state = capture_task(made, 0, 0, memory).state_digest();
  out.rates = rate_table(made, out.steps);
  out.tolerance_cap = options.tolerance_cap;
  out.max_resumes = options.max_resumes;
  if (options.trainer) out.trainer = digest{options.trainer->raw()};
  return out;
}

/// `first_loss`: of step 1, by which a workload knows whether its losses are the agreed ones.
/// `ends`: of the first steps.
inline transcript::job written(transcript::job draft, const task& made,
                               std::optional<double> first_loss = {},
                               const std::vector<digest>& ends = {}) {
  const json_value environment = json_value::of({{"libtorch", TORCH_VERSION}});
  if (draft.store_every == draft.checkpoint_every) draft.store_every = 0;
  // A resume repeats what was done since the stored state before it.
  draft.max_superseded = draft.max_resumes * std::max(draft.store_every, draft.max_segment);
  json_value described = describe_task(made);
  if (first_loss) described.set("first_loss", *first_loss);
  if (!ends.empty()) {
    json_value::array pins;
    for (const digest& end : ends) pins.push_back(end.hex());
    described.set(transcript::first_steps_name, std::move(pins));
  }
  const std::string text =
      transcript::format_job(draft, canonical_json(described), canonical_json(environment)).value();
  return transcript::parse_job(as_bytes_view(text)).value();
}

/// Throws usage when it is not finite: every run would be rejected for that. `made`: the task of
/// another call of `build`.
inline double first_loss(const builder& build, const task& made, const transcript::job& job) {
  workload work(build, job, false);
  if (work.task().model == made.model) {
    misuse("two calls of the function that builds the task return the same model",
           "make model and optimizers inside it");
  }
  const double out = work.batch_loss(1, job.sample_ids(1));
  if (!std::isfinite(out)) {
    misuse("the loss of the first step is not finite", "look at task::losses and the data");
  }
  return out;
}

/// Throws usage for what no run would be accepted with, given the task as it was built and the
/// state after its first steps.
inline void require_finite(const task& made, const transcript::state& after) {
  transcript::snapshot_memory memory;
  const transcript::state start = capture_task(made, 0, 0, memory);
  const auto look_at = [&](const transcript::state& what, const std::string& when) {
    const std::string found = checks::not_finite(what.root(), &start.root());
    if (found.empty()) return;
    misuse(when + " " + found + ", and no verifier accepts what is not finite",
           "where training diverges, lower the learning rate or clip gradients; where the value is "
           "a placeholder, register a number");
  };
  look_at(start, "before the first step");
  look_at(after, "after the first steps");
}

/// Tries the task in the draft's arithmetic.
inline transcript::job tried(const builder& build, const task& made, transcript::job draft,
                             const job_options& options) {
  draft.store_every = options.store_every.value_or(0);
  const transcript::job agreed = written(draft, made);
  const double loss = first_loss(build, made, agreed);
  const auto [ends, after] = require_replayable(build, agreed);
  require_finite(made, after);
  const bool open =
      !options.store_every && draft.is_exact() && draft.max_segment == draft.checkpoint_every;
  if (!open) return written(std::move(draft), made, loss, ends);
  draft.store_every =
      draft.checkpoint_every * transcript::affordable_stride(draft.segments(), after.size_bytes());
  return written(std::move(draft), made, loss, ends);
}

}  // namespace detail

/// The job of a task: data, initial state and learning rates are computed here, by the client, and
/// six steps are trained to see that they can be replayed. Throws potl::exception: usage for what
/// makes no job, unsupported for what cannot be captured or replayed; and not_reproducible when an
/// arithmetic other than "auto" has no form of an operator. What keeps "auto" from ord32 is a
/// warning of LibTorch's: such an operator, or an error of LibTorch's but for a lack of memory.
inline transcript::job make_job(const builder& build, const job_options& options) {
  if (options.arithmetic != "auto" && options.arithmetic != "stock" &&
      !numeric::arithmetic_from(options.arithmetic)) {
    detail::misuse("there is no arithmetic \"" + options.arithmetic + "\"",
                   "use auto, stock, ord32, cr32, log64, xint24 or xint16");
  }
  if (!options.seed || *options.seed >> 53 != 0) {
    detail::misuse(
        options.seed ? "seed is " + std::to_string(*options.seed) : "the job has no seed",
        "set job_options::seed to a number below 2^53");
  }
  const task made = build_task(build, *options.seed);
  transcript::job draft = detail::draft_of(made, options);
  if (options.arithmetic != "auto") {
    draft.arithmetic = options.arithmetic;
    return detail::tried(build, made, std::move(draft), options);
  }
  if (made.exact) {
    const auto explain = [](const std::string& why) {
      TORCH_WARN(why, ". This job is in stock arithmetic: replays are compared within a tolerance");
    };
    try {
      draft.arithmetic = "ord32";
      return detail::tried(build, made, draft, options);
    } catch (const not_reproducible& why) {
      explain(why.what());
    } catch (const c10::Error& why) {
      if (checks::trouble_of(why).own) throw;
      // What fails in any arithmetic is raised by the attempt that follows.
      explain(std::string("a step fails in ord32: ") + why.what_without_backtrace() +
              " (if it does not in stock arithmetic, please report it)");
    }
  }
  draft.arithmetic = "stock";
  return detail::tried(build, made, std::move(draft), options);
}

}  // namespace potl::libtorch
