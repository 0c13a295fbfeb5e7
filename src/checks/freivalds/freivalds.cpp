// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/freivalds.hpp>

#include <cmath>
#include <vector>

#include <potl/numeric/detail/projection.hpp>

#include "freivalds_bounds.hpp"

namespace potl::checks {
namespace {

using namespace freivalds_detail;
using numeric::executor;
using numeric::matrix;

template <class Left, class Right, class Result>
void check_shapes(const matrix<Left>& a, const matrix<Right>& b, const matrix<Result>& c) {
  const bool fits = a.columns == b.rows && a.rows == c.rows && b.columns == c.columns;
  if (!fits || a.columns < 0) {
    throw exception({errc::usage, "the shapes of A, B and C do not fit",
                     "they are rows x depth, depth x columns and rows x columns"});
  }
  if (c.rows < 1 || c.columns < 1) throw exception({errc::usage, "C has no element", ""});
}

/// Room for the vectors of one product, used again for the next.
struct workspace {
  std::vector<double> r, left, right, norms, terms, results;

  workspace(std::int64_t rows, std::int64_t depth, std::int64_t columns, int vectors) {
    const auto sized = [vectors](std::int64_t count, bool each) {
      return std::vector<double>(static_cast<std::size_t>(each ? count * vectors : count));
    };
    r = sized(columns, true);
    right = sized(depth, true);
    left = sized(rows, true);
    norms = sized(depth, false);
    terms = sized(rows, false);
    results = sized(rows, false);
  }
};

/// One more term of each sum: what was added to the product. The rows of a bias are all the same.
template <class Real>
void subtract(matrix<const Real> added, int vectors, workspace& space, std::vector<double>& of_c,
              const executor& threads) {
  const auto rows = static_cast<std::size_t>(added.rows);
  if (added.row_stride == 0) added.rows = 1;
  const auto distinct = static_cast<std::size_t>(added.rows);
  std::vector<double> sums(distinct * static_cast<std::size_t>(vectors)), squares(distinct);
  numeric::project(added, {space.r.data(), sums.data(), vectors, squares.data(), nullptr, nullptr},
                   threads);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t from = row % distinct;
    for (std::size_t v = 0; v < static_cast<std::size_t>(vectors); ++v) {
      of_c[v * rows + row] -= sums[v * distinct + from];
    }
    space.terms[row] += std::sqrt(squares[from]);
  }
}

template <class Real>
void compare_one(const matrix<const Real>& a, const matrix<const Real>& b,
                 const matrix<const Real>& c, const matrix<const Real>& added, int vectors,
                 std::int64_t first_row, probes& random, workspace& space, comparison& compared,
                 const executor& threads) {
  random.draw(space.r);
  numeric::project(
      b, {space.r.data(), space.right.data(), vectors, space.norms.data(), nullptr, nullptr},
      threads);
  for (double& norm : space.norms) norm = std::sqrt(norm);
  numeric::project(a,
                   {space.right.data(), space.left.data(), vectors, nullptr, space.norms.data(),
                    space.terms.data()},
                   threads);
  std::vector<double> of_c(space.left.size());
  numeric::project(
      c, {space.r.data(), of_c.data(), vectors, space.results.data(), nullptr, nullptr}, threads);
  for (std::size_t i = 0; i < of_c.size(); ++i) of_c[i] -= space.left[i];
  const auto rows = static_cast<std::size_t>(c.rows);
  if (added.data != nullptr) subtract(added, vectors, space, of_c, threads);
  for (std::size_t row = 0; row < rows; ++row) {
    compared.row(first_row + static_cast<std::int64_t>(row), of_c.data() + row, rows, vectors,
                 space.terms[row], std::sqrt(space.results[row]));
  }
}

template <class Real>
freivalds_result check_products(const numeric::gemm_batch& batch, const matrix<const Real>& a,
                                const matrix<const Real>& b, const matrix<const Real>& c,
                                const freivalds_options& options, const executor& threads,
                                const matrix<const Real>& added = {},
                                std::int64_t added_stride = 0) {
  check_shapes(a, b, c);
  const bool sum = added.data != nullptr;
  if (sum && (added.rows != c.rows || added.columns != c.columns)) {
    throw exception({errc::usage, "what is added does not have the shape of C", ""});
  }
  validate(options);
  if (batch.count < 1) throw exception({errc::usage, "a batch has at least one product", ""});
  limits what = limits_of<Real>(a.columns + (sum ? 1 : 0), b.columns, options);
  what.set_gauge(static_cast<double>(c.rows) * static_cast<double>(batch.count) * options.probes,
                 options.false_alarm);
  comparison compared(what);
  probes random(options.key);
  workspace space(c.rows, a.columns, c.columns, options.probes);
  for (std::int64_t i = 0; i < batch.count; ++i) {
    const auto shifted = [i](matrix<const Real> m, std::int64_t by) {
      m.data += i * by;
      return m;
    };
    compare_one(shifted(a, batch.a_stride), shifted(b, batch.b_stride), shifted(c, batch.c_stride),
                sum ? shifted(added, added_stride) : added, options.probes, i * c.rows, random,
                space, compared, threads);
  }
  return compared.finish(options.false_alarm);
}

}  // namespace

const char* to_string(freivalds_outcome outcome) noexcept {
  switch (outcome) {
    case freivalds_outcome::consistent: return "consistent";
    case freivalds_outcome::unusual: return "unusual";
    case freivalds_outcome::inconsistent: return "inconsistent";
    case freivalds_outcome::not_finite: return "not finite";
  }
  return "unknown";
}

freivalds_result freivalds(matrix<const float> a, matrix<const float> b, matrix<const float> c,
                           const freivalds_options& options, const executor& threads) {
  return check_products<float>({1, 0, 0, 0}, a, b, c, options, threads);
}

freivalds_result freivalds(matrix<const double> a, matrix<const double> b, matrix<const double> c,
                           const freivalds_options& options, const executor& threads) {
  return check_products<double>({1, 0, 0, 0}, a, b, c, options, threads);
}

freivalds_result freivalds(const numeric::gemm_batch& batch, matrix<const float> a,
                           matrix<const float> b, matrix<const float> c,
                           const freivalds_options& options, const executor& threads) {
  return check_products<float>(batch, a, b, c, options, threads);
}

freivalds_result freivalds(const numeric::gemm_batch& batch, matrix<const float> a,
                           matrix<const float> b, const freivalds_addend& added,
                           matrix<const float> c, const freivalds_options& options,
                           const executor& threads) {
  return check_products<float>(batch, a, b, c, options, threads, added.first, added.stride);
}

}  // namespace potl::checks
