// SPDX-License-Identifier: Apache-2.0
// result<T>: a value or an error. g++ 12 has no std::expected, and this is all of it that potl
// needs.
#pragma once

#include <utility>
#include <variant>

#include <potl/core/error.hpp>

namespace potl {

template <class Value>
class [[nodiscard]] result {
 public:
  result(Value value)
      : content_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  result(error reason) : content_(std::in_place_index<1>, std::move(reason)) {}  // NOLINT

  bool has_value() const noexcept { return content_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  /// The value; throws potl::exception with the stored error when there is none. A temporary gives
  /// it away, so that `for (auto& one : made().value())` refers to something that lives.
  Value& value() & {
    require();
    return std::get<0>(content_);
  }
  const Value& value() const& {
    require();
    return std::get<0>(content_);
  }
  Value value() && {
    require();
    return std::get<0>(std::move(content_));
  }
  Value& operator*() & { return value(); }
  const Value& operator*() const& { return value(); }
  Value operator*() && { return std::move(*this).value(); }
  Value* operator->() { return &value(); }
  const Value* operator->() const { return &value(); }

  /// Why there is no value. Precondition: !has_value().
  const error& why() const& { return std::get<1>(content_); }
  error why() && { return std::get<1>(std::move(content_)); }

 private:
  void require() const {
    if (!has_value()) throw exception(std::get<1>(content_));
  }
  std::variant<Value, error> content_;
};

/// No value.
struct unit {};
/// The result of something that yields nothing but may fail.
using status = result<unit>;

}  // namespace potl
