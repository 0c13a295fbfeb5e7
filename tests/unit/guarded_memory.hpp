// SPDX-License-Identifier: Apache-2.0
// Values between two pages that nobody may touch: a kernel that reads or writes beyond them ends
// the test, with or without a sanitizer.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

enum class guarded_end { back, front };  ///< which one lies directly at a forbidden page

/// Memory of any length has one end at a page, so that whoever guards both runs a kernel twice.
inline constexpr std::array guarded_ends{guarded_end::back, guarded_end::front};

template <class Element>
class guarded {
 public:
  /// For results: every element is one that no test expects.
  guarded(std::size_t count, guarded_end at) : guarded(std::vector<Element>(count, 77), at) {}
  guarded(std::span<const Element> values, guarded_end at) : count_(values.size()) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inside = (values.size_bytes() + page - 1) / page * page;
    bytes_ = inside + 2 * page;
    // Reserved without access; then the inside is opened.
    void* const memory =
        mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
    memory_ = static_cast<std::byte*>(memory);
    if (inside != 0 && mprotect(memory_ + page, inside, PROT_READ | PROT_WRITE) != 0)
      throw std::runtime_error("mprotect failed");
    const std::size_t skipped = at == guarded_end::back ? inside - values.size_bytes() : 0;
    data_ = reinterpret_cast<Element*>(memory_ + page + skipped);
    std::copy(values.begin(), values.end(), data_);
  }
  ~guarded() { munmap(memory_, bytes_); }
  guarded(const guarded&) = delete;
  guarded& operator=(const guarded&) = delete;

  Element* data() { return data_; }
  const Element* data() const { return data_; }
  std::size_t size() const { return count_; }
  // A range, so that it becomes a span by itself.
  Element* begin() { return data_; }
  Element* end() { return data_ + count_; }
  const Element* begin() const { return data_; }
  const Element* end() const { return data_ + count_; }
  Element& operator[](std::size_t i) { return data_[i]; }
  const Element& operator[](std::size_t i) const { return data_[i]; }

 private:
  std::byte* memory_ = nullptr;
  Element* data_ = nullptr;
  std::size_t bytes_ = 0, count_ = 0;
};

template <class Element>
guarded(const std::vector<Element>&, guarded_end) -> guarded<Element>;
