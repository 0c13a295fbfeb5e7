// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include <ATen/core/dispatch/Dispatcher.h>

#include <potl/libtorch/arithmetic.hpp>

#include "fallback.hpp"
#include "registrar.hpp"

namespace potl::libtorch {
namespace dispatch {
namespace {

// Written once, by ensure_registered.
std::map<std::string, operator_entry>& table() {
  static auto* entries = new std::map<std::string, operator_entry>;
  return *entries;
}

/// The handle of an operator of aten, by its name in the table.
std::optional<c10::OperatorHandle> find(const std::string& name) {
  const std::size_t dot = std::min(name.find('.'), name.size());
  const std::string overload = dot == name.size() ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchema({"aten::" + name.substr(0, dot), overload});
}

/// torch's primitive operators, in which its Python describes others (for tensors without memory).
/// Each is composed of the operator that it stands for, which is looked after when it arrives; a
/// tensor without memory has to come past to the kernel of its own that knows sizes alone.
void pass_primitives() {
  auto* library = new ::torch::Library(::torch::Library::IMPL, "prims", key, __FILE__, __LINE__);
  for (const c10::OperatorName& full : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto found = c10::Dispatcher::singleton().findOp(full);
    if (!found || full.getNamespace() != std::optional<std::string_view>("prims") ||
        !found->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
      continue;
    }
    library->impl(c10::toString(full).c_str(), ::torch::CppFunction::makeFallthrough());
  }
}

// Never destroyed: at exit other threads may still call operators.
void register_all() {
  auto* library = new ::torch::Library(::torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  auto* fallback = new ::torch::Library(::torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  fallback->fallback(boxed_fallback());
  registrar r(*library);
#define POTL_REGISTER_GROUP(name) register_##name(r);
  POTL_OPERATOR_GROUPS(POTL_REGISTER_GROUP)
#undef POTL_REGISTER_GROUP
  r.refuse_the_rest();
  pass_primitives();
  register_regions();
  register_ties();
  register_quantiles();
  register_cells();
}

}  // namespace

void ensure_registered() {
  static const bool once = (register_all(), true);
  static_cast<void>(once);
}

std::string remedy_of(const std::string& name) {
  const auto found = table().find(name);
  return found != table().end() && found->second.runs == "refused" ? found->second.note : "";
}

void registrar::add_entry(const std::string& name, const char* runs, const char* note) {
  const auto [where, is_new] = table().insert({name, {name, runs, note}});
  TORCH_CHECK(is_new, "potl registers aten::", name, " twice");
}

void registrar::exact(std::initializer_list<const char*> names, const char* note) {
  for (const char* name : names) {
    pass_through(name);
    add_entry(name, "exact", note);
  }
}

void registrar::pass_through(const char* name) {
  const auto known = find(name);
  // Without a kernel for the CPU, torch's composite one runs at this key as it does at the CPU's.
  // (It must: the kernels that select a backend do not know keys that are passed over.)
  if (known && !known->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return;
  library_.impl(name, known && writes_beside_others(known->schema())
                          ? boxed_apart()
                          : ::torch::CppFunction::makeFallthrough());
}

c10::OperatorHandle registrar::known_operator(const std::string& name) {
  const auto handle = find(name);
  TORCH_CHECK(handle.has_value(), "torch has no operator aten::", name);
  return *handle;
}

bool registrar::knows(const std::string& name) { return find(name).has_value(); }

void registrar::exact_if_known(const std::string& name, const char* note) {
  if (knows(name)) exact({name.c_str()}, note);
}

void registrar::exact_on_cpu(std::initializer_list<const char*> names, const char* note) {
  for (const char* name : names) {
    library_.impl(name, boxed_cpu_alone());
    add_entry(name, "exact", note);
  }
}

void registrar::exact_forms(std::initializer_list<const char*> names, const char* note) {
  for (const std::string name : names) {
    for (const char* form : {"", "_", ".out", ".Tensor", "_.Tensor", ".Tensor_out"}) {
      exact_if_known(name + form, note);
    }
  }
}

void registrar::composed_on_cpu(std::initializer_list<const char*> names, const char* note) {
  for (const char* name : names) {
    pass_through(name);
    add_entry(name, "composed", note);
  }
}

void registrar::composed(std::initializer_list<const char*> names, const char* note) {
  for (const char* name : names) add_entry(name, "composed", note);
}

void registrar::refused(std::initializer_list<const char*> names, const char* remedy) {
  for (const char* name : names) {
    refuse_one(name);
    add_entry(name, "refused", remedy);
  }
}

void registrar::refuse_one(const std::string& name) {
  library_.impl(name.c_str(), boxed_refusal());
}

namespace {

/// Calls action(handle, name) for every composite operator of torch without an entry.
template <class Action>
void for_each_unknown(const Action& action) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& full : dispatcher.getAllOpNames()) {
    const auto found = dispatcher.findOp(full);
    if (!found || full.getNamespace() != std::optional<std::string_view>("aten") ||
        !found->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
      continue;
    }
    std::string name = full.name.substr(full.name.find("::") + 2);
    if (!full.overload_name.empty()) name += "." + full.overload_name;
    if (table().count(name) == 0) action(*found, name);
  }
}

}  // namespace

void registrar::composed_prefix(const std::string& prefix, const char* note) {
  for_each_unknown([&](const c10::OperatorHandle& handle, const std::string& name) {
    if (name.rfind(prefix, 0) != 0 || handle.hasTag(at::Tag::generated)) return;
    composed({name.c_str()}, note);
  });
}

void registrar::refuse_the_rest() {
  for_each_unknown([&](const c10::OperatorHandle& handle, const std::string& name) {
    // torch's generator wrote these: they call the operator that they are named after, and copy.
    if (!handle.hasTag(at::Tag::generated)) refuse_one(name);
  });
}

}  // namespace dispatch

std::vector<operator_entry> operators() {
  dispatch::ensure_registered();
  std::vector<operator_entry> all;
  for (const auto& [name, entry] : dispatch::table()) all.push_back(entry);
  return all;
}

}  // namespace potl::libtorch
