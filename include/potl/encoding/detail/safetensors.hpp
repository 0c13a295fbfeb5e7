// SPDX-License-Identifier: Apache-2.0
// safetensors files, read strictly and written deterministically.
//
// Claims: a file is accepted only if it means one thing. Its header is strict JSON (json.hpp)
// without repeated names or unknown fields, and its tensors cover the data exactly: contiguous from
// the first byte to the last, without overlap or hole, each as long as its dtype and dims say. The
// product of the dims is taken from the left and must stay below 2^64 at every factor; a zero ends
// the growth. Stricter than the reference implementation, which keeps the last of repeated names,
// ignores unknown fields and has no limit on rank.
// Cost: linear in the header (n log n in its names), memory a few times the header; the tensors'
// bytes are not touched. Values are not looked at: NaN is data, and so is a name like "../x".
// Source: https://github.com/huggingface/safetensors, README, section "Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/dtype.hpp>
#include <potl/core/file.hpp>
#include <potl/core/result.hpp>

namespace potl {

/// Name and text pairs of `__metadata__`, sorted by name.
using safetensors_metadata = std::vector<std::pair<std::string, std::string>>;

/// What a header may cost.
struct safetensors_limits {
  std::size_t max_header = std::size_t{8} << 20;  ///< bytes
  std::size_t max_tensors = std::size_t{1} << 16;
  std::size_t max_rank = 32;
  std::size_t max_name = 1024;                           ///< bytes, also of metadata names
  std::size_t max_metadata = 4096;                       ///< entries
  std::size_t max_metadata_text = std::size_t{1} << 20;  ///< bytes of one entry
};

struct safetensors_tensor {
  std::string name;
  potl::dtype type = potl::dtype::u8;
  std::vector<std::uint64_t> dims;
  bytes_view data;  ///< little-endian, row-major; refers to the caller's bytes
};

/// A parsed file. Refers to the bytes it was parsed from.
struct safetensors_view {
  safetensors_metadata metadata;
  std::vector<safetensors_tensor> tensors;  ///< sorted by name (as bytes)

  /// The tensor called `name`, or null.
  const safetensors_tensor* find(std::string_view name) const noexcept;
};

/// Parses a whole file: malformed or limit on anything but a strict file within the limits.
result<safetensors_view> parse_safetensors(bytes_view file, const safetensors_limits& limits = {});

/// A tensor of a file of which only the head was read.
struct safetensors_place {
  std::string name;
  potl::dtype type = potl::dtype::u8;
  std::vector<std::uint64_t> dims;
  std::uint64_t offset = 0;  ///< of its first byte, from the beginning of the file
  std::uint64_t bytes = 0;
};

/// What the head of a file says: the length and the JSON behind it.
struct safetensors_head {
  safetensors_metadata metadata;
  std::vector<safetensors_place> tensors;  ///< sorted by name (as bytes)
  std::vector<std::uint8_t> bytes;         ///< of the head itself, where it was read from a file
};

/// The head of a file in memory, judged as parse_safetensors judges it.
result<safetensors_head> parse_safetensors_head(bytes_view file,
                                                const safetensors_limits& limits = {});

/// Judges a file of `file.size()` bytes by its head alone, as parse_safetensors would: no other
/// byte is read, and no more than the limits allow. io as that of the file.
result<safetensors_head> read_safetensors_head(const file_pieces& file,
                                               const safetensors_limits& limits = {});

/// What parse_safetensors makes of a file of which `head` is the head. Refers to `file`.
safetensors_view view_of(safetensors_head head, bytes_view file);

/// Bytes of a tensor; limit when that is not below 2^64.
result<std::uint64_t> tensor_bytes(potl::dtype type, const std::vector<std::uint64_t>& dims);

/// Writes a file in one pass: everything is announced first, then the bytes follow. Equal tensors
/// and metadata give equal files: larger elements come first (which aligns every tensor to its
/// element), names in byte order among equals.
class safetensors_writer {
 public:
  struct tensor {
    std::string name;
    potl::dtype type = potl::dtype::u8;
    std::vector<std::uint64_t> dims;
  };
  /// Receives the file piece by piece, e.g. atomic_file::write.
  using sink = std::function<status(bytes_view)>;

  /// Writes the header. usage when parse_safetensors would refuse the file.
  static result<safetensors_writer> create(std::vector<tensor> tensors,
                                           safetensors_metadata metadata, sink out,
                                           const safetensors_limits& limits = {});

  /// The announced tensors in the order in which their bytes must be written.
  const std::vector<tensor>& order() const noexcept { return tensors_; }
  /// Size of the complete file.
  std::uint64_t file_bytes() const noexcept { return header_bytes_ + data_bytes_; }

  /// The next bytes of the data, in pieces of any size.
  status write(bytes_view part);
  /// Succeeds once all announced bytes are written.
  status finish() const;

 private:
  safetensors_writer(std::vector<tensor> tensors, sink out)
      : tensors_(std::move(tensors)), out_(std::move(out)) {}

  std::vector<tensor> tensors_;
  sink out_;
  std::uint64_t header_bytes_ = 0;
  std::uint64_t data_bytes_ = 0;
  std::uint64_t written_ = 0;
  bool broken_ = false;
};

}  // namespace potl
