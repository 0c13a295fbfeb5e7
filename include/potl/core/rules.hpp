// SPDX-License-Identifier: Apache-2.0
// The rules that a verification applies, by name. Every finding names the rule that produced it. In
// a build with POTL_TEST_HOOKS a test can switch a single rule off to prove that this rule, and no
// other, rejects a forgery; a release build has no such switch (rule_enabled is constant there).
#pragma once

#include <array>
#include <string_view>

namespace potl {

struct rule_info {
  std::string_view id;
  std::string_view meaning;
};

// clang-format off
inline constexpr std::array rules{
    // what was agreed (soundness.md rule 2, 4, 5): off = the prover's word is taken
    rule_info{"agreed.job", "every record names the job that the client agreed to"},
    rule_info{"agreed.trainer_key", "the commitment and every resume are signed with the key that the job pins"},
    rule_info{"agreed.data", "replays read the client's own data, bound to the job's data root"},
    rule_info{"agreed.batch_order", "each step used the samples that the job's seed selects"},
    rule_info{"agreed.recipe", "learning rates, and everything else of the task, are the job's"},
    rule_info{"agreed.initial_state", "the state at step 0 is the one that the job's seed generates"},
    rule_info{"agreed.step_count", "the run has exactly the agreed number of steps"},
    rule_info{"agreed.segments", "states are stored where the job says, so that nothing else decides what can be drawn"},
    rule_info{"agreed.schema", "opened states have the keys, types and shapes of the verifier's own build, and no others"},
    rule_info{"agreed.recipe_state", "options, rates, counters and scales in opened states are what the agreed steps make of them"},
    rule_info{"agreed.replayable", "the task keeps no state that its checkpoints do not hold"},
    // the record's own structure
    rule_info{"transcript.chain", "records are intact, in their order, and hash to the committed root"},
    rule_info{"transcript.sequence", "steps and epochs follow each other without gap or repetition"},
    rule_info{"transcript.history", "published roots are extended consistently, and there is one commitment"},
    rule_info{"transcript.resume", "resumes are signed, few, and superseded steps stay and are checked"},
    rule_info{"transcript.checkpoint", "a stored checkpoint hashes to the state digest in its step's leaf"},
    rule_info{"transcript.withheld", "what was challenged is opened"},
    rule_info{"transcript.one_reading", "workers replay the very log that was judged"},
    rule_info{"transcript.rounding", "in log64 every step binds its rounding log, which is kept; nowhere else does one"},
    rule_info{"transcript.finite", "losses and states are finite, and so is every compared distance"},
    // what recomputation says
    rule_info{"replay.parameters", "replayed parameters equal the recorded ones within tolerance"},
    rule_info{"replay.update_relative", "the distance is measured against the segment's update, not the weights"},
    rule_info{"replay.magnitude", "norms are compared, not only directions"},
    rule_info{"replay.optimizer", "optimizer, scheduler, scaler, EMA and counters are compared like the weights"},
    rule_info{"replay.buffers", "buffers are compared like the weights"},
    rule_info{"replay.rounding", "in log64 the rounding log of every replayed step is what an honest trainer logs"},
    rule_info{"replay.random_segments", "segments are drawn at random, beside the largest updates"},
    rule_info{"replay.reach", "stored states that lie further apart than the training usually moves are replayed"},
    rule_info{"replay.final_segment", "the last segment is always replayed"},
    rule_info{"replay.tolerance_cap", "a tolerance never exceeds the share of the update that the job allows"},
    rule_info{"replay.interpolation_guard", "summed tolerances stay below the distance an interpolation travels"},
    rule_info{"loss.recomputed", "logged losses equal the losses recomputed at the committed state"},
    // the artefact
    rule_info{"model.delivered", "the delivered model is the last committed state"},
    // what the model itself answers: adds evidence, never accepts alone
    rule_info{"extra_task.hits", "more extra samples are hit than a model hits that did not learn them"},
    rule_info{"extra_task.control", "extra samples are answered better than control samples that were never uploaded"},
    rule_info{"extra_task.known", "an accepted model knows more than a few of the extra samples"},
    // what a trusted side saw while it guarded the training
    rule_info{"spot_check.gradients", "gradients of secretly drawn steps are the ones that the client computes"},
    rule_info{"spot_check.direction", "what differs below the tolerance has no direction in common"},
    rule_info{"spot_check.session", "the worker answers in time, and each frame is the one that was asked for"},
    // statistics of the run that add evidence only
    rule_info{"telemetry.consistent", "utilisation, memory, energy and step times fit a training run"},
};
// clang-format on

/// Whether `id` is in force. Always true in a release build. Precondition: `id` is in `rules`.
bool rule_enabled(std::string_view id) noexcept;

#ifdef POTL_TEST_HOOKS
/// Switches a rule off or on again, for the whole process. Returns false for an unknown rule.
bool set_rule_enabled(std::string_view id, bool enabled) noexcept;
#endif

}  // namespace potl
