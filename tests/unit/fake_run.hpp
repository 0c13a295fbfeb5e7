// SPDX-License-Identifier: Apache-2.0
// A run as a check sees it, written by hand: `steps` steps, a checkpoint every `every`.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <potl/checks/detail/reach.hpp>
#include <potl/checks/replay.hpp>
#include <potl/core/rules.hpp>

/// Switches a rule off for the life of this object.
class rule_off {
 public:
  explicit rule_off(std::string_view id) : id_(id) { potl::set_rule_enabled(id_, false); }
  ~rule_off() { potl::set_rule_enabled(id_, true); }
  rule_off(const rule_off&) = delete;
  rule_off& operator=(const rule_off&) = delete;

 private:
  std::string_view id_;
};

struct fake_run {
  explicit fake_run(std::uint64_t steps = 100, std::uint64_t every = 10,
                    std::uint64_t per_epoch = 50) {
    view.agreed.steps = steps;
    view.agreed.epochs = (steps + per_epoch - 1) / per_epoch;
    view.agreed.batch_size = 4;
    view.agreed.data_count = 4 * per_epoch;
    view.agreed.checkpoint_every = every;
    view.agreed.max_segment = every;
    view.agreed.tolerance_cap = 0.1;
    view.agreed.arithmetic = "stock";
    view.agreed.rates = {{steps, {0.1}}};
    for (std::uint64_t step = 1; step <= steps; ++step) {
      potl::transcript::step_record record;
      record.step = step;
      record.epoch = (step - 1) / per_epoch;
      record.loss = 2.0 / static_cast<double>(step);
      record.rates = {0.1};
      record.duration_ns = 1'000'000;
      records.push_back(record);
    }
    for (std::uint64_t step = 0; step <= steps; step += every)
      checkpoints.push_back({step, 0, {}, 0});
    view.parameter_distance = [this](std::uint64_t from, std::uint64_t to) {
      loads += 2;
      return potl::result<double>(distance * static_cast<double>(to - from));
    };
    view.moved = [this] {
      ++readings;
      auto out = std::make_shared<potl::checks::movements>();
      out->tensors.push_back({"model/parameters/w", "parameters", 4});
      for (const potl::checks::segment& one : potl::checks::stretches_of(view)) {
        out->stretches.push_back({one, true, {jump(one)}});
      }
      return std::shared_ptr<const potl::checks::movements>(std::move(out));
    };
    view.job_is_own = view.committed = true;
    link();
  }
  fake_run(const fake_run&) = delete;
  fake_run& operator=(const fake_run&) = delete;

  /// After a change of the lists.
  void link() {
    view.steps = records;
    view.checkpoints = checkpoints;
    view.superseded = ranges;
    view.superseded_steps = superseded;
    view.resumes = resumes;
    view.telemetry = {reinterpret_cast<const std::uint8_t*>(telemetry.data()), telemetry.size()};
  }

  /// After a state that was stored.
  void resumed(std::uint64_t from) {
    resumes.emplace_back().from_step = from;
    link();
  }

  potl::checks::run_view view;
  std::vector<potl::transcript::step_record> records, superseded;
  std::vector<potl::transcript::checkpoint_info> checkpoints;
  std::vector<potl::transcript::superseded_range> ranges;
  std::vector<potl::transcript::resume_record> resumes;
  std::string telemetry;
  double distance = 0.1;  ///< of the parameters, per step
  int loads = 0;
  /// How far each stretch moves the weights.
  std::function<double(const potl::checks::segment&)> jump = [](const auto&) { return 1.0; };
  int readings = 0;  ///< of all stored states
};

/// Options under which what is 8 times beyond its tolerance rejects: numbers of tests stay small.
inline potl::checks::replay_options near() {
  potl::checks::replay_options out;
  out.margin = 8;
  return out;
}

inline potl::digest nonce_of(std::uint8_t value) {
  potl::digest out;
  out.bytes.fill(value);
  return out;
}

/// Counts findings with this outcome; `rule` empty: of any rule.
inline int count(const std::vector<potl::finding>& findings, potl::outcome result,
                 std::string_view rule = "") {
  int out = 0;
  for (const auto& one : findings) {
    if (one.result == result && (rule.empty() || one.rule == rule)) ++out;
  }
  return out;
}
