// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/telemetry.hpp>

#include "checks/builtin.hpp"
#include "checks/described.hpp"

namespace potl::checks {
namespace {

class telemetry_check final : public detail::check_of<telemetry_options> {
 public:
  using check_of::check_of;

  result<std::vector<finding>> judge(const run_view& run, const digest& /*nonce*/,
                                     std::span<const measurement> /*answers*/) const override {
    return judge_telemetry(run, options_);
  }
};

}  // namespace

check_info builtin::telemetry() {
  check_info out;
  out.name = telemetry_options::check;
  out.may_reject = false;
  out.is_needed = false;
  out.asks = false;
  out.cannot_see = {"Readings can be invented: they never accept or reject."};
  out.options = describe(telemetry_options::fields());
  out.cost = "milliseconds";
  out.make = detail::maker<telemetry_check, telemetry_options>();
  return out;
}

}  // namespace potl::checks
