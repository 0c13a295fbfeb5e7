// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include <new>

#include <potl/core/detail/home_process.hpp>

namespace potl::detail {
namespace {

// How many forks lead here. Counted, because ids repeat: two processes may both be number 1, each
// in a namespace of its own. Only a process that was just forked writes it, with its one thread.
std::uint64_t forks = 0;

}  // namespace

home_process::home_process() {
  static const int told = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
  if (told != 0) throw std::bad_alloc();
  forks_ = forks;
}

bool home_process::is_here() const noexcept { return forks_ == forks; }

}  // namespace potl::detail
