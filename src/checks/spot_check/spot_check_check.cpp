// SPDX-License-Identifier: Apache-2.0
// What a guarded training amounts to. Its trusted side asks and judges it: no recorded run does.
#include <cmath>

#include <potl/checks/spot_check.hpp>

#include "checks/builtin.hpp"
#include "checks/text.hpp"
#include "core/counted.hpp"

namespace potl::checks {
namespace {

// For several workers that were stopped one after the other.
statistics::displacement_certificate together(statistics::displacement_certificate one,
                                              std::uint64_t workers) {
  const double count = static_cast<double>(workers);
  one.probability = std::max(0.0, 1 - count * (1 - one.probability));
  one.displacement *= count;
  one.leak *= count;
  return one;
}

}  // namespace

check_info builtin::spot_check() {
  check_info out;
  out.name = "spot_check";
  out.looks_at = "gradients of secretly drawn steps, computed again while the model was trained";
  out.asks = false;
  out.rank = 2;
  out.cannot_see = {
      "The certificate bounds what false gradients inject, not where the training goes from there.",
      "Losses are the worker's word: no weight depends on them.",
      "A worker that can stop the trusted side's program whenever a check begins is not caught.",
      "A worker that ends each session before 36 drawn steps is not tested for a common direction: "
      "what stays below the tolerance is bounded by the certificate alone.",
  };
  out.cost = "a step of the training for each check";
  return out;
}

std::vector<finding> judge_spot_check(const spot_check_result& session,
                                      const statistics::displacement_certificate& certificate,
                                      std::uint64_t stopped_before) {
  const std::uint64_t steps = session.entries.size();
  finding out;
  out.check = "spot_check";
  out.rule = "spot_check.gradients";
  out.statistic = session.statistic;
  out.threshold = session.threshold;
  out.details = {{"end", to_string(session.end)},
                 {"steps", steps},
                 {"checked", session.checked},
                 {"largest", session.largest},
                 {"final_step", session.final_step}};
  if (steps > 0) {
    out.first_step = session.first_step;
    out.last_step = session.first_step + steps - 1;
  }
  if (session.end == spot_check_end::finished) {
    const auto all = together(certificate, stopped_before + 1);
    out.result = outcome::pass;
    out.threshold.reset();
    out.reason = counted(session.checked, "step") + " of " + text(steps) +
                 " were drawn in secret and computed again, and none was false. " + all.sentence();
    if (session.first_step > 1) {
      out.reason = "from step " + text(session.first_step) + " on, " + out.reason;
    }
    if (stopped_before > 0) {
      out.reason += " Before that, " + counted(stopped_before, "session") +
                    " ended at a check; the certificate counts each of them.";
    }
    out.details.emplace_back("probability", all.probability);
    out.details.emplace_back("displacement", all.displacement);
    out.details.emplace_back("leak", all.leak);
    if (!(all.probability > 0)) {
      out.result = outcome::inconclusive;
      out.reason = counted(stopped_before, "session") +
                   " ended at a check, so that nothing is left of the certificate";
    }
    return {out};
  }
  out.first_step = out.last_step = session.step;
  out.reason = session.reason;
  if (session.end == spot_check_end::caught) {
    out.result = outcome::reject;
    if (session.tensor.empty()) {
      out.rule = "spot_check.direction";
      out.error_probability = 1e-6;
    } else {
      out.details.emplace_back("tensor", session.tensor);
    }
  } else {
    out.result = outcome::inconclusive;
    if (session.end != spot_check_end::doubtful) out.rule = "spot_check.session";
  }
  return {out};
}

}  // namespace potl::checks
