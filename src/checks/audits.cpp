// SPDX-License-Identifier: Apache-2.0
// What is looked at without being chosen.
#include "checks/builtin.hpp"

namespace potl::checks::builtin {

check_info transcript() {
  check_info out;
  out.name = "transcript";
  out.asks = false;
  out.rank = 2;
  out.cannot_see = {
      "An intact record says that the prover cannot change its story, not that the story is true.",
      "Who had access to the signing key is not proven, only that the key was used.",
  };
  out.cost = "reading the log once";
  return out;
}

check_info model() {
  check_info out;
  out.name = "model";
  out.looks_at = "the delivered model, compared with the last recorded state";
  out.asks = false;
  out.rank = 4;
  out.cannot_see = {"Only the tensors in the file are compared; code that loads them is not."};
  out.cost = "reading the file and the last state once";
  return out;
}

check_info verifier() {
  check_info out;
  out.name = "verifier";
  out.asks = false;
  return out;
}

}  // namespace potl::checks::builtin
