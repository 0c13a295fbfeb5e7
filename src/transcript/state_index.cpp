// SPDX-License-Identifier: Apache-2.0
#include "transcript/state_index.hpp"

#include <algorithm>
#include <array>

#include <potl/core/detail/utf8.hpp>
#include <potl/encoding/detail/safetensors.hpp>
#include <potl/transcript/detail/state_encoding.hpp>

namespace potl::transcript {
namespace {

constexpr std::size_t max_tensors = std::size_t{1} << 16;
constexpr std::size_t max_path_bytes = std::size_t{8} << 20;  // of all tensors together
constexpr std::array<std::string_view, 3> memory_formats{"contiguous", "channels_last",
                                                         "channels_last_3d"};

bool key_less(const state_map::value_type& a, const state_map::value_type& b) {
  return a.first < b.first;
}

// "/" separates, so it is escaped in names; a leading "#" marks an integer key.
void append_component(std::string& path, const state_key& key) {
  if (const auto* number = std::get_if<std::int64_t>(&key)) {
    path += '#';
    path += std::to_string(*number);
    return;
  }
  const std::string& name = std::get<std::string>(key);
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '~') {
      path += "~0";
    } else if (name[i] == '/') {
      path += "~1";
    } else if (name[i] == '#' && i == 0) {
      path += "~2";
    } else {
      path += name[i];
    }
  }
}

bool same_tensor(const state_tensor& a, const state_tensor& b) {
  return a.type == b.type && a.memory_format == b.memory_format && a.dims == b.dims;
}

}  // namespace

error state_index::refused(errc code, const std::string& why) const {
  return {code, "state: " + why + " at \"" + path_ + "\"", ""};
}

status state_index::walk(state_value& root) { return visit(root, 0); }

status state_index::visit(state_value& value, std::size_t depth) {
  if (++nodes_ > max_state_nodes) {
    error out = refused(errc::limit, "more than " + std::to_string(max_state_nodes) + " values");
    out.remedy = "put long lists of numbers into a tensor";
    return out;
  }
  if (depth > max_state_depth) return refused(errc::limit, "nested too deeply");
  if (auto* text = std::get_if<std::string>(&value.content)) {
    if (!is_utf8(*text)) return refused(errc::malformed, "text that is not UTF-8");
  } else if (auto* list = std::get_if<state_list>(&value.content)) {
    return visit_items(*list, depth);
  } else if (auto* tuple = std::get_if<state_tuple>(&value.content)) {
    return visit_items(tuple->items, depth);
  } else if (auto* map = std::get_if<state_map>(&value.content)) {
    return visit_map(*map, depth);
  } else if (std::holds_alternative<state_tensor>(value.content)) {
    return visit_tensor(value);
  } else if (auto* alias = std::get_if<state_alias>(&value.content)) {
    if (names_.empty()) {
      for (const state_tensor* tensor : tensors_) names_.insert(tensor->path);
    }
    if (!names_.contains(alias->path)) {
      return refused(errc::malformed, "an alias of a tensor that does not precede it");
    }
  } else if (std::holds_alternative<state_reference>(value.content)) {
    return refused(errc::malformed, "a reference");
  }
  return unit{};
}

status state_index::visit_items(state_list& items, std::size_t depth) {
  const std::size_t length = path_.size();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (depth != 0) path_ += '/';
    path_ += std::to_string(i);
    if (status ok = visit(items[i], depth + 1); !ok) return ok;
    path_.resize(length);
  }
  return unit{};
}

status state_index::visit_map(state_map& map, std::size_t depth) {
  if (is_alive() && !std::is_sorted(map.begin(), map.end(), key_less)) {
    std::sort(map.begin(), map.end(), key_less);
  }
  const std::size_t length = path_.size();
  for (std::size_t i = 0; i < map.size(); ++i) {
    auto& [key, value] = map[i];
    if (i != 0 && !(map[i - 1].first < key)) {
      return refused(errc::malformed, "keys that are repeated or not sorted");
    }
    const auto* name = std::get_if<std::string>(&key);
    if (name != nullptr && !is_utf8(*name)) {
      return refused(errc::malformed, "a key that is not UTF-8");
    }
    if (depth != 0) path_ += '/';
    append_component(path_, key);
    if (status ok = visit(value, depth + 1); !ok) return ok;
    path_.resize(length);
  }
  return unit{};
}

status state_index::visit_tensor(state_value& value) {
  auto& tensor = std::get<state_tensor>(value.content);
  if (std::find(memory_formats.begin(), memory_formats.end(), tensor.memory_format) ==
      memory_formats.end()) {
    return refused(errc::malformed, "unknown memory format \"" + tensor.memory_format + "\"");
  }
  if (tensor.dims.size() > max_rank) return refused(errc::limit, "too many dimensions");
  const result<std::uint64_t> size = tensor_bytes(tensor.type, tensor.dims);
  if (!size) return size.why();
  if (source_ != tree_source::unnamed && *size != tensor.bytes.size()) {
    return refused(errc::malformed, "a tensor with " + std::to_string(tensor.bytes.size()) +
                                        " bytes instead of " + std::to_string(*size));
  }
  if (tensor.elsewhere && source_ != tree_source::placed) {
    return refused(errc::usage, "a tensor that is not in the CPU's memory");
  }
  if (path_ == tree_name || path_ == "__metadata__") {
    return refused(errc::malformed, "a reserved name");
  }
  path_bytes_ += path_.size();
  if (path_.size() > max_state_path || path_bytes_ > max_path_bytes) {
    return refused(errc::limit, "names that are too long");
  }
  if (is_alive() && !tensor.bytes.empty()) {
    auto& seen = by_address_[tensor.bytes.data()];
    for (const state_tensor* other : seen) {
      if (!same_tensor(*other, tensor)) continue;
      state_alias alias{other->path};
      value.content = std::move(alias);
      return unit{};
    }
    seen.push_back(&tensor);
  }
  if (tensors_.size() == max_tensors) return refused(errc::limit, "too many tensors");
  tensor.path = path_;
  tensors_.push_back(&tensor);
  bytes_ += tensor.bytes.size();
  if (!names_.empty()) names_.insert(path_);
  return unit{};
}

}  // namespace potl::transcript
