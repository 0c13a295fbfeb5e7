// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/attention.hpp>

#include <algorithm>
#include <limits>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/softmax.hpp>
#include <potl/numeric/gemm.hpp>

namespace potl::numeric {
namespace {

constexpr std::int64_t block_queries = 128;

void check(const attention_shape& s) {
  const std::int64_t least =
      std::min({s.batch, s.heads, s.queries, s.keys, s.width, s.value_width});
  if (least < 0 || s.key_heads < 1 || s.heads % s.key_heads != 0)
    throw exception({errc::usage, "the shape of an attention does not fit", ""});
}

/// body(first, last) for parts of [0, count).
template <class Body>
void share(std::int64_t count, const executor& workers, const Body& body) {
  const std::int64_t parts = std::min(count, 4 * static_cast<std::int64_t>(workers.concurrency()));
  workers.run(static_cast<std::size_t>(parts), [&](std::size_t part) {
    const auto at = static_cast<std::int64_t>(part);
    body(count * at / parts, count * (at + 1) / parts);
  });
}

template <class Element>
matrix<Element> rows_of(const head_view<Element>& of, std::int64_t batch, std::int64_t head,
                        std::int64_t first, std::int64_t rows, std::int64_t columns) {
  return {of.data + batch * of.strides[0] + head * of.strides[1] + first * of.strides[2], rows,
          columns, of.strides[2], of.strides[3]};
}

void product(arithmetic mode, matrix<const float> a, matrix<const float> b, matrix<float> c,
             const executor& workers) {
  gemm(mode, a, b, c, workers);
}
void product(arithmetic, matrix<const double> a, matrix<const double> b, matrix<double> c,
             const executor& workers) {
  gemm_ord64(a, b, c, workers);
}

/// A block of queries of one head.
struct block {
  std::int64_t batch, head, key_head, first, rows;
  std::int64_t seen;  ///< the keys that take part
};

block block_at(const attention_shape& s, std::int64_t batch, std::int64_t head,
               std::int64_t number) {
  const std::int64_t first = number * block_queries;
  const std::int64_t rows = std::min(block_queries, s.queries - first);
  return {batch, head, head / (s.heads / s.key_heads),
          first, rows, s.causal ? std::min(s.keys, first + rows) : s.keys};
}

std::int64_t blocks_of(const attention_shape& s) {
  return (s.queries + block_queries - 1) / block_queries;
}

template <class Real>
void add_mask(const attention_mask<Real>& mask, const block& b, std::int64_t row,
              std::int64_t visible, Real* x) {
  if (mask.kept.data != nullptr) {
    const auto from = rows_of(mask.kept, b.batch, b.head, b.first + row, 1, visible);
    for (std::int64_t j = 0; j < visible; ++j)
      if (!from(0, j)) x[j] = -std::numeric_limits<Real>::infinity();
  }
  if (mask.added.data != nullptr) {
    const auto from = rows_of(mask.added, b.batch, b.head, b.first + row, 1, visible);
    for (std::int64_t j = 0; j < visible; ++j) x[j] += from(0, j);
  }
}

/// P of a block into [rows][seen]; the rows' logsumexp unless it is null.
template <class Real, class Work>
void probabilities(arithmetic mode, const Work& w, const block& b, Real* to, Real* logsumexp,
                   const executor& workers) {
  const attention_shape& s = w.shape;
  const auto q = rows_of(w.query, b.batch, b.head, b.first, b.rows, s.width);
  const auto k = rows_of(w.keys, b.batch, b.key_head, 0, b.seen, s.width);
  product(mode, q, k.transposed(), row_major(to, b.rows, b.seen), workers);
  const Real scale = static_cast<Real>(s.scale);
  const bool masked = w.mask.kept.data != nullptr || w.mask.added.data != nullptr;
  for (std::int64_t row = 0; row < b.rows; ++row) {
    Real* x = to + row * b.seen;
    const std::int64_t visible = s.causal ? std::min(b.seen, b.first + row + 1) : b.seen;
    for (std::int64_t j = 0; j < visible; ++j) x[j] *= scale;
    if (masked) add_mask(w.mask, b, row, visible, x);
    const bool empty = masked && std::all_of(x, x + visible, [](Real one) {
                         return one == -std::numeric_limits<Real>::infinity();
                       });
    softmax_row(x, x, visible, logsumexp == nullptr ? nullptr : logsumexp + row);
    std::fill(empty ? x : x + visible, x + b.seen, Real{0});
  }
}

template <class Real>
void forward(arithmetic mode, const attention_forward<Real>& w, const executor& workers) {
  const attention_shape& s = w.shape;
  const std::int64_t blocks = blocks_of(s), items = s.batch * s.heads * blocks;
  const auto run = [&](std::int64_t first, std::int64_t last, const executor& inner) {
    std::vector<Real> scores(static_cast<std::size_t>(std::min(block_queries, s.queries) * s.keys));
    for (std::int64_t item = first; item < last; ++item) {
      const std::int64_t one = item / blocks;
      const block b = block_at(s, one / s.heads, one % s.heads, item % blocks);
      Real* sums = w.logsumexp == nullptr ? nullptr : w.logsumexp + one * s.queries + b.first;
      probabilities(mode, w, b, scores.data(), sums, inner);
      product(mode, row_major<const Real>(scores.data(), b.rows, b.seen),
              rows_of(w.values, b.batch, b.key_head, 0, b.seen, s.value_width),
              rows_of(w.output, b.batch, b.head, b.first, b.rows, s.value_width), inner);
    }
  };
  if (items < static_cast<std::int64_t>(workers.concurrency())) return run(0, items, workers);
  share(items, workers,
        [&](std::int64_t first, std::int64_t last) { run(first, last, inline_executor()); });
}

/// Sums of products, to which later blocks may bring rows that earlier ones had not.
template <class Real>
class sum_of_products {
 public:
  sum_of_products(matrix<Real> to, std::vector<Real>& memory) : to_(to), memory_(memory) {}

  void add(arithmetic mode, matrix<const Real> a, matrix<const Real> b, const executor& workers) {
    const std::int64_t rows = a.rows;
    if (begun_ == 0) {
      product(mode, a, b, {to_.data, rows, to_.columns, to_.row_stride, 1}, workers);
    } else {
      memory_.resize(static_cast<std::size_t>(rows * to_.columns));
      product(mode, a, b, row_major(memory_.data(), rows, to_.columns), workers);
      for (std::int64_t row = 0; row < rows; ++row) {
        const Real* from = memory_.data() + row * to_.columns;
        Real* into = to_.data + row * to_.row_stride;
        if (row < begun_) {
          for (std::int64_t j = 0; j < to_.columns; ++j) into[j] += from[j];
        } else {
          std::copy(from, from + to_.columns, into);
        }
      }
    }
    begun_ = std::max(begun_, rows);
  }

  void finish() const {
    for (std::int64_t row = begun_; row < to_.rows; ++row)
      std::fill_n(to_.data + row * to_.row_stride, to_.columns, Real{0});
  }

 private:
  matrix<Real> to_;
  std::vector<Real>& memory_;
  std::int64_t begun_ = 0;
};

template <class Real>
void backward(arithmetic mode, const attention_backward<Real>& w, const executor& workers) {
  const attention_shape& s = w.shape;
  const std::int64_t items = s.batch * s.key_heads, sharing = s.heads / s.key_heads;
  const auto run = [&](std::int64_t first, std::int64_t last, const executor& inner) {
    const auto size = static_cast<std::size_t>(std::min(block_queries, s.queries) * s.keys);
    std::vector<Real> p(size), slope(size), memory;
    for (std::int64_t item = first; item < last; ++item) {
      const std::int64_t batch = item / s.key_heads, key_head = item % s.key_heads;
      sum_of_products<Real> dk(rows_of(w.dkeys, batch, key_head, 0, s.keys, s.width), memory);
      sum_of_products<Real> dv(rows_of(w.dvalues, batch, key_head, 0, s.keys, s.value_width),
                               memory);
      for (std::int64_t i = 0; i < sharing * blocks_of(s); ++i) {
        const block b = block_at(s, batch, key_head * sharing + i / blocks_of(s), i % blocks_of(s));
        const auto dy = rows_of(w.gradient, batch, b.head, b.first, b.rows, s.value_width);
        const auto v = rows_of(w.values, batch, key_head, 0, b.seen, s.value_width);
        const matrix<const Real> weights = row_major<const Real>(p.data(), b.rows, b.seen);
        const matrix<const Real> slopes = row_major<const Real>(slope.data(), b.rows, b.seen);
        probabilities<Real>(mode, w, b, p.data(), nullptr, inner);
        dv.add(mode, weights.transposed(), dy, inner);
        product(mode, dy, v.transposed(), row_major(slope.data(), b.rows, b.seen), inner);
        softmax_backward({b.rows, b.seen, 1}, slope.data(), p.data(), slope.data(), inner);
        const Real scale = static_cast<Real>(s.scale);
        for (Real* x = slope.data(); x != slope.data() + b.rows * b.seen; ++x) *x *= scale;
        product(mode, slopes, rows_of(w.keys, batch, key_head, 0, b.seen, s.width),
                rows_of(w.dquery, batch, b.head, b.first, b.rows, s.width), inner);
        dk.add(mode, slopes.transposed(), rows_of(w.query, batch, b.head, b.first, b.rows, s.width),
               inner);
      }
      dk.finish();
      dv.finish();
    }
  };
  if (items < static_cast<std::int64_t>(workers.concurrency())) return run(0, items, workers);
  share(items, workers,
        [&](std::int64_t first, std::int64_t last) { run(first, last, inline_executor()); });
}

template <class Work>
void require(arithmetic mode, const Work& work) {
  check(work.shape);
  if (mode == arithmetic::log64)
    throw exception({errc::usage, "attention in log64 has no log here",
                     "compute it by matrix products, and log each"});
}

}  // namespace

void attention(arithmetic mode, const attention_forward<float>& work, const executor& workers) {
  require(mode, work);
  forward(mode, work, workers);
}
void attention(arithmetic mode, const attention_backward<float>& work, const executor& workers) {
  require(mode, work);
  backward(mode, work, workers);
}
void attention(const attention_forward<double>& work, const executor& workers) {
  check(work.shape);
  forward(arithmetic::ord32, work, workers);
}
void attention(const attention_backward<double>& work, const executor& workers) {
  check(work.shape);
  backward(arithmetic::ord32, work, workers);
}

}  // namespace potl::numeric
