// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <potl/transcript/state.hpp>

namespace potl::transcript {
namespace {

bool same_form(const state_tensor& a, const state_tensor& b) {
  return a.type == b.type && a.memory_format == b.memory_format && a.dims == b.dims;
}

}  // namespace

checkpoint_base::checkpoint_base(const state& initial) : id_(initial.state_digest()) {
  const std::vector<const state_tensor*>& tensors = initial.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i]->bytes.size() < least_bytes) continue;
    tensors_.push_back({*tensors[i], initial.roots()[i]});
    tensors_.back().form.kept.reset();
  }
}

checkpoint_base checkpoint_base::to_write(const state& initial) {
  return checkpoint_base(initial).without_bytes();
}

checkpoint_base checkpoint_base::without_bytes() const {
  checkpoint_base out = *this;
  out.owner_.reset();
  for (known& one : out.tensors_) one.form.bytes = {};
  return out;
}

checkpoint_base checkpoint_base::to_read(state initial) {
  checkpoint_base out(initial);
  out.owner_ = std::move(initial);
  return out;
}

bool checkpoint_base::holds(const state_tensor& what, const digest& root) const {
  return look_up(what, root) != nullptr;
}

bytes_view checkpoint_base::find(const state_tensor& what, const digest& root) const {
  const known* found = look_up(what, root);
  return found == nullptr ? bytes_view() : found->form.bytes;
}

const checkpoint_base::known* checkpoint_base::look_up(const state_tensor& what,
                                                       const digest& root) const {
  const auto at = std::lower_bound(
      tensors_.begin(), tensors_.end(), what.path,
      [](const known& one, const std::string& path) { return one.form.path < path; });
  const bool there = at != tensors_.end() && at->form.path == what.path;
  return there && same_form(at->form, what) && at->root == root ? &*at : nullptr;
}

}  // namespace potl::transcript
