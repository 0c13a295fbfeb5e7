// SPDX-License-Identifier: Apache-2.0
// Work space that a thread keeps from call to call: fresh pages cost more than a small product.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace potl::numeric::detail {

/// Grows only; aligned to a cache line. Contents do not survive a call of get().
class scratch {
 public:
  template <class Element>
  Element* get(std::size_t count) {
    const std::size_t wanted = count * sizeof(Element) + slack;
    if (wanted > bytes_) {
      memory_.reset();
      bytes_ = 0;
      const std::size_t page = wanted < large_page ? small_page : large_page;
      const std::size_t rounded = (wanted + page - 1) / page * page;
      memory_.reset(std::aligned_alloc(page, rounded));
      if (memory_ == nullptr) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
      // A hint: panels are walked in an order that small pages make expensive.
      if (page == large_page) (void)madvise(memory_.get(), rounded, MADV_HUGEPAGE);
#endif
      bytes_ = rounded;
    }
    return static_cast<Element*>(memory_.get());
  }

 private:
  static constexpr std::size_t small_page = 4096;
  static constexpr std::size_t large_page = std::size_t{2} << 20;
  static constexpr std::size_t slack = 1024;  // kernels prefetch a little beyond the end
  struct release {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<void, release> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace potl::numeric::detail
