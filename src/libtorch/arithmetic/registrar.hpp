// SPDX-License-Identifier: Apache-2.0
// The table of operators: each file of this folder puts the operators of its group in, once.
// docs/reference/operators.md is written from it (scripts/operator_table.py).
//
// A new group: write `void register_<group>(registrar&)`, and name it in the list at the end.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "forms.hpp"
#include "mode.hpp"

namespace potl::libtorch::dispatch {

class registrar {
 public:
  explicit registrar(::torch::Library& library) : library_(library) {}

  /// The stock kernels: one IEEE operation per element, or none. Costs nothing at run time.
  void exact(std::initializer_list<const char*> names, const char* note);

  /// Whether this torch has an operator: some come and go with its versions.
  static bool knows(const std::string& name);
  void exact_if_known(const std::string& name, const char* note);

  /// The same where other devices would give other bits, or others from run to run: refused there.
  void exact_on_cpu(std::initializer_list<const char*> names, const char* note);

  /// `name`, `name_`, `name.out` and the like: all forms with Tensor operands that this torch has.
  void exact_forms(std::initializer_list<const char*> names, const char* note);

  /// potl's kernel of an operator: `r.kernel<mv>("mv", "dot products of the mode", {"mv.out"})`.
  /// The function takes what the operator takes. It may take a c10::DispatchKeySet before that, and
  /// redispatch to the stock kernel with `keys & below`; and before all a `destination`.
  ///
  /// The out= and in-place forms that are named last come with it: they call the plain one, and
  /// copy its results into the operands that they write (derived.cpp). A function with a
  /// destination writes to them itself, where it can.
  template <auto Function>
  void kernel(const std::string& name, const char* note,
              const std::vector<std::string>& forms = {}) {
    using own = forms_of<Function>;
    if constexpr (own::has_destination) {
      add(name, TORCH_FN(own::plain), note);
    } else {
      add(name, TORCH_FN(apart<Function>::call), note);
    }
    for (const std::string& form : forms) {
      if constexpr (own::has_destination) {
        if (overwrites_first(form)) {
          add(form, TORCH_FN(own::in_place), note);
          continue;
        }
      }
      if constexpr (own::has_out) {
        add(form, TORCH_FN(own::out), note);
      } else {
        derive(name, form, note);
      }
    }
  }

  /// A function that calls the stock kernel, on the CPU without anything else.
  template <auto Function>
  void stock(const char* name, const char* note) {
    add(name, TORCH_FN(apart<Function>::call), note, "exact");
  }

  /// out= and in-place forms of an operator that torch composes of others.
  void derived(const std::string& plain, const std::vector<std::string>& forms);

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
  template <class Function>
  void add(const std::string& name, Function function, const char* note, const char* runs) {
    library_.impl(name.c_str(), function);
    add_entry(name, runs, note);
  }
  template <class Function>
  void add(const std::string& name, Function function, const char* note) {
    library_.impl(name.c_str(), function);
    add_entry(name, "kernel", note);
  }

  static c10::OperatorHandle known_operator(const std::string& name);
  static bool overwrites_first(const std::string& form);
  void derive(const std::string& plain, const std::string& form, const char* note);
  void pass_through(const char* name);
  void refuse_one(const std::string& name);
  void add_entry(const std::string& name, const char* runs, const char* note);

  ::torch::Library& library_;
};

// All groups. (Objects that register themselves would be left out of a static library's program.)
#define POTL_OPERATOR_GROUPS(group)                                                             \
  group(exact) group(complex) group(matmul) group(accumulation) group(embedding) group(pooling) \
      group(upsampling) group(convolution) group(sums) group(signs) group(functions)            \
          group(activations) group(quotients) group(reductions) group(optimizers) group(random) \
              group(normalization) group(softmax) group(loss) group(ctc) group(distances)       \
                  group(grid_sampling) group(fourier) group(triangular) group(attention)        \
                      group(recurrent) group(encoder) group(special) group(decompositions)      \
                          group(sampling) group(spectrum) group(quantization)

#define POTL_DECLARE_GROUP(name) void register_##name(registrar& r);
POTL_OPERATOR_GROUPS(POTL_DECLARE_GROUP)
#undef POTL_DECLARE_GROUP

/// Operators of torchvision, which are not in the table.
void register_regions();

/// Gradients that depend on the version of torch.
void register_ties();
/// Quantiles, whose values do, too.
void register_quantiles();
/// Recurrent layers that depend on whether torch has oneDNN.
void register_cells();

}  // namespace potl::libtorch::dispatch
