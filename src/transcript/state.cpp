// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/state.hpp>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>

#include <potl/transcript/detail/kept_tensor.hpp>
#include <potl/transcript/detail/state_encoding.hpp>

#include "transcript/shared_roots.hpp"
#include "transcript/state_index.hpp"

namespace potl::transcript {

struct state::body {
  state_value root;
  std::shared_ptr<const void> memory;
  std::vector<const state_tensor*> in_order;  // as encoded
  std::vector<const state_tensor*> by_path;
  std::uint64_t bytes = 0;

  std::optional<shared_roots> roots;  // unless they were known
  std::once_flag finished;
  std::vector<std::uint8_t> encoding;
  digest whole;
  std::vector<digest> roots_by_path;

  void sort_roots(const std::vector<digest>& of_tensors) {
    std::vector<std::size_t> order(in_order.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return in_order[a]->path < in_order[b]->path; });
    roots_by_path.reserve(order.size());
    for (const std::size_t i : order) roots_by_path.push_back(of_tensors[i]);
  }
  // Threads that come at the same time share the work.
  void hash(unsigned threads) {
    if (!roots) return;
    std::vector<digest> all = roots->compute(threads);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (in_order[i]->kept) all[i] = in_order[i]->kept->root();
    }
    std::call_once(finished, [&] {
      encoding = encode_tree(root, all);
      whole = digest_of_encoding(encoding);
      sort_roots(all);
    });
  }
};

result<state> state::make(state_value root, std::shared_ptr<const void> memory,
                          const state_hashes* known) {
  auto content = std::make_shared<body>();
  content->root = std::move(root);
  content->memory = std::move(memory);
  state_index index(tree_source::stored);
  if (const status ok = index.walk(content->root); !ok) return ok.why();
  content->in_order.assign(index.tensors().begin(), index.tensors().end());
  content->by_path = content->in_order;
  std::sort(content->by_path.begin(), content->by_path.end(),
            [](const state_tensor* a, const state_tensor* b) { return a->path < b->path; });
  content->bytes = index.tensor_bytes_total();
  if (known != nullptr) {
    if (known->roots.size() != content->in_order.size()) {
      return error{errc::internal, "state: one root per tensor", ""};
    }
    content->encoding = known->encoding;
    content->whole = known->whole;
    content->sort_roots(known->roots);
  } else {
    std::vector<bytes_view> contents;
    contents.reserve(content->in_order.size());
    for (const state_tensor* tensor : content->in_order) {
      contents.push_back(tensor->kept ? bytes_view() : tensor->bytes);
    }
    content->roots.emplace(std::move(contents));
  }
  state out;
  out.body_ = std::move(content);
  return out;
}

const state_value& state::root() const { return body_->root; }
const std::vector<const state_tensor*>& state::tensors() const { return body_->by_path; }
std::uint64_t state::size_bytes() const { return body_->bytes; }

const digest& state::state_digest(unsigned threads) const {
  body_->hash(threads);
  return body_->whole;
}

const std::vector<std::uint8_t>& state::encoding(unsigned threads) const {
  body_->hash(threads);
  return body_->encoding;
}

const std::vector<digest>& state::roots(unsigned threads) const {
  body_->hash(threads);
  return body_->roots_by_path;
}

}  // namespace potl::transcript
