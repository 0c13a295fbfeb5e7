// SPDX-License-Identifier: Apache-2.0
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

// Never destroyed: at exit other threads may still call operators.
void register_all() {
  auto* library = new ::torch::Library(::torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  auto* fallback = new ::torch::Library(::torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  fallback->fallback(boxed_fallback());
  registrar r(*library);
  register_exact(r);
  register_matmul(r);
  r.refuse_the_rest();
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
    library_.impl(name, ::torch::CppFunction::makeFallthrough());
    add_entry(name, "exact", note);
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

void registrar::refuse_the_rest() {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& full : dispatcher.getAllOpNames()) {
    const auto found = dispatcher.findOp(full);
    if (!found || full.getNamespace() != std::optional<std::string_view>("aten") ||
        !found->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
      continue;
    }
    std::string name = full.name.substr(full.name.find("::") + 2);
    if (!full.overload_name.empty()) name += "." + full.overload_name;
    if (table().count(name) != 0) continue;
    // torch's generator wrote these: they call the operator that they are named after, and copy.
    if (found->hasTag(at::Tag::generated)) continue;
    refuse_one(name);
  }
}

void require_real(const char* name, c10::ScalarType type) {
  if (!c10::isComplexType(type)) return;
  refuse(std::string(name) + " of complex numbers", "use real tensors, e.g. torch.view_as_real");
}

}  // namespace dispatch

std::vector<operator_entry> operators() {
  dispatch::ensure_registered();
  std::vector<operator_entry> all;
  for (const auto& [name, entry] : dispatch::table()) all.push_back(entry);
  return all;
}

}  // namespace potl::libtorch
