// SPDX-License-Identifier: Apache-2.0
// The process in which something was made. One that is forked from it has its memory and its open
// files, and not its threads: there nothing of it may be written, waited for, locked or given back.
#pragma once

#include <cstdint>

namespace potl::detail {

class home_process {
 public:
  /// This one. bad_alloc: the system has no room to tell of forks.
  home_process();
  bool is_here() const noexcept;

 private:
  std::uint64_t forks_;
};

}  // namespace potl::detail
