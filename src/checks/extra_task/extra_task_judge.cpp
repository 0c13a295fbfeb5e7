// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/extra_task.hpp>

#include <algorithm>
#include <cmath>

#include <potl/crypto/hasher.hpp>

#include "checks/extra_task/extra_task_binary.hpp"
#include "checks/extra_task/extra_task_errors.hpp"
#include "checks/extra_task/extra_task_evidence.hpp"
#include "checks/judging.hpp"
#include "checks/text.hpp"

namespace potl::checks {
namespace {

class judge {
 public:
  judge(const extra_answers& answers, extra_result& out) : answers_(answers), out_(out) {}

  void count() {
    for (const auto list : {answers_.extra, answers_.control}) {
      for (const double one : list) out_.invalid += is_answer(one) ? 0u : 1u;
    }
    if (out_.classes == 0) return;
    for (std::size_t i = 0; i < answers_.extra.size(); ++i) {
      const bool hit = is_hit(answers_.extra[i], i);
      auto& grade = out_.grades[extra_grade_of(i, out_.samples, out_.classes, out_.grades.size())];
      ++grade.samples;
      grade.hits += hit;
      out_.hits += hit;
    }
    for (std::size_t i = 0; i < answers_.control.size(); ++i) {
      out_.control_hits += is_hit(answers_.control[i], i);
    }
  }

  void conclude() {
    const auto worst = [&](outcome kind) {
      return std::find_if(out_.findings.begin(), out_.findings.end(),
                          [&](const finding& one) { return one.result == kind; });
    };
    for (const outcome kind : {outcome::reject, outcome::inconclusive, outcome::pass}) {
      const auto found = worst(kind);
      if (found == out_.findings.end()) continue;
      out_.result = kind;
      out_.reason = found->reason;
      return;
    }
    out_.reason = "no test was made";  // only where both rules are switched off
  }

  void inconclusive(std::string reason) {
    out_.findings.push_back(
        make_finding("extra_task", "", outcome::inconclusive, std::move(reason)));
  }

 private:
  bool is_answer(double value) const {
    if (!std::isfinite(value)) return false;
    return out_.classes == 0 ||
           (value >= 0 && value < static_cast<double>(out_.classes) && value == std::floor(value));
  }

  bool is_hit(double value, std::size_t index) const {
    return value == static_cast<double>(index % out_.classes);
  }

  const extra_answers& answers_;
  extra_result& out_;
};

std::vector<std::string> limits(const extra_result& result) {
  std::vector<std::string> out{
      "A model that was stopped early and then tuned on the extra samples alone passes; replay and "
      "spot-check see that.",
      "How the model was trained is not seen, only that it learned what is learned last."};
  if (result.classes == 0) {
    out.emplace_back(
        "Without labels the effect is compared with a least one, which says less of how far the "
        "training came than a share of known samples.");
  }
  return out;
}

status check_sizes(const extra_result& sizes, const extra_answers& answers) {
  const std::uint64_t per_block = std::max<std::uint64_t>(sizes.classes, 1);
  if (sizes.classes == 1) return wrong("one class cannot be guessed wrong", "");
  if (sizes.samples < extra_minimum || sizes.samples % per_block != 0) {
    return wrong(text(sizes.samples) + " samples cannot be judged",
                 "at least " + text(extra_minimum) + ", a multiple of the classes, are needed");
  }
  if (answers.extra.size() != sizes.samples || answers.control.size() != sizes.controls) {
    return wrong("there are " + text(std::uint64_t{answers.extra.size()}) + " and " +
                     text(std::uint64_t{answers.control.size()}) + " answers",
                 "give " + text(sizes.samples) + " for the extra samples and " +
                     text(sizes.controls) + " for the controls");
  }
  return unit{};
}

}  // namespace

digest extra_answers::hash() const {
  sha256 hasher;
  for (const auto list : {extra, control}) {
    hasher.update(little_endian_bytes(list.size()));
    for (const double one : list) hasher.update(little_endian_bytes(bits_of(one)));
  }
  return hasher.finish();
}

result<extra_result> judge_extra_task(const extra_task_options& options, std::uint64_t samples,
                                      std::uint64_t classes, const extra_answers& answers,
                                      std::span<const digest> earlier,
                                      std::span<const extra_curve> curves) {
  extra_result out;
  out.samples = samples;
  out.classes = classes;
  out.controls = samples * options.control;
  for (const status& fits : {options.validate(), check_sizes(out, answers)}) {
    if (!fits) return fits.why();
  }
  const auto grades = extra_grades(options, samples / std::max<std::uint64_t>(classes, 1));
  if (!grades) return grades.why();
  for (const extra_grade& grade : grades.value()) out.grades.push_back({grade, 0, 0});
  extra_threshold threshold;
  threshold.level = static_cast<double>(millionths(options.alpha)) /
                    static_cast<double>(1'000'000 * options.submissions);
  if (classes != 0) {
    const auto found =
        extra_threshold_of(samples, classes, options.alpha, options.epsilon, options.submissions);
    if (!found) return found.why();
    threshold = found.value();
  }
  out.level = threshold.level;
  out.limits = limits(out);
  const auto same = std::find(earlier.begin(), earlier.end(), answers.hash());
  out.submission = static_cast<std::uint64_t>(same - earlier.begin()) + 1;

  judge all(answers, out);
  all.count();
  if (out.invalid != 0) {
    all.inconclusive(text(out.invalid) + " of " + text(samples + out.controls) +
                     " answers are not " + (classes == 0 ? "errors" : "classes") +
                     ": not finite or out of range");
  } else if (out.submission > options.submissions) {
    all.inconclusive("submission " + text(out.submission) + " of " + text(options.submissions) +
                     " that were planned: alpha is spent. Mix the samples of a new key, for a "
                     "trainer who has not had these data (two uploads of them show the extra "
                     "samples), and plan as many submissions as it may take (submissions)");
  } else if (classes != 0) {
    test_extra_labels(options, threshold, out);
  } else {
    test_extra_errors(options, answers, out);
  }
  all.conclude();
  if (!curves.empty() && classes != 0 && out.invalid == 0) {
    auto progress = estimate_extra_progress(out.grades, curves);
    if (!progress) return progress.why();
    out.progress = std::move(*progress);
  }
  return out;
}

}  // namespace potl::checks
