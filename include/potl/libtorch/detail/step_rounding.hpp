// SPDX-License-Identifier: Apache-2.0
// The rounding logs of log64 around the steps of a workload: a step logs how it rounded near ties,
// or follows the trainer's log where a replayer has given it (numeric/detail/rounding_session.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <potl/checks/detail/rounding_audit.hpp>
#include <potl/checks/workload.hpp>
#include <potl/numeric/detail/rounding_session.hpp>

namespace potl::libtorch {

class step_rounding {
 public:
  /// Arithmetics other than log64 have no logs: then nothing here does anything.
  explicit step_rounding(const std::string& arithmetic) : on_(arithmetic == "log64") {}

  /// From the next part on; null: parts log again.
  void follow(const checks::logged_rounding* logged) {
    followed_.reset();
    if (on_ && logged != nullptr) followed_ = *logged;
  }
  bool follows() const noexcept { return followed_.has_value(); }

  /// What following showed in the parts that ended since the last call; nothing without logs.
  std::optional<checks::rounding_summary> take() {
    if (!on_) return std::nullopt;
    return std::exchange(summary_, {});
  }

  /// A step, or its beginning. Forgotten, as after an error, unless end() is called.
  class part {
   public:
    part(step_rounding& of, std::uint64_t step) : of_(of) {
      if (!of.on_) return;
      session_ = of.follows() ? &of.auditor_ : &of.trainer_;
      if (of.follows()) {
        session_->begin_step(step, of.followed_->log, of.followed_->committed);
      } else {
        session_->begin_step(step);
      }
    }
    part(const part&) = delete;
    part& operator=(const part&) = delete;
    ~part() {
      if (session_ != nullptr) session_->cancel_step();
    }

    /// What the computation's block is told; null: there are no logs.
    numeric::rounding_session* session() const noexcept { return session_; }

    /// The canonical bytes of what was logged; nothing where a log was followed.
    std::vector<std::uint8_t> end() {
      numeric::rounding_session* const session = std::exchange(session_, nullptr);
      if (session == nullptr) return {};
      if (session == &of_.trainer_) return session->end_step().bytes;
      checks::add(of_.summary_, session->end_audit());
      return {};
    }

   private:
    step_rounding& of_;
    numeric::rounding_session* session_ = nullptr;
  };

 private:
  bool on_;
  std::optional<checks::logged_rounding> followed_;
  numeric::rounding_session trainer_{{.role = numeric::log_role::trainer}};
  numeric::rounding_session auditor_{{.role = numeric::log_role::auditor}};
  checks::rounding_summary summary_;
};

}  // namespace potl::libtorch
