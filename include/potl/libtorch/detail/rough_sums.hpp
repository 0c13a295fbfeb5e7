// SPDX-License-Identifier: Apache-2.0
// Rough sums: LibTorch's own sums, as far off as another machine's order of summation leaves them.
// What potl's arithmetics round less than many machines do shows here: an activation next to zero
// that another machine turns, and what that does to a step.
//
// Sees the operators that the calling thread runs, backward passes included, as Python's dispatch
// modes do: below autograd, and of an operator that calls others the outer one.
// Cost: about that of the sums once more.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>

#include <potl/checks/detail/rough_sums.hpp>
#include <potl/core/error.hpp>

namespace potl::libtorch::detail {

class rough_sums {
 public:
  /// `seed`: what the differences are drawn from; torch's generator stays as it is.
  explicit rough_sums(std::uint64_t seed)
      : roughness_(checks::roughness(seed)),
        generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {}

  /// Moves the sums of the calling thread while it lives.
  class block {
   public:
    explicit block(rough_sums& of)
        : before_(std::exchange(now(), {&of, 0})),
          handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&began, &ended)
                                                 .needsOutputs(true)
                                                 .scopes({at::RecordScope::FUNCTION}))) {}
    block(const block&) = delete;
    block& operator=(const block&) = delete;
    ~block() {
      at::removeCallback(handle_);
      now() = before_;
    }

   private:
    struct place {
      rough_sums* of = nullptr;
      int depth = 0;  ///< operators around the present one that Python would not see inside of
    };
    struct call : at::ObserverContext {};

    // A callback is a plain function.
    static place& now() {
      thread_local place here;
      return here;
    }

    // Other operators are taken apart before they come to autograd.
    static std::unique_ptr<at::ObserverContext> began(const at::RecordFunction& of) {
      const auto name = of.operator_name();
      if (!name) return nullptr;
      const auto handle = c10::Dispatcher::singleton().findOp(*name);
      if (!handle || handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
        return nullptr;
      }
      ++now().depth;
      return std::make_unique<call>();
    }

    static void ended(const at::RecordFunction& of, at::ObserverContext* began) {
      if (began == nullptr || --now().depth > 0 || now().of == nullptr) return;
      constexpr std::string_view space = "aten::";
      const auto name = of.operator_name();
      std::string_view known = name ? std::string_view(name->name) : std::string_view();
      if (!known.starts_with(space)) return;
      known.remove_prefix(space.size());
      const auto& sums = checks::rough_sums;
      if (std::find(std::begin(sums), std::end(sums), known) == std::end(sums)) return;
      try {
        for (const c10::IValue& one : of.outputs()) now().of->move(one);
      } catch (...) {  // torch would go on
        now().of->failure_ = std::current_exception();
      }
    }

    place before_;
    at::RecordFunctionGuard told_{true};
    at::CallbackHandle handle_;
  };

  /// Throws what kept a sum from being moved since the last call: a repeat without it would show
  /// too little. potl::exception (unsupported) when none was.
  void require_all() {
    if (const auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
    if (std::exchange(moved_, 0) > 0) return;
    throw exception({errc::unsupported, "this LibTorch does not tell which operators a step runs",
                     "use a build with record functions, or set task::exact"});
  }

 private:
  void move(const c10::IValue& value) {
    if (value.isTensorList()) {
      for (const at::Tensor& one : value.toTensorVector()) move(one);
    } else if (value.isTensor()) {
      move(value.toTensor());
    }
  }

  void move(const at::Tensor& result) {
    if (!result.defined() || result.numel() == 0 || result.layout() != at::kStrided) return;
    ++moved_;
    // Autograd has seen the result already, and is not told: it is the operator's own.
    const at::AutoDispatchBelowADInplaceOrView below;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::DisableRecordFunctionGuard unseen;
    if (result.is_complex()) {
      if (result.dim() == 0) return move_rows(at::view_as_real(result), {-1});
      return move_rows(at::view_as_real(result), {-2, -1});
    }
    if (result.is_floating_point()) move_rows(result, {-1});
  }

  void move_rows(const at::Tensor& result, at::IntArrayRef row_dims) {
    const c10::ScalarType type = result.scalar_type();
    const at::Tensor wide = type == at::kDouble ? result : result.to(at::kFloat);
    const at::Tensor row =
        wide.dim() == 0 ? wide.abs() : wide.square().mean(row_dims, /*keepdim=*/true).sqrt();
    at::Tensor off = at::empty_like(wide).normal_(0, 1, generator_).mul_(row);
    off.mul_(roughness_ * epsilon(wide.scalar_type()) / 2);
    if (type != wide.scalar_type()) {
      // Where between its neighbours the sum lay before it was rounded to fewer bits.
      const at::Tensor exponent = std::get<1>(at::frexp(wide));
      const at::Tensor unit = at::ldexp(at::ones_like(wide), exponent - 1).mul_(epsilon(type));
      off.add_(at::empty_like(wide).uniform_(-0.5, 0.5, generator_).mul_(unit));
    }
    // An exact zero is one of no terms, or of terms that are zero.
    result.copy_(at::where(wide == 0, wide, wide + off));
  }

  static double epsilon(c10::ScalarType type) {
    switch (type) {
      case at::kDouble: return 0x1p-52;
      case at::kHalf: return 0x1p-10;
      case at::kBFloat16: return 0x1p-7;
      default: return 0x1p-23;
    }
  }

  double roughness_;
  at::Generator generator_;
  std::exception_ptr failure_;
  std::uint64_t moved_ = 0;
};

}  // namespace potl::libtorch::detail
