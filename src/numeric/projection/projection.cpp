// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <vector>

#include <potl/numeric/detail/projection.hpp>

#include "kernels.hpp"
#include "numeric/ranges.hpp"

namespace potl::numeric {
namespace projections {
namespace {

/// The rows of `whole` from `begin`, as many as `out` and the like have room for.
template <class Real>
part<Real> rows_of(const matrix<const Real>& m, const projection& what, std::int64_t begin,
                   std::int64_t end) {
  const auto from = [begin](double* to) { return to == nullptr ? nullptr : to + begin; };
  return {m.data + begin * m.row_stride,
          end - begin,
          m.columns,
          0,
          what.x,
          m.columns,
          from(what.out),
          m.rows,
          from(what.squares),
          what.weights,
          from(what.magnitudes)};
}

/// All vectors, in groups that the kernels have. Squares and magnitudes come with the first groups.
template <class Real>
void in_groups(const part<Real>& asked, int vectors,
               void (*const (&kernel)[5])(const part<Real>&)) {
  part<Real> p = asked;
  const auto pass = [&](int count) {
    // The kernels do one of the two beside the vectors.
    part<Real> now = p;
    if (now.squares != nullptr) now.magnitudes = nullptr;
    kernel[count == 8 ? 4 : count == 4 ? 3 : count](now);
    (now.squares != nullptr ? p.squares : p.magnitudes) = nullptr;
    p.x += count * p.x_step;
    if (p.out != nullptr) p.out += count * p.out_step;
  };
  for (int left = vectors; left > 0;) {
    const int count = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    pass(count);
    left -= count;
  }
  while (p.squares != nullptr || p.magnitudes != nullptr) pass(0);
}

template <class Real>
void project_any(const matrix<const Real>& m, const projection& what, const executor& workers) {
  const auto& kernels = active_kernels().template of<Real>();
  for_ranges(workers, m.rows, m.columns * (1 + what.vectors / 2),
             [&](std::int64_t begin, std::int64_t end) {
               part<Real> p = rows_of(m, what, begin, end);
               if (m.column_stride == 1 || m.columns <= 1) {
                 p.stride = m.row_stride;
                 return in_groups(p, what.vectors, kernels.by_row);
               }
               if (m.row_stride == 1 || end - begin == 1) {
                 p.stride = m.column_stride;
                 return in_groups(p, what.vectors, kernels.by_column);
               }
               constexpr std::int64_t together = 16;
               std::vector<Real> copy(static_cast<std::size_t>(together * m.columns));
               for (std::int64_t row = begin; row < end; row += together) {
                 part<Real> some = rows_of(m, what, row, std::min(end, row + together));
                 for (std::int64_t i = 0; i < some.rows; ++i) {
                   for (std::int64_t j = 0; j < m.columns; ++j) {
                     copy[static_cast<std::size_t>(i * m.columns + j)] = m(row + i, j);
                   }
                 }
                 some.m = copy.data();
                 some.stride = m.columns;
                 in_groups(some, what.vectors, kernels.by_row);
               }
             });
}

}  // namespace
}  // namespace projections

void project(const matrix<const float>& m, const projection& what, const executor& workers) {
  projections::project_any(m, what, workers);
}

void project(const matrix<const double>& m, const projection& what, const executor& workers) {
  projections::project_any(m, what, workers);
}

void add_shifted(const matrix<const double>& m, std::span<const std::int64_t> offsets,
                 const double* factors, const matrix<double>& out) {
  projections::active_kernels().of_double.add_shifted({m.data, m.row_stride, offsets.data(),
                                                       factors, offsets.size(), out.data,
                                                       out.row_stride, out.rows, out.columns});
}

}  // namespace potl::numeric
