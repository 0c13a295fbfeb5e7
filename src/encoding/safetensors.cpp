// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <span>

#include <potl/encoding/detail/safetensors.hpp>

#include "encoding/safetensors_header.hpp"

namespace potl {
namespace {

constexpr std::size_t length_bytes = 8;

error refused(const std::string& why) { return {errc::malformed, "safetensors: " + why, ""}; }

std::uint64_t read_length(bytes_view file) {
  std::uint64_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;) length = length << 8 | file[i];
  return length;
}

// Every byte of the data belongs to exactly one tensor.
status check_offsets(const std::vector<detail::safetensors_entry>& entries, std::uint64_t size) {
  std::vector<std::uint32_t> order(entries.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return entries[a].offsets < entries[b].offsets;
  });
  std::uint64_t end = 0;
  for (const std::uint32_t i : order) {
    const detail::safetensors_entry& entry = entries[i];
    if (entry.offsets[0] != end) return refused("tensors overlap or leave a hole");
    if (entry.offsets[1] < entry.offsets[0] || entry.offsets[1] > size)
      return refused("data_offsets beyond the data");
    end = entry.offsets[1];
  }
  if (end != size) return refused("the data does not end with the last tensor");
  return unit{};
}

// Precondition: `start` holds the first eight bytes.
result<std::uint64_t> header_length(bytes_view start, std::uint64_t file_bytes,
                                    const safetensors_limits& limits) {
  const std::uint64_t length = read_length(start);
  if (length > file_bytes - length_bytes) return refused("the header is longer than the file");
  if (length > limits.max_header)
    return error{errc::limit,
                 "safetensors: a header of " + std::to_string(length) + " bytes where at most " +
                     std::to_string(limits.max_header) + " are accepted",
                 ""};
  return length;
}

result<safetensors_head> head_of(bytes_view text, std::uint64_t file_bytes,
                                 const safetensors_limits& limits) {
  result<detail::safetensors_header> header = detail::parse_safetensors_header(text, limits);
  if (!header) {
    error why = header.why();
    why.message = "safetensors header: " + why.message;
    return why;
  }
  const std::uint64_t begin = length_bytes + text.size();
  if (const status covered = check_offsets(header->entries, file_bytes - begin); !covered)
    return covered.why();
  safetensors_head out;
  out.metadata = std::move(header->metadata);
  out.tensors.reserve(header->entries.size());
  for (detail::safetensors_entry& entry : header->entries) {
    const result<std::uint64_t> size = tensor_bytes(entry.type, entry.dims);
    if (!size || *size != entry.offsets[1] - entry.offsets[0])
      return refused("a tensor whose shape does not fit its data_offsets");
    out.tensors.push_back({std::move(entry.name), entry.type, std::move(entry.dims),
                           begin + entry.offsets[0], *size});
  }
  return out;
}

}  // namespace

const safetensors_tensor* safetensors_view::find(std::string_view name) const noexcept {
  const auto place =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const safetensors_tensor& a, std::string_view b) { return a.name < b; });
  return place != tensors.end() && place->name == name ? &*place : nullptr;
}

result<std::uint64_t> tensor_bytes(potl::dtype type, const std::vector<std::uint64_t>& dims) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t product = 1;
  const auto multiply = [&product](std::uint64_t factor) {
    if (factor != 0 && product > most / factor) return false;
    product *= factor;
    return true;
  };
  for (const std::uint64_t dim : dims) {
    if (!multiply(dim)) return error{errc::limit, "a tensor of 2^64 elements or more", ""};
  }
  if (!multiply(info(type).size)) return error{errc::limit, "a tensor of 2^64 bytes or more", ""};
  return product;
}

result<safetensors_head> read_safetensors_head(const file_pieces& file,
                                               const safetensors_limits& limits) {
  std::vector<std::uint8_t> start(length_bytes);
  if (file.size() < length_bytes) return refused("shorter than its header length");
  if (const status read = file.read(0, start); !read) return read.why();
  const result<std::uint64_t> length = header_length(start, file.size(), limits);
  if (!length) return length.why();
  start.resize(length_bytes + static_cast<std::size_t>(*length));
  const std::span<std::uint8_t> header = std::span(start).subspan(length_bytes);
  if (const status read = file.read(length_bytes, header); !read) return read.why();
  result<safetensors_head> out = head_of(header, file.size(), limits);
  if (out) out->bytes = std::move(start);
  return out;
}

result<safetensors_head> parse_safetensors_head(bytes_view file, const safetensors_limits& limits) {
  if (file.size() < length_bytes) return refused("shorter than its header length");
  const result<std::uint64_t> length = header_length(file, file.size(), limits);
  if (!length) return length.why();
  const bytes_view header = file.subspan(length_bytes, static_cast<std::size_t>(*length));
  return head_of(header, file.size(), limits);
}

result<safetensors_view> parse_safetensors(bytes_view file, const safetensors_limits& limits) {
  result<safetensors_head> head = parse_safetensors_head(file, limits);
  if (!head) return head.why();
  return view_of(std::move(*head), file);
}

safetensors_view view_of(safetensors_head head, bytes_view file) {
  safetensors_view view;
  view.metadata = std::move(head.metadata);
  view.tensors.reserve(head.tensors.size());
  for (safetensors_place& one : head.tensors) {
    view.tensors.push_back(
        {std::move(one.name), one.type, std::move(one.dims),
         file.subspan(static_cast<std::size_t>(one.offset), static_cast<std::size_t>(one.bytes))});
  }
  return view;
}

}  // namespace potl
