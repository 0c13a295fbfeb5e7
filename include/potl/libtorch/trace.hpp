// SPDX-License-Identifier: Apache-2.0
// The trainer's answer to a replay that differs at a step: what each operator of that step returned
// here. The next verification then names the first operator that differs.
//
//   potl::libtorch::workload work(build, job);
//   potl::transcript::write_trace("runs/1", potl::libtorch::trace("runs/1", work, 57)).value();
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <potl/evidence/evidence.hpp>
#include <potl/libtorch/workload.hpp>
#include <potl/transcript/operator_trace.hpp>

namespace potl::libtorch {

/// Replays up to `step` from the stored state before it, and traces that step, after which `work`
/// is left. Throws potl::exception: usage when the job has no such step, missing when the run holds
/// no state before it.
inline transcript::operator_trace trace(const std::string& run, workload& work,
                                        std::uint64_t step) {
  const transcript::job& job = work.agreed();
  if (step == 0 || step > job.steps) {
    throw exception({errc::usage, "the job has no step " + std::to_string(step),
                     "use 1 to " + std::to_string(job.steps)});
  }
  transcript::evidence_options where;
  where.directory = run;
  where.client_job = job;
  const transcript::evidence recorded = transcript::evidence::open(where).value();
  std::uint64_t start = 0;
  for (const transcript::checkpoint_info& one : recorded.checkpoints()) {
    if (one.step < step) start = std::max(start, one.step);
  }
  work.load_state(recorded.load_state(start).value(), start);
  while (work.step() + 1 < step) work.run_step(work.step() + 1);
  transcript::operator_trace out{step, work.capture().state_digest(), {}};
  out.operators = work.trace(step, job.sample_ids(step));
  return out;
}

}  // namespace potl::libtorch
