// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include <potl/core/error.hpp>
#include <potl/numeric/gemm.hpp>

#include "numeric/gemm/modes.hpp"

namespace potl::numeric {
namespace {

std::string shape(std::int64_t rows, std::int64_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

template <class Element>
void require_fit(const matrix<const Element>& a, const matrix<const Element>& b,
                 const matrix<Element>& c) {
  const bool fit = a.rows >= 0 && a.columns >= 0 && b.columns >= 0 && a.columns == b.rows &&
                   a.rows == c.rows && b.columns == c.columns;
  if (fit) return;
  throw exception({errc::usage,
                   "a product of " + shape(a.rows, a.columns) + " and " + shape(b.rows, b.columns) +
                       " is no " + shape(c.rows, c.columns),
                   "C = A B needs columns of A = rows of B, and C of A's rows and B's columns"});
}

// Whether nothing is left to do: C is empty, or sums are.
template <class Element>
bool is_trivial(std::int64_t depth, const matrix<Element>& c) {
  if (c.rows == 0 || c.columns == 0) return true;
  if (depth != 0) return false;
  for (std::int64_t i = 0; i < c.rows; ++i) {
    for (std::int64_t j = 0; j < c.columns; ++j) c(i, j) = 0;
  }
  return true;
}

void dispatch(arithmetic mode, const matrix<const float>& a, const matrix<const float>& b,
              const matrix<float>& c, const executor& threads) {
  if (is_trivial(a.columns, c)) return;
  switch (mode) {
    case arithmetic::ord32: return detail::ordered(a, b, c, threads);
    case arithmetic::cr32: return detail::correctly_rounded(a, b, c, threads);
    case arithmetic::xint24: return detail::scaled_integers(24, a, b, c, threads);
    case arithmetic::xint16: return detail::scaled_integers(16, a, b, c, threads);
    case arithmetic::log64: break;
  }
}

void refuse_log64(arithmetic mode) {
  if (mode == arithmetic::log64)
    throw exception({errc::usage, "log64 reports what is near a tie", "call gemm_log64"});
}

template <class Element>
matrix<Element> shifted(matrix<Element> m, std::int64_t by) noexcept {
  m.data += by;
  return m;
}

void require_bits(int bits) {
  if (bits < min_rounding_bits || bits > max_rounding_bits)
    throw exception(
        {errc::usage, "log64 rounds to 23 ... 32 bits, not " + std::to_string(bits), ""});
}

}  // namespace

void gemm(arithmetic mode, matrix<const float> a, matrix<const float> b, matrix<float> c,
          const executor& threads) {
  refuse_log64(mode);
  require_fit(a, b, c);
  dispatch(mode, a, b, c, threads);
}

void gemm(arithmetic mode, const gemm_batch& batch, matrix<const float> a, matrix<const float> b,
          matrix<float> c, const executor& threads) {
  refuse_log64(mode);
  require_fit(a, b, c);
  const auto one = [&](std::int64_t i, const executor& inner) {
    dispatch(mode, shifted(a, i * batch.a_stride), shifted(b, i * batch.b_stride),
             shifted(c, i * batch.c_stride), inner);
  };
  const auto workers = static_cast<std::int64_t>(threads.concurrency());
  if (workers == 1 || batch.count < workers) {
    for (std::int64_t i = 0; i < batch.count; ++i) one(i, threads);
    return;
  }
  // A few tasks per thread, so that small products pay little for the pool.
  const std::int64_t tasks = std::min(batch.count, 4 * workers);
  threads.run(static_cast<std::size_t>(tasks), [&](std::size_t task) {
    const auto at = static_cast<std::int64_t>(task);
    const std::int64_t end = batch.count * (at + 1) / tasks;
    for (std::int64_t i = batch.count * at / tasks; i < end; ++i) one(i, inline_executor());
  });
}

void gemm_ord64(matrix<const double> a, matrix<const double> b, matrix<double> c,
                const executor& threads) {
  require_fit(a, b, c);
  if (!is_trivial(a.columns, c)) detail::ordered(a, b, c, threads);
}

std::vector<near_tie> gemm_log64(matrix<const float> a, matrix<const float> b, matrix<float> c,
                                 const log64_options& options, const executor& threads) {
  return gemm_log64({1, 0, 0, 0}, a, b, c, options, threads);
}

std::vector<near_tie> gemm_log64(const gemm_batch& batch, matrix<const float> a,
                                 matrix<const float> b, matrix<float> c,
                                 const log64_options& options, const executor& threads) {
  require_fit(a, b, c);
  require_bits(options.bits);
  std::vector<near_tie> ties;
  const auto one = [&](std::int64_t i, const executor& inner, std::vector<near_tie>& found) {
    const matrix<float> to = shifted(c, i * batch.c_stride);
    if (is_trivial(a.columns, to)) return;
    detail::rounded(shifted(a, i * batch.a_stride), shifted(b, i * batch.b_stride), to, options,
                    inner, static_cast<std::uint64_t>(i * c.rows * c.columns), found);
  };
  const auto workers = static_cast<std::int64_t>(threads.concurrency());
  if (workers == 1 || batch.count < workers) {
    for (std::int64_t i = 0; i < batch.count; ++i) one(i, threads, ties);
    return ties;
  }
  const std::int64_t tasks = std::min(batch.count, 4 * workers);
  std::vector<std::vector<near_tie>> parts(static_cast<std::size_t>(tasks));
  threads.run(parts.size(), [&](std::size_t task) {
    const auto at = static_cast<std::int64_t>(task);
    const std::int64_t end = batch.count * (at + 1) / tasks;
    for (std::int64_t i = batch.count * at / tasks; i < end; ++i) {
      one(i, inline_executor(), parts[task]);
    }
  });
  for (const auto& part : parts) ties.insert(ties.end(), part.begin(), part.end());
  return ties;
}

}  // namespace potl::numeric
