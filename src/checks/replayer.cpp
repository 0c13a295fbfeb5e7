// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/replayer.hpp>

#include <algorithm>
#include <cmath>
#include <new>
#include <string_view>
#include <system_error>
#include <typeinfo>

#include <potl/checks/detail/finite.hpp>
#include <potl/checks/detail/schema.hpp>
#include <potl/checks/detail/steady.hpp>
#include <potl/core/error.hpp>

#include "checks/text.hpp"

namespace potl::checks {
namespace {

constexpr std::size_t attempts = 2;

measured status_of(errc code) {
  if (code == errc::missing) return measured::withheld;
  const bool damaged = code == errc::mismatch || code == errc::malformed;
  return damaged ? measured::tampered : measured::verifier_error;
}

const transcript::state_value* model_of(const transcript::state_value& root) {
  const auto* map = std::get_if<transcript::state_map>(&root.content);
  if (map == nullptr) return nullptr;
  for (const auto& [key, value] : *map) {
    if (key == transcript::state_key(std::string("model"))) return &value;
  }
  return nullptr;
}

std::string described(const error& why) {
  return why.remedy.empty() ? why.message : why.message + " (" + why.remedy + ")";
}

template <class Value>
Value opened_value(result<Value> loaded) {
  if (!loaded) throw replayer::failed{status_of(loaded.why().code), described(loaded.why())};
  return std::move(loaded).value();
}

}  // namespace

trouble trouble_of(const std::exception& thrown) {
  trouble out{typeid(thrown).name(), thrown.what(), false};
  if (const auto* ours = dynamic_cast<const exception*>(&thrown)) {
    const errc code = ours->details().code;
    out.message = described(ours->details());
    out.own = code == errc::io || code == errc::limit || code == errc::internal;
    return out;
  }
  // What LibTorch puts behind its message: a stack of addresses, others in every process.
  out.message.resize(std::min(out.message.size(), out.message.find("\nException raised from ")));
  const std::string_view text(out.message);
  out.own = dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr ||
            dynamic_cast<const std::system_error*>(&thrown) != nullptr ||
            text.find("out of memory") != text.npos ||
            text.find("can't allocate memory") != text.npos;
  return out;
}

replayer::replayer(const transcript::evidence& run, any_workload& work, replay_settings settings)
    : run_(run),
      view_(view_of(run)),
      work_(work),
      settings_(settings),
      follows_(run.agreed().arithmetic == "log64") {
  try {
    initial_ = work.initial();
    run.expect_state_bytes(initial_->size_bytes());
    // A workload that begins elsewhere is not the agreed one: its form says nothing of the run.
    if (work.judges_states() || initial_->state_digest() != run.agreed().initial_state) return;
    if (const auto* model = model_of(initial_->root())) form_ = form_of(*model);
  } catch (const std::exception&) {
    // Then nobody is ever blamed for an exception.
  }
}

void replayer::start_clock() {
  deadline_.reset();
  if (settings_.timeout_seconds) {
    deadline_ = std::chrono::steady_clock::now() +
                std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                    std::chrono::duration<double>(*settings_.timeout_seconds));
  }
}

measurement replayer::answer(const request& asked) {
  start_clock();
  std::vector<std::string> kinds;
  for (;;) {
    bool again = false;
    measurement out = attempt(asked, kinds, again);
    if (!again) return out;
  }
}

// `kinds`: what earlier attempts failed with; `again`: try once more.
measurement replayer::attempt(const request& asked, std::vector<std::string>& kinds, bool& again) {
  try {
    work_.perturb(0, false);  // an earlier request may have failed in the middle of a repeat
    return asked.answer(*this);
  } catch (const failed& why) {
    return asked.unanswered(why.status, why.message);
  } catch (const suspect& one) {
    const bool same = kinds.empty() || kinds.front() == one.why.kind;
    kinds.push_back(one.why.kind);
    if (one.why.own || !passes(one.control)) {
      return asked.unanswered(measured::verifier_error, one.why.message);
    }
    again = kinds.size() < attempts;
    return asked.unanswered(same && !again ? measured::prover_error : measured::verifier_error,
                            one.why.message);
  } catch (const std::exception& thrown) {
    return asked.unanswered(measured::verifier_error, work_.trouble_of(thrown).message);
  }
}

bool replayer::passes(const std::function<void()>& control) {
  if (!initial_) return false;
  try {
    work_.perturb(0, false);
    work_.follow(0, nullptr);
    work_.load_state(*initial_, 0);
    control();
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

void replayer::check_time() const {
  if (deadline_ && std::chrono::steady_clock::now() > *deadline_) {
    throw failed{measured::verifier_error,
                 "TimeoutError: the request, with its repeats, took longer than its time limit "
                 "(raise timeout=)"};
  }
}

// ------------------------------------------------------------------ states

transcript::state replayer::load(std::uint64_t step, std::optional<std::uint64_t> branch) {
  const place where{step, branch};
  // A loss and the segment after it start from the same state.
  if (kept_ && kept_->first == where) return kept_->second;
  kept_.reset();
  if (!sized_) {
    if (const auto largest = work_.largest_state_bytes()) run_.expect_largest_state_bytes(*largest);
    sized_ = true;
  }
  bool is_missing = !branch && may_be_missing(step);
  if (is_missing && !settings_.derive) {  // it may have come since the run was opened
    const auto come = run_.load_state(step);
    is_missing = !come && come.why().code == errc::missing;
    if (is_missing) deadline_.reset();  // who withholds it cannot spend the verifier's time
  }
  transcript::state out = is_missing ? derived(step) : opened(step, branch);
  // A trainer on another processor than the recording one may come to no NaN that it could store.
  if (is_missing && !settings_.derive && not_finite(out).empty()) {
    throw failed{measured::withheld, "step " + text(step) + ": the state was asked for"};
  }
  require_lawful(out, step, branch);
  kept_ = {where, out};
  return out;
}

transcript::state replayer::opened(std::uint64_t step, std::optional<std::uint64_t> branch) {
  return opened_value(branch ? run_.load_state(step, *branch) : run_.load_state(step));
}

void replayer::require_lawful(const transcript::state& what, std::uint64_t step,
                              std::optional<std::uint64_t> branch) {
  if (!work_.judges_states()) {
    // What optimizers keep is made by steps, so that the initial state does not show its form: the
    // workload's load_state looks at it.
    if (!form_) return;
    const transcript::state_value* model = model_of(what.root());
    static const transcript::state_value none{transcript::state_map{}};
    const auto problem = unlawful(model == nullptr ? none : *model, *form_);
    if (problem) throw failed{measured::unknown_form, "model/" + problem->text()};
    return;
  }
  const digest* bound = run_.state_digest(step);
  const bool logged = !branch || (bound != nullptr && what.state_digest() == *bound);
  const auto problem = work_.problem(what, step, logged);
  if (problem) throw failed{problem->status, "step " + text(step) + ": " + problem->what};
}

bool replayer::may_be_missing(std::uint64_t step) {
  return derivable().contains(step) && !view_.agreed.is_checkpoint(step);
}

bool replayer::is_flagged(std::uint64_t step) const {
  const transcript::step_record* one = view_.step(step);
  return one != nullptr && has(one->flags, transcript::step_flag::non_finite);
}

const std::set<std::uint64_t>& replayer::derivable() {
  if (!derivable_) {
    derivable_.emplace();
    if (view_.agreed.store_every != 0) {
      for (const transcript::checkpoint_info& one : run_.missing_checkpoints()) {
        derivable_->insert(one.step);
      }
    }
  }
  return *derivable_;
}

void replayer::keep_replayed(std::uint64_t step, const transcript::state& end) {
  if (settings_.derive && !derivable().empty()) replayed_ = {step, end};
}

// The state that a reproducible arithmetic gives from the nearest one before it: at most the job's
// store_every steps. Other bits than the record binds are a lie in one of them: from that state an
// honest trainer comes to no other.
transcript::state replayer::derived(std::uint64_t step) {
  const std::uint64_t every = view_.agreed.checkpoint_every;
  std::uint64_t at = step < every ? 0 : step - every;
  while (at > 0 && may_be_missing(at)) at = at < every ? 0 : at - every;
  const bool from_replayed = replayed_ && at <= replayed_->first && replayed_->first <= step;
  if (from_replayed) at = replayed_->first;
  const transcript::state start = from_replayed ? replayed_->second : load(at);
  transcript::state out = run_steps(start, at, step, std::nullopt);
  const digest* bound = run_.state_digest(step);
  if (bound == nullptr || out.state_digest() != *bound) {
    const std::uint64_t differing =
        first_difference(start, at, step, std::nullopt, out,
                         [&](std::uint64_t number) { return run_.state_digest(number); });
    const std::string why = "trained from the state of step " + text(at) + ", step " +
                            text(differing) +
                            " is the first that ends in other bits than its record binds";
    // Of what is not finite, the bits may be the processor's: docs/reference/arithmetic.md. Whether
    // a loss is finite is not: up to that step, both have the same bits.
    double loss = 0;
    const std::string found =
        not_finite(run_steps(start, at, differing, std::nullopt,
                             [&](std::uint64_t, const step_outcome& what) { loss = what.loss; }));
    const bool is_untold = !std::isfinite(loss) && !is_flagged(differing);
    if (found.empty() || is_untold) throw failed{measured::tampered, why};
    throw failed{measured::verifier_error, why + ", but it is not finite here: " + found +
                                               ", and the bits of a NaN are the processor's"};
  }
  replayed_ = {step, out};
  return out;
}

std::string replayer::not_finite(const transcript::state& what) {
  if (auto own = work_.not_finite(what)) return std::move(*own);
  return opened_value(checks::not_finite(run_, what.root()));
}

// ------------------------------------------------------------------ steps

void replayer::restore(const transcript::state& what, std::uint64_t step) {
  check_time();
  try {
    work_.load_state(what, step);
  } catch (const std::exception& thrown) {
    throw suspect{work_.trouble_of(thrown), [] {}};
  }
}

// Reads the samples of a step, and its rounding log where there are such.
std::vector<std::int64_t> replayer::prepare(std::uint64_t step,
                                            std::optional<std::uint64_t> branch) {
  auto own = work_.sample_ids(step);
  std::vector<std::int64_t> ids = own ? std::move(*own) : view_.agreed.sample_ids(step);
  work_.fetch(step, ids);
  check_time();
  if (!follows_) return ids;
  const auto bound = branch ? run_.rounding_log_of(step, *branch) : run_.rounding_log_of(step);
  logged_rounding logged;
  if (bound) {
    logged.committed = bound->content;
    logged.log =
        opened_value(branch ? run_.load_rounding_log(step, *branch) : run_.load_rounding_log(step));
  }
  work_.follow(step, &logged);
  return ids;
}

transcript::state replayer::run_steps(const transcript::state& from, std::uint64_t start,
                                      std::uint64_t end, std::optional<std::uint64_t> branch,
                                      const seen& told, bool steered) {
  restore(from, start);
  work_.expect(start + 1, end);
  for (std::uint64_t step = start + 1; step <= end; ++step) {
    const std::vector<std::int64_t> ids = prepare(step, branch);
    const auto* logged = branch ? view_.superseded_step(*branch, step) : view_.step(step);
    // A skipped step may log any loss that is not finite: the lowest of all would end improvements.
    if (steered && logged != nullptr && std::isfinite(logged->loss)) work_.steer(logged->loss);
    const step_outcome what =
        guarded([&work = work_, step, ids] { return work.run_step(step, ids); });
    if (told) told(step, what);
  }
  return work_.capture();
}

double replayer::loss_of(const transcript::state& from, std::uint64_t step) {
  restore(from, step - 1);
  const std::vector<std::int64_t> ids = prepare(step, std::nullopt);
  return guarded([&work = work_, step, ids] { return work.batch_loss(step, ids); });
}

double replayer::loss_of_whole(const transcript::state& from, std::uint64_t step) {
  double out = 0;
  static_cast<void>(run_steps(from, step - 1, step, std::nullopt,
                              [&](std::uint64_t, const step_outcome& what) { out = what.loss; }));
  return out;
}

std::optional<std::string> replayer::first_operator(const transcript::state& from,
                                                    std::uint64_t start, std::uint64_t step) {
  const auto unknown = [](const std::string& why) { return "unknown: " + why; };
  try {
    const result<transcript::operator_trace> theirs = run_.load_trace(step);
    if (!theirs && theirs.why().code == errc::missing) return std::nullopt;
    transcript::operator_trace own{step, from.state_digest(), {}};
    if (step > start + 1) {
      own.before = run_steps(from, start, step - 1, std::nullopt).state_digest();
    } else {
      restore(from, start);
    }
    if (own.before != theirs->before) {
      return unknown("the prover's trace starts from another state");
    }
    auto traced = work_.trace(step, prepare(step, std::nullopt));
    if (!traced) return std::nullopt;
    own.operators = std::move(*traced);
    return transcript::first_difference(own, *theirs)
        .value_or("none: the prover's own trace agrees with the verifier, not with its log");
  } catch (const failed& why) {
    return unknown(why.message);
  } catch (const suspect& one) {
    return unknown(one.why.message);
  } catch (const std::exception& thrown) {
    return unknown(work_.trouble_of(thrown).message);
  }
}

bool replayer::otherwise(std::uint64_t way, const std::function<void()>& what) {
  const auto in_way = [&](bool threads_only) {
    const bool other = work_.perturb(way, threads_only);
    what();
    work_.perturb(0, false);
    return other;
  };
  try {
    return in_way(false);
  } catch (const suspect& one) {
    // An arithmetic that only the verifier chose is nobody's fault.
    if (one.why.own) throw;
    work_.perturb(0, false);
  }
  in_way(true);
  return false;
}

bool replayer::roughly(std::uint64_t seed, const std::function<void()>& what) {
  bool done = false;
  try {
    done = work_.roughen(seed);
    if (done) what();
  } catch (const suspect& one) {
    // What only the verifier's own roughness brought about is nobody's fault.
    if (one.why.own) throw;
    done = false;
  }
  work_.perturb(0, false);
  return done;
}

const std::vector<still_elements>& replayer::steady(bool begins) {
  if (!steady_) {
    try {
      search_steady();
    } catch (const suspect& one) {
      // It trains from the agreed state as agreed: nothing of the record fails there.
      throw failed{measured::verifier_error, one.why.message};
    }
  }
  return begins ? steady_->first : steady_->second;
}

void replayer::search_steady() {
  const auto segments = segments_of(view_);
  const auto run = [&](const transcript::state& start, std::size_t number) {
    const segment& of = segments[number];
    return run_steps(start, of.start, of.end, std::nullopt, {}, true);
  };
  // In low precision, two ways and two thread counts may come out alike: rough sums do not.
  constexpr std::uint64_t ways = 2, roughs = 4;
  const auto search = [&](const transcript::state& start, const transcript::state& end,
                          std::size_t number) {
    steady_search out(start.root(), end.root(), view_.agreed.tolerance_cap);
    for (std::uint64_t way = 1; way <= ways; ++way)
      otherwise(way, [&] { out.see(run(start, number).root(), true); });
    for (std::uint64_t seed = 1; seed <= roughs; ++seed)
      roughly(seed, [&] { out.see(run(start, number).root(), false); });
    return out;
  };
  const transcript::state start = load(0);
  start_clock();  // repeats of two segments, which are no part of what is asked for
  const transcript::state first = run(start, 0);
  steady_search found = search(start, first, 0);
  std::vector<still_elements> at_first = found.found();
  if (segments.size() > 1 && found.any_noisy()) {
    start_clock();
    const transcript::state second = run(first, 1);
    found.add(search(first, second, 1));
  }
  start_clock();
  steady_.emplace(std::move(at_first), found.found());
}

void replayer::require_agreed_bits() {
  if (!view().job_is_own) return;  // what a trainer pins must not excuse the trainer
  const std::string why = work_.other_first_steps();
  if (!why.empty()) throw failed{measured::unrepeatable, why};
}

std::uint64_t replayer::first_difference(const transcript::state& from, std::uint64_t start,
                                         std::uint64_t end, std::optional<std::uint64_t> branch,
                                         const transcript::state& before,
                                         const recorded_digest& digest_of) {
  std::optional<std::uint64_t> out;
  const auto compare = [&](std::uint64_t step, const transcript::state& now) {
    const digest* bound = digest_of(step);
    if (bound == nullptr || now.state_digest() != *bound) out = step;
  };
  const auto again =
      run_steps(from, start, end, branch, [&](std::uint64_t step, const step_outcome&) {
        if (!out) compare(step, work_.capture());
      });
  // A bit that this machine got wrong, or what the task keeps beside its state, accuses nobody.
  if (!out || again.state_digest() != before.state_digest()) {
    throw failed{measured::unrepeatable,
                 "steps " + text(start) + "-" + text(end) + " end" + in_two_ways};
  }
  require_agreed_bits();
  return *out;
}

}  // namespace potl::checks
