// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <potl/core/detail/utf8.hpp>
#include <potl/encoding/detail/safetensors.hpp>

#include "encoding/json_events.hpp"

namespace potl {
namespace {

using tensor = safetensors_writer::tensor;

status unwritable(const std::string& why) { return error{errc::usage, "safetensors: " + why, ""}; }

// What parse_safetensors would refuse later is refused before a byte is written.
status check(const std::vector<tensor>& sorted_by_name, const safetensors_metadata& metadata,
             const safetensors_limits& limits) {
  if (sorted_by_name.size() > limits.max_tensors) return unwritable("too many tensors");
  if (metadata.size() > limits.max_metadata) return unwritable("too many metadata entries");
  const std::string* before = nullptr;
  for (const tensor& each : sorted_by_name) {
    if (before != nullptr && *before == each.name) return unwritable("a tensor name occurs twice");
    before = &each.name;
    if (each.name == "__metadata__") return unwritable("__metadata__ cannot name a tensor");
    if (each.name.size() > limits.max_name) return unwritable("a long name");
    if (!is_utf8(each.name)) return unwritable("a name that is not UTF-8");
    if (each.dims.size() > limits.max_rank) return unwritable("too many dimensions");
  }
  before = nullptr;
  for (const auto& [name, text] : metadata) {
    if (before != nullptr && *before == name) return unwritable("a metadata name occurs twice");
    before = &name;
    if (name.size() > limits.max_name) return unwritable("a long metadata name");
    if (text.size() > limits.max_metadata_text) return unwritable("a long metadata text");
    if (!is_utf8(name) || !is_utf8(text)) return unwritable("metadata that is not UTF-8");
  }
  return unit{};
}

void append_metadata(std::string& header, const safetensors_metadata& metadata) {
  header += "\"__metadata__\":";
  char separator = '{';
  for (const auto& [name, text] : metadata) {
    header += separator;
    detail::append_json_string(header, name);
    header += ':';
    detail::append_json_string(header, text);
    separator = ',';
  }
  header += '}';
}

void append_tensor(std::string& header, const tensor& each, std::uint64_t begin,
                   std::uint64_t end) {
  detail::append_json_string(header, each.name);
  header.append(":{\"dtype\":\"").append(info(each.type).name).append("\",\"shape\":[");
  for (std::size_t i = 0; i < each.dims.size(); ++i) {
    if (i != 0) header += ',';
    header += std::to_string(each.dims[i]);
  }
  header.append("],\"data_offsets\":[").append(std::to_string(begin)).append(",");
  header.append(std::to_string(end)).append("]}");
}

std::string length_of(const std::string& header) {
  std::string out;
  for (unsigned i = 0; i < 8; ++i)
    out += static_cast<char>(std::uint64_t{header.size()} >> (8 * i) & 0xFF);
  return out;
}

}  // namespace

result<safetensors_writer> safetensors_writer::create(std::vector<tensor> tensors,
                                                      safetensors_metadata metadata, sink out,
                                                      const safetensors_limits& limits) {
  std::sort(metadata.begin(), metadata.end());
  std::sort(tensors.begin(), tensors.end(),
            [](const tensor& a, const tensor& b) { return a.name < b.name; });
  if (const status fit = check(tensors, metadata, limits); !fit) return fit.why();
  std::stable_sort(tensors.begin(), tensors.end(), [](const tensor& a, const tensor& b) {
    return info(a.type).size > info(b.type).size;
  });

  safetensors_writer writer(std::move(tensors), std::move(out));
  std::string header = "{";
  if (!metadata.empty()) append_metadata(header, metadata);
  for (const tensor& each : writer.tensors_) {
    const result<std::uint64_t> size = tensor_bytes(each.type, each.dims);
    if (!size) return size.why();
    const std::uint64_t begin = writer.data_bytes_;
    writer.data_bytes_ += *size;
    if (writer.data_bytes_ < begin || writer.data_bytes_ > std::uint64_t{1} << 62)
      return unwritable("more than 2^62 bytes").why();
    if (header.size() > 1) header += ',';
    append_tensor(header, each, begin, writer.data_bytes_);
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  if (header.size() > limits.max_header) return unwritable("a header above the limit").why();

  const std::string start = length_of(header) + header;
  writer.header_bytes_ = start.size();
  if (const status written = writer.out_(as_bytes_view(start)); !written) return written.why();
  return writer;
}

status safetensors_writer::write(bytes_view part) {
  if (broken_) return error{errc::io, "safetensors: an earlier write failed", ""};
  if (part.size() > data_bytes_ - written_) return unwritable("more bytes than announced");
  status written = out_(part);
  broken_ = !written;
  written_ += part.size();
  return written;
}

status safetensors_writer::finish() const {
  if (broken_) return error{errc::io, "safetensors: an earlier write failed", ""};
  if (written_ != data_bytes_) return unwritable("fewer bytes than announced");
  return unit{};
}

}  // namespace potl
