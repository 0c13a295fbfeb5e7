// SPDX-License-Identifier: Apache-2.0
// A small trusted side guards the training of a large untrusted worker. The trusted side owns seed,
// batches, clipping, weights and update; the worker only returns gradients. Of some steps, drawn
// by secret coins after the report came, the trusted side computes the gradient again.
//
// Claims: with the probability of the plan (statistics/displacement.hpp) a false gradient is caught
// or all that was injected moves the weights by no more than the certificate says. What is final
// was checked as drawn; everything later is taken back when a check fails. Nobody is caught without
// a second look: the step is executed a third time, and in stock arithmetic in other ways, and what
// honest rounding can do at that place is doubtful, not false.
// Assumes: `guarded_training` clips and updates as torch.optim.SGD does, or as the plan was made
// for; coins and key stay secret; the trusted side's own machine is right, and is not stopped by
// the worker.
// Cost: gradients and weights travel once a step, and each side computes a code of them, or they
// lie in memory that both sides map, over a Unix socket; a step for each check.
// Cannot detect: biases below the tolerance (they are in the certificate), wrong losses (they are
// the worker's word, and decide nothing), who the worker is beyond having the key.
// Source: A. Asvadishirehjini, M. Kantarcioglu, B. Malin, GINN (CODASPY 2022).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <potl/checks/spot_check_socket.hpp>
#include <potl/core/digest.hpp>
#include <potl/core/finding.hpp>
#include <potl/statistics/displacement.hpp>

namespace potl::checks {

/// One tensor of a gradient, of float32.
struct spot_check_tensor {
  std::string name;
  std::uint64_t elements = 0;
};

/// Something that computes the gradients of a job's steps at any weights: what a worker does for
/// each step, and the trusted side for those that it checks.
class gradient_source {
 public:
  virtual ~gradient_source() = default;
  /// The tensors of a gradient, in the order in which they are sent.
  virtual std::vector<spot_check_tensor> tensors() = 0;
  /// What `weights` of gradient() are long.
  virtual std::uint64_t weights_bytes() = 0;
  virtual std::uint64_t steps() = 0;
  /// Writes the gradient of step `step` (from 1) at `weights`, before clipping, and returns the
  /// loss. `way` 0 is the usual way to compute; 1, 2, ... are others that honest hardware might
  /// take, the same where the arithmetic is reproducible.
  virtual double gradient(std::uint64_t step, bytes_view weights, std::uint64_t way,
                          std::span<float> out) = 0;
};

/// What the trusted side trains.
class guarded_training {
 public:
  virtual ~guarded_training() = default;
  /// Updates done so far.
  virtual std::uint64_t step() = 0;
  /// What gradients are computed from, in parts; valid until the next call of another function.
  virtual std::vector<bytes_view> weights() = 0;
  /// Clips the gradient, whose l2 norm is `norm`, and makes the update of step `step`. May change
  /// `gradient`.
  virtual void update(std::uint64_t step, std::span<float> gradient, double norm, double loss) = 0;
  /// Remembers the present state.
  virtual void keep() = 0;
  /// The state that was kept after `step` is final: written down, and everything before it is
  /// dropped.
  virtual void finalise(std::uint64_t step) = 0;
  /// Back to the last final state, or the first one.
  virtual void roll_back() = 0;
};

/// Ways to compute, beside the usual one, that show what honest rounding does at a place. A check
/// tries all of them before it accuses.
constexpr std::uint64_t spot_check_ways = 3;

/// How a training is guarded.
struct spot_check_options {
  std::vector<double> probabilities;  ///< of checking each step, as planned
  double clip = 0;                    ///< largest l2 norm of a gradient
  /// l2 distance between clipped gradients that passes, below the clip; 0: they are equal.
  double tolerance = 0;
  std::uint64_t segment = 20;  ///< steps that become final together
  std::uint64_t lag = 4;       ///< segments that may be unchecked before the training waits
  double timeout = 60;         ///< seconds for one gradient to arrive
  std::uint64_t until = 0;     ///< the session pauses after this step; 0: it goes to the end
  /// Checks run beside the training, in a thread of their own; false: between two segments.
  bool background = true;
  /// Whether to check; empty: a coin from the operating system's generator.
  std::function<bool(std::uint64_t step, double probability)> coin;
  std::function<void(std::uint64_t step, std::uint64_t final_step)> told;  ///< after each step
  std::function<void()> idle;  ///< while waiting; what it throws ends the session
};

/// How a session ended.
enum class spot_check_end {
  finished,  ///< all steps are final
  paused,    ///< all steps up to the one that was asked for are final
  caught,    ///< a gradient was false
  doubtful,  ///< a check could not be decided, or failed on this side
  diverged,  ///< the honest gradient is not finite either
  refused,   ///< a frame was not what it had to be, or the worker cannot do the job
  lost,      ///< the worker was silent, slow or gone
};

/// Its name, e.g. "caught".
const char* to_string(spot_check_end how) noexcept;

/// What the trusted side keeps of each step. Of drawn ones it keeps weights and gradient until they
/// are checked.
struct spot_check_entry {
  double norm = 0, loss = 0;
};

/// What came of a session.
struct spot_check_result {
  spot_check_end end = spot_check_end::lost;
  std::string reason;                          ///< one sentence; empty when finished
  std::string tensor;                          ///< where a false gradient differs most
  std::uint64_t step = 0;                      ///< that the reason is about
  std::uint64_t first_step = 0;                ///< that this session asked for
  std::uint64_t final_step = 0;                ///< up to which the training is final
  std::uint64_t checked = 0;                   ///< steps that were computed again
  double largest = 0;                          ///< distance in a check that passed
  std::optional<double> statistic, threshold;  ///< of what was caught
  double seconds = 0, check_seconds = 0;
  std::vector<spot_check_entry> entries;  ///< from first_step on
};

/// Lets the worker at the other end of `socket` train `training`, and checks it. `job_text` is the
/// canonical job, `key` the secret that both sides share. What `training` throws ends the session,
/// rolls back, and is thrown on.
spot_check_result guard(spot_check_socket socket, bytes_view key, const std::string& job_text,
                        guarded_training& training, gradient_source& checker,
                        const spot_check_options& options);

/// How a worker's session ended.
struct spot_check_served {
  bool stopped = false;     ///< the trusted side ended it
  std::string reason;       ///< why, or what went wrong; empty when the training is finished
  std::uint64_t steps = 0;  ///< gradients that were sent
};

/// Makes what computes the gradients of a job; throws with a message for the trusted side when it
/// cannot.
using gradient_maker = std::function<gradient_source&(const std::string& job_text)>;

/// The worker's side of one session: answers until the trusted side stops it.
spot_check_served serve(spot_check_socket socket, bytes_view key, const gradient_maker& make,
                        double timeout = 600);

/// What a session amounts to, as findings of the check "spot_check". `certificate`: of the plan.
/// `stopped_before`: how many sessions of the same training ended at a check; each of them had a
/// displacement and a probability of its own, and all add up.
std::vector<finding> judge_spot_check(const spot_check_result& session,
                                      const statistics::displacement_certificate& certificate,
                                      std::uint64_t stopped_before = 0);

}  // namespace potl::checks
