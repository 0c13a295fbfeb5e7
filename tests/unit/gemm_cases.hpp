// SPDX-License-Identifier: Apache-2.0
// Shapes, layouts and hostile operands for the tests of matrix products, all from one number.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <potl/core/detail/rng.hpp>
#include <potl/numeric/detail/matrix.hpp>

#include "guarded_memory.hpp"

namespace gemm_cases {

/// Numbers that are the same with every standard library.
class source {
 public:
  explicit source(std::uint64_t seed) : key_{seed, 77} {}
  std::uint64_t bits() { return potl::random_bits(key_, at_++); }
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(bound));
  }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

 private:
  potl::random_key key_;
  std::uint64_t at_ = 0;
};

enum class kind {
  ordinary,
  constant,
  mountain,    ///< magnitudes rise and fall by 2^40
  cancelling,  ///< pairs that cancel but for a little
  subnormal,
  huge_range,  ///< every exponent
  infinities,
  nans,
  signed_zeros,
  integers,   ///< exact sums, many ties after rounding to few bits
  near_ties,  ///< a tie of float32, and very little beside it
  count
};

inline float element(kind what, std::int64_t k, source& from) {
  const auto near_one = [&] { return static_cast<float>(2 * from.unit() - 1); };
  const auto exponent = [](float x, std::int64_t e) { return std::ldexp(x, static_cast<int>(e)); };
  switch (what) {
    case kind::ordinary: return near_one();
    case kind::constant: return 0.1F;
    case kind::mountain: return exponent(near_one(), 20 - std::abs(k % 80 - 40));
    case kind::cancelling: return (k % 2 == 0 ? 1.0F : -1.0F) * (1.0F + exponent(near_one(), -20));
    // One draw a statement: compilers differ in the order in which they evaluate arguments.
    case kind::subnormal: {
      const std::int64_t power = -60 - from.below(80);
      return exponent(near_one(), power);
    }
    case kind::huge_range: {
      const std::int64_t power = from.below(277) - 149;
      return exponent(near_one(), power);
    }
    case kind::infinities:
      return from.below(40) == 0
                 ? (from.below(2) == 0 ? 1.0F : -1.0F) * std::numeric_limits<float>::infinity()
                 : near_one();
    case kind::nans: {
      const auto word = static_cast<std::uint32_t>(from.bits());
      return from.below(60) == 0 ? std::bit_cast<float>(0x7f800001U | word) : near_one();
    }
    case kind::signed_zeros: {
      const float zero = from.below(2) == 0 ? 0.0F : -0.0F;
      return from.below(3) == 0 ? near_one() : zero;
    }
    case kind::near_ties: return k == 0 ? 1.0F + 0x1p-12F : exponent(near_one(), -28);
    case kind::integers:
    case kind::count: break;
  }
  return static_cast<float>(from.below(17) - 8);
}

/// A matrix inside of memory of its own, with strides and an alignment drawn at random.
template <class Element>
struct placed {
  std::vector<Element> memory;
  std::int64_t offset = 0, rows = 0, columns = 0, row_stride = 0, column_stride = 1;

  potl::numeric::matrix<Element> view() {
    return {memory.data() + offset, rows, columns, row_stride, column_stride};
  }
};

template <class Element>
placed<Element> place(std::int64_t rows, std::int64_t columns, source& from) {
  placed<Element> out;
  out.rows = rows;
  out.columns = columns;
  const std::int64_t step = from.below(8) == 0 ? 2 : 1;
  const std::int64_t gap = from.below(3) == 0 ? from.below(5) : 0;
  const bool across = from.below(2) == 0;
  const std::int64_t inner = across ? rows : columns;
  const std::int64_t line = inner * step + gap;
  out.row_stride = across ? step : line;
  out.column_stride = across ? line : step;
  out.offset = from.below(17);
  out.memory.assign(static_cast<std::size_t>(out.offset + line * (across ? columns : rows) + 17),
                    Element{-77});
  // Backwards, and rows that are all the same one.
  if (from.below(12) == 0 && rows > 0) {
    out.offset += (rows - 1) * out.row_stride;
    out.row_stride = -out.row_stride;
  }
  return out;
}

struct shape {
  std::int64_t rows = 0, columns = 0, depth = 0;
};

inline shape draw_shape(source& from) {
  const auto small = [&] { return from.below(41); };
  shape out{small(), small(), small()};
  // One of eight has a large odd extent or two.
  static constexpr std::int64_t large[] = {47, 63, 97, 129, 257, 511, 513, 1023, 1027, 1537, 2049};
  const auto pick = [&] { return large[static_cast<std::size_t>(from.below(11))]; };
  switch (from.below(16)) {
    case 0: out.rows = pick(); break;
    case 1: out.columns = pick(); break;
    case 2:
    case 3: out.depth = pick(); break;
    case 4:
      out.depth = pick();
      out.rows = 45 + from.below(30);
      break;
    case 5:
      out.depth = pick();
      out.columns = 130 + from.below(30);
      break;
    default: break;
  }
  return out;
}

template <class Element>
struct one_case {
  shape extent;
  kind what = kind::ordinary;
  placed<Element> a, b, c;
};

template <class Element>
one_case<Element> draw(std::uint64_t number) {
  source from(number);
  one_case<Element> out;
  out.extent = draw_shape(from);
  out.what = static_cast<kind>(from.below(static_cast<std::int64_t>(kind::count)));
  out.a = place<Element>(out.extent.rows, out.extent.depth, from);
  out.b = place<Element>(out.extent.depth, out.extent.columns, from);
  out.c = place<Element>(out.extent.rows, out.extent.columns, from);
  const auto fill = [&](placed<Element>& m, bool along_columns) {
    const auto view = m.view();
    for (std::int64_t i = 0; i < m.rows; ++i) {
      for (std::int64_t j = 0; j < m.columns; ++j) {
        view(i, j) = static_cast<Element>(element(out.what, along_columns ? j : i, from));
      }
    }
  };
  fill(out.a, true);
  fill(out.b, false);
  if (from.below(15) == 0) out.a.row_stride = 0;  // every row is the first one
  return out;
}

/// A copy of a matrix's memory, with nothing beyond its elements at one end.
template <class Element>
class guarded_matrix {
 public:
  guarded_matrix(placed<Element>& m, guarded_end at)
      : view_(m.view()), from_(at == guarded_end::back ? 0 : first(m)), memory_(kept(m, at), at) {
    // One without elements may lie beyond its memory.
    view_.data = memory_.data() + (is_empty(m) ? 0 : m.offset - from_);
  }
  potl::numeric::matrix<Element> view() const { return view_; }
  void copy_to(placed<Element>& m) const {
    if (!is_empty(m)) std::copy(memory_.begin(), memory_.end(), m.memory.begin() + from_);
  }

 private:
  static bool is_empty(const placed<Element>& m) { return m.rows == 0 || m.columns == 0; }
  // Only strides of rows are ever negative.
  static std::int64_t first(const placed<Element>& m) {
    return m.offset + std::min<std::int64_t>(0, (m.rows - 1) * m.row_stride);
  }
  static std::int64_t end(const placed<Element>& m) {
    return m.offset + std::max<std::int64_t>(0, (m.rows - 1) * m.row_stride) +
           (m.columns - 1) * m.column_stride + 1;
  }
  static std::span<const Element> kept(const placed<Element>& m, guarded_end at) {
    if (is_empty(m)) return {};
    const std::span all(m.memory);
    return at == guarded_end::back ? all.first(static_cast<std::size_t>(end(m)))
                                   : all.subspan(static_cast<std::size_t>(first(m)));
  }

  potl::numeric::matrix<Element> view_;
  std::int64_t from_ = 0;
  guarded<Element> memory_;
};

template <class Element>
std::vector<Element> row(placed<Element>& m, std::int64_t i) {
  std::vector<Element> out;
  for (std::int64_t k = 0; k < m.columns; ++k) out.push_back(m.view()(i, k));
  return out;
}

template <class Element>
std::vector<Element> column(placed<Element>& m, std::int64_t j) {
  std::vector<Element> out;
  for (std::int64_t k = 0; k < m.rows; ++k) out.push_back(m.view()(k, j));
  return out;
}

/// The whole memory of C after the product: what lies between its elements must stay.
template <class Element, class Define>
std::vector<Element> expected(one_case<Element>& one, const Define& define) {
  placed<Element> c = one.c;
  const auto view = c.view();
  std::vector<std::vector<Element>> columns;
  for (std::int64_t j = 0; j < c.columns; ++j) columns.push_back(column(one.b, j));
  for (std::int64_t i = 0; i < c.rows; ++i) {
    const std::vector<Element> from = row(one.a, i);
    for (std::int64_t j = 0; j < c.columns; ++j)
      view(i, j) = define(from, columns[static_cast<std::size_t>(j)]);
  }
  return c.memory;
}

/// How many elements have other bits.
inline std::size_t different(const std::vector<float>& a, const std::vector<float>& b) {
  std::size_t out = a.size() != b.size();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    out += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]);
  }
  return out;
}

}  // namespace gemm_cases
