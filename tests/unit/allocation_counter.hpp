// SPDX-License-Identifier: Apache-2.0
// Counts what operator new hands out on this thread, so that "bounded memory" is a number in a test
// and not a time.
#pragma once

#include <cstddef>

namespace potl_test {

class allocation_counter {
 public:
  allocation_counter() noexcept;
  allocation_counter(const allocation_counter&) = delete;
  allocation_counter& operator=(const allocation_counter&) = delete;
  ~allocation_counter();

  /// The largest number of bytes in use at once since construction, beyond what was in use then.
  std::size_t peak() const noexcept;
};

}  // namespace potl_test
