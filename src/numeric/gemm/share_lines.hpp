// SPDX-License-Identifier: Apache-2.0
// What norms and scales have in common: one value per row of a matrix, computed in parallel.
#pragma once

#include <algorithm>
#include <cstdint>

#include <potl/numeric/detail/executor.hpp>
#include <potl/numeric/detail/matrix.hpp>

#include "numeric/gemm/kernels.hpp"

namespace potl::numeric::detail {

inline lines rows_of(const matrix<const float>& m) noexcept {
  return {m.data, m.row_stride, m.column_stride, m.columns, m.rows};
}

/// Calls body(part, first) for parts of the lines, `first` the number of a part's first line.
template <class Body>
void share_lines(const lines& all, const executor& threads, const Body& body) {
  constexpr std::int64_t worth_a_task = 1 << 16;
  const std::int64_t tasks = std::min({static_cast<std::int64_t>(threads.concurrency()),
                                       all.count * all.terms / worth_a_task, all.count});
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    lines some = all;
    some.from += begin * all.stride;
    some.count = end - begin;
    body(some, begin);
  };
  if (tasks < 2) return part(0, all.count);
  threads.run(static_cast<std::size_t>(tasks), [&](std::size_t task) {
    const auto at = static_cast<std::int64_t>(task);
    part(all.count * at / tasks, all.count * (at + 1) / tasks);
  });
}

}  // namespace potl::numeric::detail
