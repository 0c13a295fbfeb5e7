// SPDX-License-Identifier: Apache-2.0
// Sees the operators that the calling thread runs (backward passes and optimizers included), and
// takes a digest of what each returned.
//
// Sees what code calls: of an operator that calls others, the outer one. Those inside depend on the
// machine, with memory for its threads for example.
// Cost: a copy and a hash of every result.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <potl/crypto/hasher.hpp>
#include <potl/transcript/operator_trace.hpp>

namespace potl::libtorch::detail {

class operator_tracer {
 public:
  operator_tracer()
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&began, &ended)
                                               .needsOutputs(true)
                                               .scopes({at::RecordScope::FUNCTION}))) {
    seen() = &seen_;
  }
  operator_tracer(const operator_tracer&) = delete;
  operator_tracer& operator=(const operator_tracer&) = delete;
  ~operator_tracer() {
    at::removeCallback(handle_);
    seen() = nullptr;
  }

  std::vector<transcript::traced_operator> take() { return std::move(seen_.rows); }

 private:
  struct calls {
    std::vector<transcript::traced_operator> rows;
    int depth = 0;
  };

  // A callback is a plain function.
  static calls*& seen() {
    thread_local calls* now = nullptr;
    return now;
  }

  static std::unique_ptr<at::ObserverContext> began(const at::RecordFunction&) {
    if (seen() != nullptr) ++seen()->depth;
    return nullptr;
  }

  static void ended(const at::RecordFunction& call, at::ObserverContext*) {
    calls* const now = seen();
    if (now == nullptr || --now->depth > 0) return;
    const auto called = call.operator_name();
    if (!called || called->name.starts_with("profiler::")) return;  // marks compute nothing
    std::string name =
        called->name + "." + (called->overload_name.empty() ? "default" : called->overload_name);
    name.replace(name.find("::"), 2, ".");
    const at::RecordFunctionGuard not_these(false);
    const bool contents = !transcript::returns_unset(name);
    sha256 hash;
    for (const c10::IValue& one : call.outputs()) add(hash, one, contents);
    now->rows.push_back({std::move(name), hash.finish()});
  }

  static void add(sha256& hash, const c10::IValue& value, bool contents) {
    if (value.isList()) {
      for (const c10::IValue& one : value.toListRef()) add(hash, one, contents);
      return;
    }
    std::ostringstream text;
    if (!value.isTensor()) {
      // The text of other things might hold an address.
      if (value.isScalar() || value.isBool() || value.isString()) {
        text << value << ' ';
      } else {
        text << value.tagKind() << ' ';
      }
      hash.update(as_bytes_view(text.str()));
      return;
    }
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return;
    text << tensor.scalar_type() << ' ' << tensor.sizes() << ' ';
    hash.update(as_bytes_view(text.str()));
    if (!contents || tensor.layout() != at::kStrided || tensor.is_meta()) return;
    const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
    hash.update({static_cast<const std::uint8_t*>(plain.const_data_ptr()), plain.nbytes()});
  }

  at::CallbackHandle handle_;
  calls seen_;
};

}  // namespace potl::libtorch::detail
