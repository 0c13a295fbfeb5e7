// SPDX-License-Identifier: Apache-2.0
// Checks of reported steps, in order, beside the training or between two of its segments.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <potl/checks/detail/spot_check_judge.hpp>

namespace potl::checks {

/// A report that the coin chose.
struct drawn_report {
  std::uint64_t step = 0;
  std::vector<std::uint8_t> weights;  ///< before the step
  std::vector<float> gradient;        ///< as reported
};

/// Why checks ended before the last of them.
struct failed_check {
  spot_check_end end = spot_check_end::doubtful;
  std::uint64_t step = 0;
  std::string reason, tensor;
  std::optional<double> statistic, threshold;
};

/// Executes drawn steps again. The first that does not pass ends its work.
class check_queue {
 public:
  check_queue(gradient_source& checker, const spot_check_options& options,
              std::uint64_t final_step);
  ~check_queue();
  check_queue(const check_queue&) = delete;
  check_queue& operator=(const check_queue&) = delete;

  /// Gives the drawn reports of all steps up to `end`.
  void push(std::uint64_t end, std::vector<drawn_report> drawn);
  /// Up to where every drawn step passed.
  std::uint64_t passed() const;
  bool failed() const;
  /// Waits until everything up to `step` passed or something failed.
  void wait(std::uint64_t step);
  /// What a report that cannot be applied amounts to: it is checked whatever the coin says.
  failed_check check_now(const drawn_report& one);

  struct tally {
    std::uint64_t checked = 0;
    double largest = 0, seconds = 0;
  };
  tally so_far() const;
  std::optional<failed_check> failure() const;

 private:
  struct segment {
    std::uint64_t end = 0;
    std::vector<drawn_report> drawn;
  };
  void work();
  void check(const segment& one);
  std::optional<failed_check> judge(const drawn_report& one);
  std::optional<failed_check> look_again(const drawn_report& one, const gradient_distance& found);
  std::optional<failed_check> look_at_direction(const drawn_report& one);
  double compute(const drawn_report& one, std::uint64_t way, std::vector<float>& out);

  gradient_source& checker_;
  const spot_check_options& options_;
  const std::vector<spot_check_tensor> tensors_;
  residual_direction direction_;
  std::vector<float> own_, other_;
  // Of the suspected steps: their number, the sum of their noise, and the largest.
  std::uint64_t looks_ = 0;
  double noises_ = 0, loudest_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<segment> waiting_;
  std::uint64_t passed_;
  tally tally_;
  std::optional<failed_check> failure_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace potl::checks
