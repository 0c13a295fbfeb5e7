// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <potl/core/rules.hpp>

#include "evidence/audit.hpp"

namespace potl::transcript {
namespace {

// A log of a million bad steps needs no million findings.
constexpr std::ptrdiff_t max_per_rule = 20;

}  // namespace

bool in_force(std::string_view rule) { return rule_enabled(rule); }

void audit_log::reject(std::string_view rule, std::string reason,
                       std::optional<std::uint64_t> step) {
  if (in_force(rule)) add(rule, outcome::reject, std::move(reason), step);
}

void audit_log::inconclusive(std::string_view rule, std::string reason) {
  if (in_force(rule)) add(rule, outcome::inconclusive, std::move(reason), {});
}

void audit_log::note(std::string reason) { add("", outcome::note, std::move(reason), {}); }

void audit_log::pass(std::string_view rule, std::string reason) {
  if (in_force(rule) && !has_failed(rule)) add(rule, outcome::pass, std::move(reason), {});
}

bool audit_log::has_failed(std::string_view rule) const {
  return std::any_of(out_.begin(), out_.end(), [&](const finding& one) {
    return one.rule == rule && one.result != outcome::pass;
  });
}

void audit_log::add(std::string_view rule, outcome result, std::string reason,
                    std::optional<std::uint64_t> step) {
  const auto same = std::count_if(out_.begin(), out_.end(), [&](const finding& one) {
    return one.rule == rule && one.result == result;
  });
  if (same >= max_per_rule) return;
  finding out;
  out.check = "transcript";
  out.rule = std::string(rule);
  out.result = result;
  out.reason = std::move(reason);
  out.first_step = step;
  out.last_step = step;
  out_.push_back(std::move(out));
}

}  // namespace potl::transcript
