// SPDX-License-Identifier: Apache-2.0
#include "checks/judging.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <potl/core/rules.hpp>
#include <potl/encoding/json.hpp>

#include "checks/text.hpp"

namespace potl::checks {

finding make_finding(std::string_view check, std::string_view rule, outcome result,
                     std::string reason) {
  finding out;
  out.check = check;
  out.rule = rule;
  out.result = result;
  out.reason = std::move(reason);
  return out;
}

std::optional<finding> finding_of(measured status, std::string_view check, std::string_view what,
                                  const std::string& message) {
  const std::string where(what);
  const std::string why = message.empty() ? "" : ": " + message;
  const auto reject = [&](std::string_view rule, const std::string& reason) {
    return rule_enabled(rule)
               ? std::optional(make_finding(check, rule, outcome::reject, reason + why))
               : std::nullopt;
  };
  switch (status) {
    case measured::ok: break;
    case measured::withheld:
      return reject("transcript.withheld", where + " was challenged and is withheld");
    case measured::tampered:
      return reject("transcript.checkpoint",
                    "the checkpoint for " + where + " does not hash to its leaf");
    case measured::unknown_form:
      return reject("agreed.schema", "a state opened for " + where + " has not the agreed form");
    case measured::unlawful:
      return reject("agreed.recipe_state",
                    "a state opened for " + where + " does not follow from the agreed recipe");
    case measured::prover_error:
      return reject("transcript.checkpoint",
                    "the recorded state for " + where + " cannot be restored");
    case measured::verifier_error:
    case measured::unrepeatable: {
      finding out = make_finding(check, "", outcome::inconclusive,
                                 where + " could not be recomputed here" + why);
      out.details.emplace_back("trouble", message);
      if (status == measured::unrepeatable) out.details.emplace_back("unrepeatable", true);
      return out;
    }
  }
  return std::nullopt;
}

std::optional<finding> finding_of_not_finite(const std::string& what, std::string_view check,
                                             std::string_view where) {
  if (what.empty() || !rule_enabled("transcript.finite")) return std::nullopt;
  return make_finding(check, "transcript.finite", outcome::inconclusive,
                      "a state opened for " + std::string(where) + " is not finite: " + what);
}

finding finding_of_missing(std::string_view check, std::string_view what) {
  const std::string trouble = "was to be recomputed and was not";
  finding out = make_finding(check, "", outcome::inconclusive, std::string(what) + " " + trouble);
  out.details.emplace_back("trouble", trouble);
  return out;
}

bool looked_at(measured status) noexcept {
  switch (status) {
    case measured::ok: return true;
    case measured::withheld: return !rule_enabled("transcript.withheld");
    case measured::unknown_form: return !rule_enabled("agreed.schema");
    case measured::unlawful: return !rule_enabled("agreed.recipe_state");
    case measured::tampered:
    case measured::prover_error: return !rule_enabled("transcript.checkpoint");
    case measured::verifier_error:
    case measured::unrepeatable: return false;
  }
  return false;
}

double noisier(double noise, double distance) noexcept {
  if (std::isnan(noise) || !std::isfinite(distance)) return std::nan("");
  return std::max(noise, distance);
}

bool turns(double loss, double again) noexcept {
  return std::isfinite(again) != std::isfinite(loss);
}

loss_comparison compare_loss(double recorded, double recomputed, double noise,
                             const loss_limits& limits, bool turned) {
  loss_comparison out;
  out.difference = std::fabs(recomputed - recorded);
  const double size = 1 + std::fabs(recorded);
  const bool known = std::isfinite(noise);
  const double raw = std::max(limits.floor * size, known ? limits.safety * noise : 0);
  const double limit = std::max(limits.cap, limits.floor) * size;
  out.tolerance = std::min(raw, limit);
  out.finite = std::isfinite(recorded) && std::isfinite(recomputed);
  if (!out.finite) {
    // A recipe that diverges does so on both sides.
    const bool diverges = !std::isfinite(recorded) && !std::isfinite(recomputed);
    out.result = !rule_enabled("transcript.finite") ? outcome::pass
                 : diverges || turned               ? outcome::inconclusive
                                                    : outcome::reject;
  } else if (!known && rule_enabled("transcript.finite")) {
    out.result = outcome::inconclusive;
    out.noise_finite = false;
  } else if (!(out.difference <= out.tolerance)) {
    // A loss of low precision is a whole unit off at once, which no repeat need have shown.
    const bool far = out.difference > std::max(limits.margin * raw, limits.doubt * size);
    out.result = far ? outcome::reject : outcome::inconclusive;
  }
  return out;
}

std::string text_of(const loss_comparison& compared, std::uint64_t step, double recorded,
                    double recomputed) {
  std::array<std::string, 2> losses{precise(recorded), precise(recomputed)};
  if (compared.finite && losses[0] == losses[1] && recorded != recomputed) {
    losses = {canonical_json(recorded), canonical_json(recomputed)};
  }
  const std::string both =
      "step " + text(step) + " logged loss " + losses[0] + ", recomputed " + losses[1];
  if (!compared.finite) return both;
  return both + ", tolerance " +
         (compared.noise_finite ? text(compared.tolerance)
                                : "not known: an honest repeat is not finite");
}

}  // namespace potl::checks
