// SPDX-License-Identifier: Apache-2.0
// Sums of rows and of columns for any form of lanes; one copy for each instruction set.
#pragma once

#include "kernels.hpp"
#include "tree.hpp"

namespace potl::numeric::reductions {
namespace {

template <class R>
POTL_INLINE R load(const typename R::element* from, std::size_t lanes) {
  return lanes == R::lanes ? R::load(from) : R::load_first(from, lanes);
}
template <class R>
POTL_INLINE void store(R value, typename R::element* to, std::size_t lanes) {
  if (lanes == R::lanes) {
    value.store(to);
  } else {
    value.store_first(to, lanes);
  }
}

constexpr bool has_y(term kind) { return kind == term::product_of_two || kind == term::weighted; }
constexpr bool has_m(term kind) { return kind == term::deviation || kind == term::weighted; }

template <term Kind>
struct joining {
  using type = adding;
};
template <>
struct joining<term::factor> {
  using type = multiplying;
};
template <>
struct joining<term::maximum> {
  using type = largest;
};
template <>
struct joining<term::minimum> {
  using type = smallest;
};
template <>
struct joining<term::largest_magnitude> {
  using type = largest;
};

template <term Kind, class R>
POTL_INLINE R term_of(R x, R y, R m, R r) {
  if constexpr (Kind == term::square) return x * x;
  if constexpr (Kind == term::magnitude || Kind == term::largest_magnitude) return magnitude(x);
  if constexpr (Kind == term::product_of_two) return x * y;
  if constexpr (Kind == term::deviation) return (x - m) * (x - m);
  if constexpr (Kind == term::weighted) return x * ((y - m) * r);
  return x;
}

/// kind as a template argument.
template <class Function>
POTL_INLINE void with_term(term kind, const Function& function) {
  switch (kind) {
    case term::value: return function.template operator()<term::value>();
    case term::square: return function.template operator()<term::square>();
    case term::magnitude: return function.template operator()<term::magnitude>();
    case term::product_of_two: return function.template operator()<term::product_of_two>();
    case term::deviation: return function.template operator()<term::deviation>();
    case term::weighted: return function.template operator()<term::weighted>();
    case term::factor: return function.template operator()<term::factor>();
    case term::maximum: return function.template operator()<term::maximum>();
    case term::minimum: return function.template operator()<term::minimum>();
    case term::largest_magnitude: return function.template operator()<term::largest_magnitude>();
  }
}

/// The same for the terms of normalisation, which are all that `pieces` and `terms` get.
template <class Function>
POTL_INLINE void with_normalized_term(term kind, const Function& function) {
  if (kind == term::deviation) return function.template operator()<term::deviation>();
  if (kind == term::weighted) return function.template operator()<term::weighted>();
  function.template operator()<term::value>();
}

template <class R>
void rows(term kind, const operands<typename R::element>& o, std::size_t rows, std::size_t count,
          typename R::element* out) {
  using Real = typename R::element;
  with_term(kind, [&]<term Kind>() {
    for (std::size_t row = 0; row < rows; ++row) {
      const Real* x = o.x + row * count;
      const Real* y = has_y(Kind) ? o.y + row * count : nullptr;
      const R m(has_m(Kind) ? o.m[row] : Real{0});
      const R r(Kind == term::weighted ? o.r[row] : Real{0});
      const auto value = [&](std::size_t i, std::size_t lanes) {
        return term_of<Kind>(load<R>(x + i, lanes), has_y(Kind) ? load<R>(y + i, lanes) : m, m, r);
      };
      const Real sum = reduce_all<typename joining<Kind>::type, R>(count, value);
      out[row] = canonical(single<Real>(sum)).v;
    }
  });
}

/// Rows of one residue that join their partial result together: it is loaded and stored once.
inline constexpr std::size_t joined_rows = 4;

template <class R>
void columns(term kind, const operands<typename R::element>& o, std::size_t rows,
             std::size_t columns, std::size_t stride, typename R::element* out) {
  using Real = typename R::element;
  constexpr std::size_t lanes = R::lanes;
  with_term(kind, [&]<term Kind>() {
    using join = typename joining<Kind>::type;
    Real partial[interleaved][strip_columns];
    const R none = join::template identity<R>();
    // What the second level of a cache does not hold.
    const bool far = rows * stride > 512 * 1024;
    // Terms of rows row, row + 32 and so on join partial result row % 32, in this order.
    const auto take = [&](std::size_t row, std::size_t count, bool first) {
      Real* into = partial[row % interleaved];
      for (std::size_t c = 0; c < columns; c += lanes) {
        const std::size_t used = columns - c < lanes ? columns - c : lanes;
        R sum = first ? none : R::load(into + c);
        for (std::size_t g = 0; g < count; ++g) {
          const std::size_t at = row + g * interleaved;
          const Real* x = o.x + at * stride + c;
          // Strips of far rows are not a stream that a processor foresees.
          if (far) __builtin_prefetch(x + 4 * stride);
          R m = none, r = none;
          if (has_m(Kind)) m = o.by_column ? load<R>(o.m + c, used) : R(o.m[at]);
          if (Kind == term::weighted) r = o.by_column ? load<R>(o.r + c, used) : R(o.r[at]);
          const R y = has_y(Kind) ? load<R>(o.y + at * stride + c, used) : none;
          sum = join::join(sum, term_of<Kind>(load<R>(x, used), y, m, r));
        }
        sum.store(into + c);
      }
    };
    constexpr std::size_t block = joined_rows * interleaved;
    for (std::size_t from = 0; from < rows; from += block) {
      for (std::size_t row = from; row < rows && row < from + interleaved; ++row) {
        if (from + block <= rows) {
          take(row, joined_rows, from == 0);
        } else {
          take(row, (rows - row + interleaved - 1) / interleaved, from == 0);
        }
      }
    }
    // Partial results that have no term change nothing: they are left out.
    const std::size_t left = rows < interleaved ? rows : interleaved;
    for (std::size_t c = 0; c < columns; c += lanes) {
      const std::size_t used = columns - c < lanes ? columns - c : lanes;
      R folded[interleaved];
      for (std::size_t j = 0; j < left; ++j) folded[j] = R::load(partial[j] + c);
      std::size_t live = left;
      for (std::size_t half = interleaved / 2; half > 0; half /= 2) {
        for (std::size_t j = 0; j + half < live; ++j)
          folded[j] = join::join(folded[j], folded[j + half]);
        live = live < half ? live : half;
      }
      store(canonical(rows == 0 ? none : folded[0]), out + c, used);
    }
  });
}

template <class R>
void pieces(term kind, const operands<typename R::element>& o, std::size_t count, std::size_t size,
            std::size_t stride, typename R::element* out) {
  using Real = typename R::element;
  constexpr std::size_t lanes = R::lanes;
  with_normalized_term(kind, [&]<term Kind>() {
    using join = typename joining<Kind>::type;
    const R m(has_m(Kind) ? *o.m : Real{0});
    const R r(Kind == term::weighted ? *o.r : Real{0});
    upper_levels<join, Real> upper;
    R partial[interleaved / lanes];
    std::size_t left = chunk_terms;
    const auto begin = [&] {
      for (R& one : partial) one = join::template identity<R>();
      left = chunk_terms;
    };
    begin();
    for (std::size_t piece = 0; piece < count; ++piece) {
      const Real* x = o.x + piece * stride;
      const Real* y = has_y(Kind) ? o.y + piece * stride : nullptr;
      for (std::size_t i = 0; i < size;) {
        const std::size_t end = i + (size - i < left ? size - i : left);
        left -= end - i;
        for (; i < end; i += interleaved)
          for (std::size_t k = 0; k < interleaved / lanes; ++k) {
            const std::size_t at = i + k * lanes;
            const R other = has_y(Kind) ? R::load(y + at) : m;
            partial[k] = join::join(partial[k], term_of<Kind>(R::load(x + at), other, m, r));
          }
        if (left == 0) {
          upper.push(fold_vectors<join>(partial));
          begin();
        }
      }
    }
    if (left != chunk_terms) upper.push(fold_vectors<join>(partial));
    *out = canonical(single<Real>(upper.result())).v;
  });
}

template <class R>
void terms(term kind, const operands<typename R::element>& o, std::size_t count,
           typename R::element* out) {
  using Real = typename R::element;
  constexpr std::size_t lanes = R::lanes;
  with_normalized_term(kind, [&]<term Kind>() {
    const R m(has_m(Kind) ? *o.m : Real{0});
    const R r(Kind == term::weighted ? *o.r : Real{0});
    for (std::size_t i = 0; i < count; i += lanes) {
      const std::size_t used = count - i < lanes ? count - i : lanes;
      const R y = has_y(Kind) ? load<R>(o.y + i, used) : m;
      store(term_of<Kind>(load<R>(o.x + i, used), y, m, r), out + i, used);
    }
  });
}

}  // namespace
}  // namespace potl::numeric::reductions
