// SPDX-License-Identifier: Apache-2.0
#include "passing.hpp"

#include <array>
#include <memory>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/strides.h>

#include "turning.hpp"

namespace potl::libtorch::dispatch {
namespace {

constexpr std::size_t most_bytes = std::size_t{32} << 20;

struct memory {
  std::unique_ptr<float[]> elements;
  std::size_t size = 0;
};

constexpr std::size_t slots = static_cast<std::size_t>(passing_slot::turned) + 1;

std::vector<std::int64_t> strides_of(const at::Tensor& operand, at::MemoryFormat format) {
  switch (format) {
    case at::MemoryFormat::ChannelsLast: return c10::get_channels_last_strides_2d(operand.sizes());
    case at::MemoryFormat::ChannelsLast3d:
      return c10::get_channels_last_strides_3d(operand.sizes());
    default: break;
  }
  const auto strides = c10::contiguous_strides(operand.sizes());
  return {strides.begin(), strides.end()};
}

}  // namespace

at::Tensor passing(passing_slot slot, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                   c10::ScalarType type) {
  static thread_local std::array<memory, slots> kept;
  const auto count = static_cast<std::size_t>(c10::multiply_integers(sizes));
  if (count == 0 || count * sizeof(float) > most_bytes) {
    return at::empty_strided(sizes, strides, at::TensorOptions(type));
  }
  memory& own = kept[static_cast<std::size_t>(slot)];
  if (own.size < count) {
    own.elements.reset();
    own.size = 0;
    own.elements = std::make_unique_for_overwrite<float[]>(count);
    own.size = count;
  }
  return at::from_blob(own.elements.get(), sizes, strides, at::TensorOptions(type));
}

at::Tensor passing(passing_slot slot, c10::IntArrayRef sizes) {
  return passing(slot, sizes, c10::contiguous_strides(sizes));
}

at::Tensor widened(passing_slot slot, const at::Tensor& operand) {
  const at::Tensor out = operand.is_non_overlapping_and_dense()
                             ? passing(slot, operand.sizes(), operand.strides())
                             : passing(slot, operand.sizes());
  return out.copy_(operand);
}

bool is_widened(const at::Tensor& operand) {
  const c10::ScalarType type = operand.scalar_type();
  return operand.device().is_cpu() &&
         (type == c10::ScalarType::BFloat16 || type == c10::ScalarType::Half);
}

at::Tensor laid_out(passing_slot slot, const at::Tensor& operand, c10::ScalarType type,
                    at::MemoryFormat format) {
  const bool is_wide = operand.device().is_cpu() && operand.scalar_type() == at::kFloat;
  if (operand.is_contiguous(format) || !(is_widened(operand) || is_wide)) {
    const at::Tensor there = in_format(operand, format);
    return is_widened(operand) ? widened(slot, there) : there.to(type);
  }
  const at::Tensor there = passing(is_wide ? slot : passing_slot::turned, operand.sizes(),
                                   strides_of(operand, format), operand.scalar_type());
  turn_into(there, operand);
  return is_wide ? there : widened(slot, there);
}

bool is_copied(const at::Tensor& operand, at::MemoryFormat format) {
  return is_widened(operand) || (operand.device().is_cpu() && operand.scalar_type() == at::kFloat &&
                                 format != at::MemoryFormat::Contiguous);
}

at::Tensor kept(const at::Tensor& passed, c10::ScalarType type, at::MemoryFormat format) {
  // With one channel or one place row-major is that layout, too.
  if (passed.is_contiguous(format)) format = at::MemoryFormat::Contiguous;
  const at::Tensor out = at::empty(passed.sizes(), passed.options().dtype(type), format);
  if (type == passed.scalar_type() || out.strides() == passed.strides()) {
    turn_into(out, passed);
  } else {
    const at::Tensor narrow = passing(passing_slot::turned, passed.sizes(), passed.strides(), type);
    turn_into(out, narrow.copy_(passed));
  }
  return out;
}

rows_of::rows_of(operator_name name, const at::Tensor& x, c10::ScalarType computed)
    : name_(name),
      x_(x),
      type_(computed),
      format_(x.suggest_memory_format()),
      passes_(is_copied(x, format_)) {}

at::Tensor rows_of::take(passing_slot slot, const at::Tensor& operand) const {
  if (!passes_) return row_major(name_, operand, type_);
  require_plain(name_, operand);
  return laid_out(slot, operand, type_);
}

at::Tensor rows_of::make() const {
  return passes_ ? passing(passing_slot::result, x_.sizes()) : dispatch::make(x_.sizes(), type_);
}

at::Tensor rows_of::give(const at::Tensor& result) const {
  return passes_ ? kept(result, x_.scalar_type(), format_)
                 : in_format(rounded_to(result, x_.scalar_type()), format_);
}

}  // namespace potl::libtorch::dispatch
