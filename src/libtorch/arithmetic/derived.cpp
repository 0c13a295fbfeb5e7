// SPDX-License-Identifier: Apache-2.0
// out= and in-place forms of an operator, made of its plain form and a copy.
#include <memory>
#include <vector>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "operand.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

class derived_form final : public c10::OperatorKernel {
 public:
  explicit derived_form(c10::OperatorHandle plain) : plain_(std::move(plain)) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet,
                  ::torch::jit::Stack* stack) {
    const auto& arguments = handle.schema().arguments();
    const std::vector<c10::IValue> given(
        stack->end() - static_cast<std::ptrdiff_t>(arguments.size()), stack->end());
    stack->resize(stack->size() - arguments.size());

    ::torch::jit::Stack work;
    for (const c10::Argument& wanted : plain_.schema().arguments()) {
      const auto where = handle.schema().argumentIndexWithName(wanted.name());
      TORCH_INTERNAL_ASSERT(where.has_value());
      work.push_back(given[static_cast<std::size_t>(*where)]);
    }
    plain_.callBoxed(&work);

    std::size_t result = 0;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (!is_written(arguments[i])) continue;
      at::Tensor target = given[i].toTensor();
      const at::Tensor value = work.at(result++).toTensor();
      if (arguments[i].is_out()) {
        for (const c10::IValue& operand : given) {
          if (operand.isTensor() && operand.toTensor().defined()) {
            at::assert_no_partial_overlap(target, operand.toTensor());
          }
        }
        write_out(value, target);
      } else {
        TORCH_CHECK(value.sizes() == target.sizes(), handle.schema().name(),
                    ": the result has another shape than the tensor that it would replace");
        TORCH_CHECK(c10::canCast(value.scalar_type(), target.scalar_type()), "result type ",
                    value.scalar_type(), " can't be cast to ", target.scalar_type());
        target.copy_(value);
      }
      stack->emplace_back(target);
    }
  }

 private:
  c10::OperatorHandle plain_;
};

}  // namespace

void registrar::derived(const char* plain, std::initializer_list<const char*> forms) {
  for (const char* form : forms) {
    const c10::OperatorHandle handle = known_operator(plain);
    library_.impl(
        form, ::torch::CppFunction::makeFromBoxedFunctor(std::make_unique<derived_form>(handle)));
    add_entry(form, "kernel", ("as " + std::string(plain)).c_str());
  }
}

}  // namespace potl::libtorch::dispatch
