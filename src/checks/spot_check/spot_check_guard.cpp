// SPDX-License-Identifier: Apache-2.0
// The trusted side's loop: ask, draw, update, and move what is final forward.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include <potl/checks/detail/spot_check_link.hpp>
#include <potl/crypto/challenge.hpp>

#include "check_queue.hpp"
#include "checks/stopwatch.hpp"
#include "checks/text.hpp"
#include "spot_check_body.hpp"

namespace potl::checks {
namespace {

// A worker that is told to stop has this long to say so.
constexpr double goodbye_seconds = 5;

bool secret_coin(std::uint64_t /*step*/, double probability) {
  const digest random = fresh_nonce();
  std::uint64_t bits = 0;
  std::memcpy(&bits, random.bytes.data(), sizeof bits);
  // 53 bits: below 1 always, so that a probability of 1 always checks.
  return static_cast<double>(bits >> 11) * 0x1p-53 < probability;
}

std::size_t bytes_of(const std::vector<bytes_view>& parts) {
  std::size_t out = 0;
  for (const bytes_view part : parts) out += part.size();
  return out;
}

std::uint64_t elements_of(const std::vector<spot_check_tensor>& tensors) {
  std::uint64_t out = 0;
  for (const spot_check_tensor& one : tensors) out += one.elements;
  return out;
}

void copy(const std::vector<bytes_view>& parts, std::vector<std::uint8_t>& out) {
  out.resize(bytes_of(parts));
  std::size_t at = 0;
  for (const bytes_view part : parts) {
    std::copy(part.begin(), part.end(), out.begin() + static_cast<std::ptrdiff_t>(at));
    at += part.size();
  }
}

void require(bool holds, const char* what, const char* remedy) {
  if (!holds) throw exception({errc::usage, what, remedy});
}

class session {
 public:
  session(spot_check_socket socket, bytes_view key, const std::string& job_text,
          guarded_training& training, gradient_source& checker, const spot_check_options& options)
      : job_text_(job_text),
        training_(training),
        options_(options),
        first_(training.step() + 1),
        steps_(checker.steps()),
        last_(options.until == 0 ? steps_ : std::min(options.until, steps_)),
        gradient_(elements_of(checker.tensors())),
        queue_(checker, options, training.step()),
        link_(open(std::move(socket), key, job_text, options)) {
    out_.first_step = first_;
    out_.final_step = training.step();
    require(options.probabilities.size() == steps_, "the plan is for another number of steps",
            "plan with the job");
    // NaN would never be drawn.
    require(std::all_of(options.probabilities.begin(), options.probabilities.end(),
                        [](double one) { return one >= 0 && one <= 1; }),
            "a probability is not between 0 and 1", "plan with the job");
    require(last_ + 1 >= first_, "the training is further than it is to go", "name a later step");
    require(options.segment > 0 && options.lag > 0 && options.timeout > 0,
            "segment, lag and timeout are positive", "");
    require(options.clip > 0 && options.tolerance >= 0,
            "clip is positive, and tolerance is not negative", "");
    // A gradient of zeros is within the clip of any other.
    require(options.tolerance < options.clip,
            "tolerance is not below the clip: checks would pass a worker that computes nothing",
            "pass one well below the clip");
  }

  spot_check_result run() {
    const stopwatch time;
    if (greet()) train();
    settle();
    farewell();
    const check_queue::tally tally = queue_.so_far();
    out_.checked = tally.checked;
    out_.largest = tally.largest;
    out_.check_seconds = tally.seconds;
    out_.seconds = time.seconds();
    return std::move(out_);
  }

 private:
  static spot_check_link open(spot_check_socket socket, bytes_view key, const std::string& job_text,
                              const spot_check_options& options) {
    socket.idle = options.idle;
    const digest job = sha256_of(as_bytes_view(job_text)), name = fresh_nonce();
    return {std::move(socket),
            {spot_check_session_key(key, job, name), job, name, spot_check_side::trusted},
            options.timeout};
  }

  bool greet() {
    const bytes_view text = as_bytes_view(job_text_);
    const auto not_believed = [&](error why) {
      // A worker says nothing to whom it does not believe.
      if (why.code == errc::io) {
        why.message +=
            " (is the key the same on both sides? If the worker's task takes long to build, raise "
            "the timeout)";
      }
      return ended(why, first_);
    };
    std::optional<spot_check_memory> memory = memory_for_both();
    if (memory) link_.pass(*memory);
    const status sent = link_.send(spot_check_kind::hello, training_.step(),
                                   memory ? memory_body() : "", {&text, 1});
    if (!sent) return not_believed(sent.why());
    const auto ready = link_.receive({spot_check_kind::ready, training_.step(), 0}, {});
    if (!ready) return not_believed(ready.why());
    if (has_problem(ready->body, first_)) return false;
    if (is_memory(ready->body)) {
      if (!memory) {
        return ended({errc::mismatch, "the worker has memory that nobody passed", ""}, first_);
      }
      link_.share(std::move(*memory));
    }
    return true;
  }

  /// Nothing where tensors have to be sent.
  std::optional<spot_check_memory> memory_for_both() {
    if (!link_.is_local()) return {};
    auto made =
        spot_check_memory::make(bytes_of(training_.weights()), gradient_.size() * sizeof(float));
    if (!made) return {};
    return std::move(made).value();
  }

  void train() {
    for (std::uint64_t step = first_; step <= last_; ++step) {
      if (!take(step)) return;
      if (step % options_.segment == 0 || step == last_) close_segment(step);
      advance();
      if (queue_.failed()) return;
      if (options_.told) options_.told(step, out_.final_step);
    }
  }

  /// One step; false: the session is over.
  bool take(std::uint64_t step) {
    const std::vector<bytes_view> weights = training_.weights();
    const status sent = link_.send(spot_check_kind::step, step, "", weights);
    if (!sent) return ended(sent.why(), step);
    // While the worker computes. Weights and gradient of every step are copied, and into memory
    // that is there: a worker with a clock must not learn which steps are drawn.
    copy(weights, now_.weights);
    if (spares_.empty()) prepare_spares();
    now_.gradient.resize(gradient_.size());
    gradient_norm_sum sum;
    const std::span<std::uint8_t> bytes{reinterpret_cast<std::uint8_t*>(gradient_.data()),
                                        gradient_.size() * sizeof(float)};
    const auto report = link_.receive(
        [&](const spot_check_header& header) {
          // A worker that cannot do a step says why, in place of a gradient.
          const bool empty = header.frame.payload_bytes == 0;
          return spot_check_expected{spot_check_kind::report, step, empty ? 0 : bytes.size()};
        },
        bytes,
        [&](std::size_t at, bytes_view part) {
          const std::span<const float> came(gradient_.data() + at / sizeof(float),
                                            part.size() / sizeof(float));
          sum.add(came);
          std::copy(came.begin(), came.end(), now_.gradient.data() + at / sizeof(float));
        });
    if (!report) return ended(report.why(), step);
    if (has_problem(report->body, step)) return false;
    if (report->payload_bytes != bytes.size()) {
      return ended({errc::mismatch, "a report comes without a gradient", ""}, step);
    }
    const auto loss = read_loss(report->body);
    if (!loss) return ended(loss.why(), step);
    now_.step = step;
    const double norm = sum.norm();
    if (!std::isfinite(norm)) return not_finite();
    out_.entries.push_back({norm, *loss});
    const double probability = options_.probabilities[step - 1];
    if (options_.coin ? options_.coin(step, probability) : secret_coin(step, probability)) {
      drawn_.push_back(std::exchange(now_, spare()));
    }
    training_.update(step, gradient_, norm, *loss);
    unclosed_ = step;
    return true;
  }

  /// As many as a segment is likely to draw, and some.
  void prepare_spares() {
    const auto begin = options_.probabilities.begin() +
                       static_cast<std::ptrdiff_t>(out_.entries.size() + first_ - 1);
    const auto left = static_cast<std::uint64_t>(options_.probabilities.end() - begin);
    const auto length = static_cast<std::ptrdiff_t>(std::min(options_.segment, left));
    const double expected = std::accumulate(begin, begin + length, 0.0);
    spares_.resize(std::min(static_cast<std::size_t>(length),
                            static_cast<std::size_t>(expected + 3 * std::sqrt(expected) + 1)));
    for (drawn_report& one : spares_) {
      one.weights.resize(now_.weights.size());
      one.gradient.resize(gradient_.size());
    }
  }

  drawn_report spare() {
    if (spares_.empty()) return {};
    drawn_report out = std::move(spares_.back());
    spares_.pop_back();
    return out;
  }

  /// Nothing of such a report is applied, and it is checked for certain.
  bool not_finite() {
    settle();
    if (!queue_.failed()) failure_ = queue_.check_now(now_);
    return false;
  }

  /// Hands over what was drawn: from here on the worker may guess what is checked.
  void close_segment(std::uint64_t step) {
    training_.keep();
    queue_.push(step, std::exchange(drawn_, {}));
    spares_.clear();
    unclosed_.reset();
    const std::uint64_t most = options_.lag * options_.segment;
    if (options_.background && step > out_.final_step + most) queue_.wait(step - most);
  }

  void advance() {
    const std::uint64_t passed = queue_.passed();
    if (passed == out_.final_step) return;
    training_.finalise(passed);
    out_.final_step = passed;
  }

  /// Decides everything that was reported, whatever became of the worker.
  void settle() {
    if (unclosed_) close_segment(*unclosed_);
    if (!out_.entries.empty()) queue_.wait(first_ + out_.entries.size() - 1);
    advance();
  }

  void farewell() {
    if (const auto found = queue_.failure()) failure_ = found;
    if (failure_) {
      training_.roll_back();
      out_.end = failure_->end;
      out_.step = failure_->step;
      out_.reason = failure_->reason;
      out_.tensor = failure_->tensor;
      out_.statistic = failure_->statistic;
      out_.threshold = failure_->threshold;
    } else if (out_.final_step == last_) {
      const bool is_whole = last_ == steps_;
      out_.end = is_whole ? spot_check_end::finished : spot_check_end::paused;
      out_.step = last_;
      out_.reason = is_whole ? "" : "the training was to pause after step " + text(last_);
    }
    if (is_gone_) return;
    // Whether the worker hears it changes nothing.
    const bool pauses = out_.end == spot_check_end::paused;
    const std::string body = pauses ? pause_body() : reason_body(out_.reason);
    link_.limit(goodbye_seconds);
    if (!link_.send(spot_check_kind::stop, out_.final_step, body)) return;
    static_cast<void>(link_.receive({spot_check_kind::stopped, out_.final_step, 0}, {}));
  }

  bool ended(const error& why, std::uint64_t step) {
    const bool lost = why.code == errc::io;
    is_gone_ = true;
    out_.end = lost ? spot_check_end::lost : spot_check_end::refused;
    out_.step = step;
    out_.reason = why.message;
    return false;
  }

  bool has_problem(const std::string& body, std::uint64_t step) {
    const auto said = read_reason(body);
    if (said && said->empty()) return false;
    ended({errc::mismatch,
           said ? "the worker cannot go on: " + *said : "what the worker says is malformed", ""},
          step);
    is_gone_ = !said;
    return true;
  }

  const std::string& job_text_;
  guarded_training& training_;
  const spot_check_options& options_;
  const std::uint64_t first_, steps_, last_;
  std::vector<float> gradient_;
  drawn_report now_;
  std::vector<drawn_report> drawn_, spares_;
  std::optional<std::uint64_t> unclosed_;  ///< last step of a segment that is not handed over
  std::optional<failed_check> failure_;
  bool is_gone_ = false;  ///< the worker, or what it sends makes no sense
  spot_check_result out_;
  check_queue queue_;
  spot_check_link link_;
};

}  // namespace

const char* to_string(spot_check_end how) noexcept {
  switch (how) {
    case spot_check_end::finished: return "finished";
    case spot_check_end::paused: return "paused";
    case spot_check_end::caught: return "caught";
    case spot_check_end::doubtful: return "doubtful";
    case spot_check_end::diverged: return "diverged";
    case spot_check_end::refused: return "refused";
    case spot_check_end::lost: return "lost";
  }
  return "unknown";
}

spot_check_result guard(spot_check_socket socket, bytes_view key, const std::string& job_text,
                        guarded_training& training, gradient_source& checker,
                        const spot_check_options& options) {
  // What was not checked to its end must not be built on.
  try {
    return session(std::move(socket), key, job_text, training, checker, options).run();
  } catch (...) {
    training.roll_back();
    throw;
  }
}

}  // namespace potl::checks
