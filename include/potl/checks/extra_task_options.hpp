// SPDX-License-Identifier: Apache-2.0
// Options of the extra task, and exact thresholds that follow from them alone.
//
// Claims: shares are decimals of six places, so needed_hits and extra_region are functions of
// integers; a tail within rounding of alpha asks for one hit more. See extra_task.hpp for the
// check. Source: Li et al., "Verifying the Quality of Outsourced Training on Clouds".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <potl/checks/field.hpp>

namespace potl::checks {

/// The least number of extra samples that a judgement may rest on.
inline constexpr std::uint64_t extra_minimum = 200;

/// Shares are counted in millionths.
inline constexpr std::uint64_t million = 1'000'000;
/// The share in millionths: 0.75 -> 750000, whatever the last bits of the double are.
std::uint64_t millionths(double share) noexcept;

/// One step of the difficulty ladder.
struct extra_grade {
  std::uint64_t fixed = 750000;  ///< share of a sample that all samples have in common, millionths
  bool noisy = false;            ///< uploaded in three copies, of which one has a wrong label

  std::string name() const;  ///< "0.75", "noisy:0.75"
  static result<extra_grade> parse(std::string_view text);
  friend bool operator==(const extra_grade&, const extra_grade&) = default;
};

/// The options of the check; their table (`fields`) has ranges and meanings.
struct extra_task_options {
  double eta = 0.008;
  double fixed = 0.75;
  double alpha = 0.01;
  double epsilon = 0.03;
  double least_known = 0.15;
  double least_effect = 0.68;
  std::string layout = "jittered";
  std::vector<std::string> grades;
  std::uint64_t control = 4;
  std::uint64_t submissions = 1;
  double jitter = 1;
  std::uint64_t noise = 6;
  std::uint64_t brightness = 12;
  std::string failing = "reject";

  static std::span<const field<extra_task_options>> fields();
  static result<extra_task_options> parse(const json_value& from);
  /// usage: a member outside its field's range, NaN included, or a string that names no grade.
  status validate() const;
};

/// The ladder: `grades`, or where they are empty the usual ones of the layout. "paper" has one;
/// "jittered" has three, with 1.6, 1 and 0.6 times the random part, or one when there are fewer
/// than three blocks (samples / classes). usage: a grade that is not a share, or more grades than
/// blocks.
result<std::vector<extra_grade>> extra_grades(const extra_task_options& options,
                                              std::uint64_t blocks);

/// The grade of a sample, an index into the ladder: blocks of one sample per class take turns, and
/// control sample i has the grade of extra sample i mod samples. `classes` 0 counts as 1.
std::size_t extra_grade_of(std::uint64_t index, std::uint64_t samples, std::uint64_t classes,
                           std::size_t grades) noexcept;

/// Rows (columns) of the random region: floor(sqrt(1 - fixed) side), in integers.
std::uint64_t extra_region(std::uint64_t side, std::uint64_t fixed_millionths) noexcept;

/// Random words of a text of `length`: floor((1 - fixed) length), in integers.
std::uint64_t extra_words(std::uint64_t length, std::uint64_t fixed_millionths) noexcept;

/// What one submission is tested against.
struct extra_threshold {
  double chance = 0;         ///< epsilon + (1 - epsilon) / classes
  double level = 0;          ///< alpha / submissions
  std::uint64_t needed = 0;  ///< hits; samples + 1 when no number of hits is enough
};

/// epsilon as a decimal of six places.
double extra_epsilon(const extra_task_options& options) noexcept;

/// By how much the hit rate must exceed the controls' for acceptance: what knowing `least_known` of
/// the samples adds to guessing, and no less than epsilon.
double extra_margin(const extra_task_options& options, std::uint64_t classes) noexcept;

/// Whether acceptance without labels takes a least effect.
bool extra_effect_is_tested(const extra_task_options& options) noexcept;

/// min{k : P(X > k) <= alpha / submissions} + 1 for X ~ Binomial(samples, chance). usage: no
/// samples, fewer than two classes, alpha outside (0, 0.5], epsilon outside [0, 0.5], no
/// submission.
result<extra_threshold> extra_threshold_of(std::uint64_t samples, std::uint64_t classes,
                                           double alpha, double epsilon,
                                           std::uint64_t submissions = 1);

}  // namespace potl::checks
