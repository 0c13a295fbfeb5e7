// SPDX-License-Identifier: Apache-2.0
// From shapes to kernel calls: which rows, strips and chunks make a reduction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <potl/numeric/reduction.hpp>

#include "../elementwise/parallel.hpp"
#include "kernels.hpp"

namespace potl::numeric::reductions {

constexpr std::size_t chunk = 4096;
/// Elements that are worth a task.
constexpr std::size_t task_elements = 16384;

struct sizes {
  std::size_t outer, count, inner;
};
inline sizes checked(const reduction_shape& shape) {
  if (shape.outer < 0 || shape.count < 0 || shape.inner < 0)
    throw exception({errc::usage, "a shape has a negative size", ""});
  return {static_cast<std::size_t>(shape.outer), static_cast<std::size_t>(shape.count),
          static_cast<std::size_t>(shape.inner)};
}

/// The same number; of all NaNs the one that kernels store.
template <class Real>
Real canonical(Real value) {
  return value == value ? value : std::numeric_limits<Real>::quiet_NaN();
}

/// What joins the results of chunks of such terms.
inline term upper_term(term kind) {
  switch (kind) {
    case term::factor:
    case term::maximum:
    case term::minimum: return kind;
    case term::largest_magnitude: return term::maximum;
    default: return term::value;
  }
}

/// body(first, last) over `count` items of about `cost` elements each.
template <class Body>
void for_items(std::size_t count, std::size_t cost, const executor& workers, const Body& body) {
  if (count == 0) return;
  const std::size_t at_least =
      std::max<std::size_t>(1, task_elements / std::max<std::size_t>(1, cost));
  const std::size_t most = 4 * workers.concurrency();
  if (workers.concurrency() == 1 || count <= at_least) return body(std::size_t{0}, count);
  const std::size_t tasks = std::min(most, (count + at_least - 1) / at_least);
  const std::size_t each = (count + tasks - 1) / tasks;
  workers.run((count + each - 1) / each,
              [&](std::size_t task) { body(task * each, std::min(count, (task + 1) * each)); });
}

template <class Real>
const Real* shifted(const Real* from, std::size_t by) {
  return from == nullptr ? nullptr : from + by;
}

template <class Real>
void reduce_rows(term kind, const operands<Real>& o, const sizes& s, Real* out,
                 const executor& workers) {
  const auto& kernel = active<Real>();
  const std::size_t chunks = (s.count + chunk - 1) / chunk;
  // Few long rows: their chunks are the tasks.
  if (chunks > 1 && s.outer < 4 * workers.concurrency() && workers.concurrency() > 1) {
    std::vector<Real> partial(s.outer * chunks);
    for_items(partial.size(), chunk, workers, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        const std::size_t row = i / chunks, from = i % chunks * chunk;
        const std::size_t at = row * s.count + from;
        const operands<Real> part{o.x + at, shifted(o.y, at), shifted(o.m, row), shifted(o.r, row),
                                  false};
        kernel.rows(kind, part, 1, std::min(chunk, s.count - from), &partial[i]);
      }
    });
    const operands<Real> upper{partial.data(), nullptr, nullptr, nullptr, false};
    return reduce_rows(upper_term(kind), upper, {s.outer, chunks, 1}, out, workers);
  }
  for_items(s.outer, s.count, workers, [&](std::size_t first, std::size_t last) {
    const std::size_t at = first * s.count;
    const operands<Real> part{o.x + at, shifted(o.y, at), shifted(o.m, first), shifted(o.r, first),
                              false};
    kernel.rows(kind, part, last - first, s.count, out + first);
  });
}

/// With `o.by_column`, m and r are [outer][inner]; otherwise [count], the same for each outer.
template <class Real>
void reduce_columns(term kind, const operands<Real>& o, const sizes& s, Real* out,
                    const executor& workers) {
  const auto& kernel = active<Real>();
  const std::size_t chunks = std::max<std::size_t>(1, (s.count + chunk - 1) / chunk);
  const std::size_t strips = (s.inner + strip_columns - 1) / strip_columns;
  std::vector<Real> partial(chunks > 1 ? s.outer * chunks * s.inner : 0);
  Real* into = chunks > 1 ? partial.data() : out;
  const std::size_t items = s.outer * chunks * strips;
  const std::size_t cost = std::min(chunk, s.count) * std::min(strip_columns, s.inner);
  for_items(items, cost, workers, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const std::size_t column = i % strips * strip_columns;
      const std::size_t part_of = i / strips;  // outer and chunk
      const std::size_t outer = part_of / chunks, row = part_of % chunks * chunk;
      const std::size_t at = (outer * s.count + row) * s.inner + column;
      const std::size_t m_at = o.by_column ? outer * s.inner + column : row;
      const operands<Real> part{o.x + at, shifted(o.y, at), shifted(o.m, m_at), shifted(o.r, m_at),
                                o.by_column};
      kernel.columns(kind, part, std::min(chunk, s.count - row),
                     std::min(strip_columns, s.inner - column), s.inner,
                     into + part_of * s.inner + column);
    }
  });
  if (chunks > 1) {
    const operands<Real> upper{partial.data(), nullptr, nullptr, nullptr, false};
    reduce_columns(upper_term(kind), upper, {s.outer, chunks, s.inner}, out, workers);
  }
}

/// m and r, if there are any, are one for each result.
template <class Real>
void reduce_terms(term kind, const operands<Real>& o, const sizes& s, Real* out,
                  const executor& workers) {
  if (s.outer == 0 || s.inner == 0) return;
  if (s.inner == 1) {
    reduce_rows(kind, o, s, out, workers);
  } else {
    operands<Real> by_column = o;
    by_column.by_column = true;
    reduce_columns(kind, by_column, s, out, workers);
  }
}

}  // namespace potl::numeric::reductions
