// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include <potl/checks/detail/reach.hpp>
#include <potl/core/rules.hpp>
#include <potl/crypto/challenge.hpp>

#include "checks/replay/replay_draw.hpp"

namespace potl::checks {
namespace detail {
namespace {

struct earlier_challenge {
  digest nonce;
  std::uint64_t samples = 0;
};

result<earlier_challenge> parse_earlier(std::string_view text, std::uint64_t samples) {
  const error wrong{
      errc::usage,
      "replay: \"" + std::string(text.substr(0, 100)) + "\" in \"repeat\" is not a nonce",
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

// Stretches that are looked at beside those that were drawn: all that are beyond reach, the
// furthest first, and of each epoch the q that are nearest to it. The job and the samples bound the
// work; what is beyond and finds no room is judge_reach's.
class screened_choice {
 public:
  screened_choice(const std::vector<segment>& all, const std::vector<segment_request>& asked)
      : all_(all) {
    for (const segment_request& one : asked) {
      if (!one.superseded) insert({one.start, one.end});
    }
  }

  // In the order of their ratios; those that cannot be read show it when they are asked for.
  static std::vector<screened> ranked(std::vector<screened> stretches) {
    const auto rank = [](const screened& one) {
      return std::isnan(one.ratio) ? std::numeric_limits<double>::infinity() : one.ratio;
    };
    std::stable_sort(stretches.begin(), stretches.end(),
                     [&](const screened& a, const screened& b) { return rank(a) > rank(b); });
    return stretches;
  }

  // Segments that asking for it adds; 0: it is replayed anyway.
  std::uint64_t price(const segment& stretch) const {
    std::uint64_t out = 0, missing = 0;
    for (const segment& one : all_) {
      if (one.start < stretch.start || one.end > stretch.end) continue;
      ++out;
      missing += asked_.count(one.start) == 0;
    }
    return missing == 0 ? 0 : out;
  }

  bool has_spent() const { return spent_ > 0; }

  // `anyway`: whether it may exceed what is left.
  bool take(const segment& stretch, std::uint64_t budget, bool anyway) {
    const std::uint64_t cost = price(stretch);
    if (cost == 0 || (spent_ + cost > budget && !anyway)) return false;
    spent_ += cost;
    insert(stretch);
    return true;
  }

 private:
  void insert(const segment& stretch) {
    for (const segment& one : all_) {
      if (one.start >= stretch.start && one.end <= stretch.end) asked_.insert(one.start);
    }
  }

  const std::vector<segment>& all_;
  std::set<std::uint64_t> asked_;
  std::uint64_t spent_ = 0;
};

// What honest records of a step have in common, however often and wherever it was done.
std::vector<std::uint8_t> bits_of(transcript::step_record what) {
  what.flags &= transcript::training_step_flags;
  what.duration_ns = 0;
  what.random_draws = 0;
  return transcript::encode(what);
}

struct parting {
  const transcript::superseded_range* range = nullptr;  // none: there is no parting
  std::uint64_t step = 0;
};

// Exact arithmetic has one history: steps that were superseded by the same are judged with these.
// Where the first of the others begins, both branches have one state before it, and one of them
// has recorded something else than comes of it.
parting first_parting(const run_view& run) {
  parting first;
  for (const transcript::superseded_range& range : run.superseded) {
    for (std::uint64_t step = range.from_step + 1; step <= range.last_step; ++step) {
      if (first.range != nullptr && step >= first.step) break;
      const auto *old = run.superseded_step(range.branch, step), *kept = run.step(step);
      if (old == nullptr || kept == nullptr || bits_of(*old) != bits_of(*kept))
        first = {&range, step};
    }
  }
  return first;
}

}  // namespace

bool is_exact(const run_view& run, const replay_options& options) {
  return options.tolerance == "exact" || (options.tolerance == "auto" && run.agreed.is_exact());
}

bool is_published(const replay_options& options) {
  return options.tolerance == "d_ref" || options.tolerance == "mean_grad_norm";
}

result<replay_selection> select_segments(const run_view& run, const replay_options& options,
                                         const digest& nonce, bool rank) {
  replay_selection out;
  out.all = segments_of(run);
  const auto ask = [&](const segment& one, const char* why) {
    if (!was_recorded(run, one)) return;
    for (const segment_request& known : out.requests) {
      if (!known.superseded && known.start == one.start && known.end == one.end) return;
    }
    segment_request request;
    request.start = one.start;
    request.end = one.end;
    request.why = why;
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
  const bool reaches = options.reach > 0 && rule_enabled("replay.reach");
  const std::vector<segment> stretches = stretches_of(run);
  if (reaches && !stretches.empty()) {
    // What it moves, from the agreed state on, is usual.
    const bool open = screened_choice(out.all, out.requests).price(stretches.front()) > 0;
    if (open) ask(stretches.front(), "first");
    const auto is_asked = [&](const segment& one) {
      return std::any_of(out.requests.begin(), out.requests.end(), [&](const auto& known) {
        return known.start == one.start && known.end == one.end;
      });
    };
    for (const segment& one : steering_segments(run, out.all, is_asked)) ask(one, "log");
  }
  if (rank && run.moved && (q > 0 || reaches)) {
    screened_choice choice(out.all, out.requests);
    const auto moved = run.moved();
    const auto ranked = screened_choice::ranked(
        screen(run, *moved, usual_by(stretches.size(), out.pool.size(), out.random.size()))
            .stretches);
    // However many tensors rested, what moved them last takes nobody's place.
    screened_choice rested(out.all, out.requests);
    for (const screened& one : ranked) {
      if (!reaches || !is_beyond(one, options.reach)) break;
      const bool furthest = !choice.has_spent();
      const auto take = [&](const segment& each) {
        if (choice.take(each, options.samples, furthest)) ask(each, "reach");
      };
      take(one.where);
      const std::vector<segment> led = what_led_to(*moved, one.where);
      for (std::size_t i = 0; i < led.size(); ++i) {
        if (i == 0) {
          take(led[i]);
        } else if (rested.take(led[i], options.samples, !rested.has_spent())) {
          ask(led[i], "reach");
        }
      }
    }
    // However many change honestly, they leave nothing undecided: which are false is not known.
    const std::uint64_t some = (options.samples + 3) / 4;
    screened_choice turned(out.all, out.requests);
    std::vector<screened> settings;
    if (reaches) settings = screened_choice::ranked(screen_settings(run, *moved));
    for (const screened& one : settings) {
      if (one.ratio > 0 && turned.take(one.where, some, !turned.has_spent()))
        ask(one.where, "reach");
    }
    std::map<std::uint64_t, std::uint64_t> epochs;
    const std::uint64_t room = (options.samples + 9) / 10;
    screened_choice nearest(out.all, out.requests), causes(out.all, out.requests);
    for (const screened& one : ranked) {
      std::uint64_t& taken = epochs[run.agreed.epoch_of(one.where.start + 1)];
      if (taken++ >= q) continue;
      if (nearest.take(one.where, room, false)) ask(one.where, "top-q");
      // True steps go further than the false momentum that carries them.
      for (const segment& each : what_led_to(*moved, one.where)) {
        if (causes.take(each, room, false)) ask(each, "top-q");
      }
    }
  }
  if (rule_enabled("transcript.resume")) {
    const bool exact = is_exact(run, options);
    const parting parted = exact ? first_parting(run) : parting();
    for (const transcript::superseded_range& range : run.superseded) {
      if (range.last_step <= range.from_step) continue;
      if (exact && &range != parted.range) continue;
      segment_request request;
      request.start = range.from_step;
      request.end = exact ? parted.step : range.last_step;
      request.why = "superseded";
      request.branch = range.branch;
      request.start_branch = range.start_branch;
      request.superseded = true;
      out.requests.push_back(std::move(request));
    }
    for (const segment& one : out.all) {
      if (one.start < parted.step && parted.step <= one.end) ask(one, "superseded");
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
  if (detail::is_exact(run, options)) return requests;
  // The noise of some speaks for the others; the first starts where the prover has no say.
  constexpr std::size_t every = 4;
  std::size_t number = 0;
  for (segment_request& one : requests) {
    if (one.superseded) continue;
    const std::uint64_t repeats = number == 0 ? options.noise_repeats : number % every == 0 ? 1 : 0;
    one.noise_repeats = static_cast<std::uint32_t>(repeats);
    ++number;
  }
  return requests;
}

}  // namespace potl::checks
