// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/extra_task_options.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "checks/extra_task/extra_task_errors.hpp"
#include "checks/text.hpp"

namespace potl::checks {
namespace {

using row = field<extra_task_options>;
using o = extra_task_options;

// clang-format off
const std::array table{
    row{"eta", &o::eta, 1e-6, 0.5, {}, "extra samples as a share of the training data; small sets get more, so that there are 200"},
    row{"fixed", &o::fixed, 0.01, 0.99, {}, "share of an extra sample that all of them have in common"},
    row{"alpha", &o::alpha, 1e-6, 0.5, {}, "probability of accepting a model that learned no more than epsilon of them"},
    row{"epsilon", &o::epsilon, 0, 0.5, {}, "share of the extra samples that a model may learn without being called trained"},
    row{"least_known", &o::least_known, 0, 0.9, {}, "an accepted model knows more than this share of the extra samples; between epsilon and this the result is inconclusive"},
    row{"least_effect", &o::least_effect, 0.5, 0.95, {}, "without labels: an accepted model's error on an extra sample is below that on a control with more than this probability; 0.5: any significant difference is enough"},
    row{"layout", &o::layout, -unbounded, unbounded, "jittered paper", "jittered: no region has equal bytes in two samples, except by chance; paper: random rows and columns first, the rest equal"},
    row{"grades", &o::grades, -unbounded, unbounded, {}, "fixed shares of the difficulty ladder, as in \"0.75\" or \"noisy:0.75\" (three copies, one mislabelled); empty: the layout's own"},
    row{"control", &o::control, 1, 64, {}, "control samples, never uploaded, for each extra sample"},
    row{"submissions", &o::submissions, 1, 1000, {}, "models that may be handed in for one key; they share alpha"},
    row{"jitter", &o::jitter, 0, 1, {}, "jittered: how far a sample is shifted, as a share of its side or length"},
    row{"noise", &o::noise, 0, 32, {}, "jittered: levels (of 255) by which each pixel moves"},
    row{"brightness", &o::brightness, 0, 64, {}, "jittered: levels by which a whole image moves"},
    row{"failing", &o::failing, -unbounded, unbounded, "reject inconclusive", "verdict for a model that has not learned the extra samples"},
};
// clang-format on

std::uint64_t integer_square_root(std::uint64_t value) noexcept {
  auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(value)));
  while (root * root > value) --root;
  while ((root + 1) * (root + 1) <= value) ++root;
  return root;
}

}  // namespace

std::span<const field<extra_task_options>> extra_task_options::fields() { return table; }

result<extra_task_options> extra_task_options::parse(const json_value& from) {
  auto parsed = parse_options("extra_task", fields(), from);
  if (!parsed) return parsed;
  const status valid = parsed->validate();
  if (!valid) return valid.why();
  return parsed;
}

status extra_task_options::validate() const {
  const std::vector<field_info> rows = describe(fields());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const row& one = fields()[i];
    bool valid = true;
    if (const auto* number = std::get_if<double o::*>(&one.member)) {
      valid = this->**number >= one.low && this->**number <= one.high;
    } else if (const auto* count = std::get_if<std::uint64_t o::*>(&one.member)) {
      const auto value = static_cast<double>(this->**count);
      valid = value >= one.low && value <= one.high;
    } else if (const auto* choice = std::get_if<std::string o::*>(&one.member)) {
      const auto& known = rows[i].choices;
      valid = std::find(known.begin(), known.end(), this->**choice) != known.end();
    }
    if (!valid) return detail::wrong_field("extra_task", rows[i], "is out of range");
  }
  for (const std::string& name : grades) {
    const auto grade = extra_grade::parse(name);
    if (!grade) return grade.why();
  }
  return unit{};
}

std::uint64_t millionths(double share) noexcept {
  return share > 0 ? static_cast<std::uint64_t>(std::llround(share * 1e6)) : 0;
}

std::string extra_grade::name() const {
  std::array<char, 16> digits{};
  std::snprintf(digits.data(), digits.size(), "%06u", static_cast<unsigned>(fixed % million));
  std::string decimals(digits.data(), 6);
  while (decimals.size() > 1 && decimals.back() == '0') decimals.pop_back();
  return (noisy ? "noisy:" : "") + std::to_string(fixed / million) + "." + decimals;
}

result<extra_grade> extra_grade::parse(std::string_view text) {
  constexpr std::string_view prefix = "noisy:";
  extra_grade out;
  out.noisy = text.substr(0, prefix.size()) == prefix;
  const std::string_view number = text.substr(out.noisy ? prefix.size() : 0);
  double share = 0;
  const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), share,
                                              std::chars_format::fixed);
  if (problem != std::errc() || end != number.data() + number.size() ||
      !(share >= 0.01 && share <= 0.99)) {
    return wrong("\"" + std::string(text) + "\" is not a grade",
                 "a grade is a share from 0.01 to 0.99, as in \"0.75\" or \"noisy:0.75\"");
  }
  out.fixed = millionths(share);
  return out;
}

result<std::vector<extra_grade>> extra_grades(const extra_task_options& options,
                                              std::uint64_t blocks) {
  std::vector<extra_grade> out;
  for (const std::string& name : options.grades) {
    const auto grade = extra_grade::parse(name);
    if (!grade) return grade.why();
    out.push_back(grade.value());
  }
  if (out.size() > blocks) {
    return wrong(text(out.size()) + " grades for " + text(blocks) + " samples of each class",
                 "give fewer grades, or a larger eta");
  }
  if (!out.empty()) return out;
  const std::uint64_t fixed = millionths(options.fixed), random = million - fixed;
  if (options.layout == "paper" || blocks < 3) return std::vector{extra_grade{fixed, false}};
  const std::uint64_t wide = std::min(random * 16 / 10, million - million / 100);
  return std::vector{extra_grade{million - wide, false}, extra_grade{fixed, false},
                     extra_grade{million - random * 6 / 10, false}};
}

std::size_t extra_grade_of(std::uint64_t index, std::uint64_t samples, std::uint64_t classes,
                           std::size_t grades) noexcept {
  const std::uint64_t block = index % samples / std::max<std::uint64_t>(classes, 1);
  return static_cast<std::size_t>(block % grades);
}

std::uint64_t extra_region(std::uint64_t side, std::uint64_t fixed_millionths) noexcept {
  return integer_square_root((million - std::min(fixed_millionths, million)) * side * side /
                             million);
}

std::uint64_t extra_words(std::uint64_t length, std::uint64_t fixed_millionths) noexcept {
  return (million - std::min(fixed_millionths, million)) * length / million;
}

}  // namespace potl::checks
