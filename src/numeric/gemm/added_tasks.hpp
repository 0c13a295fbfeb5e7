// SPDX-License-Identifier: Apache-2.0
// Tasks of products whose tiles go straight to C, chunk after chunk: a chunk of A's panels stays in
// the second cache, beside some of B's; a panel of A in the first.
#pragma once

#include <algorithm>
#include <cstdint>

#include "numeric/gemm/panels.hpp"

namespace potl::numeric::detail {

template <class From, class Packed, class Sum>
class added_tasks {
 public:
  added_tasks(const product<From, Packed, Sum>& p, const panels<From, Packed, Sum>& cut,
              const to_memory<Sum>& output)
      : p_(p), cut_(cut), output_(output) {}

  /// Of A, how many make a task.
  std::int64_t task_panels() const noexcept {
    const std::int64_t bytes = cut_.longest() * cut_.row_bytes();
    return std::max<std::int64_t>(1, task_bytes / (bytes * p_.body.rows));
  }

  void run(piece<Packed> t) const {
    static thread_local scratch a_memory, b_memory;
    Packed* packed_a = nullptr;  // null: A is read where it lies
    if (cut_.must_pack_a(t.block.width)) {
      const std::int64_t words = t.row_panels() * cut_.row_panel_words(cut_.longest());
      packed_a = a_memory.get<Packed>(static_cast<std::size_t>(words));
    }
    const std::int64_t inner = inner_panels(t.late ? late_bytes : inner_bytes);
    if (t.late) {
      t.block.packed = b_memory.get<Packed>(cut_.panel_words(inner, cut_.longest()));
    }
    for (std::int64_t chunk = 0; chunk < cut_.chunks(); ++chunk) {
      if (packed_a != nullptr) cut_.pack_rows(chunk, t.row_begin, t.row_end, packed_a);
      for (std::int64_t j = t.column_begin; j < t.column_end; j += inner) {
        const std::int64_t end = std::min(t.column_end, j + inner);
        if (t.late) {
          t.block.chunk = chunk;
          t.block.panel = j;
          cut_.pack_columns(t.block, chunk, j, end);
        }
        run_inner(t, packed_a, chunk, j, end, after(t, chunk, j, end, inner));
      }
    }
    if (streams()) p_.body.drain();
  }

 private:
  // In the second cache: B, and as much again that comes next; A.
  static constexpr std::int64_t inner_bytes = std::int64_t{1} << 17;
  static constexpr std::int64_t task_bytes = std::int64_t{1} << 19;
  static constexpr std::int64_t late_bytes = std::int64_t{1} << 19;
  static constexpr std::int64_t streamed_bytes = std::int64_t{1} << 25;

  // Column panels that are multiplied together.
  std::int64_t inner_panels(std::int64_t bytes) const noexcept {
    const std::int64_t each = cut_.longest() * p_.body.columns * cut_.column_bytes();
    return std::max<std::int64_t>(1, bytes / each);
  }

  // Whether C is written past the caches: it is larger than they are, and in whole cache lines.
  bool streams() const noexcept {
    constexpr std::int64_t size = sizeof(Sum), cache_line = 64;
    return cut_.chunks() == 1 && p_.body.drain != nullptr &&
           cut_.rows() * cut_.columns() * size >= streamed_bytes &&
           cut_.columns() * size % cache_line == 0 && output_.c_row * size % cache_line == 0 &&
           reinterpret_cast<std::uintptr_t>(output_.c) % cache_line == 0;
  }

  // What of B to fetch beside panels j ... end of a chunk.
  stretch after(const piece<Packed>& t, std::int64_t chunk, std::int64_t j, std::int64_t end,
                std::int64_t inner) const noexcept {
    if (!t.late && t.block.packed != nullptr) {
      if (end < t.column_end)
        return cut_.packed_part(t.block, chunk, end, std::min(t.column_end, end + inner));
      if (chunk + 1 < cut_.chunks())
        return cut_.packed_part(t.block, chunk + 1, t.column_begin,
                                std::min(t.column_end, t.column_begin + inner));
    }
    return cut_.rows_of_b(chunk + 1, j, end);
  }

  // One chunk of an inner block: its panels of B stay in the second cache, a panel of A in the
  // first.
  void run_inner(const piece<Packed>& work, const Packed* packed_a, std::int64_t chunk,
                 std::int64_t begin, std::int64_t end, const stretch& next) const {
    const std::int64_t k = chunk * p_.chunk;
    tile<Packed, Sum> t;
    t.depth = cut_.length_of(chunk);
    t.first = chunk == 0;
    t.last = chunk == cut_.chunks() - 1;
    t.c_row = output_.c_row;
    t.streamed = streams();
    const std::int64_t tiles = end - begin;
    const std::int64_t words = cut_.row_panel_words(t.depth);
    t.next_b = next.shared(tiles * work.row_panels(), t.depth);
    for (std::int64_t i = work.row_begin; i < work.row_end; ++i) {
      const std::int64_t row = cut_.first_row(i);
      t.rows = static_cast<int>(cut_.first_row(i + 1) - row);
      cut_.set_a(t, row, k,
                 packed_a == nullptr ? nullptr : packed_a + (i - work.row_begin) * words);
      if (packed_a != nullptr) {
        // The panel of A that comes next lies behind this one.
        t.next_a =
            stretch{t.a + words, words * std::int64_t{sizeof(Packed)}}.shared(tiles, t.depth);
      }
      for (std::int64_t j = begin; j < end; ++j) {
        const std::int64_t column = j * p_.body.columns;
        t.columns =
            static_cast<int>(std::min<std::int64_t>(p_.body.columns, work.block.width - column));
        cut_.set_b(t, work.block, chunk, j);
        t.c = output_.c + row * t.c_row + work.block.from + column;
        p_.body.multiply(t);
        advance(t.next_a, t.depth);
        advance(t.next_b, t.depth);
      }
    }
  }

  const product<From, Packed, Sum>& p_;
  const panels<From, Packed, Sum>& cut_;
  const to_memory<Sum>& output_;
};

}  // namespace potl::numeric::detail
