// SPDX-License-Identifier: Apache-2.0
// The bytes of a JSON text, handed to the tokenizer one at a time so that it can be stopped.
//
// The tokenizer keeps the bytes of the current token, forgets them only when the next string or
// number begins, and copies them several times into its error messages (control characters eight
// times as long). So the source ends the text where a token, or a run without such a token, becomes
// too long, and hands white space on as plain blanks. It also refuses the NUL byte, which the
// tokenizer takes for the end of the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "encoding/json_events.hpp"

namespace potl::detail {

class json_source {
 public:
  json_source(bytes_view text, std::size_t max_string)
      : text_(text), max_raw_string_(max_string < text.size() ? 6 * max_string + 2 : text.size()) {}

  /// Whether there is a byte to hand on; false at the end and after a failure.
  bool available() {
    if (failed_ || position_ == text_.size()) return false;
    if (text_[position_] == 0) return fail(errc::malformed, "a NUL byte");
    if (mode_ == mode::string && run_ > max_raw_string_) return fail(errc::limit, "a long string");
    if (mode_ == mode::number && run_ > max_json_number) return fail(errc::limit, "a long number");
    if (mode_ == mode::structure && run_ > max_json_run)
      return fail(errc::limit, "too much without any string or number");
    return true;
  }

  char current() const noexcept {
    const std::uint8_t byte = text_[position_];
    const bool blank = byte == '\n' || byte == '\t' || byte == '\r';
    return mode_ != mode::string && blank ? ' ' : static_cast<char>(byte);
  }

  void next() noexcept {
    const std::uint8_t byte = text_[position_++];
    ++run_;
    if (mode_ == mode::string) {
      if (escaped_) {
        escaped_ = false;
      } else if (byte == '\\') {
        escaped_ = true;
      } else if (byte == '"') {
        enter(mode::structure);
      }
    } else if (byte == '"') {
      enter(mode::string);
    } else if ((byte >= '0' && byte <= '9') || byte == '-') {
      if (mode_ != mode::number) enter(mode::number);
    } else if (mode_ == mode::number && byte != '.' && byte != '+' && (byte | 0x20) != 'e') {
      enter(mode::structure);
    }
  }

  std::size_t position() const noexcept { return position_; }
  bool failed() const noexcept { return failed_; }
  const error& why() const noexcept { return why_; }

 private:
  enum class mode { structure, string, number };

  void enter(mode next) noexcept {
    mode_ = next;
    run_ = 0;
  }
  bool fail(errc code, const char* what) {
    failed_ = true;
    why_ = error{code, "JSON, byte " + std::to_string(position_) + ": " + what, ""};
    return false;
  }

  bytes_view text_;
  std::size_t max_raw_string_;
  std::size_t position_ = 0;
  std::size_t run_ = 0;
  mode mode_ = mode::structure;
  bool escaped_ = false;
  bool failed_ = false;
  error why_;
};

/// The source as the pair of iterators that the tokenizer wants; the end has no source.
class json_iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  explicit json_iterator(json_source* source) : source_(source) {}
  char operator*() const noexcept { return source_->current(); }
  json_iterator& operator++() noexcept {
    source_->next();
    return *this;
  }
  json_iterator operator++(int) noexcept {
    json_iterator before = *this;
    source_->next();
    return before;
  }
  friend bool operator==(const json_iterator& a, const json_iterator& b) {
    return a.ended() == b.ended();
  }
  friend bool operator!=(const json_iterator& a, const json_iterator& b) { return !(a == b); }

 private:
  bool ended() const { return source_ == nullptr || !source_->available(); }

  json_source* source_;
};

}  // namespace potl::detail
