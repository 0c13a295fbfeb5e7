// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <map>

#include <potl/core/file.hpp>
#include <potl/crypto/tensor_digest.hpp>
#include <potl/transcript/safetensors.hpp>
#include <potl/transcript/state.hpp>

#include "transcript/state_encoding.hpp"
#include "transcript/state_index.hpp"

namespace potl::transcript {
namespace {

// Large models have large headers; the size of the file bounds all of it.
constexpr safetensors_limits limits{.max_header = std::size_t{32} << 20,
                                    .max_tensors = (std::size_t{1} << 16) + 1};

error mismatch(const std::string& why) { return {errc::mismatch, "checkpoint: " + why, ""}; }

result<safetensors_writer> announce(const state& what, safetensors_writer::sink out) {
  std::vector<safetensors_writer::tensor> tensors;
  tensors.reserve(what.tensors().size() + 1);
  for (const state_tensor* tensor : what.tensors()) {
    tensors.push_back({tensor->path, tensor->type, tensor->dims});
  }
  tensors.push_back({std::string(tree_name), dtype::u8, {what.encoding().size()}});
  return safetensors_writer::create(std::move(tensors), {{"format", "potl-checkpoint-v1"}},
                                    std::move(out), limits);
}

status write_data(const state& what, safetensors_writer& out) {
  std::map<std::string_view, bytes_view> contents;
  for (const state_tensor* tensor : what.tensors()) contents[tensor->path] = tensor->bytes;
  contents[tree_name] = what.encoding();
  for (const auto& tensor : out.order()) {
    if (status ok = out.write(contents[tensor.name]); !ok) return ok;
  }
  return out.finish();
}

// A file says the same thing in one way only: the header must be the one that would be written.
status require_canonical(const state& what, bytes_view file) {
  std::vector<std::uint8_t> header;
  const result<safetensors_writer> writer = announce(what, [&](bytes_view part) -> status {
    header.insert(header.end(), part.begin(), part.end());
    return unit{};
  });
  if (!writer) return writer.why();
  const bool same =
      header.size() <= file.size() && std::memcmp(header.data(), file.data(), header.size()) == 0;
  if (!same) return mismatch("the header is not in canonical form");
  return unit{};
}

// Points the tree's tensors at the file's bytes, each hashed against the root that the tree binds.
status attach(decoded_tree& tree, const safetensors_view& file) {
  state_index index(tree_source::unnamed);
  if (status named = index.walk(tree.root); !named) return named;
  const std::vector<state_tensor*>& tensors = index.tensors();
  if (tensors.size() + 1 != file.tensors.size()) {
    return mismatch("the file does not hold the tensors of its tree");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const safetensors_tensor* stored = file.find(tensors[i]->path);
    if (stored == nullptr) return mismatch("tensor \"" + tensors[i]->path + "\" is not there");
    if (stored->type != tensors[i]->type || stored->dims != tensors[i]->dims) {
      return mismatch("tensor \"" + tensors[i]->path + "\" has another dtype or shape");
    }
    if (content_root(stored->data) != tree.roots[i]) {
      return mismatch("the bytes of tensor \"" + tensors[i]->path + "\" were changed");
    }
    tensors[i]->bytes = stored->data;
  }
  return unit{};
}

}  // namespace

status save_checkpoint(const std::string& path, const state& what) {
  result<atomic_file> file = atomic_file::create(path);
  if (!file) return file.why();
  result<safetensors_writer> writer =
      announce(what, [&](bytes_view part) { return file->write(part); });
  if (!writer) return writer.why();
  if (status written = write_data(what, *writer); !written) return written;
  return file->commit();
}

result<state> parse_checkpoint(std::vector<std::uint8_t> file, const digest* expected) {
  const auto memory = std::make_shared<const std::vector<std::uint8_t>>(std::move(file));
  const result<safetensors_view> view = parse_safetensors(*memory, limits);
  if (!view) return view.why();
  const safetensors_tensor* stored = view->find(tree_name);
  if (stored == nullptr || stored->type != dtype::u8 || stored->dims.size() != 1) {
    return error{errc::malformed, "checkpoint: there is no tensor \"potl.state\"", ""};
  }
  // The tree binds every tensor's root, so this comparison settles what may be in the file.
  if (expected != nullptr && digest_of_encoding(stored->data) != *expected) {
    return mismatch("the state's digest is not the expected one");
  }
  result<decoded_tree> tree = decode_tree(stored->data);
  if (!tree) return tree.why();
  if (const status attached = attach(*tree, *view); !attached) return attached.why();
  result<state> out = state::make(std::move(tree->root), memory, &tree->roots);
  if (!out) return out;
  if (const status ok = require_canonical(*out, *memory); !ok) return ok.why();
  return out;
}

result<state> load_checkpoint(const std::string& path, const digest& expected,
                              std::uint64_t max_bytes) {
  result<std::vector<std::uint8_t>> file = read_file(path, max_bytes);
  if (!file) return file.why();
  return parse_checkpoint(std::move(*file), &expected);
}

result<state> load_own_checkpoint(const std::string& path, std::uint64_t max_bytes) {
  result<std::vector<std::uint8_t>> file = read_file(path, max_bytes, links::follow);
  if (!file) return file.why();
  return parse_checkpoint(std::move(*file), nullptr);
}

}  // namespace potl::transcript
