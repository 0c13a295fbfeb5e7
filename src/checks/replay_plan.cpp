// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <string_view>

#include <potl/core/rules.hpp>
#include <potl/crypto/challenge.hpp>

#include "replay_draw.hpp"

namespace potl::checks {
namespace detail {
namespace {

struct earlier_challenge {
  digest nonce;
  std::uint64_t samples = 0;
};

result<earlier_challenge> parse_earlier(std::string_view text, std::uint64_t samples) {
  const error wrong{
      errc::usage, "replay: \"" + std::string(text.substr(0, 100)) + "\" in \"repeat\" is no nonce",
      "64 lower-case hexadecimal digits, optionally followed by a colon and a number"};
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto nonce = digest::from_hex(text.substr(0, colon));
  if (!nonce) return wrong;
  earlier_challenge out{nonce.value(), samples};
  if (colon < text.size()) {
    const std::string_view number = text.substr(colon + 1);
    const auto end = number.data() + number.size();
    const auto parsed = std::from_chars(number.data(), end, out.samples);
    if (parsed.ec != std::errc() || parsed.ptr != end) return wrong;
  }
  return out;
}

result<std::vector<segment>> draw(const run_view& run, const std::vector<segment>& pool,
                                  const digest& nonce, std::uint64_t samples) {
  const auto seed = challenge_seed(nonce, run.commitment, "replay");
  const auto drawn = draw_sorted(seed, pool.size(), std::min<std::uint64_t>(samples, pool.size()));
  if (!drawn) return drawn.why();
  std::vector<segment> out;
  for (const std::uint64_t index : drawn.value()) out.push_back(pool[index]);
  return out;
}

// The q largest parameter updates of each epoch, by the norms between stored checkpoints.
result<std::vector<segment>> largest(const run_view& run, const std::vector<segment>& all,
                                     std::uint64_t q) {
  std::map<std::uint64_t, std::vector<std::pair<double, segment>>> epochs;
  for (const segment& one : all) {
    if (!was_recorded(run, one)) continue;
    const auto moved = run.parameter_distance(one.start, one.end);
    if (!moved) {
      // What is missing or damaged shows when its segment is asked for.
      if (moved.why().code == errc::missing || moved.why().code == errc::mismatch) continue;
      return moved.why();
    }
    epochs[run.agreed.epoch_of(one.start + 1)].emplace_back(moved.value(), one);
  }
  std::vector<segment> out;
  for (auto& [epoch, list] : epochs) {
    std::stable_sort(list.begin(), list.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (std::size_t i = 0; i < list.size() && i < q; ++i) out.push_back(list[i].second);
  }
  return out;
}

}  // namespace

bool is_exact(const run_view& run, const replay_options& options) {
  return options.tolerance == "exact" ||
         (options.tolerance == "auto" && run.agreed.arithmetic != "stock");
}

bool is_published(const replay_options& options) {
  return options.tolerance == "d_ref" || options.tolerance == "mean_grad_norm";
}

result<replay_selection> select_segments(const run_view& run, const replay_options& options,
                                         const digest& nonce, bool rank) {
  if (options.top_q > 0 && run.agreed.store_every != 0) {
    return error{errc::usage,
                 "replay: top_q ranks the updates between all checkpoints, and the job lets the "
                 "trainer store only some of them",
                 "leave top_q at 0: the same replays drawn at random say more"};
  }
  replay_selection out;
  out.all = segments_of(run);
  const auto repeats =
      static_cast<std::uint32_t>(is_exact(run, options) ? 0 : options.noise_repeats);
  const auto ask = [&](const segment& one, const char* why) {
    if (!was_recorded(run, one)) return;
    for (const segment_request& known : out.requests) {
      if (!known.superseded && known.start == one.start && known.end == one.end) return;
    }
    segment_request request;
    request.start = one.start;
    request.end = one.end;
    request.why = why;
    request.noise_repeats = repeats;
    out.requests.push_back(std::move(request));
  };

  const bool final_always = rule_enabled("replay.final_segment");
  for (std::size_t i = 0; i < out.all.size(); ++i) {
    const bool last = i + 1 == out.all.size();
    if (last && final_always) {
      ask(out.all[i], "final");
    } else if (i == 0) {
      ask(out.all[i], "first");
    } else {
      out.pool.push_back(out.all[i]);
    }
  }
  std::uint64_t q = options.top_q;
  if (rule_enabled("replay.random_segments")) {
    auto drawn = draw(run, out.pool, nonce, options.samples);
    if (!drawn) return drawn.why();
    out.random = std::move(drawn).value();
    for (const segment& one : out.random) ask(one, "random");
    for (const std::string& text : options.repeat) {
      const auto earlier = parse_earlier(text, options.samples);
      if (!earlier) return earlier.why();
      const auto again = draw(run, out.pool, earlier->nonce, earlier->samples);
      if (!again) return again.why();
      for (const segment& one : again.value()) ask(one, "earlier challenge");
    }
  } else {
    q = std::max<std::uint64_t>(q, 1);  // what was published: the largest updates alone
  }
  if (rank && q > 0) {
    const auto found = largest(run, out.all, q);
    if (!found) return found.why();
    for (const segment& one : found.value()) ask(one, "top-q");
  }
  if (rule_enabled("transcript.resume")) {
    for (const transcript::superseded_range& range : run.superseded) {
      if (range.last_step <= range.from_step) continue;
      segment_request request;
      request.start = range.from_step;
      request.end = range.last_step;
      request.why = "superseded";
      request.branch = range.branch;
      request.start_branch = range.start_branch;
      request.superseded = true;
      request.noise_repeats = repeats;
      out.requests.push_back(std::move(request));
    }
  }
  return out;
}

}  // namespace detail

result<std::vector<segment_request>> plan_replay(const run_view& run, const replay_options& options,
                                                 const digest& nonce) {
  auto selection = detail::select_segments(run, options, nonce, true);
  if (!selection) return selection.why();
  std::vector<segment_request> requests = std::move(selection->requests);
  std::stable_sort(requests.begin(), requests.end(), [](const auto& a, const auto& b) {
    return std::pair(a.start, a.superseded) < std::pair(b.start, b.superseded);
  });
  return requests;
}

}  // namespace potl::checks
