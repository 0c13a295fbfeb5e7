// SPDX-License-Identifier: Apache-2.0
#include <potl/report.hpp>

namespace potl {

std::vector<std::string> limits_of(std::string_view check) {
  if (check == "transcript") {
    return {
        "An intact record says that the prover cannot change its story, not that the story is "
        "true.",
        "Who had access to the signing key is not proven, only that the key was used.",
    };
  }
  if (check == "replay") {
    return {
        "Segments that were not drawn were not looked at. A false one carries the weights anywhere "
        "within reach.",
        "A deviation below the tolerance is not seen; where the end states are equal bit for bit, "
        "there is none.",
        "A recipe that is harmful as agreed is replayed faithfully.",
    };
  }
  if (check == "pev") {
    return {
        "Losses say nothing about what the optimizer did with the gradients.",
        "Only the batches of the chosen steps were recomputed.",
    };
  }
  if (check == "telemetry") {
    return {"Readings can be invented: they never accept or reject."};
  }
  if (check == "extra_task") {
    return {
        "A model that was stopped early and then tuned on the extra samples alone passes; only "
        "replay sees that.",
        "How the model was trained is not seen, only that it learned what is learned last.",
    };
  }
  if (check == "model") {
    return {"Only the tensors in the file are compared; code that loads them is not."};
  }
  return {};
}

}  // namespace potl
