// SPDX-License-Identifier: Apache-2.0
// Tensors between LibTorch and a state: described without copying where they lie in row-major
// order, restored bit for bit, never cast.
//
// Assumes dense tensors on the CPU. Everything else throws potl::exception (unsupported), with the
// tensor's path.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <potl/numeric/detail/squares.hpp>
#include <potl/transcript/state.hpp>

namespace potl::libtorch {

/// potl's element types in the order of potl::dtype, as LibTorch calls them.
inline constexpr std::array scalar_types{
    at::kBool,   at::kByte,          at::kChar,        at::kShort,       at::kUInt16,   at::kInt,
    at::kUInt32, at::kLong,          at::kUInt64,      at::kHalf,        at::kBFloat16, at::kFloat,
    at::kDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kComplexFloat};
static_assert(scalar_types.size() == dtypes.size());

inline at::ScalarType scalar_type(dtype type) noexcept {
  return scalar_types[static_cast<std::size_t>(type)];
}

inline std::optional<dtype> dtype_of(at::ScalarType type) noexcept {
  for (std::size_t i = 0; i < scalar_types.size(); ++i) {
    if (scalar_types[i] == type) return dtypes[i].type;
  }
  return std::nullopt;
}

namespace detail {

[[noreturn]] inline void refuse(const std::string& path, std::string what, std::string remedy) {
  throw exception({errc::unsupported, path + ": " + std::move(what), std::move(remedy)});
}

[[noreturn]] inline void mismatch(const std::string& path, const std::string& what) {
  throw exception({errc::mismatch, path + ": " + what, ""});
}

inline std::string memory_format(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return "contiguous";
  if (tensor.dim() == 4 && tensor.is_contiguous(at::MemoryFormat::ChannelsLast)) {
    return "channels_last";
  }
  if (tensor.dim() == 5 && tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d)) {
    return "channels_last_3d";
  }
  return "contiguous";
}

}  // namespace detail

/// Describes tensors for transcript::capture, and keeps the copies that this takes.
class describer {
 public:
  transcript::state_value operator()(const at::Tensor& tensor, const std::string& path) {
    if (!tensor.device().is_cpu()) {
      detail::refuse(path, "a tensor on " + tensor.device().str(), "train on the CPU");
    }
    if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
      detail::refuse(path, "not a dense tensor", "keep dense tensors in the training state");
    }
    const std::optional<dtype> type = dtype_of(tensor.scalar_type());
    if (!type) detail::refuse(path, "its element type has no place in a state", "use another");
    for (std::int64_t i = 0; i < tensor.dim(); ++i) {
      if (tensor.stride(i) != 0 || tensor.size(i) < 2) continue;
      detail::refuse(path, "an expanded tensor shares its elements", "call .clone() on it");
    }
    const at::Tensor& plain = row_major(tensor);
    transcript::state_tensor out;
    out.type = *type;
    out.memory_format = detail::memory_format(tensor);
    for (const std::int64_t size : tensor.sizes()) {
      out.dims.push_back(static_cast<std::uint64_t>(size));
    }
    out.bytes = {static_cast<const std::uint8_t*>(plain.const_data_ptr()), plain.nbytes()};
    return {std::move(out)};
  }

 private:
  using view = std::pair<const void*, std::vector<std::int64_t>>;

  // The same memory seen the same way is one tensor (tied weights), so it must be one copy.
  const at::Tensor& row_major(const at::Tensor& tensor) {
    if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) return tensor;
    std::vector<std::int64_t> shape = tensor.sizes().vec();
    shape.insert(shape.end(), tensor.strides().begin(), tensor.strides().end());
    shape.push_back(tensor.is_conj() * 2 + tensor.is_neg());
    shape.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
    at::Tensor& copy = copies_[view(tensor.const_data_ptr(), std::move(shape))];
    if (!copy.defined()) {
      copy = tensor.detach().resolve_conj().resolve_neg().contiguous();
    }
    return copy;
  }

  std::map<view, at::Tensor> copies_;
};

/// Restores tensors one after the other, in the order of their paths; remembers them for aliases.
class restorer {
 public:
  /// Makes `live` hold the recorded tensor. Throws potl::exception (mismatch) when it is another
  /// kind of tensor, or not tied as recorded.
  void operator()(const at::Tensor& live, const transcript::state_value& value,
                  const std::string& path) {
    if (const auto* alias = std::get_if<transcript::state_alias>(&value.content)) {
      const auto first = placed_.find(alias->path);
      if (first == placed_.end() || first->second.const_data_ptr() != live.const_data_ptr()) {
        detail::mismatch(path, "tied to " + alias->path + " in the state, not in the task");
      }
      return;
    }
    const auto* saved = std::get_if<transcript::state_tensor>(&value.content);
    if (saved == nullptr) detail::mismatch(path, "the state has no tensor here");
    const bool same_dims =
        static_cast<std::size_t>(live.dim()) == saved->dims.size() &&
        std::equal(saved->dims.begin(), saved->dims.end(), live.sizes().begin(),
                   [](std::uint64_t a, std::int64_t b) { return std::cmp_equal(a, b); });
    if (!same_dims || scalar_type(saved->type) != live.scalar_type()) {
      detail::mismatch(path, "the state holds a tensor of another type or shape");
    }
    const at::NoGradGuard no_grad;
    copy(*saved, live);
    placed_[saved->path] = live;
  }

 private:
  static void copy(const transcript::state_tensor& from, const at::Tensor& to) {
    if (from.bytes.empty()) return;
    if (to.is_contiguous() && !to.is_conj() && !to.is_neg()) {
      std::memcpy(to.mutable_data_ptr(), from.bytes.data(), from.bytes.size());
      return;
    }
    const at::Tensor plain = at::empty(to.sizes(), to.scalar_type());
    std::memcpy(plain.mutable_data_ptr(), from.bytes.data(), from.bytes.size());
    to.detach().copy_(plain);
  }

  std::map<std::string, at::Tensor> placed_;
};

namespace detail {

inline const transcript::state_map& map_at(const transcript::state_value& value,
                                           const std::string& path) {
  const auto* map = std::get_if<transcript::state_map>(&value.content);
  if (map == nullptr) mismatch(path, "not a map in the state");
  return *map;
}

inline const transcript::state_list& list_at(const transcript::state_value& value,
                                             const std::string& path) {
  const auto* list = std::get_if<transcript::state_list>(&value.content);
  if (list == nullptr) mismatch(path, "not a list in the state");
  return *list;
}

template <class Key>
const transcript::state_value& member(const transcript::state_map& map, const Key& key,
                                      const std::string& path) {
  for (const transcript::state_entry& entry : map) {
    if (entry.first == transcript::state_key(key)) return entry.second;
  }
  mismatch(path, "the state does not have it");
}

/// The value if it has exactly this type.
template <class Value>
const Value& scalar_at(const transcript::state_value& value, const std::string& path) {
  const Value* found = std::get_if<Value>(&value.content);
  if (found == nullptr) mismatch(path, "another type in the state");
  return *found;
}

inline void require_size(std::size_t saved, std::size_t live, const std::string& path) {
  if (saved == live) return;
  mismatch(path, "the state has " + std::to_string(saved) + ", the task " + std::to_string(live));
}

/// Of what steps make of squares. LibTorch's optimizers square complex numbers as they are: any may
/// come of that.
inline void require_squares(const transcript::state_value& value, const std::string& path) {
  const auto* saved = std::get_if<transcript::state_tensor>(&value.content);
  if (saved == nullptr || at::isComplexType(scalar_type(saved->type))) return;
  const char* why = numeric::why_no_squares(saved->type, saved->bytes);
  if (why != nullptr) mismatch(path, why);
}

inline void put(transcript::state_map& map, std::string key, transcript::state_value value) {
  map.push_back({transcript::state_key(std::move(key)), std::move(value)});
}

}  // namespace detail

}  // namespace potl::libtorch
