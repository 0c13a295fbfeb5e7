// SPDX-License-Identifier: Apache-2.0
#include <potl/core/finding.hpp>

namespace potl {

const char* to_string(outcome what) noexcept {
  switch (what) {
    case outcome::pass: return "pass";
    case outcome::reject: return "reject";
    case outcome::inconclusive: return "inconclusive";
    case outcome::note: return "note";
  }
  return "note";
}

const char* to_string(verdict what) noexcept {
  switch (what) {
    case verdict::accepted: return "accepted";
    case verdict::rejected: return "rejected";
    case verdict::inconclusive: return "inconclusive";
  }
  return "inconclusive";
}

}  // namespace potl
