// SPDX-License-Identifier: Apache-2.0
#include "encoding/safetensors_header.hpp"

#include <algorithm>
#include <optional>

#include "encoding/json_events.hpp"

namespace potl::detail {
namespace {

constexpr std::string_view metadata_name = "__metadata__";

// Fills the header from events, without a document in between: a hostile header then costs no more
// than the entries that the limits allow.
class header_reader final : public json_events {
 public:
  explicit header_reader(const safetensors_limits& limits) : limits_(limits) {}
  safetensors_header take() { return std::move(header_); }

  bool null() override { return refuse("null is not part of a safetensors header"); }
  bool boolean(bool) override { return refuse("a boolean is not part of a safetensors header"); }
  bool number(std::string_view) override {
    return refuse("a number that is not an unsigned 64-bit integer");
  }

  bool integer(bool negative, std::uint64_t magnitude) override {
    if (negative) return refuse("a negative number");
    if (place_ == place::dims) {
      entry().dims.push_back(magnitude);
      return entry().dims.size() <= limits_.max_rank || refuse("too many dimensions", errc::limit);
    }
    if (place_ == place::offsets) {
      if (offsets_ == 2) return refuse("more than two data_offsets");
      entry().offsets[offsets_++] = magnitude;
      return true;
    }
    return refuse("a number where none belongs");
  }

  bool string(std::string& value) override {
    if (place_ == place::metadata) {
      header_.metadata.back().second = std::move(value);
      return header_.metadata.back().second.size() <= limits_.max_metadata_text ||
             refuse("a long metadata text", errc::limit);
    }
    if (place_ != place::entry || field_ != field_type) return refuse("a string out of place");
    const std::optional<potl::dtype> type = dtype_from_name(value);
    if (!type) return refuse("an unknown dtype");
    entry().type = *type;
    return true;
  }

  bool start_object() override {
    if (place_ == place::outside) {
      place_ = place::top;
      return true;
    }
    if (place_ != place::top) return refuse("an object out of place");
    place_ = next_is_metadata_ ? place::metadata : place::entry;
    seen_ = 0;
    offsets_ = 0;
    return true;
  }

  bool name(std::string& value) override {
    if (place_ == place::entry) return name_field(value);
    if (value.size() > limits_.max_name) return refuse("a long name", errc::limit);
    if (place_ == place::metadata) {
      header_.metadata.emplace_back(std::move(value), std::string());
      return header_.metadata.size() <= limits_.max_metadata ||
             refuse("too many metadata entries", errc::limit);
    }
    next_is_metadata_ = value == metadata_name;
    if (next_is_metadata_) {
      if (has_metadata_) return refuse("__metadata__ occurs twice");
      has_metadata_ = true;
      return true;
    }
    header_.entries.push_back({std::move(value), potl::dtype::u8, {}, {}});
    return header_.entries.size() <= limits_.max_tensors || refuse("too many tensors", errc::limit);
  }

  bool end_object() override {
    if (place_ == place::entry && seen_ != (field_type | field_dims | field_offsets))
      return refuse("a tensor without dtype, shape or data_offsets");
    place_ = place_ == place::top ? place::outside : place::top;
    return true;
  }

  bool start_array() override {
    if (place_ != place::entry || field_ == field_type) return refuse("an array out of place");
    place_ = field_ == field_dims ? place::dims : place::offsets;
    return true;
  }

  bool end_array() override {
    if (place_ == place::offsets && offsets_ != 2) return refuse("fewer than two data_offsets");
    place_ = place::entry;
    return true;
  }

 private:
  enum class place { outside, top, metadata, entry, dims, offsets };
  static constexpr unsigned field_type = 1, field_dims = 2, field_offsets = 4;

  bool name_field(const std::string& value) {
    field_ = value == "dtype"          ? field_type
             : value == "shape"        ? field_dims
             : value == "data_offsets" ? field_offsets
                                       : 0;
    if (field_ == 0) return refuse("a tensor with an unknown field");
    if ((seen_ & field_) != 0) return refuse("a tensor with a field twice");
    seen_ |= field_;
    return true;
  }
  safetensors_entry& entry() { return header_.entries.back(); }
  bool refuse(const char* why, errc code = errc::malformed) {
    reason = error{code, why, ""};
    return false;
  }

  const safetensors_limits& limits_;
  safetensors_header header_;
  place place_ = place::outside;
  unsigned field_ = 0;
  unsigned seen_ = 0;
  std::size_t offsets_ = 0;
  bool next_is_metadata_ = false;
  bool has_metadata_ = false;
};

// Sorts by name; false when a name occurs twice.
template <class List, class Name>
bool sort_unique(List& list, Name name) {
  std::sort(list.begin(), list.end(),
            [&](const auto& a, const auto& b) { return name(a) < name(b); });
  return std::adjacent_find(list.begin(), list.end(), [&](const auto& a, const auto& b) {
           return name(a) == name(b);
         }) == list.end();
}

}  // namespace

result<safetensors_header> parse_safetensors_header(bytes_view text,
                                                    const safetensors_limits& limits) {
  // A tensor is at most its object, three fields, two offsets and its dims.
  json_limits json;
  json.max_bytes = limits.max_header;
  json.max_depth = 3;
  json.max_nodes = 2 + limits.max_metadata + limits.max_tensors * (6 + limits.max_rank);
  json.max_string = std::max(limits.max_name, limits.max_metadata_text);

  header_reader events(limits);
  if (const status read = read_json_events(text, json, events); !read) return read.why();
  safetensors_header header = events.take();
  if (!sort_unique(
          header.entries, [](const auto& e) -> const auto& { return e.name; }))
    return error{errc::malformed, "a tensor name occurs twice", ""};
  if (!sort_unique(
          header.metadata, [](const auto& e) -> const auto& { return e.first; }))
    return error{errc::malformed, "a metadata name occurs twice", ""};
  return header;
}

}  // namespace potl::detail
