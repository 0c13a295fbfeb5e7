// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <map>

#include <potl/core/file.hpp>
#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/encoding/detail/safetensors.hpp>
#include <potl/transcript/detail/checkpoint_file.hpp>
#include <potl/transcript/detail/state_encoding.hpp>
#include <potl/transcript/state.hpp>

#include "transcript/state_index.hpp"

namespace potl::transcript {
namespace {

// Large models have large headers; the size of the file bounds all of it.
constexpr safetensors_limits checkpoint_limits{.max_header = max_checkpoint_head - 8,
                                               .max_tensors = (std::size_t{1} << 16) + 1};

error mismatch(const std::string& why) { return {errc::mismatch, "checkpoint: " + why, ""}; }

constexpr std::string_view format_key = "format", base_key = "base";
constexpr std::string_view whole_format = "potl-checkpoint-v1";
constexpr std::string_view based_format = "potl-checkpoint-v2";

// A file without anything left out is of the first version, so that a base changes nothing else.
result<safetensors_writer> announce(const state& what, const checkpoint_base* base,
                                    safetensors_writer::sink out) {
  std::vector<safetensors_writer::tensor> tensors;
  tensors.reserve(what.tensors().size() + 1);
  for (std::size_t i = 0; i < what.tensors().size(); ++i) {
    const state_tensor& tensor = *what.tensors()[i];
    if (base != nullptr && base->holds(tensor, what.roots()[i])) continue;
    tensors.push_back({tensor.path, tensor.type, tensor.dims});
  }
  safetensors_metadata metadata{{std::string(format_key), std::string(whole_format)}};
  if (tensors.size() < what.tensors().size()) {
    metadata = {{std::string(base_key), base->id().hex()},
                {std::string(format_key), std::string(based_format)}};
  }
  tensors.push_back({std::string(tree_name), dtype::u8, {what.encoding().size()}});
  return safetensors_writer::create(std::move(tensors), std::move(metadata), std::move(out),
                                    checkpoint_limits);
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
status require_canonical(const state& what, const checkpoint_base* base, bytes_view file) {
  std::vector<std::uint8_t> header;
  const result<safetensors_writer> writer = announce(what, base, [&](bytes_view part) -> status {
    header.insert(header.end(), part.begin(), part.end());
    return unit{};
  });
  if (!writer) return writer.why();
  const bool same =
      header.size() <= file.size() && std::memcmp(header.data(), file.data(), header.size()) == 0;
  if (!same) return mismatch("the header is not in canonical form");
  return unit{};
}

// Points the tree's tensors at the file's bytes, each hashed against the root that the tree binds,
// or at those of the base with that root.
status attach(decoded_tree& tree, const safetensors_view& file, const checkpoint_base* base) {
  state_index index(tree_source::unnamed);
  if (status named = index.walk(tree.root); !named) return named;
  const std::vector<state_tensor*>& tensors = index.tensors();
  std::size_t left_out = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const safetensors_tensor* stored = file.find(tensors[i]->path);
    if (stored == nullptr && base != nullptr && base->holds(*tensors[i], tree.roots[i])) {
      tensors[i]->bytes = base->find(*tensors[i], tree.roots[i]);
      ++left_out;
      continue;
    }
    if (stored == nullptr) return mismatch("tensor \"" + tensors[i]->path + "\" is not there");
    if (stored->type != tensors[i]->type || stored->dims != tensors[i]->dims) {
      return mismatch("tensor \"" + tensors[i]->path + "\" has another dtype or shape");
    }
    if (content_root(stored->data) != tree.roots[i]) {
      return mismatch("the bytes of tensor \"" + tensors[i]->path + "\" were changed");
    }
    tensors[i]->bytes = stored->data;
  }
  if (tensors.size() - left_out + 1 != file.tensors.size()) {
    return mismatch("the file does not hold the tensors of its tree");
  }
  return unit{};
}

bool needs_base(const safetensors_view& file) {
  return std::any_of(file.metadata.begin(), file.metadata.end(), [](const auto& entry) {
    return entry.first == format_key && entry.second == based_format;
  });
}

// What a state that was read points into.
struct sources {
  std::vector<std::uint8_t> file;
  std::shared_ptr<const checkpoint_base> base;
};

base_source beside(const std::string& path, std::uint64_t max_bytes, links follow) {
  return [=]() -> result<std::shared_ptr<const checkpoint_base>> {
    const std::size_t folder = path.rfind('/');
    const std::string name =
        (folder == std::string::npos ? std::string() : path.substr(0, folder + 1)) +
        "step-0.safetensors";
    result<std::vector<std::uint8_t>> file = read_file(name, max_bytes, follow);
    if (!file) return file.why();
    result<state> initial = parse_checkpoint(std::move(*file), nullptr);
    if (!initial) return initial.why();
    return std::make_shared<const checkpoint_base>(checkpoint_base::to_read(std::move(*initial)));
  };
}

}  // namespace

status save_checkpoint(const std::string& path, const state& what, const checkpoint_base* base) {
  result<atomic_file> file = atomic_file::create(path);
  if (!file) return file.why();
  result<safetensors_writer> writer =
      announce(what, base, [&](bytes_view part) { return file->write(part); });
  if (!writer) return writer.why();
  if (status written = write_data(what, *writer); !written) return written;
  return file->commit();
}

result<checkpoint_file> read_checkpoint(const file_pieces& file, std::uint64_t max_bytes) {
  result<safetensors_head> head = read_safetensors_head(file, checkpoint_limits);
  if (!head) return head.why().code == errc::io ? head.why() : mismatch(head.why().message);
  result<std::vector<std::uint8_t>> bytes = file.read_all(max_bytes, head->bytes);
  if (!bytes) return bytes.why();
  return checkpoint_file{std::move(*bytes), std::move(*head)};
}

result<state> parse_checkpoint(std::vector<std::uint8_t> file, const digest* expected,
                               const base_source& base) {
  result<safetensors_head> head = parse_safetensors_head(file, checkpoint_limits);
  if (!head) return head.why();
  return parse_checkpoint(checkpoint_file{std::move(file), std::move(*head)}, expected, base);
}

result<state> parse_checkpoint(checkpoint_file file, const digest* expected,
                               const base_source& base) {
  const auto memory = std::make_shared<sources>();
  memory->file = std::move(file.bytes);
  const safetensors_view view = view_of(std::move(file.head), memory->file);
  const safetensors_tensor* stored = view.find(tree_name);
  if (stored == nullptr || stored->type != dtype::u8 || stored->dims.size() != 1) {
    return error{errc::malformed, "checkpoint: there is no tensor \"potl.state\"", ""};
  }
  // The tree binds every tensor's root, so this comparison settles what may be in the file, and
  // what it may leave out.
  state_hashes known;
  known.whole = digest_of_encoding(stored->data);
  if (expected != nullptr && known.whole != *expected) {
    return mismatch("the state's digest is not the expected one");
  }
  result<decoded_tree> tree = decode_tree(stored->data);
  if (!tree) return tree.why();
  if (needs_base(view)) {
    if (!base) return mismatch("it leaves out what an initial state holds, and there is none");
    auto found = base();
    if (!found) return found.why();
    memory->base = std::move(*found);
  }
  const checkpoint_base* rest = memory->base.get();
  if (const status attached = attach(*tree, view, rest); !attached) return attached.why();
  known.roots = std::move(tree->roots);
  known.encoding.assign(stored->data.begin(), stored->data.end());
  result<state> out = state::make(std::move(tree->root), memory, &known);
  if (!out) return out;
  if (const status ok = require_canonical(*out, rest, memory->file); !ok) return ok.why();
  return out;
}

result<state> load_checkpoint(const std::string& path, const digest& expected,
                              std::uint64_t max_bytes) {
  result<std::vector<std::uint8_t>> file = read_file(path, max_bytes);
  if (!file) return file.why();
  return parse_checkpoint(std::move(*file), &expected, beside(path, max_bytes, links::refuse));
}

result<state> load_own_checkpoint(const std::string& path, std::uint64_t max_bytes) {
  result<std::vector<std::uint8_t>> file = read_file(path, max_bytes, links::follow);
  if (!file) return file.why();
  return parse_checkpoint(std::move(*file), nullptr, beside(path, max_bytes, links::follow));
}

}  // namespace potl::transcript
