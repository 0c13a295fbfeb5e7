// SPDX-License-Identifier: Apache-2.0
#include "check_queue.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include <potl/core/rules.hpp>

#include "checks/stopwatch.hpp"
#include "checks/text.hpp"

namespace potl::checks {
namespace {

// How many times what honest rounding does at a place a false gradient has to be away.
constexpr double margin = 8;
// The same of what differences have in common: four times the noise of a tolerance that is 32 times
// as large is the share of it that every direction has to exceed.
constexpr double direction_margin = 4;
// So many suspected steps, at least, show how often rounding makes a direction.
constexpr std::uint64_t direction_looks = 6;

// Checks take the processors when nothing else does: a worker on this machine, or the update, would
// wait for them otherwise, and nobody waits for a check before `lag` is reached.
void yield_to_others() {
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  static_cast<void>(
      ::setpriority(PRIO_PROCESS, thread, 19));  // the lowest; threads that it starts inherit it
}

failed_check doubtful(std::uint64_t step, std::string reason) {
  return {spot_check_end::doubtful, step, std::move(reason), "", {}, {}};
}

}  // namespace

check_queue::check_queue(gradient_source& checker, const spot_check_options& options,
                         std::uint64_t final_step)
    : checker_(checker),
      options_(options),
      tensors_(checker.tensors()),
      direction_(options.clip, options.tolerance),
      passed_(final_step) {
  std::uint64_t elements = 0;
  for (const spot_check_tensor& one : tensors_) elements += one.elements;
  own_.resize(elements);
  other_.resize(elements);
  if (options_.background) thread_ = std::thread([this] { work(); });
}

check_queue::~check_queue() {
  {
    const std::lock_guard held(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void check_queue::push(std::uint64_t end, std::vector<drawn_report> drawn) {
  segment one{end, std::move(drawn)};
  if (!options_.background) return check(one);
  {
    const std::lock_guard held(mutex_);
    waiting_.push_back(std::move(one));
  }
  changed_.notify_all();
}

std::uint64_t check_queue::passed() const {
  const std::lock_guard held(mutex_);
  return passed_;
}

bool check_queue::failed() const {
  const std::lock_guard held(mutex_);
  return failure_.has_value();
}

check_queue::tally check_queue::so_far() const {
  const std::lock_guard held(mutex_);
  return tally_;
}

std::optional<failed_check> check_queue::failure() const {
  const std::lock_guard held(mutex_);
  return failure_;
}

void check_queue::wait(std::uint64_t step) {
  std::unique_lock held(mutex_);
  while (!failure_ && passed_ < step) {
    changed_.wait_for(held, std::chrono::milliseconds(200));
    if (!options_.idle) continue;
    held.unlock();
    options_.idle();
    held.lock();
  }
}

void check_queue::work() {
  yield_to_others();
  while (true) {
    segment next;
    {
      std::unique_lock held(mutex_);
      changed_.wait(held, [&] { return closing_ || !waiting_.empty(); });
      if (closing_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    check(next);
  }
}

void check_queue::check(const segment& one) {
  for (const drawn_report& drawn : one.drawn) {
    {
      const std::lock_guard held(mutex_);
      if (failure_ || closing_) return;
    }
    const stopwatch time;
    std::optional<failed_check> found;
    try {
      found = judge(drawn);
    } catch (const std::exception& thrown) {
      found = doubtful(
          drawn.step, std::string("the trusted side could not execute the step: ") + thrown.what());
    }
    const std::lock_guard held(mutex_);
    ++tally_.checked;
    tally_.seconds += time.seconds();
    failure_ = std::move(found);
    if (failure_) break;
  }
  {
    const std::lock_guard held(mutex_);
    if (!failure_) passed_ = one.end;
  }
  changed_.notify_all();
}

double check_queue::compute(const drawn_report& one, std::uint64_t way, std::vector<float>& out) {
  return checker_.gradient(one.step, one.weights, way, out);
}

std::optional<failed_check> check_queue::judge(const drawn_report& one) {
  compute(one, 0, own_);
  const gradient_distance found = compare_gradients(one.gradient, own_, tensors_, options_.clip);
  if (!(found.distance <= options_.tolerance)) {
    if (!rule_enabled("spot_check.gradients")) return std::nullopt;
    return look_again(one, found);
  }
  {
    const std::lock_guard held(mutex_);
    tally_.largest = std::max(tally_.largest, found.distance);
  }
  if (options_.tolerance == 0) return std::nullopt;
  direction_.add(one.gradient, own_);
  if (!direction_.suspected() || !rule_enabled("spot_check.direction")) return std::nullopt;
  return look_at_direction(one);
}

std::optional<failed_check> check_queue::look_at_direction(const drawn_report& one) {
  // A way that is further off than two tolerances, of which a worker has one, is not the one that
  // this worker computes in.
  double noise = 0;
  for (std::uint64_t way = 1; way <= spot_check_ways; ++way) {
    compute(one, way, other_);
    const double distance = compare_gradients(other_, own_, tensors_, options_.clip).distance;
    if (distance <= 2 * options_.tolerance) noise = std::max(noise, distance);
  }
  ++looks_;
  noises_ += noise;
  loudest_ = std::max(loudest_, noise);
  if (!direction_.alarm() || looks_ < direction_looks) return std::nullopt;
  const std::string reason = "the gradients of " + text(direction_.count()) +
                             " checked steps deviate in one direction, by " +
                             text(direction_.bias()) + " each";
  // Rounding is the same from step to step where weights hardly move, or from one time to the next
  // that a batch comes: the bias is a mean, and so is this. A tie, which other arithmetic decides
  // otherwise, makes much of it in one step alone, and explains nothing.
  const double rounding = (noises_ - loudest_) / static_cast<double>(looks_);
  if (direction_.bias() <= direction_margin * rounding) {
    return doubtful(one.step, reason + ", but rounding may do that there");
  }
  return failed_check{spot_check_end::caught,
                      one.step,
                      reason,
                      "",
                      direction_.evidence(),
                      residual_direction::evidence_needed()};
}

std::optional<failed_check> check_queue::look_again(const drawn_report& one,
                                                    const gradient_distance& found) {
  if (!std::isfinite(gradient_norm(own_))) {
    return failed_check{spot_check_end::diverged,
                        one.step,
                        "the gradient of step " + text(one.step) +
                            " is not finite when it is computed honestly: the training diverges",
                        "",
                        {},
                        {}};
  }
  // Whoever accuses has to be able to repeat what he says.
  compute(one, 0, other_);
  double noise = compare_gradients(other_, own_, tensors_, options_.clip).distance;
  if (options_.tolerance == 0 && noise != 0) {
    return doubtful(
        one.step, "the trusted side computed step " + text(one.step) + " twice, with two results");
  }
  if (options_.tolerance > 0) {
    for (std::uint64_t way = 1; way <= spot_check_ways; ++way) {
      compute(one, way, other_);
      const double distance = compare_gradients(other_, own_, tensors_, options_.clip).distance;
      noise = std::isnan(distance) ? distance : std::max(noise, distance);
    }
  }
  const double threshold = std::max(options_.tolerance, margin * noise);
  // A comparison with NaN must not accuse; a report that is not finite does.
  const bool reported_finite = std::isfinite(gradient_norm(one.gradient));
  const bool is_false =
      std::isfinite(threshold) && (!reported_finite || found.distance > threshold);
  if (!is_false) {
    return doubtful(one.step, "the gradient of step " + text(one.step) + " is " +
                                  text(found.distance) +
                                  " from the true one, more than the tolerance " +
                                  text(options_.tolerance) + ", but rounding may do that there");
  }
  failed_check out{spot_check_end::caught, one.step, "", found.tensor, found.distance, threshold};
  out.reason = reported_finite
                   ? "the gradient of step " + text(one.step) + " is false: it is " +
                         text(found.distance) + " from the true one after clipping, allowed are " +
                         text(threshold) + "; it differs most in " + found.tensor
                   : "the gradient of step " + text(one.step) +
                         " is not finite, but computed honestly it is; it differs most in " +
                         found.tensor;
  return out;
}

failed_check check_queue::check_now(const drawn_report& one) {
  try {
    if (const auto found = judge(one)) return *found;
  } catch (const std::exception& thrown) {
    return doubtful(one.step,
                    std::string("the trusted side could not execute the step: ") + thrown.what());
  }
  return doubtful(one.step, "a report that is not finite passed its check");
}

}  // namespace potl::checks
