// SPDX-License-Identifier: Apache-2.0
// From one function of tensors: the forms of its operator that write to an operand, and the part of
// its operands that torch's own kernel keeps. The registrar puts them together.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <c10/util/MaybeOwned.h>

#include "elements.hpp"
#include "mode.hpp"
#include "operand.hpp"

namespace potl::libtorch::dispatch {

/// What torch calls a kernel with before all else, where the kernel asks for it.
using keys_t = c10::DispatchKeySet;

// ---------------------------------------------------------------------- places for results

/// Where a function may write its result straight away, and then returns just that: the operand of
/// an in-place form, or an out= tensor of the result's sizes and type. Null: memory of its own.
using destination = const at::Tensor*;

/// Replaces the values of an operand as in-place forms do.
void overwrite(const at::Tensor& self, const at::Tensor& value);

template <class Type>
constexpr bool is_tensor = std::is_same_v<std::remove_cvref_t<Type>, at::Tensor>;

/// The forms of a function with a destination. The in-place one overwrites the first operand.
template <auto Function, class Type = std::remove_pointer_t<decltype(Function)>>
struct forms_of {
  static constexpr bool has_destination = false;
  static constexpr bool has_out = false;
};

template <auto Function, class First, class... Rest>
struct forms_of<Function, at::Tensor(destination, First, Rest...)> {
  static constexpr bool has_destination = true;
  /// Only of one tensor the result has the sizes and the type for sure.
  static constexpr bool has_out = is_tensor<First> && !(is_tensor<Rest> || ...);

  static at::Tensor plain(First first, Rest... rest) {
    return Function(nullptr, first, std::forward<Rest>(rest)...);
  }
  static at::Tensor& in_place(at::Tensor& self, Rest... rest) {
    overwrite(self, Function(&self, self, std::forward<Rest>(rest)...));
    return self;
  }
  static at::Tensor& out(First first, Rest... rest, at::Tensor& to) {
    at::assert_no_partial_overlap(to, first);
    if (!can_write_to(first, to)) {
      return write_out(Function(nullptr, first, std::forward<Rest>(rest)...), to);
    }
    overwrite(to, Function(&to, first, std::forward<Rest>(rest)...));
    return to;
  }
};

template <auto Function, class First, class... Rest>
struct forms_of<Function, at::Tensor(destination, keys_t, First, Rest...)> {
  static constexpr bool has_destination = true;
  static constexpr bool has_out = false;

  static at::Tensor plain(keys_t keys, First first, Rest... rest) {
    return Function(nullptr, keys, first, std::forward<Rest>(rest)...);
  }
  static at::Tensor& in_place(keys_t keys, at::Tensor& self, Rest... rest) {
    overwrite(self, Function(&self, keys, self, std::forward<Rest>(rest)...));
    return self;
  }
};

// ---------------------------------------------------------------------- memory that is written to

/// An operand, or a copy of it.
class apart_operand {
 public:
  apart_operand(const at::Tensor& operand, bool is_copy)
      : held_(is_copy ? c10::MaybeOwned<at::Tensor>::owned(operand.clone())
                      : c10::MaybeOwned<at::Tensor>::borrowed(operand)) {}
  operator const at::Tensor&() const { return *held_; }

 private:
  c10::MaybeOwned<at::Tensor> held_;
};

/// `Function`, with copies of the operands that lie under one that it writes to.
template <auto Function, class Type = std::remove_pointer_t<decltype(Function)>>
struct apart;

template <auto Function, class Result, class... Arguments>
struct apart<Function, Result(Arguments...)> {
  template <class Argument>
  static constexpr bool is_written = std::is_same_v<Argument, at::Tensor&>;

  static Result call(Arguments... arguments) {
    if constexpr ((is_written<Arguments> || ...)) {
      return Function(pass<Arguments>(arguments, arguments...)...);
    } else {
      return Function(std::forward<Arguments>(arguments)...);
    }
  }

 private:
  template <class Argument>
  static decltype(auto) pass(std::remove_reference_t<Argument>& one,
                             const std::remove_reference_t<Arguments>&... all) {
    if constexpr (std::is_same_v<Argument, const at::Tensor&>) {
      return apart_operand(one, (is_under<Arguments>(one, all) || ...));
    } else {
      return static_cast<std::remove_reference_t<Argument>&>(one);
    }
  }
  template <class Argument>
  static bool is_under(const at::Tensor& one, const std::remove_reference_t<Argument>& to) {
    if constexpr (is_written<Argument>) return lies_under(to, one);
    return false;
  }
};

// ---------------------------------------------------------------------- operands of torch's kernel

/// Whether the tensors are integers, or the type that is asked for is one.
template <class... Arguments>
bool are_integers(const Arguments&... arguments) {
  std::optional<c10::ScalarType> asked;
  bool all = true;
  const auto look = [&](const auto& one) {
    using type = std::remove_cvref_t<decltype(one)>;
    if constexpr (std::is_same_v<type, at::Tensor>) all = all && is_integral(one);
    if constexpr (std::is_same_v<type, std::optional<c10::ScalarType>>) asked = one;
  };
  (look(arguments), ...);
  return asked ? c10::isIntegralType(*asked, /*includeBool=*/true) : all;
}

template <class Stock, auto Function, class Type = std::remove_pointer_t<decltype(Function)>>
struct split_by_type;

template <class Stock, auto Function, class Result, class... Arguments>
struct split_by_type<Stock, Function, Result(Arguments...)> {
  static Result call(keys_t keys, Arguments... arguments) {
    if (are_integers(arguments...)) {
      return Stock::redispatch(keys & below, std::forward<Arguments>(arguments)...);
    }
    return Function(std::forward<Arguments>(arguments)...);
  }
};

template <class Stock, auto Function, class... Arguments>
struct split_by_type<Stock, Function, at::Tensor(destination, Arguments...)> {
  static at::Tensor call(destination to, keys_t keys, Arguments... arguments) {
    if (are_integers(arguments...)) {
      return Stock::redispatch(keys & below, std::forward<Arguments>(arguments)...);
    }
    return Function(to, std::forward<Arguments>(arguments)...);
  }
};

/// `Function`, but for integers torch's kernel, whose sums and products of them have one result:
/// `r.kernel<but_integers<at::_ops::mm, mm>>(...)` (ATen/ops/mm_ops.h).
template <class Stock, auto Function>
constexpr auto but_integers = &split_by_type<Stock, Function>::call;

/// The stock kernel of an operator.
template <class Operator, class Schema = typename Operator::schema>
struct passed_on;

template <class Operator, class Result, class... Arguments>
struct passed_on<Operator, Result(Arguments...)> {
  static Result call(keys_t keys, Arguments... arguments) {
    return Operator::redispatch(keys & below, std::forward<Arguments>(arguments)...);
  }
};

}  // namespace potl::libtorch::dispatch
