// SPDX-License-Identifier: Apache-2.0
// PEV: recompute logged losses at stored checkpoints.
//
// Claims (default mode): at several checkpoints per epoch, the loss that was logged for the next
// step is the loss of that step's agreed batch at the committed weights, in training mode and under
// the step's own randomness. Nothing moves between the two numbers, so they agree to rounding.
// Claims (mode "apex", as published): the mean logged loss of an epoch lies within 100 sigma / N of
// the mean loss on N percent of the data at the epoch's last checkpoint.
// Assumes: as replay does.
// Cost: a forward pass is a third to a half of a step; with N = 10 (fraction 0.1) of the steps'
// forward passes that is 3-4 % of the training (the paper says 1-2 %). The default mode needs far
// less, one batch per chosen checkpoint, and in stock arithmetic `noise_repeats` more.
// Cannot detect: states that were written by hand, since only losses at them are asked for; in apex
// mode anything within 10 sigma (N = 10). Never accepts alone; apex mode rejects no loss either,
// because the epoch's mean mixes losses of moving weights, and honest runs may lie beyond 10 sigma.
// Source: Lab Apex, performance evaluation validation; soundness.md rules 7 and 13.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <potl/checks/field.hpp>
#include <potl/checks/request.hpp>
#include <potl/checks/run_view.hpp>
#include <potl/core/finding.hpp>

namespace potl::checks {

struct pev_options {
  static constexpr std::string_view check = "pev";

  std::string mode = "default";
  double fraction = 0.1;
  std::uint64_t per_epoch = 2;
  std::uint64_t noise_repeats = 1;
  double safety = 8;
  double loss_floor = 1e-5;
  double loss_cap = 0.05;

  static std::span<const field<pev_options>> fields();
  static result<pev_options> parse(const json_value& from);
};

/// Requests of one of the two modes; the other list is empty.
struct pev_plan {
  std::vector<loss_request> losses;
  std::vector<subset_loss_request> subsets;
};

/// What to recompute, drawn by the nonce.
result<pev_plan> plan_pev(const run_view& run, const pev_options& options, const digest& nonce);

/// Findings over what was recomputed.
result<std::vector<finding>> judge_pev(const run_view& run, const pev_options& options,
                                       const digest& nonce,
                                       std::span<const loss_measurement> losses,
                                       std::span<const subset_loss_measurement> subsets);

}  // namespace potl::checks
