// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include <potl/checks/run_view.hpp>
#include <potl/checks/state_distance.hpp>

namespace potl::checks {
namespace {

// Remembers the state loaded last: ranking walks from checkpoint to checkpoint.
class parameter_distances {
 public:
  explicit parameter_distances(const transcript::evidence& run) : run_(run) {}

  result<double> operator()(std::uint64_t from, std::uint64_t to) {
    if (!last_ || last_step_ != from) {
      auto loaded = run_.load_state(from);
      if (!loaded) return loaded.why();
      last_ = std::make_unique<transcript::state>(std::move(loaded).value());
      last_step_ = from;
    }
    auto loaded = run_.load_state(to);
    if (!loaded) return loaded.why();
    auto next = std::make_unique<transcript::state>(std::move(loaded).value());
    const double out = compare_states(last_->root(), next->root(), next->root()).front().update_l2;
    last_ = std::move(next);
    last_step_ = to;
    return out;
  }

 private:
  const transcript::evidence& run_;
  std::unique_ptr<transcript::state> last_;
  std::uint64_t last_step_ = 0;
};

}  // namespace

run_view view_of(const transcript::evidence& run) {
  run_view out;
  out.agreed = run.agreed();
  out.job_id = out.agreed.id();
  out.job_is_own = run.job_is_own();
  out.committed = run.committed();
  out.commitment = run.commitment_digest();
  out.records = run.records();
  out.steps = run.steps();
  out.checkpoints = run.checkpoints();
  out.superseded = run.superseded();
  out.superseded_steps = run.superseded_steps();
  out.telemetry = run.telemetry();
  const auto distances = std::make_shared<parameter_distances>(run);
  out.parameter_distance = [distances](std::uint64_t from, std::uint64_t to) {
    return (*distances)(from, to);
  };
  out.initial_rounding = [&run]() -> result<double> {
    const auto first = run.load_state(0);
    if (!first) return first.why();
    const auto& root = first.value().root();
    return compare_states(root, root, root).front().rounding_l2;
  };
  return out;
}

}  // namespace potl::checks
