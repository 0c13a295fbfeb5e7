// SPDX-License-Identifier: Apache-2.0
// How a replayer answers what PEV asks for.
#include <cmath>
#include <functional>

#include <potl/checks/pev.hpp>
#include <potl/checks/replayer.hpp>

#include "checks/judging.hpp"
#include "checks/stopwatch.hpp"
#include "checks/text.hpp"

namespace potl::checks {

loss_measurement loss_request::answer(replayer& with) const {
  const stopwatch watch;
  loss_measurement out;
  const transcript::state before = with.load(step - 1);
  out.not_finite = with.not_finite(before);
  std::function<double()> loss = [&] { return with.loss_of(before, step); };
  out.loss = loss();
  const transcript::step_record* logged = with.view().step(step);
  const auto within = [&](double floor) {
    return logged != nullptr &&
           (logged->loss == out.loss ||
            compare_loss(logged->loss, out.loss, 0, {floor}).result == outcome::pass);
  };
  const bool exact = with.view().agreed.is_exact();
  if (!within(exact ? 0 : loss_floor)) {
    // Backward passes between forward ones, and the update, may change what a step reports: a part
    // that is checkpointed sees its input again.
    loss = [&] { return with.loss_of_whole(before, step); };
    out.loss = loss();
  }
  // What is equal bit for bit needs no tolerance.
  const bool equal = within(0);
  if (!equal && exact) {
    const double again = loss();
    if (again != out.loss && !(std::isnan(again) && std::isnan(out.loss))) {
      throw replayer::failed{measured::unrepeatable,
                             "the loss of step " + text(step) + " comes out" + in_two_ways};
    }
    with.require_agreed_bits();
  }
  for (std::uint32_t way = 1; way <= (equal || exact ? 0 : noise_repeats); ++way) {
    double other = 0;
    with.otherwise(way, [&] { other = loss(); });
    out.noise.push_back(other);
  }
  out.seconds = watch.seconds();
  return out;
}

subset_loss_measurement subset_loss_request::answer(replayer& with) const {
  const stopwatch watch;
  subset_loss_measurement out;
  const transcript::state at = with.load(step);
  with.restore(at, step);
  const subset_outcome found =
      with.guarded([&work = with.work(), ids = sample_ids] { return work.subset_loss(ids); });
  out.mean = found.mean;
  out.standard_deviation = found.standard_deviation;
  out.not_finite = with.not_finite(at);
  out.seconds = watch.seconds();
  return out;
}

}  // namespace potl::checks
