// SPDX-License-Identifier: Apache-2.0
// Python asks and judges it: only the description is here.
#include <potl/checks/extra_task_options.hpp>

#include "checks/builtin.hpp"

namespace potl::checks {

check_info builtin::extra_task() {
  check_info out;
  out.name = "extra_task";
  out.looks_at = "what the model knows of the secret samples";
  out.cannot_see = {
      "A model that was stopped early and then tuned on the extra samples alone passes; only "
      "replay "
      "sees that.",
      "How the model was trained is not seen, only that it learned what is learned last.",
  };
  out.options = describe(extra_task_options::fields());
  out.cost = "one forward pass over the extra samples and their controls";
  return out;
}

}  // namespace potl::checks
