// SPDX-License-Identifier: Apache-2.0
#include "elements.hpp"

#include <algorithm>

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include "passing.hpp"

namespace potl::libtorch::dispatch {
namespace {

constexpr std::size_t most_operands = static_cast<std::size_t>(passing_slot::last_operand) -
                                      static_cast<std::size_t>(passing_slot::first_operand) + 1;

c10::ScalarType common_type(c10::ArrayRef<at::Tensor> operands) {
  at::native::ResultTypeState state = {};
  for (const at::Tensor& operand : operands) {
    state = at::native::update_result_type_state(operand, state);
  }
  const c10::ScalarType type = at::native::result_type(state);
  return c10::isIntegralType(type, /*includeBool=*/true)
             ? c10::typeMetaToScalarType(c10::get_default_dtype())
             : type;
}

at::Tensor strided_like(const at::Tensor& layout, c10::IntArrayRef sizes,
                        at::TensorOptions options) {
  return layout.defined() ? at::empty_strided(sizes, layout.strides(), options)
                          : at::empty(sizes, options);
}

/// Where the result is to be: single numbers may lie on the CPU.
c10::Device device_of(c10::ArrayRef<at::Tensor> operands) {
  for (const at::Tensor& operand : operands) {
    if (operand.dim() != 0 || !operand.device().is_cpu()) return operand.device();
  }
  return operands[0].device();
}

}  // namespace

std::pair<at::Tensor, at::Tensor> broadcast(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() == b.sizes()) return {a, b};
  const std::vector<std::int64_t> sizes = at::infer_size(a.sizes(), b.sizes());
  return {a.expand(sizes), b.expand(sizes)};
}

bool can_write_to(const at::Tensor& x, const at::Tensor& out) {
  if (x.layout() != c10::kStrided || out.layout() != c10::kStrided) return false;
  if (out.device() != x.device() || out.scalar_type() != x.scalar_type()) return false;
  if (!at::isFloatingType(out.scalar_type()) || out.sizes() != x.sizes()) return false;
  if (!out.is_non_overlapping_and_dense()) return false;
  const at::MemOverlapStatus overlap = at::get_overlap_status(out, x);
  return overlap == at::MemOverlapStatus::No || overlap == at::MemOverlapStatus::Full;
}

bool are_flat(c10::ArrayRef<at::Tensor> operands, const at::Tensor* in_place) {
  const at::Tensor& first = operands[0];
  const c10::ScalarType type = first.scalar_type();
  if (type != at::kFloat && type != at::kDouble) return false;
  const auto fits = [&](const at::Tensor& x) {
    // A number of Python's has not the last word about the type.
    return !x.is_nested() && x.layout() == c10::kStrided && x.device().is_cpu() &&
           !is_on_device(x) && !x.unsafeGetTensorImpl()->is_wrapped_number() &&
           x.scalar_type() == type && x.sizes() == first.sizes() && x.strides() == first.strides();
  };
  if (!std::all_of(operands.begin(), operands.end(), fits)) return false;
  if (!first.is_non_overlapping_and_dense()) return false;
  if (in_place == nullptr) return true;
  return fits(*in_place) && std::all_of(operands.begin(), operands.end(), [&](const auto& x) {
           return x.is_same(*in_place) || !x.is_alias_of(*in_place);
         });
}

aligned_operands align(operator_name name, c10::ArrayRef<at::Tensor> operands,
                       const at::Tensor* in_place) {
  aligned_operands call;
  call.common = common_type(operands);
  call.wide = compute_type(name, call.common);
  const at::TensorOptions options = at::TensorOptions(call.wide).device(device_of(operands));
  std::vector<std::int64_t> sizes = operands[0].sizes().vec();
  for (const at::Tensor& operand : operands) {
    require_plain(name, operand);
    require_float(name, operand, call.wide);
    TORCH_CHECK(operand.device() == options.device() || operand.dim() == 0, name.text,
                ": expected operands on one device, got ", operand.device(), " and ",
                options.device());
    sizes = at::infer_size(sizes, operand.sizes());
  }
  if (in_place != nullptr) {
    TORCH_CHECK(in_place->sizes() == c10::IntArrayRef(sizes), name.text, ": output of sizes ",
                in_place->sizes(), " does not match the broadcast sizes ", sizes);
    TORCH_CHECK(c10::canCast(call.common, in_place->scalar_type()), "result type ", call.common,
                " can't be cast to the desired output type ", in_place->scalar_type());
    at::assert_no_internal_overlap(*in_place);
    for (const at::Tensor& operand : operands) {
      at::assert_no_partial_overlap(*in_place, operand);
    }
  }
  // The layout of the first operand that fills its memory, else row-major.
  at::Tensor layout;
  const auto fills = [&](const at::Tensor& tensor) {
    return tensor.sizes() == c10::IntArrayRef(sizes) && tensor.is_non_overlapping_and_dense();
  };
  if (in_place != nullptr && fills(*in_place)) {
    layout = *in_place;
  } else {
    const auto found = std::find_if(operands.begin(), operands.end(), fills);
    if (found != operands.end()) layout = *found;
  }
  const bool direct = in_place != nullptr && layout.is_same(*in_place) &&
                      in_place->scalar_type() == call.wide &&
                      in_place->device() == options.device();
  // What is rounded, or copied to its place, does not leave this call.
  const bool passes = call.wide == c10::ScalarType::Float &&
                      (in_place != nullptr || call.common != call.wide) &&
                      options.device().is_cpu() && operands.size() <= most_operands;
  const auto make_like = [&](passing_slot slot, const at::Tensor& model) {
    if (!passes) return strided_like(model, sizes, options);
    return model.defined() ? passing(slot, sizes, model.strides()) : passing(slot, sizes);
  };
  call.out = direct ? *in_place : make_like(passing_slot::result, layout);
  auto slot = static_cast<unsigned>(passing_slot::first_operand);
  for (const at::Tensor& operand : operands) {
    if (operand.device() != options.device()) {
      call.operands.push_back(number_there(operand, options));
    } else if (operand.numel() == 1) {
      const bool is_ready = operand.scalar_type() == call.wide;
      call.operands.push_back(is_ready ? operand : operand.to(options));
    } else if (operand.scalar_type() == call.wide && operand.sizes() == call.out.sizes() &&
               operand.strides() == call.out.strides()) {
      call.operands.push_back(operand);
    } else {
      call.operands.push_back(
          make_like(static_cast<passing_slot>(slot++), call.out).copy_(operand));
    }
  }
  return call;
}

at::Tensor finish(const aligned_operands& call, const at::Tensor* in_place) {
  if (in_place == nullptr) return rounded_to(call.out, call.common);
  if (!call.out.is_same(*in_place)) in_place->copy_(call.out);
  return *in_place;
}

}  // namespace potl::libtorch::dispatch
