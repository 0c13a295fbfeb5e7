// SPDX-License-Identifier: Apache-2.0
// Tasks of products whose sums are finished before they become elements of C. Some rows of A, in
// panels for many chunks, stay in the second cache; a panel of B stays in the first while all of
// them are multiplied with it, beside the few columns of sums that are complete soon.
#pragma once

#include <algorithm>
#include <cstdint>

#include "numeric/gemm/panels.hpp"

namespace potl::numeric::detail {

template <class From, class Packed, class Sum, class Output>
class finished_tasks {
 public:
  finished_tasks(const product<From, Packed, Sum>& p, const panels<From, Packed, Sum>& cut,
                 const Output& output)
      : p_(p), cut_(cut), output_(output) {
    // All chunks where a few rows of them fit; else parts of about the same size.
    const std::int64_t each = cut.longest() * cut.row_bytes();
    const std::int64_t fitting = std::max<std::int64_t>(1, row_bytes / each);
    const bool all = cut.row_panels() * p.body.rows * each * cut.chunks() <= task_bytes;
    const std::int64_t parts = all ? 1 : divided_up(cut.chunks(), fitting);
    together_ = divided_up(cut.chunks(), parts);
  }

  /// Of A, how many make a task.
  std::int64_t task_panels() const noexcept {
    const std::int64_t bytes = p_.body.rows * kept_depth() * cut_.row_bytes();
    return std::max<std::int64_t>(1, task_bytes / bytes);
  }

  /// k of A that a task keeps in panels.
  std::int64_t kept_depth() const noexcept {
    return cut_.padded(std::min(together_ * p_.chunk, cut_.depth()));
  }

  void run(piece<Packed> t) const {
    static thread_local scratch a_memory, b_memory, c_memory;
    work w{t, nullptr, nullptr, together_ < cut_.chunks()};
    if (cut_.must_pack_a(t.block.width)) {
      const std::int64_t words = t.row_panels() * cut_.row_panel_words(kept_depth());
      w.packed_a = a_memory.get<Packed>(static_cast<std::size_t>(words));
    }
    const std::int64_t columns = (w.keeps_sums ? t.column_panels() : 1) * p_.body.columns;
    w.sums = c_memory.get<Sum>(static_cast<std::size_t>(t.row_panels() * p_.body.rows * columns));
    // Panels of B that are made together.
    std::int64_t inner = t.column_panels();
    if (t.late) {
      const std::int64_t bytes = kept_depth() * p_.body.columns * cut_.column_bytes();
      inner = std::clamp(late_bytes / bytes, std::int64_t{1}, inner);
      w.block.packed = b_memory.get<Packed>(cut_.panel_words(inner, kept_depth()));
      w.block.panels = inner;
    }
    for (std::int64_t first = 0; first < cut_.chunks(); first += together_) {
      const std::int64_t last = std::min(cut_.chunks(), first + together_);
      for (std::int64_t chunk = first; w.packed_a != nullptr && chunk < last; ++chunk) {
        cut_.pack_rows(chunk, t.row_begin, t.row_end, rows_of_a(w, first, chunk));
      }
      for (std::int64_t j = t.column_begin; j < t.column_end; ++j) {
        const std::int64_t ready = (j - t.column_begin) % inner;
        if (t.late && ready == 0) {
          w.block.chunk = first;
          w.block.panel = j;
          const std::int64_t end = std::min(t.column_end, j + inner);
          for (std::int64_t chunk = first; chunk < last; ++chunk) {
            cut_.pack_columns(w.block, chunk, j, end);
          }
        }
        run_column_panel(w, first, last, j);
      }
    }
  }

 private:
  static constexpr std::int64_t task_bytes = std::int64_t{1} << 20;
  static constexpr std::int64_t row_bytes = std::int64_t{1} << 13;
  static constexpr std::int64_t late_bytes = std::int64_t{1} << 19;

  struct work : piece<Packed> {
    Packed* packed_a = nullptr;  ///< null: A is read where it lies
    Sum* sums = nullptr;         ///< of one column panel after the other
    bool keeps_sums = false;     ///< for chunks that follow later; else each is finished at once
  };

  Packed* rows_of_a(const work& w, std::int64_t first, std::int64_t chunk) const noexcept {
    return w.packed_a + w.row_panels() * cut_.row_panel_words((chunk - first) * p_.chunk);
  }

  // The panel of B that is multiplied after this one.
  stretch after(const work& w, std::int64_t first, std::int64_t last, std::int64_t chunk,
                std::int64_t j) const noexcept {
    constexpr std::int64_t few = 4;  // tiles, whose loops have no place for so many fetches
    if (w.late || w.block.packed == nullptr || w.row_panels() < few) return {};
    if (chunk + 1 < last) return cut_.packed_part(w.block, chunk + 1, j, j + 1);
    if (j + 1 < w.column_end) return cut_.packed_part(w.block, first, j + 1, j + 2);
    return {};
  }

  // Chunks first ... last of all rows and one panel of B.
  void run_column_panel(const work& w, std::int64_t first, std::int64_t last,
                        std::int64_t j) const {
    const std::int64_t column = j * p_.body.columns;
    const std::int64_t top = cut_.first_row(w.row_begin);
    tile<Packed, Sum> t;
    t.columns = static_cast<int>(std::min<std::int64_t>(p_.body.columns, w.block.width - column));
    t.c_row = p_.body.columns;
    Sum* sums = w.sums;
    if (w.keeps_sums) sums += (j - w.column_begin) * w.row_panels() * p_.body.rows * t.c_row;
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      t.depth = cut_.length_of(chunk);
      t.first = chunk == 0;
      t.last = chunk == cut_.chunks() - 1;
      t.next_b = after(w, first, last, chunk, j).shared(w.row_panels(), t.depth);
      cut_.set_b(t, w.block, chunk, j);
      const Packed* packed_a = w.packed_a == nullptr ? nullptr : rows_of_a(w, first, chunk);
      const std::int64_t words = cut_.row_panel_words(t.depth);
      for (std::int64_t i = w.row_begin; i < w.row_end; ++i) {
        const std::int64_t row = cut_.first_row(i);
        t.rows = static_cast<int>(cut_.first_row(i + 1) - row);
        t.c = sums + (row - top) * t.c_row;
        cut_.set_a(t, row, chunk * p_.chunk, packed_a);
        if (packed_a != nullptr) packed_a += words;
        p_.body.multiply(t);
        if (t.last) output_.finish({row, w.block.from + column, t.rows, t.columns}, t.c, t.c_row);
        advance(t.next_b, t.depth);
      }
    }
  }

  const product<From, Packed, Sum>& p_;
  const panels<From, Packed, Sum>& cut_;
  const Output& output_;
  std::int64_t together_ = 1;  ///< chunks whose panels of A are kept
};

}  // namespace potl::numeric::detail
