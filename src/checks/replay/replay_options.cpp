// SPDX-License-Identifier: Apache-2.0
#include <array>

#include <potl/checks/replay.hpp>

namespace potl::checks {

std::span<const field<replay_options>> replay_options::fields() {
  using row = field<replay_options>;
  using options = replay_options;
  // clang-format off
  static const std::array table{
      row{"samples", &options::samples, 0, 1e6, "",
          "segments drawn at random, beside the first, the last and superseded ones"},
      row{"top_q", &options::top_q, 0, 1e6, "",
          "stored states of each epoch that are replayed because they moved furthest, and what led to them; at most a tenth of `samples` each"},
      row{"reach", &options::reach, 0, 1e6, "",
          "states that moved more than this many times the usual distance are replayed with what led to "
          "them, at most twice `samples` more; 0: none"},
      row{"tolerance", &options::tolerance, -unbounded, unbounded,
          "auto exact calibrated d_ref mean_grad_norm",
          "auto: exact when the job names a reproducible arithmetic, else calibrated by the "
          "verifier's own repeats; d_ref and mean_grad_norm are the published ones and never accept alone"},
      row{"noise_repeats", &options::noise_repeats, 1, 1000, "",
          "honest replays in other arithmetics of a segment whose noise decides"},
      row{"safety", &options::safety, 1, 1000, "",
          "how many times the largest distance among those repeats the tolerance is"},
      row{"margin", &options::margin, 1, 1e6, "",
          "how many times what noise and rounding explain a difference must exceed to reject; smaller ones are inconclusive"},
      row{"loss_floor", &options::loss_floor, 0, 1, "",
          "smallest tolerance of a logged loss, relative to 1 + the loss"},
      row{"loss_cap", &options::loss_cap, 0, 1, "",
          "largest tolerance of a logged loss, relative to 1 + the loss"},
      row{"d_ref", &options::d_ref, 0, unbounded, "",
          "l2 distance of the parameters of two independent trainings; tolerance d_ref is a hundredth of it"},
      row{"repeat", &options::repeat, -unbounded, unbounded, "",
          "nonces of earlier challenges of this job (64 hexadecimal digits, optionally \":\" and how many samples "
          "they had), whose segments are replayed again"},
  };
  // clang-format on
  return table;
}

result<replay_options> replay_options::parse(const json_value& from) {
  result<replay_options> parsed = parse_options("replay", fields(), from);
  if (parsed && parsed->tolerance == "d_ref" && !parsed->d_ref) {
    return error{errc::usage, "replay: tolerance \"d_ref\" needs option \"d_ref\"",
                 "measure the distance of two independent trainings of the job"};
  }
  return parsed;
}

}  // namespace potl::checks
