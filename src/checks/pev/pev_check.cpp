// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/pev.hpp>

#include "checks/builtin.hpp"
#include "checks/described.hpp"

namespace potl::checks {
namespace {

class pev_check final : public detail::check_of<pev_options> {
 public:
  using check_of::check_of;

  result<std::vector<request>> plan(const run_view& run, const digest& nonce) const override {
    const auto planned = plan_pev(run, options_, nonce);
    if (!planned) return planned.why();
    std::vector<request> out(planned.value().losses.begin(), planned.value().losses.end());
    out.insert(out.end(), planned.value().subsets.begin(), planned.value().subsets.end());
    return out;
  }

  result<std::vector<finding>> judge(const run_view& run, const digest& nonce,
                                     std::span<const measurement> answers) const override {
    return judge_pev(run, options_, nonce, of_kind<loss_measurement>(answers),
                     of_kind<subset_loss_measurement>(answers));
  }
};

}  // namespace

check_info builtin::pev() {
  check_info out;
  out.name = pev_options::check;
  out.looks_at = "losses of drawn batches, computed again";
  out.is_needed = false;
  out.cannot_see = {
      "Losses say nothing about what the optimizer did with the gradients.",
      "Only the batches of the chosen steps were recomputed.",
  };
  out.options = describe(pev_options::fields());
  out.cost = "one forward pass for each chosen checkpoint and repeat";
  out.make = detail::maker<pev_check, pev_options>();
  return out;
}

}  // namespace potl::checks
