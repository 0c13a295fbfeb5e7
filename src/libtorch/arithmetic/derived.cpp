// SPDX-License-Identifier: Apache-2.0
// out= and in-place forms of an operator, made of its plain form and a copy.
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "fallback.hpp"
#include "operand.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

class derived_form final : public c10::OperatorKernel {
 public:
  derived_form(c10::OperatorHandle plain, const c10::OperatorHandle& form)
      : plain_(std::move(plain)) {
    for (const c10::Argument& wanted : plain_.schema().arguments()) {
      const auto where = form.schema().argumentIndexWithName(wanted.name());
      TORCH_INTERNAL_ASSERT(where.has_value());
      if (wanted.name() == "dtype") type_ = where;
      places_.push_back(static_cast<std::size_t>(*where));
    }
  }

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet,
                  ::torch::jit::Stack* stack) {
    const auto& arguments = handle.schema().arguments();
    const std::span given = std::span(*stack).last(arguments.size());
    if (type_ && arguments.back().is_out()) {
      take_type_of(given.back().toTensor(), given[static_cast<std::size_t>(*type_)]);
    }

    ::torch::jit::Stack work;
    work.reserve(places_.size());
    for (const std::size_t place : places_) work.push_back(given[place]);
    plain_.callBoxed(&work);

    std::size_t result = 0;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!is_written(arguments[i])) continue;
      at::Tensor to = given[i].toTensor();
      const at::Tensor value = work.at(result).toTensor();
      if (arguments[i].is_out()) {
        for (const c10::IValue& operand : given) {
          if (operand.isTensor() && operand.toTensor().defined()) {
            at::assert_no_partial_overlap(to, operand.toTensor());
          }
        }
        write_out(value, to);
      } else {
        overwrite(to, value);
      }
      work[result++] = std::move(to);
    }
    stack->resize(stack->size() - arguments.size());
    stack->insert(stack->end(), std::make_move_iterator(work.begin()),
                  std::make_move_iterator(work.begin() + static_cast<std::ptrdiff_t>(result)));
  }

 private:
  /// What has a type to compute in computes in that of `out`, which torch converts to no other.
  static void take_type_of(const at::Tensor& out, c10::IValue& type) {
    TORCH_CHECK(type.isNone() || type.toScalarType() == out.scalar_type(),
                "Expected out tensor to have dtype ",
                type.isNone() ? out.scalar_type() : type.toScalarType(), ", but got ",
                out.scalar_type(), " instead");
    type = out.scalar_type();
  }

  c10::OperatorHandle plain_;
  std::vector<std::size_t> places_;  ///< of the plain form's arguments among the form's
  std::optional<int> type_;          ///< of "dtype" among them
};

}  // namespace

void overwrite(const at::Tensor& self, const at::Tensor& value) {
  if (value.is_same(self)) return;
  TORCH_CHECK(value.sizes() == self.sizes(), "the result of sizes ", value.sizes(),
              " cannot replace a tensor of sizes ", self.sizes());
  TORCH_CHECK(c10::canCast(value.scalar_type(), self.scalar_type()), "result type ",
              value.scalar_type(), " can't be cast to ", self.scalar_type());
  self.copy_(value);
}

bool registrar::overwrites_first(const std::string& form) {
  const c10::OperatorHandle handle = known_operator(form);
  const c10::Argument& first = handle.schema().arguments().front();
  return is_written(first) && !first.is_out();
}

void registrar::derive(const std::string& plain, const std::string& form, const char* note) {
  library_.impl(form.c_str(),
                ::torch::CppFunction::makeFromBoxedFunctor(
                    std::make_unique<derived_form>(known_operator(plain), known_operator(form))));
  add_entry(form, "kernel", note);
}

void registrar::derived(const std::string& plain, const std::vector<std::string>& forms) {
  for (const std::string& form : forms) derive(plain, form, ("as " + plain).c_str());
}

}  // namespace potl::libtorch::dispatch
