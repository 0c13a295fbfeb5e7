// SPDX-License-Identifier: Apache-2.0
#include "passing.hpp"

#include <array>
#include <memory>

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

constexpr std::size_t slots = static_cast<std::size_t>(passing_slot::dot_products) + 1;

}  // namespace

at::Tensor passing(passing_slot slot, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  static thread_local std::array<memory, slots> kept;
  const at::TensorOptions type(c10::ScalarType::Float);
  const auto count = static_cast<std::size_t>(c10::multiply_integers(sizes));
  if (count == 0 || count * sizeof(float) > most_bytes) {
    return at::empty_strided(sizes, strides, type);
  }
  memory& own = kept[static_cast<std::size_t>(slot)];
  if (own.size < count) {
    own.elements.reset();
    own.size = 0;
    own.elements = std::make_unique_for_overwrite<float[]>(count);
    own.size = count;
  }
  return at::from_blob(own.elements.get(), sizes, strides, type);
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
  const at::Tensor there = in_format(operand, format);
  return is_widened(operand) ? widened(slot, there) : there.to(type);
}

}  // namespace potl::libtorch::dispatch
