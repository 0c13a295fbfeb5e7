// SPDX-License-Identifier: Apache-2.0
// What the steps of a workload compute in: the job's arithmetic, and for a while another way to
// compute, which shows how large honest noise is (soundness.md rule 12).
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <potl/core/error.hpp>
#include <potl/libtorch/arithmetic.hpp>
#include <potl/libtorch/random.hpp>

namespace potl::libtorch {

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
  /// potl's arithmetics, or without them in other threads and gradients that are changed by about
  /// one rounding error: those show less, so that nobody is accused by them. True: in another
  /// arithmetic. A job in an exact one has the same bits in every way.
  bool perturb(std::uint64_t way, bool threads_only) {
    using numeric::arithmetic;
    constexpr std::optional<arithmetic> ways[] = {arithmetic::ord32, arithmetic::cr32, std::nullopt,
                                                  arithmetic::xint24};
    if (way_ == 0) usual_threads_ = at::get_num_threads();
    way_ = way;
    const bool rounds = way != 0 && !threads_only && !agreed_;
    other_ = rounds && exact_ ? ways[(way - 1) % std::size(ways)] : std::nullopt;
    jitters_ = rounds && !exact_;
    const int others = usual_threads_ == 1 ? 2 : 1;
    at::set_num_threads(way == 0 || other_ ? usual_threads_ : others);
    return other_.has_value();
  }

  /// Whether operators run in an exact arithmetic now.
  bool is_exact() const noexcept { return agreed_ || other_; }

  /// Computes as chosen while what it gives lives, in this thread.
  std::shared_ptr<void> block(numeric::rounding_session* log = nullptr) const {
    if (other_) return exact_({.mode = *other_, .lenient = true});
    return agreed_ ? exact_({.mode = *agreed_, .log = log}) : nullptr;
  }

  /// Whether disturb() changes anything now.
  bool jitters() const noexcept { return jitters_; }

  /// Changes a tensor by about one rounding error of its elements, where the chosen way does that.
  /// Another step and number draw other changes.
  void disturb(const at::Tensor& tensor, std::uint64_t step, std::uint64_t number) const {
    if (!jitters_ || !tensor.defined() || tensor.numel() == 0) return;
    if (tensor.is_complex()) {
      const at::Tensor plain = tensor.detach();  // parts are of what no conjugation is pending for
      return disturb(at::view_as_real(plain.is_conj() ? plain.conj() : plain), step, number);
    }
    if (!tensor.is_floating_point()) return;
    const at::NoGradGuard no_grad;
    const double norm = tensor.to(at::kDouble).norm().item<double>();
    const double scale = std::ldexp(norm / std::sqrt(static_cast<double>(tensor.numel())), -23);
    if (!(scale > 0) || !std::isfinite(scale)) return;
    const at::Tensor noise = at::empty(tensor.sizes(), at::kDouble);
    const digest key = derive_key(way_, "noise.jitter", {step, number});
    detail::fill_into(noise, [&](auto out) { fill_normal(out, to_random_key(key), 0, 0, scale); });
    // A zero is one of no terms, or of terms that are zero.
    tensor.add_(noise.to(tensor.scalar_type()).mul_(tensor != 0));
  }

 private:
  block_maker exact_;
  std::optional<numeric::arithmetic> agreed_;  ///< absent: stock
  std::optional<numeric::arithmetic> other_;
  std::uint64_t way_ = 0;
  bool jitters_ = false;
  int usual_threads_ = 1;
};

}  // namespace potl::libtorch
