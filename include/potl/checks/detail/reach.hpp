// SPDX-License-Identifier: Apache-2.0
// Reach: stored states that lie further apart than this training usually moves are replayed.
//
// Claims: a false transition that nobody replays moves no tensor of parameters, buffers, optimizer
// state or averages, and no number that these or a module's extra state keep, further than `reach`
// times what it usually moves, so that a jump (to a net whose steps cost nothing, to a stolen
// model) takes many false transitions or is looked at.
// Assumes: where the draw excludes that half of the stretches are false, that they do not follow
// from false ones either. Being far is not an accusation: what replays as recorded passes, so
// honest trainings need no calibration. Cost: one pass over the stored states, two in memory at a
// time; replays of the first stretch, and others bounded by `samples`. Cannot detect: movements
// below the limit, whatever their direction; lists; settings of a recipe that the schema does not
// compute, where many change alike. Source: soundness.md rule 19; decisions 18 and 19.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <potl/checks/request.hpp>
#include <potl/checks/run_view.hpp>
#include <potl/core/finding.hpp>
#include <potl/transcript/state.hpp>

namespace potl::checks {

/// What torch's optimizers add up squares of gradients in, by name.
inline constexpr std::array<std::string_view, 8> sums_of_squares{
    "exp_avg_sq", "max_exp_avg_sq", "square_avg", "acc_delta",
    "sum",        "row_var",        "col_var",    "variance"};

/// Options by the names that torch's optimizers and schedulers give them: settings of the recipe,
/// which no optimizer changes by itself. Without Adafactor's `d`, the estimate of D-Adaptation.
// clang-format off
inline constexpr std::array<std::string_view, 41> options_of_recipes{
    "adjust_lr_fn", "alpha", "amsgrad", "base_momentum", "beta2_decay", "betas", "capturable",
    "centered", "dampening", "decoupled_weight_decay", "differentiable", "eps", "etas", "foreach",
    "fused", "history_size", "initial_accumulator_value", "initial_lr", "lambd", "line_search_fn",
    "lr", "lr_decay", "max_eval", "max_iter", "max_lr", "max_momentum", "maximize", "min_lr",
    "momentum", "momentum_decay", "nesterov", "ns_coefficients", "ns_steps", "params", "rho",
    "step_sizes", "swa_lr", "t0", "tolerance_change", "tolerance_grad", "weight_decay"};
// clang-format on

/// What lies between neighbouring stored states: the stretches of a run.
struct movements {
  struct tensor {  ///< or a number
    std::string path;
    std::string kind;  ///< of those that play the same part: "parameters", "optimizers/exp_avg"
    double elements = 0;
    std::optional<std::size_t> copy_of = {};  ///< the parameter that the first stretch made it of
  };
  struct stretch {
    segment where;
    bool read = false;           ///< both of its states
    std::vector<double> moved;   ///< l2, in the order of `tensors`; what is left out is 0
    std::vector<double> came{};  ///< the same of infinities that were none before
    std::vector<double> went{};  ///< and of those that are none any more
    /// Settings that changed, and how much.
    std::vector<std::pair<std::size_t, double>> turned = {};
    /// First moments, by their numbers, that no steps made beside the second ones.
    std::vector<std::size_t> unmade = {};
  };
  std::vector<tensor> tensors;
  std::vector<std::string> settings;  ///< paths of what steers steps and moves with none of them
  std::vector<stretch> stretches;
};

using state_loader = std::function<result<transcript::state>(std::uint64_t step)>;

/// From one agreed state to the next that the job has stored while recording: single segments, or
/// several where it stores only some states. Not beyond what was recorded.
std::vector<segment> stretches_of(const run_view& run);

/// Loads each state once. One that cannot be read, or that holds many times the tensors of the
/// first, leaves the stretches beside it unread.
movements measure_movements(std::span<const segment> stretches, const state_loader& load);

/// A stretch against what is usual.
struct screened {
  segment where;
  double ratio = 0;    ///< of the tensor that is furthest from its usual movement; NaN: unread
  std::string tensor;  ///< its path
};

struct screening {
  std::vector<screened> stretches;
  /// Usual movement of all parameters together, at the largest rates.
  double usual = 0;
};

/// With this probability no more transitions are false than a draw that met none leaves open.
inline constexpr double reach_probability = 0.95;

/// What says how far a stretch usually moves a tensor. The first one always does: it is replayed as
/// a whole, from the agreed state.
enum class usual_of {
  first_stretch,  ///< it alone
  all_stretches   ///< or the median of all, if that is more: less than half of them can be false
};

/// What may say so where `sampled` of `pool` segments were drawn and none was false. Where few
/// states are stored, one false segment makes a long stretch false.
usual_of usual_by(std::size_t stretches, std::uint64_t pool, std::uint64_t sampled);

/// Parameters count per unit of the agreed rates. Tensors that seldom move are compared with others
/// of their kind.
screening screen(const run_view& run, const movements& moved, usual_of whose);

/// How strange it is that settings changed in a stretch: by how much one did, shared among all
/// changes of that setting which are half as large, or larger. 0: none did. What a job with agreed
/// rates says of them is the schema's, apart from objects of the user's own and from options of
/// optimizers under names of their own. A tensor that at least half of the stretches behind the
/// first one leave alone is such a setting, and each of its movements is as large as any. So are
/// moments of Adam or Adamax that no gradients make, by the first state's `betas`: a first one that
/// is too large beside the second one, by which the next step divides it, or a second one that
/// shrank too far.
std::vector<screened> screen_settings(const run_view& run, const movements& moved);

/// Whether this stretch is looked at: anything but a ratio within `reach`.
inline bool is_beyond(const screened& one, double reach) { return !(one.ratio <= reach); }

/// What is replayed with a stretch that is far, the nearest first: the one before it, and for what
/// it moved and that one did not, the one that moved it last. From a state in which an optimizer
/// divides by next to nothing true steps lead anywhere, at once or after it rested.
std::vector<segment> what_led_to(const movements& moved, const segment& far);

/// The finding of rule replay.reach: the first stretch was replayed, and every one beyond with the
/// one before it, as far as was measured; what moved last what rested has a room of its own, and is
/// not asked for here. `sampled` of `pool` segments were drawn and judged.
finding judge_reach(const run_view& run, double reach, std::uint64_t pool, std::uint64_t sampled,
                    std::span<const segment_measurement> measurements);

}  // namespace potl::checks
