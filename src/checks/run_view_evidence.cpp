// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include <potl/checks/detail/reach.hpp>
#include <potl/checks/detail/state_distance.hpp>
#include <potl/checks/run_view.hpp>

namespace potl::checks {
namespace {

result<double> parameter_distance(const transcript::evidence& run, std::uint64_t from,
                                  std::uint64_t to) {
  const auto first = run.load_state(from);
  if (!first) return first.why();
  const auto last = run.load_state(to);
  if (!last) return last.why();
  const auto& end = last.value().root();
  return compare_states(first.value().root(), end, end).front().update_l2;
}

}  // namespace

run_view view_of(const transcript::evidence& run) {
  run_view out;
  out.agreed = run.agreed();
  out.job_id = out.agreed.id();
  out.job_is_own = run.job_is_own();
  out.committed = run.committed();
  // The root of a record that nobody committed to is the prover's to choose, and grows with it.
  if (out.committed) out.commitment = run.commitment_digest();
  out.records = run.records();
  out.steps = run.steps();
  out.checkpoints = run.checkpoints();
  out.superseded = run.superseded();
  out.superseded_steps = run.superseded_steps();
  out.resumes = run.resumes();
  out.telemetry = run.telemetry();
  out.parameter_distance = [&run](std::uint64_t from, std::uint64_t to) {
    return parameter_distance(run, from, to);
  };
  out.moved = [&run]() {
    return std::static_pointer_cast<const movements>(run.once([&run]() {
      const std::vector<segment> all = stretches_of(view_of(run));
      return std::static_pointer_cast<const void>(std::make_shared<const movements>(
          measure_movements(all, [&run](std::uint64_t step) { return run.load_state(step); })));
    }));
  };
  out.source = &run;
  return out;
}

}  // namespace potl::checks
