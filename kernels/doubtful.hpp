// SPDX-License-Identifier: Apache-2.0
// Elements of products in cr32 and log64 whose sum in double does not settle their rounding
// (doubles.hpp). Private: needs block.hpp's macros.
//
// A product puts them on a list, and then a warp looks at each: in cr32 it sums the products
// exactly; in log64 it does so where the window is wide, and logs what is near a tie unless all
// partial sums are exact. Where the list has no room, log64 does all again, and cr32 marks elements
// of C with a NaN that is no result, for which warps then look through all of C.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <potl/numeric/detail/rounding.hpp>

#include "exact_digits.hpp"

namespace potl::cuda {

/// Norms of lines, [product][line].
struct line_norms {
  double* of;
  std::int64_t lines;
  POTL_BODY double& at(std::int64_t product, std::int64_t line) const {
    return of[product * lines + line];
  }
};

/// An element whose sum does not settle its rounding.
struct doubtful_element {
  std::int64_t product, row, column;
  double sum;
};

/// A list that threads write to. `count` goes on where there is no room.
template <class Item>
struct shared_list {
  Item* items;
  std::uint64_t* count;
  std::uint64_t room;

  POTL_BODY bool add(const Item& item) const {
    const std::uint64_t place = add_together(*count, 1);
    if (place < room) items[place] = item;
    return place < room;
  }
};

/// How elements are rounded. Of cr32 every doubtful element is summed exactly; of log64 those near
/// a tie are listed, and stay as the sum has them.
struct double_rounding {
  int bits;
  double factor;  ///< of the norms: the window
  bool logs;
};

/// What looks at single elements needs.
template <class A, class B, class Targets>
struct rounded_elements {
  A a;
  B b;
  Targets targets;
  line_norms a_norms, b_norms;
  double_rounding how;
  shared_list<doubtful_element> doubtful;
  shared_list<numeric::near_tie> ties;

  POTL_BODY double window(std::int64_t product, std::int64_t row, std::int64_t column) const {
    return how.factor * a_norms.at(product, row) * b_norms.at(product, column);
  }
  POTL_BODY float& target(const doubtful_element& one) const {
    return targets.of(one.product).at(one.row, one.column);
  }

  /// What a doubtful element is where the list has no room: a NaN that is no result.
  POTL_BODY static float put_off() { return std::bit_cast<float>(put_off_bits); }
  POTL_BODY static bool is_put_off(float x) {
    return std::bit_cast<std::uint32_t>(x) == put_off_bits;
  }

  /// A sum that is complete.
  POTL_BODY void put(const doubtful_element& one) const {
    const double w = window(one.product, one.row, one.column);
    const float low = numeric::round_to(one.sum - w, how.bits);
    const float high = numeric::round_to(one.sum + w, how.bits);
    float value = low;
    if (low != high) {
      value = numeric::round_to(one.sum, how.bits);
      const double size = one.sum < 0 ? -one.sum : one.sum;
      // Infinities and NaN are the same in any order.
      const bool is_finite = size <= 0x1.fffffffffffffp1023;
      if (is_finite && !doubtful.add(one)) value = put_off();
    }
    target(one) = value;
  }

 private:
  static constexpr std::uint32_t put_off_bits = 0x7fc00001U;
};

/// Doubtful elements, looked at: each by a block, which is a warp.
template <class A, class B, class Targets>
struct settled_elements {
  static constexpr unsigned threads = 32;
  template <class Block>
  struct memory {
    typename exact_digits<Block>::memory digits;
    typename Block::template shared<std::int32_t, 2 * threads> least;
  };

  rounded_elements<A, B, Targets> all;
  std::int64_t products;
  std::uint64_t blocks;

  template <class Block>
  POTL_BODY void operator()(Block& block, memory<Block>& shared) const {
    const std::uint64_t found = *all.doubtful.count, room = all.doubtful.room;
    const std::uint64_t listed = found < room ? found : room;
    // In log64 all is done again with more room.
    const bool looks_through = found > room && !all.how.logs;
    const auto elements = static_cast<std::uint64_t>(products * all.a.count() * all.b.count());
    const std::uint64_t end = listed + (looks_through ? elements : 0);
    POTL_ROLLED
    for (std::uint64_t i = block.index(); i < end; i += blocks) {
      const bool is_listed = i < listed;
      const doubtful_element one = is_listed ? all.doubtful.items[i] : element(i - listed);
      if (is_listed || all.is_put_off(all.target(one))) settle(block, shared, one);
    }
  }

 private:
  /// Number i of C.
  POTL_BODY doubtful_element element(std::uint64_t i) const {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t rows = all.a.count(), columns = all.b.count();
    return {at / columns / rows, at / columns % rows, at % columns, 0};
  }

  /// numeric::settle() of one element.
  template <class Block>
  POTL_BODY void settle(Block& block, memory<Block>& shared, const doubtful_element& one) const {
    auto found = numeric::tie_class::exact;
    double w = 0;
    if (all.how.logs) {
      w = all.window(one.product, one.row, one.column);
      found = numeric::classify(one.sum, w, all.how.bits);
    }
    if (found == numeric::tie_class::exact) {
      put_exactly(block, shared, one);
    } else if (found == numeric::tie_class::near) {
      log_unless_exact(block, shared, one, w);
    }
  }

  /// Finite operands: else the sum would not be finite, and nothing doubtful.
  template <class Block>
  POTL_BODY void put_exactly(Block& block, memory<Block>& shared,
                             const doubtful_element& one) const {
    static_assert(exact_digits<Block>::lanes == threads);
    const exact_digits<Block> digits(shared.digits);
    block.each([&](unsigned thread) {
      digits.clear(thread, thread);
      constexpr std::int64_t stride = digits.most_unsettled * threads;
      for (std::int64_t k = 0; k < all.a.depth(); k += stride) {
        const std::int64_t end = k + stride < all.a.depth() ? k + stride : all.a.depth();
        add_products(digits, one, k, end, thread);
        digits.settle(thread, thread);
      }
    });
    block.each([&](unsigned thread) { digits.join(thread); });
    block.each([&](unsigned thread) {
      if (thread == 0) all.target(one) = digits.rounded(all.how.bits, thread);
    });
  }

  /// A thread's share.
  template <class Digits>
  POTL_BODY void add_products(const Digits& digits, const doubtful_element& one, std::int64_t begin,
                              std::int64_t end, unsigned thread) const {
    // So many are on their way at once.
    constexpr unsigned batch = 4;
    POTL_ROLLED
    for (std::int64_t k = begin + thread; k < end; k += batch * threads) {
      float a[batch], b[batch];
      POTL_UNROLL
      for (unsigned i = 0; i < batch; ++i) {
        const bool is_there = k + i * threads < end;
        a[i] = is_there ? all.a.at(one.product, one.row, k + i * threads) : 0.0F;
        b[i] = is_there ? all.b.at(one.product, one.column, k + i * threads) : 0.0F;
      }
      POTL_UNROLL
      for (unsigned i = 0; i < batch; ++i) digits.add(a[i], b[i], thread, thread);
    }
  }

  /// Whether every partial sum is exact: seldom, and then a few terms do not tell.
  template <class Block>
  POTL_BODY void log_unless_exact(Block& block, memory<Block>& shared, const doubtful_element& one,
                                  double w) const {
    const double norm_a = all.a_norms.at(one.product, one.row);
    const double norm_b = all.b_norms.at(one.product, one.column);
    const auto is_exact = [&](std::int32_t least_a, std::int32_t least_b) {
      return numeric::sum_is_exact(norm_a, norm_b, quantum(least_a), quantum(least_b));
    };
    block.each([&](unsigned thread) {
      std::int32_t least_a = 1024, least_b = 1024;
      for (std::int64_t k = thread; k < all.a.depth(); k += threads) {
        least_a = least(least_a, numeric::quantum_exponent(all.a.at(one.product, one.row, k)));
        least_b = least(least_b, numeric::quantum_exponent(all.b.at(one.product, one.column, k)));
        // More terms make the quanta smaller.
        if (!is_exact(least_a, least_b)) break;
      }
      Block::write(shared.least, thread, least_a, thread);
      Block::write(shared.least, threads + thread, least_b, thread);
    });
    block.each([&](unsigned thread) {
      if (thread != 0) return;
      std::int32_t least_a = 1024, least_b = 1024;
      POTL_ROLLED
      for (unsigned i = 0; i < threads; ++i) {
        least_a = least(least_a, Block::template read<1>(shared.least, i, thread).at[0]);
        least_b = least(least_b, Block::template read<1>(shared.least, threads + i, thread).at[0]);
      }
      if (is_exact(least_a, least_b)) return;
      all.ties.add({all.targets.index(one.product, one.row, one.column), one.sum, w});
    });
  }

  POTL_BODY static std::int32_t least(std::int32_t x, std::int32_t y) { return x < y ? x : y; }
  POTL_BODY static double quantum(std::int32_t exponent) {
    return exponent == 1024 ? std::numeric_limits<double>::infinity() : std::ldexp(1.0, exponent);
  }
};

}  // namespace potl::cuda
