// SPDX-License-Identifier: Apache-2.0
// The order of every reduction, T(n) of docs/reference/reduction.md, for any form of lanes.
#pragma once

#include "../elementwise/functions.hpp"

namespace potl::numeric::reductions {
namespace {

using namespace elementwise;

inline constexpr std::size_t interleaved = 32;
inline constexpr std::size_t chunk_terms = 4096;

// How two partial results become one. The identity changes no partial result: a sum is never -0.

struct adding {
  template <class R>
  POTL_INLINE static R identity() {
    return constant<R>(0.0);
  }
  template <class R>
  POTL_INLINE static R join(R a, R b) {
    return a + b;
  }
};
struct multiplying {
  template <class R>
  POTL_INLINE static R identity() {
    return constant<R>(1.0);
  }
  template <class R>
  POTL_INLINE static R join(R a, R b) {
    return a * b;
  }
};
/// A NaN wins; of equal numbers, which differ for zeros only, the positive one.
struct largest {
  template <class R>
  POTL_INLINE static R identity() {
    return negative(infinity<R>());
  }
  template <class R>
  POTL_INLINE static R join(R a, R b) {
    const R value = select(less(a, b), b, select(equal(a, b), bit_and(a, b), a));
    return select(is_nan(b), b, value);
  }
};
struct smallest {
  template <class R>
  POTL_INLINE static R identity() {
    return infinity<R>();
  }
  template <class R>
  POTL_INLINE static R join(R a, R b) {
    const R value = select(less(b, a), b, select(equal(a, b), bit_or(a, b), a));
    return select(is_nan(b), b, value);
  }
};

/// The fold of `interleaved` partial results in halves; destroys them.
template <class Join, class Real>
POTL_INLINE Real fold(Real* partial, std::size_t count) {
  using R = single<Real>;
  for (std::size_t half = count / 2; half > 0; half /= 2)
    for (std::size_t j = 0; j < half; ++j)
      partial[j] = Join::join(R(partial[j]), R(partial[j + half])).v;
  return partial[0];
}

/// The fold of the lanes in halves; the first lane is the result.
template <class Join, int Half, class R>
POTL_INLINE R fold_lanes(R value) {
  if constexpr (Half == 0) {
    return value;
  } else {
    return fold_lanes<Join, Half / 2>(Join::join(value, exchanged<Half>(value)));
  }
}

/// The fold of the partial results of a chunk.
template <class Join, class R>
POTL_INLINE typename R::element fold_vectors(R* partial) {
  for (std::size_t half = interleaved / R::lanes / 2; half > 0; half /= 2)
    for (std::size_t k = 0; k < half; ++k) partial[k] = Join::join(partial[k], partial[k + half]);
  typename R::element last[R::lanes];
  fold_lanes<Join, R::lanes / 2>(partial[0]).store(last);
  return last[0];
}

/// At most `chunk_terms` terms: term(i, lanes) gives terms i to i + lanes - 1, in lanes from the
/// first on; other lanes may hold anything.
template <class Join, class R, class Term>
POTL_INLINE typename R::element reduce_chunk(std::size_t count, const Term& term) {
  constexpr std::size_t lanes = R::lanes;
  constexpr std::size_t vectors = interleaved / lanes;
  R partial[vectors];
  for (R& one : partial) one = Join::template identity<R>();
  std::size_t i = 0;
  for (; i + interleaved <= count; i += interleaved)
    for (std::size_t k = 0; k < vectors; ++k)
      partial[k] = Join::join(partial[k], term(i + k * lanes, lanes));
  for (std::size_t k = 0; i < count; ++k, i += lanes) {
    const std::size_t left = count - i < lanes ? count - i : lanes;
    const R value = term(i, left).first(left, Join::template identity<R>());
    partial[k] = Join::join(partial[k], value);
  }
  return fold_vectors<Join>(partial);
}

/// The levels above the chunks: takes chunk results in order. Called once in 4096 terms, and not
/// inlined: in every kernel it would cost a compiler a third of its time.
template <class Join, class Real>
class upper_levels {
 public:
  [[gnu::noinline]] void push(Real value) { push(value, 0); }
  [[gnu::noinline]] Real result() {
    // What is open at a level is its last chunk; a lone chunk result is the result.
    for (int level = 0;; ++level) {
      if (level == depth_) return single_;
      if (count_[level] == 1 && level + 1 == depth_) return partial_[level][0];
      if (count_[level] == 0) continue;
      const Real value = close(level);
      push(value, level + 1);
    }
  }

 private:
  void push(Real value, int level) {
    if (level == depth_) {
      ++depth_;
      count_[level] = 0;
      clear(level);
    }
    Real& place = partial_[level][count_[level] % interleaved];
    place = Join::join(single<Real>(place), single<Real>(value)).v;
    if (++count_[level] == chunk_terms) push(close(level), level + 1);
  }
  void clear(int level) {
    for (Real& one : partial_[level]) one = Join::template identity<single<Real>>().v;
  }
  Real close(int level) {
    const Real value = fold<Join>(partial_[level], interleaved);
    count_[level] = 0;
    clear(level);
    return value;
  }

  static constexpr int most = 5;  // 4096^5 chunks
  Real partial_[most][interleaved];
  std::size_t count_[most];
  int depth_ = 0;
  Real single_ = Join::template identity<single<Real>>().v;
};

/// T(n) of term(i, lanes).
template <class Join, class R, class Term>
POTL_INLINE typename R::element reduce_all(std::size_t count, const Term& term) {
  if (count <= chunk_terms) return reduce_chunk<Join, R>(count, term);
  upper_levels<Join, typename R::element> upper;
  for (std::size_t first = 0; first < count; first += chunk_terms) {
    const std::size_t terms = count - first < chunk_terms ? count - first : chunk_terms;
    upper.push(reduce_chunk<Join, R>(
        terms, [&](std::size_t i, std::size_t lanes) { return term(first + i, lanes); }));
  }
  return upper.result();
}

}  // namespace
}  // namespace potl::numeric::reductions
