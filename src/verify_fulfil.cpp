// SPDX-License-Identifier: Apache-2.0
#include "verify_fulfil.hpp"

#include <chrono>
#include <exception>
#include <functional>
#include <new>
#include <string_view>
#include <system_error>
#include <typeindex>

#include <potl/checks/finite.hpp>
#include <potl/checks/schema.hpp>
#include <potl/checks/state_distance.hpp>

namespace potl::detail {
namespace {

using checks::measured;
using model_form = std::optional<transcript::state_value>;

/// A request that cannot be fulfilled, and whose doing that is.
struct failed {
  measured status;
  std::string message;
};

class stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

measured status_of(errc code) {
  if (code == errc::missing) return measured::withheld;
  const bool damaged = code == errc::mismatch || code == errc::malformed;
  return damaged ? measured::tampered : measured::verifier_error;
}

transcript::state opened(result<transcript::state> loaded) {
  if (!loaded) throw failed{status_of(loaded.why().code), loaded.why().message};
  return std::move(loaded).value();
}

const transcript::state_value* model_of(const transcript::state_value& root) {
  const auto* map = std::get_if<transcript::state_map>(&root.content);
  if (map == nullptr) return nullptr;
  for (const auto& [key, value] : *map) {
    if (key == transcript::state_key(std::string("model"))) return &value;
  }
  return nullptr;
}

// The model of an opened state has the form of the workload's own. What optimizers keep is made by
// steps, so that the initial state does not show its form: the workload's load_state looks at it.
transcript::state lawful(transcript::state opened, const model_form& form) {
  if (!form) return opened;
  const auto* model = model_of(opened.root());
  static const transcript::state_value none{transcript::state_map{}};
  const auto problem = checks::unlawful(model == nullptr ? none : *model, *form);
  if (problem) throw failed{measured::unknown_form, "model/" + problem->what};
  return opened;
}

// Empty, or what of an opened state is not finite.
std::string looked_at(const transcript::evidence& run, const transcript::state& what) {
  auto found = checks::not_finite(run, what.root());
  if (!found) throw failed{status_of(found.why().code), found.why().message};
  return std::move(found).value();
}

/// The workload failed on a recorded state; whether that is to blame is still to be found out.
struct suspect {
  std::exception_ptr cause;
  std::function<void()> control;  ///< the same from the workload's own initial state
};

/// Runs `what`, which the control repeats: it outlives the scope that it was made in, so that it
/// holds copies of what it needs.
template <class What>
auto tried(What what) {
  try {
    return what();
  } catch (...) {
    throw suspect{std::current_exception(), [what] { static_cast<void>(what()); }};
  }
}

void restore(workload_handle& work, const transcript::state& state, std::uint64_t step) {
  try {
    work.load_state(state, step);
  } catch (...) {
    throw suspect{std::current_exception(), [] {}};
  }
}

// What speaks of this machine, whatever the recorded state holds.
bool is_own_trouble(const std::exception& one) {
  if (const auto* ours = dynamic_cast<const exception*>(&one)) {
    const errc code = ours->details().code;
    return code == errc::io || code == errc::limit || code == errc::internal;
  }
  const std::string_view text(one.what());
  return dynamic_cast<const std::bad_alloc*>(&one) != nullptr ||
         dynamic_cast<const std::system_error*>(&one) != nullptr ||
         text.find("out of memory") != text.npos || text.find("can't allocate memory") != text.npos;
}

const digest* digest_of(const checks::run_view& view, const checks::segment_request& request,
                        std::uint64_t step) {
  const auto* record =
      request.superseded ? view.superseded_step(request.branch, step) : view.step(step);
  return record == nullptr ? nullptr : &record->state;
}

class segment_driver {
 public:
  segment_driver(const transcript::evidence& run, const checks::run_view& view,
                 workload_handle& work, const model_form& form,
                 const checks::segment_request& request)
      : run_(run), view_(view), work_(work), form_(form), request_(request) {}

  void measure(checks::segment_measurement& out) {
    const stopwatch loading;
    const transcript::state start =
        lawful(opened(request_.superseded ? run_.load_state(request_.start, request_.start_branch)
                                          : run_.load_state(request_.start)),
               form_);
    out.not_finite = looked_at(run_, start);
    out.load_seconds = loading.seconds();
    const stopwatch replaying;
    const transcript::state end = replay(start, 0, [&](const step_outcome& one) {
      out.losses.push_back(one.loss);
      out.rates.push_back(one.rates);
      out.skipped.push_back(one.skipped);
      out.gradient_norm_mean += one.gradient_norm / static_cast<double>(length());
    });
    out.replay_seconds = replaying.seconds();
    const digest* expected = digest_of(view_, request_, request_.end);
    out.digest_equal = expected != nullptr && end.state_digest() == *expected;
    if (out.digest_equal) {
      if (out.not_finite.empty()) out.not_finite = looked_at(run_, end);
      if (!request_.noise_if_equal) return;
    } else if (!request_.superseded) {
      const transcript::state recorded = lawful(opened(run_.load_state(request_.end)), form_);
      if (out.not_finite.empty()) out.not_finite = looked_at(run_, recorded);
      out.distances = checks::compare_states(start.root(), recorded.root(), end.root());
    }
    if (!out.digest_equal && run_.agreed().arithmetic != "stock") require_same(start, expected);
    // Threads and jitter, not another arithmetic: out.other_arithmetic stays false.
    const stopwatch repeating;
    for (std::uint32_t way = 1; way <= request_.noise_repeats; ++way) {
      auto& losses = out.noise_losses.emplace_back();
      const transcript::state again =
          replay(start, way, [&](const step_outcome& one) { losses.push_back(one.loss); });
      out.noise.push_back(checks::compare_states(start.root(), end.root(), again.root()));
    }
    out.noise_seconds = repeating.seconds();
  }

 private:
  // One bit that this machine got wrong accuses nobody.
  void require_same(const transcript::state& start, const digest* expected) {
    const transcript::state again = replay(start, 0, [](const step_outcome&) {});
    if (expected == nullptr || again.state_digest() != *expected) return;
    throw failed{measured::verifier_error, "steps " + std::to_string(request_.start) + "-" +
                                               std::to_string(request_.end) +
                                               " end in two ways here"};
  }

  std::uint64_t length() const { return request_.end - request_.start; }

  template <class Seen>
  transcript::state replay(const transcript::state& start, std::uint64_t way, Seen seen) {
    work_.perturb(way);
    restore(work_, start, request_.start);
    for (std::uint64_t step = request_.start + 1; step <= request_.end; ++step) {
      const std::vector<std::int64_t> ids = run_.agreed().sample_ids(step);
      seen(tried([&work = work_, step, ids] { return work.run_step(step, ids); }));
    }
    transcript::state end = work_.capture();
    work_.perturb(0);
    return end;
  }

  const transcript::evidence& run_;
  const checks::run_view& view_;
  workload_handle& work_;
  const model_form& form_;
  const checks::segment_request& request_;
};

}  // namespace

fulfiller::fulfiller(const transcript::evidence& run, workload_handle& work)
    : run_(run), work_(work) {
  try {
    initial_ = work.capture();
    run.expect_state_bytes(initial_->size_bytes());
    // A workload that begins elsewhere is not the agreed one: its form says nothing of the run.
    if (initial_->state_digest() != run.agreed().initial_state) return;
    if (const auto* model = model_of(initial_->root())) form_ = checks::form_of(*model);
  } catch (const std::exception&) {
    // Then nobody is ever blamed for an exception.
  }
}

// Runs `body` once more when it fails, and turns what it throws into a status.
template <class Measurement, class Body>
Measurement fulfiller::guarded(const Measurement& start, Body body) {
  constexpr int attempts = 2;
  std::optional<std::type_index> first;
  Measurement out = start;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    out = start;
    try {
      body(out);
      return out;
    } catch (const failed& why) {
      out.status = why.status;
      out.message = why.message;
      return out;
    } catch (const suspect& one) {
      out.status = measured::verifier_error;
      try {
        std::rethrow_exception(one.cause);
      } catch (const std::exception& thrown) {
        out.message = thrown.what();
        const std::type_index kind = typeid(thrown);
        if (is_own_trouble(thrown) || (first && *first != kind) || !passes(one.control)) return out;
        if (attempt + 1 == attempts) out.status = measured::prover_error;
        first = kind;
      }
    } catch (const std::exception& thrown) {
      out.status = measured::verifier_error;
      out.message = thrown.what();
      return out;
    }
  }
  return out;
}

bool fulfiller::passes(const std::function<void()>& control) {
  if (!initial_) return false;
  try {
    work_.perturb(0);
    work_.load_state(*initial_, 0);
    control();
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

checks::segment_measurement fulfiller::fulfil(const checks::run_view& view,
                                              const checks::segment_request& request) {
  checks::segment_measurement start;
  start.request = request;
  return guarded(
      start, [&](auto& out) { segment_driver(run_, view, work_, form_, request).measure(out); });
}

checks::loss_measurement fulfiller::fulfil(const checks::loss_request& request) {
  checks::loss_measurement start;
  start.request = request;
  return guarded(start, [&](auto& out) {
    const stopwatch watch;
    const transcript::state before = lawful(opened(run_.load_state(request.step - 1)), form_);
    out.not_finite = looked_at(run_, before);
    const std::vector<std::int64_t> ids = run_.agreed().sample_ids(request.step);
    for (std::uint32_t way = 0; way <= request.noise_repeats; ++way) {
      work_.perturb(way);
      restore(work_, before, request.step - 1);
      const double loss =
          tried([&work = work_, step = request.step, ids] { return work.batch_loss(step, ids); });
      if (way == 0) {
        out.loss = loss;
      } else {
        out.noise.push_back(loss);
      }
    }
    work_.perturb(0);
    out.seconds = watch.seconds();
  });
}

checks::subset_loss_measurement fulfiller::fulfil(const checks::subset_loss_request& request) {
  checks::subset_loss_measurement start;
  start.request = request;
  return guarded(start, [&](auto& out) {
    const stopwatch watch;
    const transcript::state at = lawful(opened(run_.load_state(request.step)), form_);
    out.not_finite = looked_at(run_, at);
    work_.perturb(0);  // an earlier request may have failed in the middle of a perturbed repeat
    restore(work_, at, request.step);
    const subset_outcome found =
        tried([&work = work_, ids = request.sample_ids] { return work.subset_loss(ids); });
    out.mean = found.mean;
    out.standard_deviation = found.standard_deviation;
    out.seconds = watch.seconds();
  });
}

}  // namespace potl::detail
