// SPDX-License-Identifier: Apache-2.0
// One walk over a state tree that validates it, names its tensors and lists them.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <potl/core/result.hpp>
#include <potl/transcript/state.hpp>

namespace potl::transcript {

/// The key under which a checkpoint file holds the tree.
inline constexpr std::string_view tree_name = "potl.state";

enum class tree_source {
  captured,  ///< sort maps, turn tensors that share memory into aliases
  placed,    ///< as captured, and tensors may be elsewhere
  stored,    ///< refuse what is not canonical
  unnamed,   ///< as stored, from a decoded tree whose tensors have no bytes yet
};

class state_index {
 public:
  explicit state_index(tree_source source) : source_(source) {}

  /// Call once. The lists point into `root`.
  status walk(state_value& root);
  /// In encoding order, aliases left out.
  std::vector<state_tensor*>& tensors() { return tensors_; }
  std::uint64_t tensor_bytes_total() const { return bytes_; }

 private:
  status visit(state_value& value, std::size_t depth);
  status visit_items(state_list& items, std::size_t depth);
  status visit_map(state_map& map, std::size_t depth);
  status visit_tensor(state_value& value);
  bool is_alive() const {
    return source_ == tree_source::captured || source_ == tree_source::placed;
  }
  error refused(errc code, const std::string& why) const;

  tree_source source_;
  std::string path_;
  std::size_t nodes_ = 0;
  std::size_t path_bytes_ = 0;
  std::uint64_t bytes_ = 0;
  std::vector<state_tensor*> tensors_;
  std::unordered_map<const std::uint8_t*, std::vector<const state_tensor*>> by_address_;
  std::unordered_set<std::string> names_;  // filled when the first alias is met
};

}  // namespace potl::transcript
