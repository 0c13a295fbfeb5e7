// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/snapshot.hpp>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/transcript/detail/kept_tensor.hpp>
#include <potl/transcript/detail/state_encoding.hpp>

#include "transcript/state_index.hpp"

namespace potl::transcript {

struct snapshot_block {
  std::uint8_t* data = nullptr;
  std::size_t size = 0;
};

namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t granularity = 4096;

constexpr std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

// Puts the kept copy in the place of the trainer's bytes, or lets go of it.
status look_at(state_tensor& tensor, bool whole) {
  if (!tensor.kept) return unit{};
  switch (tensor.kept->look(tensor.bytes, whole)) {
    case kept_tensor::finding::same: tensor.bytes = tensor.kept->bytes(); break;
    case kept_tensor::finding::changed: tensor.kept.reset(); break;
    case kept_tensor::finding::torn:
      return error{errc::usage, "state: \"" + tensor.path + "\" is not trained, and was written",
                   "write it under torch.no_grad(), not through .data, so that torch counts it, "
                   "and record into a new directory: earlier records may be wrong"};
  }
  return unit{};
}

void release(snapshot_block what) { ::operator delete (what.data, std::align_val_t{alignment}); }

}  // namespace

struct snapshot_memory::body {
  std::mutex mutex;
  std::vector<snapshot_block> spare;
  std::size_t spare_limit = 0;
  std::size_t total = 0;

  ~body() {
    for (const snapshot_block& one : spare) release(one);
  }

  // The smallest spare block that fits without wasting more than it holds.
  snapshot_block find(std::size_t size) {
    const std::lock_guard lock(mutex);
    auto best = spare.end();
    for (auto one = spare.begin(); one != spare.end(); ++one) {
      const bool fits = one->size >= size && one->size / 2 <= size;
      if (fits && (best == spare.end() || one->size < best->size)) best = one;
    }
    if (best == spare.end()) return {};
    const snapshot_block out = *best;
    spare.erase(best);
    return out;
  }

  void give_back(snapshot_block what) noexcept {
    const std::lock_guard lock(mutex);
    if (spare.size() == spare_limit && !spare.empty()) {
      // The oldest goes: states of a run have one size, and it may have changed.
      total -= spare.front().size;
      release(spare.front());
      spare.erase(spare.begin());
    }
    if (spare.size() < spare_limit) {
      spare.push_back(what);  // capacity was reserved
    } else {
      total -= what.size;
      release(what);
    }
  }
};

snapshot_memory::snapshot_memory(std::size_t spare_blocks) : body_(std::make_shared<body>()) {
  body_->spare_limit = spare_blocks;
  body_->spare.reserve(spare_blocks);
}

std::shared_ptr<std::uint8_t> snapshot_memory::take(std::size_t bytes) {
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), granularity);
  snapshot_block got = body_->find(size);
  if (got.data == nullptr) {
    got = {static_cast<std::uint8_t*>(::operator new (size, std::align_val_t{alignment})), size};
    const std::lock_guard lock(body_->mutex);
    body_->total += size;
  }
  return {got.data, [home = body_, got](std::uint8_t*) { home->give_back(got); }};
}

std::size_t snapshot_memory::total_bytes() const {
  const std::lock_guard lock(body_->mutex);
  return body_->total;
}

result<state> capture(state_value tree, snapshot_memory& memory, bool whole) {
  state_index index(tree_source::captured);
  if (const status ok = index.walk(tree); !ok) return ok.why();
  std::size_t size = 0;
  for (state_tensor* tensor : index.tensors()) {
    if (const status looked = look_at(*tensor, whole); !looked) return looked.why();
    if (!tensor->kept) size += round_up(tensor->bytes.size(), alignment);
  }
  std::shared_ptr<std::uint8_t> copy = memory.take(size);
  std::uint8_t* next = copy.get();
  for (state_tensor* tensor : index.tensors()) {
    if (tensor->kept) continue;
    if (!tensor->bytes.empty()) std::memcpy(next, tensor->bytes.data(), tensor->bytes.size());
    tensor->bytes = {next, tensor->bytes.size()};
    next += round_up(tensor->bytes.size(), alignment);
  }
  return state::make(std::move(tree), std::move(copy));
}

result<state> adopt(state_value tree, std::shared_ptr<const void> owner) {
  state_index index(tree_source::captured);
  if (const status ok = index.walk(tree); !ok) return ok.why();
  return state::make(std::move(tree), std::move(owner));
}

result<digest> digest_of(state_value tree, const root_source& roots_of) {
  state_index index(tree_source::placed);
  if (const status ok = index.walk(tree); !ok) return ok.why();
  std::vector<bytes_view> there;
  for (const state_tensor* tensor : index.tensors()) {
    if (tensor->elsewhere) there.push_back(tensor->bytes);
  }
  const std::vector<digest> known = there.empty() ? std::vector<digest>() : roots_of(there);
  if (known.size() != there.size()) return error{errc::internal, "state: one root per tensor", ""};
  std::vector<digest> all;
  auto next = known.begin();
  for (const state_tensor* tensor : index.tensors()) {
    all.push_back(tensor->elsewhere ? *next++ : content_root(tensor->bytes));
  }
  return digest_of_encoding(encode_tree(tree, all));
}

result<bool> would_equal(state_value tree, const state& before) {
  state_index index(tree_source::captured);
  if (const status ok = index.walk(tree); !ok) return ok.why();
  std::vector<state_tensor*>& now = index.tensors();
  const std::vector<const state_tensor*>& then = before.tensors();
  if (now.size() != then.size()) return false;
  // All but the bytes of tensors.
  const std::vector<digest> nothing(now.size());
  if (encode_tree(tree, nothing) != encode_tree(before.root(), nothing)) return false;
  std::sort(now.begin(), now.end(),
            [](const state_tensor* a, const state_tensor* b) { return a->path < b->path; });
  return std::equal(now.begin(), now.end(), then.begin(),
                    [](const state_tensor* a, const state_tensor* b) {
                      return a->bytes.size() == b->bytes.size() &&
                             (a->bytes.empty() ||
                              std::memcmp(a->bytes.data(), b->bytes.data(), a->bytes.size()) == 0);
                    });
}

}  // namespace potl::transcript
