// SPDX-License-Identifier: Apache-2.0
// What the steps of a workload compute in: the job's arithmetic, and for a while another way to
// compute, which shows how large honest noise is (soundness.md rule 12).
#pragma once

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <potl/core/error.hpp>
#include <potl/libtorch/arithmetic.hpp>
#include <potl/libtorch/detail/rough_sums.hpp>

namespace potl::libtorch {
namespace detail {

/// Switches autocast off in this thread, and back at the end of its life: what a program has around
/// a step, or one step leaves on for the next, is no part of the task.
class without_autocast {
 public:
  without_autocast() {
    at::autocast::clear_cache();  // within another autocast, it keeps weights of earlier steps
    for (std::size_t i = 0; i < std::size(devices); ++i) {
      before_[i] = at::autocast::is_autocast_enabled(devices[i]);
      at::autocast::set_autocast_enabled(devices[i], false);
    }
  }
  without_autocast(const without_autocast&) = delete;
  without_autocast& operator=(const without_autocast&) = delete;
  ~without_autocast() {
    for (std::size_t i = 0; i < std::size(devices); ++i) {
      at::autocast::set_autocast_enabled(devices[i], before_[i]);
    }
  }

 private:
  static constexpr at::DeviceType devices[] = {at::kCPU, at::kCUDA};
  bool before_[std::size(devices)];
};

}  // namespace detail

class step_arithmetic {
 public:
  /// `name` is the job's; `exact` the task's. Throws potl::exception (unsupported) when the one
  /// needs the other, or is not known.
  step_arithmetic(const std::string& name, block_maker exact) : exact_(std::move(exact)) {
    if (name == "stock") return;
    agreed_ = numeric::arithmetic_from(name);
    if (!agreed_) {
      throw exception({errc::unsupported, "this potl knows no arithmetic \"" + name + "\"",
                       "use a newer one, or agree on ord32"});
    }
    if (!exact_) {
      throw exception({errc::unsupported,
                       "the job is in " + name + ", and the task brings no exact arithmetic",
                       "link potl::libtorch_arithmetic, and set task::exact to "
                       "potl::libtorch::exact_block"});
    }
  }
  step_arithmetic(const step_arithmetic&) = delete;
  step_arithmetic& operator=(const step_arithmetic&) = delete;
  ~step_arithmetic() {
    if (way_ != 0) at::set_num_threads(usual_threads_);
  }

  /// Chooses a way to compute; 0 is the usual one. A job in stock arithmetic has other roundings in
  /// potl's arithmetics, or without them in rough sums. True: so it has. A job in an exact one has
  /// the same bits in every way.
  bool perturb(std::uint64_t way, bool threads_only) {
    using numeric::arithmetic;
    constexpr std::optional<arithmetic> ways[] = {arithmetic::ord32, arithmetic::cr32, std::nullopt,
                                                  arithmetic::xint24};
    if (way_ == 0) usual_threads_ = at::get_num_threads();
    way_ = way;
    const bool rounds = way != 0 && !threads_only && !agreed_;
    other_ = rounds && exact_ ? ways[(way - 1) % std::size(ways)] : std::nullopt;
    rough_.reset();
    // Seeds that no replayer asks for, of the lower roughness: tolerances of all segments follow.
    if (rounds && !exact_) rough_.emplace(~(2 * way + 1));
    const int others = usual_threads_ == 1 ? 2 : 1;
    at::set_num_threads(way == 0 || other_ || rough_ ? usual_threads_ : others);
    return other_ || rough_;
  }

  /// Computes with rough sums until perturb() is called. False: other machines round as this one.
  bool roughen(std::uint64_t seed) {
    perturb(0, false);
    if (agreed_) return false;
    rough_.emplace(seed);
    return true;
  }

  /// Whether operators run in an exact arithmetic now.
  bool is_exact() const noexcept { return agreed_ || other_; }

  /// Computes as chosen while what it gives lives, in this thread.
  struct block_scope {
    detail::without_autocast plain;
    std::shared_ptr<void> arithmetic;
  };
  block_scope block(numeric::rounding_session* log = nullptr) { return {{}, chosen(log)}; }

  /// Throws what kept the blocks since the last call from computing as chosen.
  void require_chosen() {
    if (rough_) rough_->require_all();
  }

 private:
  std::shared_ptr<void> chosen(numeric::rounding_session* log) {
    if (rough_) return std::make_shared<detail::rough_sums::block>(*rough_);
    if (other_) return exact_({.mode = *other_, .lenient = true});
    return agreed_ ? exact_({.mode = *agreed_, .log = log}) : nullptr;
  }

  block_maker exact_;
  std::optional<numeric::arithmetic> agreed_;  ///< absent: stock
  std::optional<numeric::arithmetic> other_;
  std::optional<detail::rough_sums> rough_;
  std::uint64_t way_ = 0;
  int usual_threads_ = 1;
};

}  // namespace potl::libtorch
