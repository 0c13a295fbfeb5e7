// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/request.hpp>

#include "checks/text.hpp"

namespace potl::checks {

const char* to_string(measured what) noexcept {
  switch (what) {
    case measured::ok: return "ok";
    case measured::withheld: return "withheld";
    case measured::tampered: return "tampered";
    case measured::verifier_error: return "verifier_error";
    case measured::unrepeatable: return "unrepeatable";
    case measured::unknown_form: return "unknown_form";
    case measured::unlawful: return "unlawful";
    case measured::prover_error: return "prover_error";
  }
  return "verifier_error";
}

const char* to_string(judged_as what) noexcept {
  switch (what) {
    case judged_as::floats: return "floats";
    case judged_as::alone: return "alone";
    case judged_as::unmoved: return "unmoved";
    case judged_as::steady: return "steady";
    case judged_as::codes: return "codes";
    case judged_as::code_places: return "code_places";
  }
  return "floats";
}

std::string segment_request::place() const {
  std::string out = text(start) + "-" + text(end);
  if (superseded) out += " of branch " + text(branch);
  return out;
}

std::string segment_request::key() const {
  std::string out = place();
  if (superseded) out += " from branch " + text(start_branch);
  out += ", repeats " + text(std::uint64_t{noise_repeats});
  if (noise_if_equal) out += " always";
  return rough_repeats == 0 ? out : out + ", rough " + text(std::uint64_t{rough_repeats});
}

std::string loss_request::place() const { return text(step); }

std::string loss_request::key() const {
  return place() + ", repeats " + text(std::uint64_t{noise_repeats}) + ", floor " +
         precise(loss_floor);
}

std::string subset_loss_request::place() const { return text(step); }

std::string subset_loss_request::key() const {
  std::string out = place() + " of";
  for (const std::int64_t id : sample_ids) out += " " + std::to_string(id);
  return out;
}

}  // namespace potl::checks
