// SPDX-License-Identifier: Apache-2.0
#include "allocation_counter.hpp"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace {

thread_local bool counting = false;
thread_local std::ptrdiff_t in_use = 0;
thread_local std::ptrdiff_t most = 0;

void* allocate(std::size_t size, std::size_t alignment) {
  void* block = alignment <= alignof(std::max_align_t)
                    ? std::malloc(size == 0 ? 1 : size)
                    : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (block == nullptr) throw std::bad_alloc();
  if (counting) {
    in_use += static_cast<std::ptrdiff_t>(malloc_usable_size(block));
    if (in_use > most) most = in_use;
  }
  return block;
}

void release(void* block) noexcept {
  if (counting && block != nullptr)
    in_use -= static_cast<std::ptrdiff_t>(malloc_usable_size(block));
  std::free(block);
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size, 1); }
void* operator new[](std::size_t size) { return allocate(size, 1); }
// A sanitizer's own version of these two would not fit the delete below.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return allocate(size, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](std::size_t size, const std::nothrow_t& tag) noexcept {
  return operator new(size, tag);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept { release(block); }
void operator delete[](void* block) noexcept { release(block); }
void operator delete(void* block, std::size_t) noexcept { release(block); }
void operator delete[](void* block, std::size_t) noexcept { release(block); }
void operator delete(void* block, std::align_val_t) noexcept { release(block); }
void operator delete[](void* block, std::align_val_t) noexcept { release(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { release(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { release(block); }

namespace potl_test {

allocation_counter::allocation_counter() noexcept {
  in_use = 0;
  most = 0;
  counting = true;
}

allocation_counter::~allocation_counter() { counting = false; }

std::size_t allocation_counter::peak() const noexcept { return static_cast<std::size_t>(most); }

}  // namespace potl_test
