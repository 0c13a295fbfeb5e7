// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <potl/checks/replay.hpp>

#include "checks/builtin.hpp"
#include "checks/described.hpp"

namespace potl::checks {
namespace {

class replay_check final : public detail::check_of<replay_options> {
 public:
  using check_of::check_of;

  result<std::vector<request>> plan(const run_view& run, const digest& nonce) const override {
    const auto planned = plan_replay(run, options_, nonce);
    if (!planned) return planned.why();
    return std::vector<request>(planned.value().begin(), planned.value().end());
  }

  result<std::vector<request>> plan_again(const run_view& run,
                                          std::span<const measurement> seen) const override {
    const auto planned = plan_noise(run, options_, of_kind<segment_measurement>(seen));
    return std::vector<request>(planned.begin(), planned.end());
  }

  result<std::vector<finding>> judge(const run_view& run, const digest& nonce,
                                     std::span<const measurement> answers) const override {
    return judge_replay(run, options_, nonce, of_kind<segment_measurement>(answers));
  }

  // Segments that were drawn for an earlier replay join the replay of now, so that each is judged
  // once.
  check_pointer joined_by(const check& earlier, const digest& nonce) const override {
    const auto* other = dynamic_cast<const replay_check*>(&earlier);
    if (other == nullptr) return nullptr;
    replay_options out = options_;
    std::string draw = nonce.hex() + ":" + std::to_string(other->options_.samples);
    if (std::find(out.repeat.begin(), out.repeat.end(), draw) == out.repeat.end()) {
      out.repeat.push_back(std::move(draw));
    }
    return std::make_shared<const replay_check>(std::move(out));
  }
};

}  // namespace

check_info builtin::replay() {
  check_info out;
  out.name = replay_options::check;
  out.rank = 3;
  out.cannot_see = {
      "Segments that were not replayed were not looked at, if there are any. A false one carries "
      "the weights anywhere within reach.",
      "A deviation below the tolerance is not seen; where the end states are equal bit for bit, "
      "there is none.",
      "A recipe that is harmful as agreed is replayed faithfully.",
  };
  out.options = describe(replay_options::fields());
  out.cost = "one training step for each replayed step";
  out.make = detail::maker<replay_check, replay_options>();
  return out;
}

}  // namespace potl::checks
