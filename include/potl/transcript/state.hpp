// SPDX-License-Identifier: Apache-2.0
// A state is a typed tree: absent differs from zero, floats are bits, an int is not a float,
// tensors are in logical order with their memory format beside them, and tensors that share memory
// (tied weights) appear once with aliases. The state digest is SHA-256("potl.state.v1" 0x00
// encoding), where a tensor is encoded as dtype, memory format, dims and the content root of its
// bytes (crypto/detail/tensor_digest.hpp), so the bytes can be hashed on many threads.
// docs/format/transcript.md specifies encoding and checkpoint file.
//
// What comes from a file is bounded: nodes, depth, lengths and tensors are checked against what is
// there before memory is taken, and a checkpoint is accepted only if it is, byte for byte, what
// save_checkpoint writes for its contents, with or without a base.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/dtype.hpp>
#include <potl/core/result.hpp>

namespace potl::transcript {

/// What a state may hold. Larger collections of numbers belong into tensors.
inline constexpr std::size_t max_state_nodes = std::size_t{1} << 18;
inline constexpr std::size_t max_state_depth = 64;
inline constexpr std::size_t max_state_path = 1024;  ///< bytes of a tensor's path

class kept_tensor;

/// A tensor of a state.
struct state_tensor {
  dtype type{};
  std::string memory_format;  ///< "contiguous", "channels_last", "channels_last_3d"
  std::vector<std::uint64_t> dims;
  bytes_view bytes;  ///< logical (row-major) order, little-endian; owned by the state
  std::string
      path;  ///< e.g. "model/parameters/0.weight"; key in the checkpoint file; set by state::make
  std::shared_ptr<kept_tensor> kept;  ///< in a captured state: where `bytes` lie and their root is
  /// `bytes` are the memory of a device, which the CPU does not read: only digest_of takes these.
  bool elsewhere = false;
};

struct state_value;
struct state_entry;
using state_list = std::vector<state_value>;
/// Integer keys (optimizer state) and string keys are distinct kinds.
using state_key = std::variant<std::int64_t, std::string>;
/// Sorted by key (integers first, then strings bytewise), unique.
using state_map = std::vector<state_entry>;
struct state_alias {
  std::string path;  ///< path of the first tensor with the same memory, dtype, dims
};
/// Where an operand of an operator comes from (docs/format/operator_trace.md): no state holds one.
struct state_reference {
  std::string path;
};
struct state_bytes {
  std::vector<std::uint8_t> bytes;
};
struct state_tuple {
  state_list items;
};
struct state_value {
  std::variant<std::monostate, bool, std::int64_t, double, std::string, state_bytes, state_list,
               state_tuple, state_map, state_tensor, state_alias, state_reference>
      content;
};
/// What std::pair would be, which clang 14 cannot complete within a recursive variant.
struct state_entry {
  state_key first;
  state_value second;
};

/// What is known of a state whose encoding was read.
struct state_hashes {
  std::vector<digest> roots;           ///< of its tensors, in encoding order
  std::vector<std::uint8_t> encoding;  ///< canonical
  digest whole;                        ///< digest_of_encoding(encoding)
};

/// One state in memory that owns its tensors' bytes. Immutable after construction.
class state {
 public:
  const state_value& root() const;
  const std::vector<const state_tensor*>& tensors() const;  ///< in path order, aliases left out
  std::uint64_t size_bytes() const;
  /// Computed on first use and kept; `threads` as in content_root.
  const digest& state_digest(unsigned threads = 1) const;

  /// Bytes whose SHA-256 after the domain is the state digest; stored in the checkpoint as
  /// "potl.state".
  const std::vector<std::uint8_t>& encoding(unsigned threads = 1) const;

  /// Content roots of tensors(), in that order.
  const std::vector<digest>& roots(unsigned threads = 1) const;

  /// Takes ownership of `memory`, into which the tensors' spans point, and computes the paths.
  /// malformed or limit when the tree is not canonical: text that is not UTF-8, unsorted keys,
  /// spans that do not fit their dims, aliases of nothing, a path that a checkpoint file cannot
  /// carry. What is not `known` is computed on first use.
  static result<state> make(state_value root, std::shared_ptr<const void> memory,
                            const state_hashes* known = nullptr);

 private:
  struct body;
  std::shared_ptr<body> body_;
};

/// The large tensors of a run's initial state, which its later checkpoints leave out while they
/// stay the same. It is only a place where bytes with a known root lie: what a checkpoint leaves
/// out is found here by the root that its own tree binds, or not at all.
class checkpoint_base {
 public:
  static constexpr std::uint64_t least_bytes = std::uint64_t{1} << 16;

  /// For writing: keeps no bytes.
  static checkpoint_base to_write(const state& initial);
  /// For reading: keeps the state.
  static checkpoint_base to_read(state initial);

  checkpoint_base without_bytes() const;

  /// Digest of the initial state.
  const digest& id() const { return id_; }
  /// Whether a checkpoint leaves `what` out.
  bool holds(const state_tensor& what, const digest& root) const;
  /// Its bytes, or nothing unless to_read() made this and holds() is true.
  bytes_view find(const state_tensor& what, const digest& root) const;

 private:
  struct known {
    state_tensor form;
    digest root;
  };
  explicit checkpoint_base(const state& initial);
  const known* look_up(const state_tensor& what, const digest& root) const;

  digest id_;
  std::vector<known> tensors_;  // by path
  std::optional<state> owner_;
};

/// Where a reader finds the base, if a file needs one.
using base_source = std::function<result<std::shared_ptr<const checkpoint_base>>()>;

/// Writes step-N.safetensors: every tensor under its path, except what `base` holds, and the tree
/// in the U8 tensor "potl.state". Atomic, durable.
status save_checkpoint(const std::string& path, const state& what,
                       const checkpoint_base* base = nullptr);
/// Reads, parses and hashes the same buffer; a base is looked for in step-0.safetensors beside it.
/// mismatch when the digest differs from `expected`.
result<state> load_checkpoint(const std::string& path, const digest& expected,
                              std::uint64_t max_bytes);
/// For a prover's own file: the digest is computed from the contents, and compared with nothing.
result<state> load_own_checkpoint(const std::string& path, std::uint64_t max_bytes);
/// The bytes of a checkpoint file, which the state keeps. Without a source of the base, files that
/// need one are mismatches.
result<state> parse_checkpoint(std::vector<std::uint8_t> file, const digest* expected,
                               const base_source& base = nullptr);

}  // namespace potl::transcript
