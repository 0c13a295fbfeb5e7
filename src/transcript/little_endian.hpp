// SPDX-License-Identifier: Apache-2.0
// Fixed-width little-endian fields, written and read. Reading stops at the first field that is not
// there: whoever reads checks complete() once, at the end.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <potl/core/digest.hpp>

namespace potl::transcript {

class field_writer {
 public:
  explicit field_writer(std::vector<std::uint8_t>& out) : out_(out) {}

  void u8(std::uint8_t value) { out_.push_back(value); }
  void u32(std::uint32_t value) { integer(value, 4); }
  void u64(std::uint64_t value) { integer(value, 8); }
  void i64(std::int64_t value) { u64(static_cast<std::uint64_t>(value)); }
  void f64(double value) { u64(std::bit_cast<std::uint64_t>(value)); }
  void raw(bytes_view bytes) {
    const std::size_t at = out_.size();
    out_.resize(at + bytes.size());  // insert() makes g++ 12 warn of an overflow that is not there
    std::copy(bytes.begin(), bytes.end(), out_.begin() + static_cast<std::ptrdiff_t>(at));
  }

 private:
  void integer(std::uint64_t value, unsigned bytes) {
    const std::size_t at = out_.size();
    out_.resize(at + bytes);
    for (unsigned i = 0; i < bytes; ++i) {
      out_[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
    }
  }
  std::vector<std::uint8_t>& out_;
};

class field_reader {
 public:
  explicit field_reader(bytes_view bytes) : bytes_(bytes) {}

  std::uint8_t u8() { return static_cast<std::uint8_t>(integer(1)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(integer(4)); }
  std::uint64_t u64() { return integer(8); }
  std::int64_t i64() { return static_cast<std::int64_t>(integer(8)); }
  double f64() { return std::bit_cast<double>(integer(8)); }
  /// The next `size` bytes; empty when there are fewer.
  bytes_view raw(std::uint64_t size) {
    if (size > remaining()) {
      failed_ = true;
      return {};
    }
    const bytes_view part = bytes_.subspan(at_, static_cast<std::size_t>(size));
    at_ += part.size();
    return part;
  }
  template <class Array>
  void fill(Array& out) {
    const bytes_view part = raw(out.size());
    std::copy(part.begin(), part.end(), out.begin());
  }
  potl::digest digest() {
    potl::digest out;
    fill(out.bytes);
    return out;
  }
  std::string text(std::uint64_t size) {
    const bytes_view part = raw(size);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

  std::size_t remaining() const { return failed_ ? 0 : bytes_.size() - at_; }
  std::size_t position() const { return at_; }
  bool failed() const { return failed_; }
  /// Every field was there, and nothing follows the last.
  bool complete() const { return !failed_ && at_ == bytes_.size(); }

 private:
  std::uint64_t integer(unsigned size) {
    const bytes_view part = raw(size);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < part.size(); ++i) value |= std::uint64_t{part[i]} << (8 * i);
    return value;
  }
  bytes_view bytes_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

inline std::string_view as_text(bytes_view bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace potl::transcript
