// SPDX-License-Identifier: Apache-2.0
// The table of operators: each file of this folder puts the operators of its group in, once.
// docs/reference/operators.md is written from it (scripts/operator_table.py).
//
// A new group: write `void register_<group>(registrar&)`, declare it at the end of this file and
// call it in registry.cpp.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "mode.hpp"

namespace potl::libtorch::dispatch {

/// Stops when an operand is complex: products and quotients of complex numbers are several IEEE
/// operations, which stock kernels fuse or do not.
void require_real(const char* name, c10::ScalarType type);

/// The stock kernel of an operator whose tensors are real.
template <class Operator, class Schema = typename Operator::schema>
struct real_only;

template <class Operator, class Result, class... Arguments>
struct real_only<Operator, Result(Arguments...)> {
  static Result call(c10::DispatchKeySet keys, Arguments... arguments) {
    (check(arguments), ...);
    return Operator::redispatch(keys & below, std::forward<Arguments>(arguments)...);
  }
  static void check(const at::Tensor& value) { require_real(Operator::name, value.scalar_type()); }
  static void check(const c10::Scalar& value) { require_real(Operator::name, value.type()); }
  template <class Other>
  static void check(const Other&) {}
};

class registrar {
 public:
  explicit registrar(::torch::Library& library) : library_(library) {}

  /// The stock kernels: one IEEE operation per element, or none. Costs nothing at run time.
  void exact(std::initializer_list<const char*> names, const char* note);

  void exact_if_known(const std::string& name, const char* note);

  /// `name`, `name_`, `name.out` and the like: all forms with Tensor operands that this torch has.
  void exact_forms(std::initializer_list<const char*> names, const char* note);

  /// The same for real operands, while complex ones are refused; costs one more dispatch:
  /// `r.exact_real<at::_ops::mul_Tensor, at::_ops::mul_out>("...")` (ATen/ops/mul_ops.h).
  template <class... Operators>
  void exact_real(const char* note) {
    (exact_real_one<Operators>(note), ...);
  }

  /// potl's kernel: `r.kernel("mm", TORCH_FN(mm), "dot products of the mode")`. It may take a
  /// c10::DispatchKeySet first, and redispatch to the stock kernel with `keys & below`.
  template <class Function>
  void kernel(const char* name, Function function, const char* note) {
    library_.impl(name, function);
    add_entry(name, "kernel", note);
  }

  /// out= and in-place forms: they call the plain form through the dispatcher, and copy its results
  /// into the operands that they write (derived.cpp).
  void derived(const char* plain, std::initializer_list<const char*> forms);

  /// torch's own composition of other operators, which come back through the dispatcher one by one.
  /// Only for operators that have such a kernel (CompositeExplicitAutograd) and that somebody read.
  void composed(std::initializer_list<const char*> names, const char* note);

  /// All composite operators of torch whose names begin so, and that have no entry.
  void composed_prefix(const std::string& prefix, const char* note);

  /// The same for a composition that torch has registered as its CPU kernel.
  void composed_on_cpu(std::initializer_list<const char*> names, const char* note);

  void refused(std::initializer_list<const char*> names, const char* remedy);

  /// Refuses every composite operator of torch that has no entry: nobody has read it.
  void refuse_the_rest();

 private:
  template <class Operator>
  void exact_real_one(const char* note) {
    std::string name = Operator::name;
    name.erase(0, name.find("::") + 2);
    if (*Operator::overload_name != '\0') name.append(".").append(Operator::overload_name);
    library_.impl(name.c_str(), TORCH_FN(real_only<Operator>::call));
    add_entry(name, "exact", note);
  }

  static c10::OperatorHandle known_operator(const char* name);
  void pass_through(const char* name);
  void refuse_one(const std::string& name);
  void add_entry(const std::string& name, const char* runs, const char* note);

  ::torch::Library& library_;
};

void register_exact(registrar& r);
void register_matmul(registrar& r);
void register_accumulation(registrar& r);
void register_embedding(registrar& r);
void register_pooling(registrar& r);
void register_upsampling(registrar& r);
void register_convolution(registrar& r);
void register_sums(registrar& r);
void register_signs(registrar& r);
void register_functions(registrar& r);
void register_activations(registrar& r);
void register_quotients(registrar& r);
void register_reductions(registrar& r);
void register_optimizers(registrar& r);
void register_random(registrar& r);
void register_normalization(registrar& r);
void register_softmax(registrar& r);
void register_loss(registrar& r);
void register_attention(registrar& r);
void register_recurrent(registrar& r);
void register_encoder(registrar& r);

}  // namespace potl::libtorch::dispatch
