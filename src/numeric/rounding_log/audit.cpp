// SPDX-License-Identifier: Apache-2.0
// The auditor's half of a session.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <potl/numeric/detail/rounding_session.hpp>

namespace potl::numeric {
namespace {

double step_of(const tie& nearest) {
  return 2 * (nearest.midpoint - static_cast<double>(nearest.lower));
}

/// Whether a sum that is rounded to this may lie in another binade than an honest side's. Only
/// there may one side find the window too wide for a log, and the other follow it.
bool meets_another_binade(float result, int bits) {
  const double size = std::fabs(static_cast<double>(result));
  const double reach = 2 * grid_spacing(size, bits);
  return grid_spacing(std::max(size - reach, 0.0), bits) != grid_spacing(size + reach, bits);
}

}  // namespace

fraud_proof rounding_session::proof_of(log_fault fault, const fraud_element* element) const {
  fraud_proof out{fault, step_, log_bytes_, {}};
  if (element != nullptr) out.elements.push_back(*element);
  return out;
}

void rounding_session::reject(log_fault fault, std::string message,
                              std::optional<fraud_proof> proof) {
  ++audit_.rejected;
  if (audit_.rejections.size() == max_rejections) return;
  audit_.rejections.push_back({fault, std::move(message), std::move(proof)});
}

std::uint64_t rounding_session::follow(std::span<float> results, std::span<const near_tie> ties,
                                       const element_operands& operands) {
  const std::uint64_t before = audit_.corrections;
  const std::uint64_t end = values_ + results.size();
  auto own = ties.begin();
  audit_.own_ties += ties.size();
  for (const near_tie& each : ties) {
    const double step = step_of(nearest_tie(each.value, options_.bits));
    reachable_squares_ += step * step;
    audit_.reachable_linf = std::max(audit_.reachable_linf, step);
  }
  for (;;) {
    const log_entry* entry =
        next_entry_ < log_.entries.size() && log_.entries[next_entry_].position < end
            ? &log_.entries[next_entry_]
            : nullptr;
    if (entry == nullptr && own == ties.end()) break;
    const bool mine =
        own != ties.end() && (entry == nullptr || values_ + own->index <= entry->position);
    const bool theirs = entry != nullptr && (!mine || values_ + own->index == entry->position);
    const std::uint64_t index = mine ? own->index : entry->position - values_;
    if (theirs) ++next_entry_;
    const bool agreed =
        mine && theirs &&
        entry->up == (results[index] == nearest_tie(own->value, options_.bits).upper);
    if (!agreed &&
        (mine || audit_.rejected == 0 || meets_another_binade(results[index], options_.bits))) {
      rule(results[index], index, theirs ? std::optional(entry->up) : std::nullopt, operands);
    }
    if (mine) ++own;
  }
  return audit_.corrections - before;
}

void rounding_session::rule(float& result, std::uint64_t index, std::optional<bool> logged,
                            const element_operands& operands) {
  fraud_element element;
  element.position = values_ + index;
  operands(index, element.a, element.b);
  require(element.a.size() == element.b.size(), "operands of different length");
  const element_ruling ruling = rule_on(element.operands(), options_.bits, logged);
  ++audit_.exact_dots;
  const double moved = static_cast<double>(ruling.value) - static_cast<double>(result);
  if (ruling.flipped) {
    ++audit_.corrections;
    moved_squares_ += moved * moved;
  }
  result = ruling.value;
  if (ruling.fault == log_fault::none || !has_log_) return;  // no log was the fault then
  const std::string where = "element " + std::to_string(element.position) + " of step " +
                            std::to_string(step_) + ": distance to the tie " +
                            std::to_string(ruling.distance / ruling.step) + " steps, window " +
                            std::to_string(ruling.window / ruling.step);
  reject(ruling.fault, where, proof_of(ruling.fault, &element));
}

void rounding_session::watch(std::uint64_t position) {
  require(options_.role == log_role::auditor && in_step_, "only an auditor in a step looks closer");
  watched_position_ = position;
}

void rounding_session::look(std::span<float> results, const element_operands& operands) {
  if (!watched_position_ || *watched_position_ < values_ ||
      *watched_position_ - values_ >= results.size()) {
    return;
  }
  const std::uint64_t index = *watched_position_ - values_;
  fraud_element element;
  operands(index, element.a, element.b);
  const auto entry = std::lower_bound(
      log_.entries.begin(), log_.entries.end(), *watched_position_,
      [](const log_entry& one, std::uint64_t position) { return one.position < position; });
  const bool is_logged = entry != log_.entries.end() && entry->position == *watched_position_;
  watched_ = rule_on(element.operands(), options_.bits,
                     is_logged ? std::optional(entry->up) : std::nullopt);
  results[index] = watched_->value;
}

step_audit rounding_session::end_audit() {
  require(options_.role == log_role::auditor, "only an auditor judges a log");
  require(in_step_, "no step has begun");
  in_step_ = false;
  if (has_log_ && log_.values != values_) {
    reject(log_fault::wrong_size,
           "the log is of " + std::to_string(log_.values) + " values, the step rounds " +
               std::to_string(values_),
           proof_of(log_fault::wrong_size, nullptr));
  }
  audit_.values = values_;
  audit_.moved_l2 = std::sqrt(moved_squares_);
  audit_.reachable_l2 = std::sqrt(reachable_squares_);
  return std::move(audit_);
}

}  // namespace potl::numeric
