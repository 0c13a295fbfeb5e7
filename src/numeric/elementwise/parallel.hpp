// SPDX-License-Identifier: Apache-2.0
// Cutting elements into tasks, and the checks that the entry points share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

/// body(first, last) over [0, count), in tasks of a multiple of 64 elements and at least `block`.
/// Every thread gets as many as another, and one only, until there are four blocks for each
/// of them: a thread that is done helps others, and of fewer elements the lines that it takes out
/// of another's cache cost more than it saves.
template <class Body>
void for_blocks(std::size_t count, std::size_t block, const executor& workers, const Body& body) {
  if (count == 0) return;
  const std::size_t threads = std::min(workers.concurrency(), count / block);
  if (threads <= 1) return body(std::size_t{0}, count);
  const std::size_t tasks = threads * std::clamp<std::size_t>(count / (4 * block * threads), 1, 4);
  const std::size_t size = ((count + tasks - 1) / tasks + 63) / 64 * 64;
  workers.run((count + size - 1) / size,
              [&](std::size_t task) { body(task * size, std::min(count, (task + 1) * size)); });
}

/// Lengths must equal `count`.
inline void require_lengths(std::size_t count, std::initializer_list<std::size_t> lengths) {
  for (const std::size_t length : lengths)
    if (length != count)
      throw exception({errc::usage, "spans of one call have different lengths", ""});
}
/// The same, or 1.
inline void require_lengths_or_one(std::size_t count, std::initializer_list<std::size_t> lengths) {
  for (const std::size_t length : lengths)
    if (length != count && length != 1)
      throw exception({errc::usage, "spans of one call have different lengths", ""});
}

}  // namespace potl::numeric
