// SPDX-License-Identifier: Apache-2.0
// Many steps of one layer, checked at once: do its inputs and output gradients give these weights?
//
// Claims: SGD, momentum, Nesterov's momentum and weight decay are linear in the gradients, so the
// whole segment is projected onto secret Gaussian vectors and costs one pass over the operands of
// its gradients. A skipped step, another batch or rate, and an edited weight leave a residual
// beyond the sound bound unless they are smaller than rounding may be. Of Adam the first moment is
// checked so; second moment and weights are recomputed in float64 for a sample of columns.
// Assumes: the operands were fixed before the vectors are drawn, and stay secret as in
// freivalds.hpp. Rates and clip factors come from the verifier (factors recomputed, never taken
// from the prover).
// Cost: for each step one pass over its two operands for up to eight vectors, and for Adam one for
// each sampled column.
// Cannot detect: operands that were invented: they pass alone, and fall to forward and backward
// passes that are checked from the agreed data on. Adam: what lies in columns that are not sampled,
// and a gradient that is false but as its operands say, such as one that poisons a moment.
// Source: docs/reference/freivalds.md; the optimizers are those of torch.optim.
#pragma once

#include <cstdint>
#include <functional>

#include <potl/checks/freivalds.hpp>

namespace potl::checks {

/// One step: the gradient of the weights is scale * A B.
struct segment_step {
  numeric::matrix<const float> a;  ///< rows x depth: the output gradients, transposed
  numeric::matrix<const float> b;  ///< depth x columns: the inputs
  double rate = 0;                 ///< learning rate of this step
  double scale = 1;                ///< by which clipping multiplied the gradient
};

/// Who made the steps.
enum class segment_update { sgd, adam };

/// The options of torch.optim.SGD, or of AdamW.
struct segment_optimizer {
  segment_update update = segment_update::sgd;
  double weight_decay = 0;  ///< of SGD as in torch; of Adam decoupled, as in AdamW
  double momentum = 0;      ///< of SGD, as are dampening and Nesterov's form
  double dampening = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< of Adam
  std::uint64_t steps_before = 0;                     ///< that this optimizer has made
};

/// Weights and what the optimizer holds for them, all rows x columns. `first` is SGD's momentum
/// buffer or Adam's first moment, `second` Adam's second; no data stands for zeros (before the
/// first step, or without momentum).
struct segment_state {
  numeric::matrix<const float> weights;
  numeric::matrix<const float> first;
  numeric::matrix<const float> second;
};

/// What was found of each tensor.
struct segment_result {
  freivalds_result weights;  ///< Adam: of the sampled columns
  freivalds_result first;    ///< the buffer or first moment; consistent where there is none
  freivalds_result second;   ///< Adam: of the sampled columns
  std::int64_t sampled = 0;  ///< columns that were recomputed
  std::int64_t columns = 0;

  bool holds() const noexcept { return weights.holds() && first.holds() && second.holds(); }
  bool rejected() const noexcept {
    return weights.rejected() || first.rejected() || second.rejected();
  }
};

/// Step `index` of a segment. Its operands stay where they are until the next one is asked for.
using segment_steps = std::function<segment_step(std::uint64_t index)>;

/// Does the segment lead from `start` to `end`? `sampled`: columns to recompute for Adam, at most
/// all. Throws potl::exception (usage) for shapes that do not fit and options out of range.
segment_result freivalds_segment(const segment_state& start, const segment_state& end,
                                 std::uint64_t count, const segment_steps& steps,
                                 const segment_optimizer& optimizer,
                                 const freivalds_options& options = {}, std::int64_t sampled = 8,
                                 const numeric::executor& threads = numeric::inline_executor());

}  // namespace potl::checks
