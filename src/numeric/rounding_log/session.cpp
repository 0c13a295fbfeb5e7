// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/rounding_session.hpp>

#include <string>
#include <utility>

namespace potl::numeric {

element_operands matrix_operands(matrix<const float> a, matrix<const float> b) {
  return [a, b](std::uint64_t index, std::vector<float>& row, std::vector<float>& column) {
    const auto i = static_cast<std::int64_t>(index) / b.columns;
    const auto j = static_cast<std::int64_t>(index) % b.columns;
    row.resize(static_cast<std::size_t>(a.columns));
    column.resize(row.size());
    for (std::int64_t k = 0; k < a.columns; ++k) {
      row[static_cast<std::size_t>(k)] = a(i, k);
      column[static_cast<std::size_t>(k)] = b(k, j);
    }
  };
}

element_operands matrix_operands(const gemm_batch& batch, matrix<const float> a,
                                 matrix<const float> b) {
  return [batch, a, b](std::uint64_t index, std::vector<float>& row, std::vector<float>& column) {
    const auto size = static_cast<std::uint64_t>(a.rows * b.columns);
    const auto product = static_cast<std::int64_t>(index / size);
    matrix<const float> left = a, right = b;
    left.data += product * batch.a_stride;
    right.data += product * batch.b_stride;
    matrix_operands(left, right)(index % size, row, column);
  };
}

rounding_session::rounding_session(session_options options) : options_(options) {
  require(options.bits >= min_rounding_bits && options.bits <= max_rounding_bits,
          "bits are 23 to 32");
}

void rounding_session::require(bool condition, const char* what) const {
  if (!condition) throw exception({errc::usage, std::string("rounding session: ") + what, ""});
}

void rounding_session::start(std::uint64_t step) {
  require(!in_step_, "a step has begun already");
  in_step_ = true;
  thread_ = std::this_thread::get_id();
  step_ = step;
  values_ = 0;
  next_entry_ = 0;
  watched_position_.reset();
  watched_.reset();
  log_ = {options_.bits, 0, {}};
  log_bytes_.clear();
  audit_ = {};
  audit_.step = step;
  moved_squares_ = reachable_squares_ = 0;
}

void rounding_session::begin_step(std::uint64_t step) {
  require(options_.role != log_role::auditor, "an auditor needs the trainer's log");
  start(step);
}

void rounding_session::begin_step(std::uint64_t step, bytes_view log,
                                  std::optional<digest> committed) {
  require(options_.role == log_role::auditor, "only an auditor follows a log");
  start(step);
  has_log_ = false;
  if (!committed) {
    reject(log_fault::not_committed, "the step's leaf binds no rounding log",
           fraud_proof{log_fault::not_committed, step, {}, {}});
    return;
  }
  if (rounding_log_digest(log) != *committed) {
    reject(log_fault::other_log, "this is not the rounding log that the step's leaf binds", {});
    return;
  }
  log_bytes_.assign(log.begin(), log.end());
  result<rounding_log> decoded = decode_rounding_log(log);
  if (!decoded) {
    reject(log_fault::malformed, decoded.why().message, proof_of(log_fault::malformed, nullptr));
    return;
  }
  if (decoded->bits != options_.bits) {
    reject(log_fault::wrong_size, "the log is of another rounding",
           proof_of(log_fault::wrong_size, nullptr));
    return;
  }
  log_ = std::move(*decoded);
  audit_.entries = log_.entries.size();
  has_log_ = true;
}

void rounding_session::apply(std::string_view kind, std::span<float> results,
                             std::span<const near_tie> ties, const element_operands& operands) {
  if (options_.role == log_role::none) return;
  require(in_step_, "no step has begun");
  require(thread_ == std::this_thread::get_id(), "a session belongs to the thread of its step");
  for (std::size_t i = 0; i < ties.size(); ++i) {
    require(ties[i].index < results.size() && (i == 0 || ties[i - 1].index < ties[i].index),
            "near ties must ascend and lie within the results");
  }
  std::uint64_t corrections = 0;
  if (options_.role == log_role::trainer) {
    log_ties(results, ties);
  } else {
    corrections = follow(results, ties, operands);
    look(results, operands);
  }
  values_ += results.size();
  auto found = counts_.find(kind);
  if (found == counts_.end()) found = counts_.emplace(std::string(kind), kind_counts{}).first;
  found->second.values += results.size();
  found->second.ties += ties.size();
  found->second.corrections += corrections;
}

void rounding_session::log_ties(std::span<const float> results, std::span<const near_tie> ties) {
  for (const near_tie& own : ties) {
    const bool up = results[own.index] == nearest_tie(own.value, options_.bits).upper;
    log_.entries.push_back({values_ + own.index, up});
  }
}

step_log rounding_session::end_step() {
  require(options_.role == log_role::trainer, "only a trainer makes a log");
  require(in_step_, "no step has begun");
  in_step_ = false;
  log_.values = values_;
  step_log out;
  out.step = step_;
  out.bytes = encode_rounding_log(log_);
  out.content = rounding_log_digest(out.bytes);
  out.values = values_;
  out.entries = log_.entries.size();
  return out;
}

void rounding_session::cancel_step() noexcept { in_step_ = false; }

}  // namespace potl::numeric
