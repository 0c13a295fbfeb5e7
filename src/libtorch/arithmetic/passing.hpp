// SPDX-License-Identifier: Apache-2.0
// Memory for what lives within one call of a kernel. Narrow types are widened and rounded again by
// every operator, and tensors with channels last turned where it wants rows: fresh memory for that
// is given back to the system each time once it is at the end of the heap, and asking for it again
// costs several times what is computed in it.
#pragma once

#include <ATen/core/Tensor.h>

#include "operand.hpp"

namespace potl::libtorch::dispatch {

/// Which memory. Those of one call differ; calls do not nest.
enum class passing_slot : unsigned {
  result,
  first_operand,  ///< and further ones
  last_operand = first_operand + 7,
  left,
  right,
  dot_products,
  turned,  ///< in between two copies
};

/// An uninitialised tensor in memory that the calling thread keeps until it ends; an
/// ordinary one above 32 MiB. It must not outlive the call: the next one with that slot writes over
/// it. Strides are those of a tensor without gaps; row-major if there are none.
at::Tensor passing(passing_slot slot, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                   c10::ScalarType type = c10::ScalarType::Float);
at::Tensor passing(passing_slot slot, c10::IntArrayRef sizes);

/// The operand in float32, as above: with its own strides where it has no gaps, else row-major.
at::Tensor widened(passing_slot slot, const at::Tensor& operand);

/// Whether an operand of the CPU is widened to be computed with.
bool is_widened(const at::Tensor& operand);
/// The operand in that type and layout, as above where it is widened, or of float32 and turned.
at::Tensor laid_out(passing_slot slot, const at::Tensor& operand, c10::ScalarType type,
                    at::MemoryFormat format = at::MemoryFormat::Contiguous);

/// Whether an operand of the CPU is copied to be computed with row by row: widened or turned.
bool is_copied(const at::Tensor& operand, at::MemoryFormat format);
/// What was computed of it, row-major and in passing memory, in that type and layout and in memory
/// of its own.
at::Tensor kept(const at::Tensor& passed, c10::ScalarType type, at::MemoryFormat format);

/// Operands and results of a kernel that works row by row, of the sizes, type and layout of x.
class rows_of {
 public:
  rows_of(operator_name name, const at::Tensor& x, c10::ScalarType computed);
  at::Tensor take(passing_slot slot, const at::Tensor& operand) const;
  at::Tensor make() const;
  at::Tensor give(const at::Tensor& result) const;

 private:
  operator_name name_;
  const at::Tensor& x_;
  c10::ScalarType type_;
  at::MemoryFormat format_;
  bool passes_;
};

}  // namespace potl::libtorch::dispatch
