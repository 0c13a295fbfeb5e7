// SPDX-License-Identifier: Apache-2.0
// A loop cut into tasks of about equal size. How it is cut never matters to a result: iterations
// write to different places.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

/// body(begin, end) over [0, count), in parts that are worth a task: `cost` is about how many
/// elements one iteration touches.
template <class Body>
void for_ranges(const executor& workers, std::int64_t count, std::int64_t cost, Body&& body) {
  constexpr std::int64_t task_elements = 1 << 15;
  if (count <= 0) return;
  const std::int64_t step =
      std::max<std::int64_t>(1, task_elements / std::max<std::int64_t>(1, cost));
  const auto most = static_cast<std::int64_t>(4 * workers.concurrency());
  const std::int64_t parts = std::clamp<std::int64_t>(count / step, 1, most);
  if (parts == 1) {
    body(std::int64_t{0}, count);
    return;
  }
  workers.run(static_cast<std::size_t>(parts), [&](std::size_t task) {
    const auto part = static_cast<std::int64_t>(task);
    // Shares differ by one at most; no product can overflow.
    const std::int64_t share = count / parts;
    const std::int64_t longer = count % parts;
    const std::int64_t begin = part * share + std::min(part, longer);
    body(begin, begin + share + (part < longer ? 1 : 0));
  });
}

}  // namespace potl::numeric
