// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/accumulation.hpp>

#include <algorithm>
#include <string>

#include <potl/core/error.hpp>

#include "numeric/ieee/functions.hpp"
#include "numeric/ranges.hpp"

namespace potl::numeric {
namespace {

void require(const accumulation_shape& shape) {
  if (shape.outer < 0 || shape.rows < 0 || shape.count < 0 || shape.inner < 0) {
    throw exception({errc::usage, "a shape with a negative size", ""});
  }
}

void require(const std::int64_t* index, std::int64_t count, std::int64_t rows) {
  for (std::int64_t k = 0; k < count; ++k) {
    if (index[k] < 0 || index[k] >= rows) {
      throw exception({errc::usage,
                       "index " + std::to_string(index[k]) + " is out of range for " +
                           std::to_string(rows) + " rows",
                       ""});
    }
  }
}

template <class Real>
struct add {
  static Real of(Real y, Real x) noexcept { return y + x; }
};
template <class Real>
struct multiply {
  static Real of(Real y, Real x) noexcept { return y * x; }
};
template <class Real>
struct maximum {
  static Real of(Real y, Real x) noexcept {
    using lane = elementwise::single<Real>;
    return ieee::maximum(lane(y), lane(x)).v;
  }
};
template <class Real>
struct minimum {
  static Real of(Real y, Real x) noexcept {
    using lane = elementwise::single<Real>;
    return ieee::minimum(lane(y), lane(x)).v;
  }
};

/// Calls body with the operation's type, so that loops are compiled for each.
template <class Real, class Body>
void with(accumulation op, const Body& body) {
  switch (op) {
    case accumulation::add: return body(add<Real>{});
    case accumulation::multiply: return body(multiply<Real>{});
    case accumulation::maximum: return body(maximum<Real>{});
    case accumulation::minimum: return body(minimum<Real>{});
  }
}

template <class Op, class Real>
void combine_row(const Real* __restrict x, Real* __restrict y, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) y[i] = Op::of(y[i], x[i]);
}

template <class Real>
void rows(accumulation op, const accumulation_shape& shape, std::span<const std::int64_t> index,
          const Real* x, Real* y, const executor& workers) {
  require(shape);
  if (static_cast<std::int64_t>(index.size()) != shape.count) {
    throw exception({errc::usage, "accumulate_rows needs one index per row of x", ""});
  }
  require(index.data(), shape.count, shape.rows);
  if (shape.outer == 0 || shape.count == 0 || shape.inner == 0) return;
  // A task takes every so manieth block of rows, as the words that are met most stand together; a
  // row gets its values one after the other.
  constexpr std::int64_t block = 64;
  const auto threads = static_cast<std::int64_t>(workers.concurrency());
  const std::int64_t shares = std::clamp<std::int64_t>(threads / shape.outer, 1, shape.rows);
  with<Real>(op, [&]<class Op>(Op) {
    const std::int64_t cost = shape.inner * shape.count / shares;
    for_ranges(workers, shape.outer * shares, cost, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t o = task / shares;
        const Real* from = x + o * shape.count * shape.inner;
        for (const std::int64_t row : index) {
          if (row / block % shares == task % shares)
            combine_row<Op>(from, y + (o * shape.rows + row) * shape.inner, shape.inner);
          from += shape.inner;
        }
      }
    });
  });
}

template <class Real>
void elements(accumulation op, const accumulation_shape& shape, const std::int64_t* index,
              const Real* x, Real* y, const executor& workers) {
  require(shape);
  require(index, shape.outer * shape.count * shape.inner, shape.rows);
  if (shape.outer == 0 || shape.count == 0 || shape.inner == 0) return;
  // Columns o, i are independent; neighbouring ones stay in one task, for the sake of the cache.
  with<Real>(op, [&]<class Op>(Op) {
    const std::int64_t columns = shape.outer * shape.inner;
    for_ranges(workers, columns, shape.count, [&](std::int64_t begin, std::int64_t end) {
      while (begin < end) {
        const std::int64_t o = begin / shape.inner;
        const std::int64_t first = begin % shape.inner;
        const std::int64_t last = std::min(shape.inner, first + (end - begin));
        Real* target = y + o * shape.rows * shape.inner;
        for (std::int64_t k = 0; k < shape.count; ++k) {
          const std::int64_t row = (o * shape.count + k) * shape.inner;
          for (std::int64_t i = first; i < last; ++i) {
            Real& value = target[index[row + i] * shape.inner + i];
            value = Op::of(value, x[row + i]);
          }
        }
        begin += last - first;
      }
    });
  });
}

}  // namespace

void accumulate_rows(accumulation op, const accumulation_shape& shape,
                     std::span<const std::int64_t> index, const float* x, float* y,
                     const executor& workers) {
  rows(op, shape, index, x, y, workers);
}
void accumulate_rows(accumulation op, const accumulation_shape& shape,
                     std::span<const std::int64_t> index, const double* x, double* y,
                     const executor& workers) {
  rows(op, shape, index, x, y, workers);
}
void accumulate_elements(accumulation op, const accumulation_shape& shape,
                         const std::int64_t* index, const float* x, float* y,
                         const executor& workers) {
  elements(op, shape, index, x, y, workers);
}
void accumulate_elements(accumulation op, const accumulation_shape& shape,
                         const std::int64_t* index, const double* x, double* y,
                         const executor& workers) {
  elements(op, shape, index, x, y, workers);
}

}  // namespace potl::numeric
