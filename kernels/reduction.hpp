// SPDX-License-Identifier: Apache-2.0
// The bodies of sums in the order T(n) of docs/reference/reduction.md. Private: needs block.hpp's
// macros.
//
// Exact because a partial sum of a chunk belongs to one thread, which adds every 32nd term in
// ascending order, and the 32 are folded in halves, through shared memory. What is added is
// computed by the CPU's own templates with one lane. Which threads share a chunk follows from the
// shape.
#pragma once

#include <cstdint>

#include "block.hpp"
#include "numeric/reduction/fused.hpp"

namespace potl::cuda {

namespace sums = numeric::reductions;
using lane = numeric::elementwise::single<float>;

/// Where the terms of a result are: of result (o, c) from o * outer_step + c * inner_step on, term
/// i i / run * run_step + i % run * step further.
struct term_layout {
  std::uint64_t outer, inner, count;
  std::uint64_t outer_step, inner_step;
  std::uint64_t run, run_step, step;

  /// [outer][count][inner]
  POTL_BODY static term_layout plain(std::uint64_t outer, std::uint64_t count,
                                     std::uint64_t inner) {
    return {outer, inner, count, count * inner, 1, count == 0 ? 1 : count, 0, inner};
  }
  /// Of channel c in [batch][channels][size].
  POTL_BODY static term_layout of_channels(std::uint64_t batch, std::uint64_t channels,
                                           std::uint64_t size) {
    if (size <= 1) return plain(1, batch * size, channels);
    return {1, channels, batch * size, 0, size, size, channels * size, 1};
  }

  POTL_BODY std::uint64_t chunks() const {
    return count <= sums::chunk_terms ? 1 : (count + sums::chunk_terms - 1) / sums::chunk_terms;
  }
  /// Neighbouring threads have neighbouring results, not neighbouring terms.
  POTL_BODY bool is_across() const { return inner > 1 && inner_step == 1; }
};

// What is added, each with the way in which two parts are joined; at(place, i, result) is term i.

/// The terms of src/numeric/reduction/kernels.hpp. m and r are one for each result, or for each
/// term.
template <sums::term Kind>
struct listed_terms {
  using join = typename sums::joining<Kind>::type;
  static constexpr bool reads_y = sums::has_y(Kind), reads_m = sums::has_m(Kind);
  const float *x, *y, *m, *r;
  bool by_term;

  POTL_BODY lane at(std::uint64_t place, std::uint64_t i, std::uint64_t result) const {
    const std::uint64_t owner = by_term ? i : result;
    const lane none(0.0F);
    lane second = none, mean = none, factor = none;
    if constexpr (reads_y) second = lane(y[place]);
    if constexpr (reads_m) mean = lane(m[owner]);
    if constexpr (Kind == sums::term::weighted) factor = lane(r[owner]);
    return sums::term_of<Kind>(lane(x[place]), second, mean, factor);
  }
};

/// exp(x - m), m the largest element.
struct exponentials {
  using join = sums::adding;
  const float *x, *largest;

  POTL_BODY static lane anchored(float maximum) {
    const lane m(maximum);
    return select(equal(magnitude(m), numeric::elementwise::infinity<lane>()), lane(0.0F), m);
  }
  POTL_BODY lane at(std::uint64_t place, std::uint64_t, std::uint64_t result) const {
    return sums::exp_down(lane(x[place]) - anchored(largest[result]));
  }
};

/// Of layer norm's gradient: g = dy w, or g ((x - m) r) where `Times`. w may be null.
template <bool Times>
struct layer_slopes {
  using join = sums::adding;
  const float *dy, *w, *x, *m, *r;

  POTL_BODY lane at(std::uint64_t place, std::uint64_t i, std::uint64_t result) const {
    const lane g = lane(dy[place]) * lane(w == nullptr ? 1.0F : w[i]);
    if constexpr (!Times) return g;
    return g * ((lane(x[place]) - lane(m[result])) * lane(r[result]));
  }
};

/// What a block folds in.
constexpr unsigned reduction_threads = 256;
template <class Block>
using reduction_memory = typename Block::template shared<float, reduction_threads>;

/// Chunks of a block: 32 threads have a partial result each of one.
constexpr unsigned reduction_items = reduction_threads / sums::interleaved;

/// Blocks that reduce_chunks() needs.
template <bool Across>
POTL_BODY std::uint64_t reduction_blocks(const term_layout& l) {
  constexpr std::uint64_t items = reduction_items;
  if (Across) return l.outer * l.chunks() * ((l.inner + items - 1) / items);
  return (l.outer * l.chunks() * l.inner + items - 1) / items;
}

/// A chunk of a result.
struct chunk_place {
  std::uint64_t outer, chunk, inner;
  bool is_there;

  template <bool Across>
  POTL_BODY static chunk_place of(const term_layout& l, std::uint64_t block, unsigned thread) {
    constexpr std::uint64_t items = reduction_items;
    chunk_place out;
    std::uint64_t rest;
    if constexpr (Across) {
      const std::uint64_t strips = (l.inner + items - 1) / items;
      out.inner = block % strips * items + thread % items;
      rest = block / strips;
    } else {
      const std::uint64_t item = block * items + thread / sums::interleaved;
      out.inner = item % l.inner;
      rest = item / l.inner;
    }
    out.chunk = rest % l.chunks();
    out.outer = rest / l.chunks();
    out.is_there = out.inner < l.inner && out.outer < l.outer;
    return out;
  }
};

/// Partial result j of a chunk.
template <class Terms>
POTL_BODY lane partial_result(const term_layout& l, const Terms& terms, const chunk_place& of,
                              unsigned j) {
  using join = typename Terms::join;
  lane sum = join::template identity<lane>();
  const std::uint64_t begin = of.chunk * sums::chunk_terms;
  const std::uint64_t left = l.count - begin;
  const std::uint64_t end = begin + (left < sums::chunk_terms ? left : sums::chunk_terms);
  const std::uint64_t place = of.outer * l.outer_step + of.inner * l.inner_step;
  const std::uint64_t result = of.outer * l.inner + of.inner;
  for (std::uint64_t i = begin + j; i < end;) {
    const std::uint64_t run = i / l.run;
    const std::uint64_t last = (run + 1) * l.run < end ? (run + 1) * l.run : end;
    const std::uint64_t base = place + run * l.run_step - run * l.run * l.step;
    // So many terms are on their way at once.
    constexpr std::uint64_t batch = 8;
    for (; i + (batch - 1) * sums::interleaved < last; i += batch * sums::interleaved) {
      lane values[batch];
      POTL_UNROLL
      for (unsigned n = 0; n < batch; ++n) {
        const std::uint64_t at = i + n * sums::interleaved;
        values[n] = terms.at(base + at * l.step, at, result);
      }
      POTL_UNROLL
      for (unsigned n = 0; n < batch; ++n) sum = join::join(sum, values[n]);
    }
    POTL_ROLLED
    for (; i < last; i += sums::interleaved)
      sum = join::join(sum, terms.at(base + i * l.step, i, result));
  }
  return sum;
}

/// out[outer][chunk][inner] of one block: the result of each chunk. Across: neighbouring threads
/// have neighbouring results; otherwise partial results of the same one.
template <bool Across, class Terms, class Block>
POTL_BODY void reduce_chunks(Block& block, reduction_memory<Block>& memory, const term_layout& l,
                             const Terms& terms, float* out) {
  static_assert(Block::threads == reduction_threads);
  using join = typename Terms::join;
  constexpr unsigned width = sums::interleaved;
  constexpr unsigned step = Across ? reduction_items : 1;  // from one partial result to the next
  const auto part_of = [](unsigned thread) { return Across ? thread / step : thread % width; };
  block.each([&](unsigned thread) {
    const auto of = chunk_place::of<Across>(l, block.index(), thread);
    lane sum = join::template identity<lane>();
    if (of.is_there) sum = partial_result(l, terms, of, part_of(thread));
    Block::write(memory, thread, sum.v, thread);
  });
  for (unsigned half = width / 2; half > 0; half /= 2) {
    block.each([&](unsigned thread) {
      if (part_of(thread) >= half) return;
      const lane one(Block::template read<1>(memory, thread, thread).at[0]);
      const lane other(Block::template read<1>(memory, thread + half * step, thread).at[0]);
      Block::write(memory, thread, join::join(one, other).v, thread);
    });
  }
  block.each([&](unsigned thread) {
    const auto of = chunk_place::of<Across>(l, block.index(), thread);
    if (part_of(thread) != 0 || !of.is_there) return;
    out[(of.outer * l.chunks() + of.chunk) * l.inner + of.inner] =
        canonical(lane(Block::template read<1>(memory, thread, thread).at[0])).v;
  });
}

template <bool Across, class Terms>
struct reduction_body {
  static constexpr unsigned threads = reduction_threads;
  template <class Block>
  using memory = reduction_memory<Block>;

  term_layout layout;
  Terms terms;
  float* out;

  template <class Block>
  POTL_BODY void operator()(Block& block, memory<Block>& shared) const {
    reduce_chunks<Across>(block, shared, layout, terms, out);
  }
};

}  // namespace potl::cuda
