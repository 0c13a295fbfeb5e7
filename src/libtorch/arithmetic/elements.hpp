// SPDX-License-Identifier: Apache-2.0
// Elementwise kernels over tensors of any layout and type: operands are promoted, broadcast and
// brought into one layout, then a body runs over flat memory. What is like that already, as in most
// calls, is taken as it lies.
#pragma once

#include <array>
#include <span>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>

#include "device.hpp"
#include "operand.hpp"

namespace potl::libtorch::dispatch {

/// Whether operands of float32 or of float64, and `in_place`, lie on the CPU in one order without
/// gaps. To look takes less than to align them, which is as long as some thousand elements take.
bool are_flat(c10::ArrayRef<at::Tensor> operands, const at::Tensor* in_place);

/// Operands of one call, all in the memory order of the result.
struct aligned_operands {
  c10::ScalarType common;            ///< torch's type for the result
  c10::ScalarType wide;              ///< what is computed in
  std::vector<at::Tensor> operands;  ///< of type `wide`; with one element, or as large as `out`
  at::Tensor out;                    ///< of type `wide`; `in_place` itself where that is possible
};

/// Promotes, broadcasts and aligns. With `in_place` the result has its sizes (an error otherwise).
aligned_operands align(operator_name name, c10::ArrayRef<at::Tensor> operands,
                       const at::Tensor* in_place);

/// The form of `elements` for a device that combines its operands by one formula.
struct combined_there {
  cuda::combination kind;
  double numbers[3] = {};

  template <std::size_t Count>
  void operator()(const device_call& there, const std::array<cuda::operand, Count>& in, float* out,
                  std::size_t count) const {
    cuda::combined of{kind, in[0], {}, {}, {numbers[0], numbers[1], numbers[2]}};
    if constexpr (Count > 1) of.b = in[1];
    if constexpr (Count > 2) of.c = in[2];
    there->combine(of, out, count, there.queue());
  }
};

/// What is to be returned: the result rounded to its type, or `in_place` with it.
at::Tensor finish(const aligned_operands& call, const at::Tensor* in_place);

/// Whether `out` can be written in place of a result for `x`, of its sizes and type.
bool can_write_to(const at::Tensor& x, const at::Tensor& out);

/// Views of both in their common sizes: torch.func.jacrev has several gradients of one operand.
std::pair<at::Tensor, at::Tensor> broadcast(const at::Tensor& a, const at::Tensor& b);

/// body(operands, out) over memory as it lies.
template <std::size_t Count, class Body>
void over_flat(const at::Tensor (&operands)[Count], const at::Tensor& out, const Body& body) {
  with_real(out.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    std::array<std::span<const Real>, Count> in;
    for (std::size_t i = 0; i < Count; ++i) in[i] = values<Real>(operands[i]);
    body(in, mutable_values<Real>(out));
  });
}

struct no_device_form {};

/// body(operands, out) with an array of spans and a span, of float or double; for an operator that
/// has a form for other devices, form(call, operands, out, count) computes on those.
template <std::size_t Count, class Body, class Form = no_device_form>
at::Tensor elements(const char* name, const at::Tensor (&operands)[Count],
                    const at::Tensor* in_place, const Body& body, const Form& form = {}) {
  if (are_flat(operands, in_place)) {
    const at::Tensor out = in_place == nullptr ? like(operands[0]) : *in_place;
    if (out.numel() != 0) over_flat(operands, out, body);
    return out;
  }
  constexpr bool anywhere = !std::is_same_v<Form, no_device_form>;
  const aligned_operands call = align({name, anywhere}, operands, in_place);
  if constexpr (anywhere) {
    if (is_on_device(call.out)) {
      std::array<cuda::operand, Count> in;
      for (std::size_t i = 0; i < Count; ++i) {
        in[i] = {call.operands[i].template const_data_ptr<float>(),
                 call.operands[i].numel() != call.out.numel()};
      }
      const device_call there(call.out);
      form(there, in, call.out.template mutable_data_ptr<float>(),
           static_cast<std::size_t>(call.out.numel()));
      return finish(call, in_place);
    }
  }
  if (call.out.numel() != 0) {
    with_real(call.wide, [&](auto zero) {
      using Real = decltype(zero);
      std::array<std::span<const Real>, Count> in;
      for (std::size_t i = 0; i < Count; ++i) in[i] = values<Real>(call.operands[i]);
      body(in, mutable_values<Real>(call.out));
    });
  }
  return finish(call, in_place);
}

}  // namespace potl::libtorch::dispatch
