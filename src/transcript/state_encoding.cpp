// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/detail/state_encoding.hpp>

#include <potl/crypto/hasher.hpp>

#include "transcript/little_endian.hpp"

namespace potl::transcript {
namespace {

// The first byte of a value; never reused for another layout.
enum tag : std::uint8_t {
  none = 0,
  no = 1,
  yes = 2,
  integer = 3,
  real = 4,
  text = 5,
  raw_bytes = 6,
  list = 7,
  tuple = 8,
  map = 9,
  tensor = 10,
  alias = 11,
  reference = 12,  // in operators alone: a state holds none
};

// A list item takes at least one byte, a map entry at least two: counts are bounded by what is
// left.
constexpr std::size_t min_item = 1;
constexpr std::size_t min_entry = 2;

class tree_encoder {
 public:
  tree_encoder(std::vector<std::uint8_t>& bytes, const std::vector<digest>& roots)
      : out_(bytes), next_root_(roots.begin()) {}

  void value(const state_value& what) { std::visit(*this, what.content); }

  void operator()(std::monostate) { out_.u8(none); }
  void operator()(bool what) { out_.u8(what ? yes : no); }
  void operator()(std::int64_t what) {
    out_.u8(integer);
    out_.i64(what);
  }
  void operator()(double what) {
    out_.u8(real);
    out_.f64(what);
  }
  void operator()(const std::string& what) { sized(text, as_bytes_view(what)); }
  void operator()(const state_bytes& what) { sized(raw_bytes, what.bytes); }
  void operator()(const state_list& what) { items(list, what); }
  void operator()(const state_tuple& what) { items(tuple, what.items); }
  void operator()(const state_map& what) {
    out_.u8(map);
    out_.u64(what.size());
    for (const auto& [key, content] : what) {
      if (const auto* number = std::get_if<std::int64_t>(&key)) {
        (*this)(*number);
      } else {
        (*this)(std::get<std::string>(key));
      }
      value(content);
    }
  }
  void operator()(const state_tensor& what) {
    out_.u8(tensor);
    short_text(info(what.type).name);
    short_text(what.memory_format);
    out_.u8(static_cast<std::uint8_t>(what.dims.size()));
    for (const std::uint64_t dim : what.dims) out_.u64(dim);
    out_.raw(*next_root_++);
  }
  void operator()(const state_alias& what) { sized(alias, as_bytes_view(what.path)); }
  void operator()(const state_reference& what) { sized(reference, as_bytes_view(what.path)); }

 private:
  void sized(std::uint8_t kind, bytes_view bytes) {
    out_.u8(kind);
    out_.u64(bytes.size());
    out_.raw(bytes);
  }
  void short_text(std::string_view what) {
    out_.u8(static_cast<std::uint8_t>(what.size()));
    out_.raw(as_bytes_view(what));
  }
  void items(std::uint8_t kind, const state_list& what) {
    out_.u8(kind);
    out_.u64(what.size());
    for (const state_value& item : what) value(item);
  }

  field_writer out_;
  std::vector<digest>::const_iterator next_root_;
};

class decoder {
 public:
  explicit decoder(bytes_view bytes) : in_(bytes) {}

  result<decoded_tree> run() {
    decoded_tree out;
    if (!value(out.root, 0) || !in_.complete()) return why();
    out.roots = std::move(roots_);
    return out;
  }

 private:
  error why() const {
    if (limit_ != nullptr) return {errc::limit, std::string("state: ") + limit_, ""};
    return {errc::malformed,
            "state: the tree is not well-formed near byte " + std::to_string(in_.position()), ""};
  }
  bool too_much(const char* what) {
    limit_ = what;
    return false;
  }

  bool value(state_value& out, std::size_t depth) {
    if (depth > max_state_depth) return too_much("nested too deeply");
    if (++nodes_ > max_state_nodes) return too_much("too many values");
    const std::uint8_t kind = in_.u8();
    if (in_.failed()) return false;
    switch (kind) {
      case none: out.content = std::monostate{}; return true;
      case no: out.content = false; return true;
      case yes: out.content = true; return true;
      case integer: out.content = in_.i64(); return !in_.failed();
      case real: out.content = in_.f64(); return !in_.failed();
      case text: out.content = in_.text(in_.u64()); return !in_.failed();
      case alias: out.content = state_alias{in_.text(in_.u64())}; return !in_.failed();
      case raw_bytes: {
        const bytes_view bytes = in_.raw(in_.u64());
        out.content = state_bytes{{bytes.begin(), bytes.end()}};
        return !in_.failed();
      }
      case list: return items(out.content.emplace<state_list>(), depth);
      case tuple: return items(out.content.emplace<state_tuple>().items, depth);
      case map: return entries(out.content.emplace<state_map>(), depth);
      case tensor: return tensor_header(out.content.emplace<state_tensor>());
      default: return false;
    }
  }

  // Memory for `count` items, if that many can follow.
  bool count(std::uint64_t& out, std::size_t item_bytes) {
    out = in_.u64();
    if (in_.failed() || out > in_.remaining() / item_bytes) return false;
    return out <= max_state_nodes - nodes_ || too_much("too many values");
  }

  bool items(state_list& out, std::size_t depth) {
    std::uint64_t size = 0;
    if (!count(size, min_item)) return false;
    out.resize(static_cast<std::size_t>(size));
    for (state_value& item : out) {
      if (!value(item, depth + 1)) return false;
    }
    return true;
  }

  bool entries(state_map& out, std::size_t depth) {
    std::uint64_t size = 0;
    if (!count(size, min_entry)) return false;
    out.resize(static_cast<std::size_t>(size));
    for (auto& [key, content] : out) {
      const std::uint8_t kind = in_.u8();
      if (kind == integer) {
        key = in_.i64();
      } else if (kind == text) {
        key = in_.text(in_.u64());
      } else {
        return false;
      }
      if (in_.failed() || !value(content, depth + 1)) return false;
    }
    return true;
  }

  bool tensor_header(state_tensor& out) {
    const std::optional<dtype> type = dtype_from_name(in_.text(in_.u8()));
    if (!type) return false;
    out.type = *type;
    out.memory_format = in_.text(in_.u8());
    const std::uint8_t rank = in_.u8();
    if (rank > max_rank) return false;
    out.dims.resize(rank);
    for (std::uint64_t& dim : out.dims) dim = in_.u64();
    roots_.push_back(in_.digest());
    return !in_.failed();
  }

  field_reader in_;
  std::vector<digest> roots_;
  std::size_t nodes_ = 0;
  const char* limit_ = nullptr;
};

}  // namespace

std::vector<std::uint8_t> encode_tree(const state_value& root, const std::vector<digest>& roots) {
  std::vector<std::uint8_t> out;
  tree_encoder(out, roots).value(root);
  return out;
}

result<decoded_tree> decode_tree(bytes_view bytes) { return decoder(bytes).run(); }

digest digest_of_encoding(bytes_view encoding) {
  constexpr std::string_view domain("potl.state.v1\0", 14);
  return sha256_of(as_bytes_view(domain), encoding);
}

}  // namespace potl::transcript
