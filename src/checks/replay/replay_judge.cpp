// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include <potl/checks/detail/reach.hpp>
#include <potl/core/rules.hpp>

#include "checks/judging.hpp"
#include "checks/replay/replay_draw.hpp"
#include "checks/replay/replay_group.hpp"
#include "checks/replay/replay_losses.hpp"
#include "checks/text.hpp"

namespace potl::checks {
namespace {

bool same_target(const segment_request& a, const segment_request& b) {
  return a.start == b.start && a.end == b.end && a.superseded == b.superseded &&
         (!a.superseded || a.branch == b.branch);
}

using facts = std::vector<std::pair<std::string, fact>>;

std::string name_of(const segment_request& request) {
  std::string out = "segment " + text(request.start) + "-" + text(request.end);
  if (request.superseded) out += " (superseded, branch " + text(request.branch) + ")";
  return out;
}

class replay_judge {
 public:
  replay_judge(const run_view& run, const replay_options& options,
               std::span<const segment_measurement> measurements)
      : run_(run),
        options_(options),
        measurements_(measurements),
        context_(detail::make_context(run, options, measurements)) {}

  std::vector<finding> run(const detail::replay_selection& selection) {
    for (const segment_measurement& one : measurements_) segment(one);
    for (const segment_request& request : selection.requests) {
      if (find(request) == nullptr) {
        out_.push_back(finding_of_missing("replay", name_of(request)));
      }
    }
    guard_interpolation(selection.all.size());
    if (options_.reach > 0 && rule_enabled("replay.reach")) {
      out_.push_back(judge_reach(run_, options_.reach, selection.pool.size(),
                                 judged_of(selection.random).judged, measurements_));
    }
    if (rule_enabled("replay.random_segments")) count_random(selection);
    return std::move(out_);
  }

 private:
  const segment_measurement* find(const segment_request& request) const {
    const auto at = std::find_if(measurements_.begin(), measurements_.end(), [&](const auto& one) {
      return same_target(one.request, request);
    });
    return at == measurements_.end() ? nullptr : &*at;
  }

  static void place(finding& one, const segment_request& request) {
    if (!one.first_step) one.first_step = request.start + 1;
    if (!one.last_step) one.last_step = request.end;
  }

  void segment(const segment_measurement& one) {
    finding summary = make_finding("replay", "replay.parameters", outcome::note, "");
    place(summary, one.request);
    const std::string name = name_of(one.request);
    std::string status = to_string(one.status);
    double ratio = 0;
    std::vector<finding> problems;
    facts numbers;
    if (one.status != measured::ok) {
      if (auto problem = finding_of(one.status, "replay", name, one.message)) {
        problems.push_back(std::move(*problem));
      } else {
        status = "skipped";
      }
      summary.reason = name + ": not replayed";
    } else {
      problems = detail::judge_losses(run_, context_, one);
      if (auto problem = finding_of_not_finite(one.not_finite, "replay", name)) {
        problems.push_back(std::move(*problem));
      }
      if (one.rounding) rounding(*one.rounding, problems, numbers);
      if (one.digest_equal) {
        summary.reason = name + " ends in the recorded state, bit for bit";
      } else if (one.request.superseded) {
        superseded(one, problems);
        summary.reason = name + " was replayed";
      } else if (detail::turned_skip(run_, context_, one)) {
        summary.reason = name + " was replayed up to a step that was skipped once";
      } else if (context_.exact && one.distances.empty()) {
        // Nothing was stored to measure against, and nothing needs to be measured.
        summary.reason = name + " ends in another state";
        if (one.not_finite.empty() && rule_enabled("replay.parameters")) {
          problems.push_back(make_finding("replay", "replay.parameters", outcome::reject,
                                          name + " ends in another state than its record binds"));
        }
      } else {
        ratio = distances(one, problems, numbers);
        summary.reason = context_.exact ? name + " ends in another state"
                                        : name + " ends at " + text(ratio) + " of its tolerance";
        summary.threshold = 1;
      }
      summary.statistic = ratio;
    }
    const bool fine = problems.empty() && one.status == measured::ok;
    if (fine) summary.result = outcome::pass;
    summary.details = {{"segment", text(one.request.start) + "-" + text(one.request.end)},
                       {"why", one.request.why},
                       {"status", status},
                       {"equal", one.digest_equal},
                       {"load_seconds", one.load_seconds},
                       {"replay_seconds", one.replay_seconds},
                       {"noise_seconds", one.noise_seconds}};
    summary.details.insert(summary.details.end(), numbers.begin(), numbers.end());
    for (finding& problem : problems) {
      place(problem, one.request);
      name_first_difference(problem, one);
      out_.push_back(std::move(problem));
    }
    out_.push_back(std::move(summary));
  }

  // An accusation has been decided by exact dot products; its proof goes with it.
  static void rounding(const rounding_summary& seen, std::vector<finding>& problems,
                       facts& numbers) {
    const facts told = {{"rounding.values", seen.values},
                        {"rounding.entries", seen.entries},
                        {"rounding.corrections", seen.corrections},
                        {"rounding.moved_l2", seen.moved_l2},
                        {"rounding.reachable_l2", seen.reachable_l2}};
    numbers.insert(numbers.end(), told.begin(), told.end());
    if (seen.rejected == 0 || !rule_enabled("replay.rounding")) return;
    for (const rounding_rejection& each : seen.rejections) {
      finding one = make_finding(
          "replay", "replay.rounding", outcome::reject,
          "the rounding log of step " + text(each.step) + ": " + each.fault + ", " + each.message);
      one.first_step = one.last_step = each.step;
      one.details = {{"fault", each.fault}, {"rejected", seen.rejected}};
      if (!each.proof.empty()) one.details.emplace_back("proof", each.proof);
      problems.push_back(std::move(one));
    }
    if (!seen.rejections.empty()) return;
    problems.push_back(make_finding("replay", "replay.rounding", outcome::reject,
                                    text(seen.rejected) + " elements of rounding logs are wrong"));
  }

  void superseded(const segment_measurement& one, std::vector<finding>& problems) const {
    const bool comparable = context_.exact && one.not_finite.empty();
    if (!comparable || !rule_enabled("transcript.resume")) return;
    problems.push_back(make_finding("replay", "transcript.resume", outcome::reject,
                                    name_of(one.request) + " ends in another state when replayed"));
  }

  static bool rejects(const finding& one) { return one.result == outcome::reject; }

  // The largest ratio of distance to tolerance over the groups.
  double distances(const segment_measurement& one, std::vector<finding>& problems, facts& numbers) {
    double ratio = 0;
    bool any_distance = false;
    std::vector<std::string> names{"parameters", "buffers", "optimizer", "other"};
    for (const group_distance& group : one.distances) {
      if (detail::is_next(group.group)) names.push_back(group.group);
    }
    for (const std::string& which : names) {
      detail::group_judgement judged = detail::judge_group(context_, one, which);
      // What is off already is off a step later, too.
      const bool news = !detail::is_next(which) || problems.empty() ||
                        (judged.problem && judged.problem->result == outcome::reject &&
                         std::none_of(problems.begin(), problems.end(), rejects));
      if (judged.problem && news) {
        judged.problem->details.emplace_back("group", which);
        problems.push_back(std::move(*judged.problem));
      }
      ratio = std::max(ratio, judged.ratio());
      if (which == "parameters" && !(judged.tolerance <= 0)) {
        tolerance_sum_ += judged.tolerance;
        ++tolerances_;
      }
      for (const group_distance& group : one.distances) {
        if (group.group != which) continue;
        any_distance = any_distance || !(group.l2 <= 0) || !group.tensors.empty() ||
                       !group.structure_equal || !group.finite;
        const std::string prefix = which + ".";
        numbers.emplace_back(prefix + "l1", group.l1);
        numbers.emplace_back(prefix + "l2", group.l2);
        numbers.emplace_back(prefix + "linf", group.linf);
        numbers.emplace_back(prefix + "cosine", group.cosine);
        numbers.emplace_back(prefix + "update_l2", group.update_l2);
        numbers.emplace_back(prefix + "tolerance", judged.tolerance);
        numbers.emplace_back(prefix + "noise", judged.noise);
      }
    }
    // Of what is not finite, the bits may be the processor's: docs/reference/arithmetic.md.
    const bool same = !any_distance && one.distances.size() >= 4;
    if (context_.exact && same && one.not_finite.empty() && rule_enabled("replay.parameters")) {
      problems.push_back(make_finding(
          "replay", "replay.parameters", outcome::reject,
          name_of(one.request) + " ends in a state with other bits, though all values are equal"));
    }
    return ratio;
  }

  void name_first_difference(finding& problem, const segment_measurement& one) const {
    if (!one.first_differing_step) return;
    problem.details.emplace_back("first_differing_step", *one.first_differing_step);
    if (!context_.exact) return;
    problem.reason +=
        "; the first step that ends in other bits is " + text(*one.first_differing_step);
    if (!one.first_differing_operator) return;
    problem.details.emplace_back("first_differing_operator", *one.first_differing_operator);
    problem.reason += ", the first operator in it: " + *one.first_differing_operator;
  }

  // Rule 6: who may be off by the tolerance in every segment must not get anywhere with it.
  void guard_interpolation(std::size_t segments) {
    if (tolerances_ == 0 || !rule_enabled("replay.interpolation_guard") ||
        !rule_enabled("replay.update_relative")) {
      return;
    }
    const auto travelled = run_.parameter_distance(0, run_.last_step());
    if (!travelled) {
      const errc code = travelled.why().code;
      const bool excused = (code == errc::missing && !rule_enabled("transcript.withheld")) ||
                           (code == errc::mismatch && !rule_enabled("transcript.checkpoint"));
      if (excused) return;
      out_.push_back(make_finding(
          "replay", "", outcome::inconclusive,
          "the distance from first to last parameters is not known: " + travelled.why().message));
      return;
    }
    const double sum =
        tolerance_sum_ / static_cast<double>(tolerances_) * static_cast<double>(segments);
    const bool comparable = std::isfinite(sum) && std::isfinite(travelled.value());
    if (!comparable && !rule_enabled("transcript.finite")) return;
    const bool reached = !comparable || !(sum < travelled.value());
    finding one = make_finding(
        "replay", "replay.interpolation_guard", reached ? outcome::inconclusive : outcome::pass,
        "tolerances add up to " + text(sum) + " over " + text(segments) +
            " segments, the parameters travelled " + text(travelled.value()) +
            (reached ? ": an interpolation could pass, use shorter segments or exact arithmetic"
                     : ""));
    one.statistic = sum;
    one.threshold = travelled.value();
    out_.push_back(std::move(one));
  }

  struct judged_draw {
    std::uint64_t judged = 0;
    std::uint64_t published = 0;  // beside these, by a tolerance that cannot accept
  };

  judged_draw judged_of(const std::vector<::potl::checks::segment>& segments) const {
    judged_draw out;
    for (const ::potl::checks::segment& drawn : segments) {
      segment_request request;
      request.start = drawn.start;
      request.end = drawn.end;
      const segment_measurement* one = find(request);
      if (one == nullptr || !looked_at(one->status)) continue;
      if (detail::is_published(options_) && !one->digest_equal) {
        ++out.published;
      } else {
        ++out.judged;
      }
    }
    return out;
  }

  void count_random(const detail::replay_selection& selection) {
    const auto [judged, published] = judged_of(selection.random);
    const bool all = judged == selection.random.size();
    finding one = make_finding(
        "replay", "replay.random_segments", all ? outcome::pass : outcome::inconclusive,
        text(judged) + " of " + text(selection.random.size()) + " randomly drawn segments, of " +
            text(selection.all.size()) + " in all, were judged" +
            (published == 0
                 ? std::string()
                 : "; " + text(published) + " only by a published tolerance, which cannot accept"));
    one.statistic = static_cast<double>(judged);
    one.threshold = static_cast<double>(selection.random.size());
    one.details = {{"segments", std::uint64_t{selection.all.size()}},
                   {"pool", std::uint64_t{selection.pool.size()}},
                   {"requested", std::uint64_t{selection.random.size()}},
                   {"judged", judged},
                   {"all", judged_of(selection.all).judged == selection.all.size()},
                   {"tolerance", std::string(context_.exact                 ? "exact"
                                             : options_.tolerance == "auto" ? "calibrated"
                                                                            : options_.tolerance)}};
    out_.push_back(std::move(one));
  }

  const run_view& run_;
  const replay_options& options_;
  std::span<const segment_measurement> measurements_;
  detail::replay_context context_;
  std::vector<finding> out_;
  double tolerance_sum_ = 0;
  std::uint64_t tolerances_ = 0;
};

}  // namespace

result<std::vector<finding>> judge_replay(const run_view& run, const replay_options& options,
                                          const digest& nonce,
                                          std::span<const segment_measurement> measurements) {
  for (const segment_measurement& one : measurements) {
    if (one.request.end <= one.request.start) {
      return error{errc::usage, "a measurement of an empty segment", ""};
    }
  }
  // The largest updates are the prover's choice: they need no ranking here, their measurements do.
  const auto selection = detail::select_segments(run, options, nonce, false);
  if (!selection) return selection.why();
  return replay_judge(run, options, measurements).run(selection.value());
}

}  // namespace potl::checks
