// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/repetition.hpp>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include <potl/crypto/hasher.hpp>
#include <potl/numeric/arithmetic.hpp>

#include "transcript/log.hpp"

namespace potl::transcript {
namespace {

bool same_bits(double a, double b) noexcept {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double one, double other) { return same_bits(one, other); });
}

// As short as it can be read back.
std::string shown(double value) {
  char out[32];
  const auto end = std::to_chars(out, out + sizeof out, value).ptr;
  return {out, end};
}

std::string shown(const std::vector<double>& values) {
  std::string out;
  for (std::size_t i = 0; i < std::min<std::size_t>(values.size(), 4); ++i) {
    out += (i == 0 ? "" : ", ") + shown(values[i]);
  }
  return out + (values.size() > 4 ? ", ..." : "");
}

std::string shown(const digest& value) { return value.hex().substr(0, 16) + "..."; }

std::string shown_flags(std::uint32_t flags) {
  return std::string(has(flags, step_flag::skipped) ? "skipped" : "made") +
         (has(flags, step_flag::non_finite) ? ", and something was not finite" : "");
}

// After a power cut a file may have its new size, and zeros for what was not written. Whoever
// resumes the run takes them back, like half a record.
bool are_zeros(bytes_view rest) noexcept {
  return std::all_of(rest.begin(), rest.end(), [](std::uint8_t one) { return one == 0; });
}

// Of bytes that begin like a log: zeros follow within its header.
bool is_header_of_zeros(bytes_view file) {
  const std::vector<std::uint8_t> header = log_header();
  const auto differs = std::mismatch(header.begin(), header.end(), file.begin()).first;
  const auto at = static_cast<std::size_t>(differs - header.begin());
  return at < header.size() && are_zeros(file.subspan(at));
}

std::optional<digest> log_of(const step_record& what) {
  return what.rounding ? std::optional(what.rounding->content) : std::nullopt;
}

// The bits of a NaN are the processor's.
double loss_of(const step_record& what) noexcept {
  return std::isnan(what.loss) ? std::numeric_limits<double>::quiet_NaN() : what.loss;
}

// All of a step that is compared, but its state. How long it took and how often torch drew depends
// on the machine.
digest rest_of(const step_record& what) {
  step_record out = what;
  out.loss = loss_of(what);
  out.flags &= training_step_flags;
  out.duration_ns = 0;
  out.random_draws = 0;
  out.state = {};
  out.rounding = std::nullopt;
  return sha256_of(bytes_view(encode(out)));
}

}  // namespace

repetition::repetition(const job& agreed)
    : follows_logs_(agreed.arithmetic == to_string(numeric::arithmetic::log64)),
      steps_(agreed.steps),
      max_resumes_(agreed.max_resumes),
      job_id_(agreed.id()),
      trainer_(agreed.trainer) {
  run_.chain = auditor_.chain = log_chain_start();
}

status repetition::hear(bytes_view more) { return feed(run_, more, false); }

status repetition::hear_own(bytes_view more) { return feed(auditor_, more, true); }

status repetition::feed(stream& log, bytes_view more, bool is_own) {
  if (log.broken) return *log.broken;
  const auto refuse = [&](error why) -> status {
    log.broken = why;
    return why;
  };
  std::size_t at = 0;
  if (log.position == 0) {
    if (more.size() < log_header_bytes || is_header_of_zeros(more)) return unit{};
    const auto header = log_reader::open(more.first(log_header_bytes));
    if (!header) return refuse(header.why());
    at = log_header_bytes;
  }
  while (true) {
    const frame_view frame = frame_at(more.subspan(at), log.chain);
    if (frame.is_cut_short) break;
    if (frame.problem != nullptr) {
      const bool is_whole = frame.bytes > 0;
      if (is_whole && !log.closed && are_zeros(more.subspan(at + frame.bytes - 1))) break;
      return refuse({errc::malformed, frame.problem, ""});
    }
    const result<record> what = decode(frame.payload);
    if (!what) return refuse(what.why());
    if (status taken = take(log, *what, is_own); !taken) return refuse(taken.why());
    log.chain = frame.chain;
    at += frame.bytes;
    ++log.records;
  }
  log.position += at;
  return unit{};
}

status repetition::take(stream& log, const record& what, bool is_own) {
  const auto wrong = [](std::string why) -> status {
    return error{errc::mismatch, std::move(why), ""};
  };
  if (std::visit([](const auto& one) { return one.job_id; }, what) != job_id_) {
    return wrong("the log is of another job");
  }
  if (log.closed) return wrong("a record follows the close record");
  if (const auto* header = std::get_if<header_record>(&what)) {
    if (log.records != 0) return wrong("a second header record");
    if (!is_own && trainer_ && header->trainer != *trainer_) {
      return wrong("the log is of another trainer than the job's");
    }
    return unit{};
  }
  if (log.records == 0) return wrong("the log does not begin with its header record");
  if (const auto* initial = std::get_if<initial_record>(&what)) {
    if (log.records != 1) return wrong("an initial record that is not the second");
    (is_own ? own_initial_ : initial_) = initial->state;
    compare_initial();
    return unit{};
  }
  if (log.records == 1) return wrong("the log does not say what it starts from");
  if (const auto* step = std::get_if<step_record>(&what)) {
    if (step->step != log.steps + 1 || step->step > steps_) {
      return wrong("step " + std::to_string(step->step) + " follows step " +
                   std::to_string(log.steps));
    }
    log.steps = step->step;
    return is_own ? repeat(*step) : take_step(*step);
  }
  if (const auto* resume = std::get_if<resume_record>(&what)) {
    if (!is_own && ++resumes_ > max_resumes_) {
      return wrong("the run was resumed more often than agreed");
    }
    if (resume->from_step > log.steps) {
      return wrong("a resume goes on from a step that was not recorded");
    }
    if (resume->last_step != log.steps) return wrong("a resume names another step before it");
    log.steps = resume->from_step;
    if (!is_own && follows_logs_) {
      rounding_bytes_ = 0;
      logs_.resize(log.steps);
    }
    while (!is_own && !ahead_.empty() && ahead_.back().step > log.steps) ahead_.pop_back();
    return unit{};
  }
  log.closed = true;
  if (std::get<close_record>(what).step == log.steps) return unit{};
  return wrong("the close record does not name the last step");
}

void repetition::compare_initial() {
  if (!initial_ || !own_initial_ || difference_ || *initial_ == *own_initial_) return;
  difference_ = run_difference{0, "initial state",
                               "the run starts from the state " + shown(*initial_) +
                                   ", the repetition from " + shown(*own_initial_)};
}

status repetition::take_step(const step_record& theirs) {
  if (theirs.step <= own_.size()) {
    compare_again(theirs);
  } else if (!difference_) {  // what follows a difference is not compared, and not kept
    ahead_.push_back(theirs);
  }
  if (!follows_logs_) return unit{};
  logs_.push_back({resumes_, rounding_bytes_, theirs.rounding.value_or(rounding_reference{})});
  rounding_bytes_ += logs_.back().bound.bytes;
  return unit{};
}

status repetition::repeat(const step_record& own) {
  const repeated_step now{own.state, rest_of(own), log_of(own)};
  if (own.step <= own_.size()) {  // again, after the auditor was interrupted
    const repeated_step& before = own_[own.step - 1];
    if (before.rounding != now.rounding) {
      note_other_rounding(own.step);
      return unit{};
    }
    if (before.state == now.state && before.rest == now.rest) return unit{};
    return error{errc::internal,
                 "step " + std::to_string(own.step) + " came out in two ways on this machine", ""};
  }
  own_.push_back(now);
  if (ahead_.empty() || ahead_.front().step != own.step) return unit{};
  compare(ahead_.front(), own);
  ahead_.pop_front();
  return unit{};
}

void repetition::compare(const step_record& theirs, const step_record& own) {
  if (difference_) return;
  const std::uint32_t flags = theirs.flags & training_step_flags,
                      own_flags = own.flags & training_step_flags;
  const auto differ = [&](const char* field, const std::string& a, const std::string& b) {
    difference_ = run_difference{own.step, field,
                                 "step " + std::to_string(own.step) + ": " + field +
                                     " of the run: " + a + ", of the repetition: " + b};
  };
  if (theirs.sample_ids != own.sample_ids || theirs.epoch != own.epoch) {
    differ("samples", shown(theirs.sample_ids), shown(own.sample_ids));
  } else if (!same_bits(theirs.rates, own.rates)) {
    differ("learning rates", shown(theirs.rates), shown(own.rates));
  } else if (!follows(theirs, log_of(own))) {
    return;
  } else if (!same_bits(loss_of(theirs), loss_of(own))) {
    differ("loss", shown(theirs.loss), shown(own.loss));
  } else if (flags != own_flags) {
    differ("skipped update", shown_flags(flags), shown_flags(own_flags));
  } else if (theirs.state != own.state) {
    differ("state", shown(theirs.state), shown(own.state));
  } else {
    agreed_ = std::max(agreed_, own.step);
  }
}

bool repetition::follows(const step_record& theirs, const std::optional<digest>& followed) {
  if (!follows_logs_ || log_of(theirs) == followed) return true;
  note_other_rounding(theirs.step);
  return false;
}

void repetition::note_other_rounding(std::uint64_t step) {
  other_rounding_ = std::min(step, other_rounding_.value_or(step));
}

std::optional<heard_log> repetition::rounding_of(std::uint64_t step) const {
  if (step == 0 || step > logs_.size() || logs_[step - 1].bound.bytes == 0) return std::nullopt;
  return logs_[step - 1];
}

// A step of a later branch, or one that was repeated before it was heard.
void repetition::compare_again(const step_record& theirs) {
  if (difference_) return;
  const repeated_step& own = own_[theirs.step - 1];
  if (!follows(theirs, own.rounding)) return;
  const bool same_rest = own.rest == rest_of(theirs);
  if (same_rest && own.state == theirs.state) {
    agreed_ = std::max(agreed_, theirs.step);
    return;
  }
  difference_ = run_difference{
      theirs.step, same_rest ? "state" : "record",
      "step " + std::to_string(theirs.step) + ": " +
          (same_rest ? "state of the run: " + shown(theirs.state) +
                           ", of the repetition: " + shown(own.state)
                     : "samples, loss or learning rates are recorded differently after a resume")};
}

}  // namespace potl::transcript
