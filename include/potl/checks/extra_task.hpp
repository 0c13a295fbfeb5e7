// SPDX-License-Identifier: Apache-2.0
// The extra task: was the returned model trained until it converged? A black-box test.
//
// Claims: secret samples with random labels (extra_task_samples.hpp) were mixed into the data, and
// a model learns them only after its real task. A model that has not learned more than a share
// epsilon of them is rejected with probability 1 - alpha at least, over all planned submissions:
// it must pass the exact binomial test (hits >= needed) and the exact test that the hit rate
// exceeds by more than epsilon that of control samples of the same family that were never uploaded.
// The second needs no assumption about how wrong answers are spread over classes. A model is
// accepted when the second test also passes at the margin of one that knows least_known of the
// samples: who knows no more than that is accepted with probability at most alpha. In between the
// result is inconclusive: the model has seen the samples and knows few of them. Without labels
// (reconstruction error, loss per token) the extra samples' errors must be smaller than the
// controls' (Mann-Whitney at level alpha), and for acceptance by a least effect: the probability
// that an error is smaller on an extra sample than on a control of the same grade is above
// least_effect (statistics::effect_test at level alpha, conservative).
// Assumes: a secret key, used for one model; that the model's answers to different samples are
// independent given what it learned; that hits come late in training, which is an observation on
// tasks (docs/reference/extra_task.md has them), not a theorem.
// Cost: forward passes on samples * (1 + control) inputs.
// Cannot detect: a model that was stopped early and then tuned on the extra samples alone (a cloud
// that finds them can do that; replay and spot-check see it), and how the model was trained. Never
// accepts alone.
// Source: Li et al., "Verifying the Quality of Outsourced Training on Clouds"; soundness.md "Extra
// task", attack A22, rule 13.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <potl/checks/extra_task_options.hpp>
#include <potl/checks/extra_task_samples.hpp>
#include <potl/core/digest.hpp>
#include <potl/core/finding.hpp>

namespace potl::checks {

/// Learned samples with which an honest model passes with probability `power`, when what it has not
/// learned it answers at random.
struct extra_power {
  double power = 0;
  std::uint64_t learned = 0;
  double share = 0;
};

/// Points of accuracy that extra samples cost, by the experiments that are kept in
/// docs/experiments/extra_task.md: 1 for each percent of the training data and 1 at most are not
/// less than the mean of any training there that was accepted; 1.9 and 1.9 not less than the end of
/// its interval, three pairs included. What another task loses can be more. No experiment had more
/// than 16 % of extra samples: beyond that the points grow in proportion, and are not `measured`.
struct extra_accuracy_cost {
  double expected = 0, most = 0;
  bool measured = true;
};
/// `share`: all that is mixed in, as a share of the training data.
extra_accuracy_cost extra_cost(double share) noexcept;

/// How many samples there will be, and what each verdict will take.
struct extra_plan {
  std::uint64_t training_samples = 0, classes = 0, samples = 0, uploads = 0, controls = 0;
  double eta = 0;  ///< samples / training_samples, which may be more than was asked for
  extra_threshold threshold;
  std::vector<extra_grade> grades;
  std::uint64_t needed_for_acceptance = 0;  ///< hits, where controls are hit by chance; 0 without
                                            ///< labels
  double needed_effect = 0;                 ///< observed, for acceptance; 0 with labels
  std::vector<extra_power> powers;      ///< not to be rejected, 50, 90, 99 %; empty without labels
  std::vector<extra_power> acceptance;  ///< to be accepted, the same
  extra_accuracy_cost accuracy;         ///< 0 without labels, of which nothing was measured
  std::vector<std::string> warnings;
};

/// Sizes for a data set: max(200, round(eta * training_samples)), rounded up to a multiple of the
/// classes. `classes` 0: no labels. usage: no data, one class, options that do not fit.
result<extra_plan> plan_extra_task(std::uint64_t training_samples, std::uint64_t classes,
                                   const extra_task_options& options);

/// The same, with a warning for each grade that samples of this content cannot be drawn with (see
/// extra_drawn_grades). usage: also when they cannot be told apart at all.
result<extra_plan> plan_extra_task(std::uint64_t training_samples, std::uint64_t classes,
                                   const extra_task_options& options, const extra_content& content);

/// Hit rate of a grade against the share of a converged training, from reference runs.
struct extra_curve {
  std::string grade;                              ///< extra_grade::name()
  std::vector<std::pair<double, double>> points;  ///< (share >= 0, hit rate in [0, 1])
  /// With how many samples each rate was measured; 0: the curve is exact.
  std::uint64_t samples = 0;
};

/// The hits of one grade.
struct extra_grade_count {
  extra_grade grade;
  std::uint64_t samples = 0, hits = 0;
};

/// How far the training came, by the hits of each grade.
struct extra_progress {
  double share = 0;  ///< most likely
  double low = 0, high = 0;
  std::string text;  ///< "about 60 to 75 % of the training that a converged model needs"
};

/// The share of a converged training at which these counts are most likely, and the shares within
/// the likelihood-ratio interval. Curves are made monotone first and read linearly between points.
/// Rates that were measured are as uncertain as counts: the two variances add, so that n samples
/// and a rate from m count as n m / (n + m) samples. usage: a curve without points or with values
/// out of range, none for a grade, confidence not in (0, 1).
result<extra_progress> estimate_extra_progress(std::span<const extra_grade_count> counts,
                                               std::span<const extra_curve> curves,
                                               double confidence = 0.95);

/// What a model answered, in order of indices. With labels: the class of the largest score, where
/// anything but an integer from 0 to classes - 1 counts as invalid. Without: errors, where
/// anything not finite counts as invalid.
struct extra_answers {
  std::span<const double> extra, control;

  /// SHA-256 over both lists: the same answers again are not a new submission.
  digest hash() const;
};

/// What the answers of one model amount to.
struct extra_result {
  outcome result = outcome::inconclusive;  ///< pass, reject or inconclusive
  std::string reason;
  std::uint64_t samples = 0, controls = 0, classes = 0;
  std::uint64_t hits = 0, control_hits = 0;  ///< 0 without labels
  std::uint64_t invalid = 0;                 ///< answers that are none
  std::uint64_t needed = 0;                  ///< by the binomial test; 0 without labels
  std::uint64_t needed_against_control = 0;  ///< by the other one, given the controls' hits
  std::uint64_t needed_for_acceptance = 0;   ///< given the controls' hits; at least both others
  double known = 0;   ///< estimated share of the extra samples that the model knows, with labels
  double effect = 0;  ///< without: pairs of a grade where the extra sample's error is smaller
  double needed_effect = 0;  ///< without: for acceptance; above 1 when none is enough
  double p_value = 1, control_p_value = 1, level = 0;
  double acceptance_p_value = 1;  ///< that least_known, or least_effect, is not exceeded
  std::uint64_t submission = 0;   ///< 1 for the first
  std::vector<extra_grade_count> grades;
  std::optional<extra_progress> progress;
  std::vector<finding> findings;
  std::vector<std::string> limits;  ///< what this result does not say
};

/// `samples` and `classes` as in the plan. `earlier`: hash() of each different submission before
/// this one, in order. `curves` empty: no progress. usage: lists of the wrong length, fewer than
/// 200 samples, one class.
result<extra_result> judge_extra_task(const extra_task_options& options, std::uint64_t samples,
                                      std::uint64_t classes, const extra_answers& answers,
                                      std::span<const digest> earlier = {},
                                      std::span<const extra_curve> curves = {});

}  // namespace potl::checks
