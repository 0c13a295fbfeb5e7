// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <potl/checks/pev.hpp>
#include <potl/crypto/challenge.hpp>

namespace potl::checks {
namespace {

std::uint64_t share_of(std::size_t count, double fraction) {
  return static_cast<std::uint64_t>(std::ceil(fraction * static_cast<double>(count) * (1 - 1e-12)));
}

// Segments by the epoch of their first step. Where the job stores few states, those that begin at
// one: on the way to another the verifier would have to train.
std::map<std::uint64_t, std::vector<segment>> segments_by_epoch(const run_view& run) {
  std::map<std::uint64_t, std::vector<segment>> out;
  for (const segment& one : segments_of(run)) {
    if (run.agreed.store_every != 0 && !run.agreed.is_checkpoint(one.start)) continue;
    out[run.agreed.epoch_of(one.start + 1)].push_back(one);
  }
  return out;
}

result<pev_plan> plan_default(const run_view& run, const pev_options& options,
                              const digest& nonce) {
  pev_plan out;
  for (const auto& [epoch, pool] : segments_by_epoch(run)) {
    const std::uint64_t wanted =
        std::max(options.per_epoch, share_of(pool.size(), options.fraction));
    const auto seed = challenge_seed(nonce, run.commitment, "pev epoch " + std::to_string(epoch));
    const auto drawn = draw_sorted(seed, pool.size(), std::min<std::uint64_t>(wanted, pool.size()));
    if (!drawn) return drawn.why();
    for (const std::uint64_t index : drawn.value()) {
      if (!was_recorded(run, pool[index])) continue;
      out.losses.push_back({pool[index].start + 1,
                            static_cast<std::uint32_t>(options.noise_repeats), options.loss_floor});
    }
  }
  return out;
}

result<pev_plan> plan_apex(const run_view& run, const pev_options& options, const digest& nonce) {
  pev_plan out;
  std::map<std::uint64_t, std::uint64_t> ends;  // last boundary inside each epoch
  for (const segment& one : segments_of(run)) {
    if (was_recorded(run, one)) ends[run.agreed.epoch_of(one.end)] = one.end;
  }
  std::uint64_t all = 0;
  for (const auto& [epoch, step] : ends) {
    const std::uint64_t count = run.agreed.data_count;
    const auto seed = challenge_seed(nonce, run.commitment, "pev subset " + std::to_string(epoch));
    const auto wanted = static_cast<std::uint64_t>(
        std::ceil(options.fraction * static_cast<double>(count) * (1 - 1e-12)));
    all += wanted;
    if (!run.job_is_own && all > transcript::max_foreign_samples) {
      return error{errc::limit, "so many samples are drawn for a job of one's own only",
                   "pass your copy of the job"};
    }
    const auto drawn = draw_sorted(seed, count, std::min(wanted, count));
    if (!drawn) return drawn.why();
    subset_loss_request request;
    request.step = step;
    for (const std::uint64_t id : drawn.value()) {
      request.sample_ids.push_back(static_cast<std::int64_t>(id));
    }
    out.subsets.push_back(std::move(request));
  }
  return out;
}

}  // namespace

std::span<const field<pev_options>> pev_options::fields() {
  using row = field<pev_options>;
  using options = pev_options;
  // clang-format off
  static const std::array table{
      row{"mode", &options::mode, -unbounded, unbounded, "default apex",
          "default: recorded batches at committed weights; apex: the published comparison of epoch means"},
      row{"fraction", &options::fraction, 1e-6, 1, "",
          "share of the checkpoints (apex: of the data, N in percent) looked at in each epoch"},
      row{"per_epoch", &options::per_epoch, 1, 1e6, "",
          "smallest number of checkpoints looked at in each epoch that has so many"},
      row{"noise_repeats", &options::noise_repeats, 0, 1000, "",
          "perturbed recomputations of each loss, in stock arithmetic"},
      row{"safety", &options::safety, 1, 1000, "",
          "how many times the largest difference among those repeats the tolerance is"},
      row{"loss_floor", &options::loss_floor, 0, 1, "",
          "smallest tolerance, relative to 1 + the loss"},
      row{"loss_cap", &options::loss_cap, 0, 1, "",
          "largest tolerance, relative to 1 + the loss"},
  };
  // clang-format on
  return table;
}

result<pev_options> pev_options::parse(const json_value& from) {
  return parse_options("pev", fields(), from);
}

result<pev_plan> plan_pev(const run_view& run, const pev_options& options, const digest& nonce) {
  return options.mode == "apex" ? plan_apex(run, options, nonce)
                                : plan_default(run, options, nonce);
}

}  // namespace potl::checks
