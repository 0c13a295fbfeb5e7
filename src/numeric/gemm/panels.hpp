// SPDX-License-Identifier: Apache-2.0
// Extents of a product in panels and chunks, and the copies of operands in that form.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "numeric/gemm/product.hpp"
#include "numeric/gemm/scratch.hpp"

namespace potl::numeric::detail {

/// Some columns of B, and their panels: those of a chunk lie one behind the other.
template <class Packed>
struct column_block {
  std::int64_t from = 0;
  std::int64_t width = 0;
  std::int64_t panels = 0;            ///< for which `packed` has room
  Packed* packed = nullptr;           ///< null: B is read where it lies
  std::int64_t chunk = 0, panel = 0;  ///< what lies first in `packed`
};

/// A part of a column block: row panels and column panels, which one thread multiplies.
template <class Packed>
struct piece {
  column_block<Packed> block;
  bool late = false;  ///< panels of B are made just before they are multiplied
  std::int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 0;

  std::int64_t row_panels() const noexcept { return row_end - row_begin; }
  std::int64_t column_panels() const noexcept { return column_end - column_begin; }
};

template <class From, class Packed, class Sum>
class panels {
 public:
  static constexpr bool same_type = std::is_same_v<From, Packed>;

  explicit panels(const product<From, Packed, Sum>& p)
      : p_(p),
        rows_(p.a.rows),
        columns_(p.b.columns),
        depth_(p.a.columns),
        chunks_(divided_up(depth_, p.chunk)),
        row_panels_(divided_up(rows_, p.body.rows)) {
    // Rows are dealt evenly to panels, panels to threads: all have the same to do.
    const std::int64_t threads = concurrency();
    if (row_panels_ >= 4 * threads)
      row_panels_ = std::min(rows_, divided_up(row_panels_, threads) * threads);
    if (rows_ < most_rows) rows_each_ = divided_up(rows_ << fraction, row_panels_);
  }

  const kernels<From, Packed, Sum>& body() const noexcept { return p_.body; }
  std::int64_t rows() const noexcept { return rows_; }
  std::int64_t columns() const noexcept { return columns_; }
  std::int64_t depth() const noexcept { return depth_; }
  std::int64_t chunks() const noexcept { return chunks_; }
  std::int64_t row_panels() const noexcept { return row_panels_; }
  std::int64_t column_panels() const noexcept { return divided_up(columns_, p_.body.columns); }

  /// Threads that the product pays for.
  std::int64_t concurrency() const noexcept {
    constexpr std::int64_t serial_work = 200000;  // products that pay for no thread
    if (rows_ * columns_ * depth_ < serial_work) return 1;
    return static_cast<std::int64_t>(p_.threads.concurrency());
  }

  /// Work space in bytes per element of A and of B, and the packed length of so many k.
  std::int64_t row_bytes() const noexcept { return p_.body.row_bytes; }
  std::int64_t column_bytes() const noexcept { return p_.body.column_bytes; }
  std::int64_t padded(std::int64_t length) const noexcept {
    return divided_up(length, p_.body.terms) * p_.body.terms;
  }
  std::int64_t longest() const noexcept { return padded(std::min(p_.chunk, depth_)); }
  std::int64_t length_of(std::int64_t chunk) const noexcept {
    return std::min(p_.chunk, depth_ - chunk * p_.chunk);
  }
  std::size_t panel_words(std::int64_t count, std::int64_t length) const noexcept {
    return static_cast<std::size_t>(count * length * p_.body.column_words());
  }

  /// Packed in a panel of A.
  std::int64_t row_panel_words(std::int64_t length) const noexcept {
    return padded(length) * p_.body.row_words();
  }

  bool must_pack_b() const noexcept {
    if (!same_type || p_.order != nullptr || p_.b.column_stride != 1) return true;
    if (row_panels_ <= 2) return false;
    // Rows far apart share cache sets and touch a page each.
    return p_.b.row_stride < 0 || p_.b.row_stride * std::int64_t{sizeof(From)} > 512;
  }

  /// Whether tiles read A where it lies: in a few columns of C each element is used a few times.
  bool must_pack_a(std::int64_t width) const noexcept {
    if (!same_type || p_.order != nullptr) return true;
    if (p_.a.column_stride != 1 && p_.a.row_stride != 1) return true;
    if (p_.a.column_stride < 0 || p_.a.column_stride > 128) return true;
    return width > (depth_ <= 128 ? 8 : 4) * p_.body.columns;
  }

  /// Rows are dealt evenly to the panels: a last panel of one row would wait for its own chain.
  std::int64_t first_row(std::int64_t row_panel) const noexcept {
    return rows_ < most_rows ? (row_panel * rows_each_) >> fraction
                             : rows_ * row_panel / row_panels_;
  }

  Packed* packed_panel(const column_block<Packed>& block, std::int64_t c,
                       std::int64_t j) const noexcept {
    return block.packed + ((c - block.chunk) * p_.chunk * block.panels +
                           (j - block.panel) * padded(length_of(c))) *
                              p_.body.column_words();
  }

  /// Panels begin ... end of a chunk, as tiles fetch them in advance.
  stretch packed_part(const column_block<Packed>& block, std::int64_t chunk, std::int64_t begin,
                      std::int64_t end) const noexcept {
    if (block.packed == nullptr) return {};
    const Packed* from = packed_panel(block, chunk, begin);
    const Packed* to = packed_panel(block, chunk, end);
    return {from, (to - from) * std::int64_t{sizeof(Packed)}};
  }

  /// A chunk of B where it lies, if a task multiplies all of it and the second cache has room for
  /// it: the part of it to fetch beside panels j ... end of the chunk before.
  stretch rows_of_b(std::int64_t chunk, std::int64_t j, std::int64_t end) const noexcept {
    constexpr std::int64_t most = std::int64_t{1} << 19;
    stretch all = p_.next;
    if (chunk < chunks_) {
      const bool dense = p_.b.column_stride == 1 && p_.b.row_stride >= 0 &&
                         p_.b.row_stride <= columns_ + columns_ / 8;
      if (dense)
        all = {p_.b.data + chunk * p_.chunk * p_.b.row_stride,
               length_of(chunk) * p_.b.row_stride * std::int64_t{sizeof(From)}};
    }
    if (all.from == nullptr || all.bytes > most) return {};
    const std::int64_t skipped = all.bytes * j / column_panels();
    return {static_cast<const char*>(all.from) + skipped,
            all.bytes * end / column_panels() - skipped};
  }

  /// Panels first ... last. Rows of B that are contiguous are read for all of them at a time.
  void pack_columns(const column_block<Packed>& block, std::int64_t chunk, std::int64_t first,
                    std::int64_t last) const {
    const std::int64_t length = length_of(chunk);
    const bool adjacent = p_.b.column_stride == 1;
    const std::int64_t together = adjacent && p_.body.packs_several ? last - first : 1;
    const std::int64_t step =
        adjacent && together == 1 ? std::max<std::int64_t>(16, p_.body.terms) : length;
    for (std::int64_t k = 0; k < length; k += step) {
      for (std::int64_t j = first; j < last; j += together) {
        const std::int64_t column = j * p_.body.columns;
        panel<From, Packed> part;
        part.from = p_.b.data + (block.from + column) * p_.b.column_stride;
        part.lane_stride = p_.b.column_stride;
        part.step = p_.b.row_stride;
        part.depth = std::min(step, length - k);
        part.lanes = static_cast<int>(std::min(together * p_.body.columns, block.width - column));
        part.width = p_.body.columns;
        part.to = packed_panel(block, chunk, j) + k * p_.body.column_words();
        if (together > 1) part.next_panel = packed_panel(block, chunk, j + 1) - part.to;
        if (p_.column_scale != nullptr) part.scale = p_.column_scale + block.from + column;
        start_at(chunk * p_.chunk + k, part);
        p_.body.pack_columns(part);
      }
    }
  }

  /// Row panels begin ... end of a chunk, one behind the other. Columns of A that are contiguous
  /// are read for all panels at a time: a few, because those that lie far apart share cache sets.
  void pack_rows(std::int64_t chunk, std::int64_t begin, std::int64_t end, Packed* to) const {
    const std::int64_t length = length_of(chunk);
    const std::int64_t step =
        p_.a.row_stride == 1 ? std::max<std::int64_t>(8, p_.body.terms) : length;
    const std::int64_t words = p_.body.row_words();
    for (std::int64_t k = 0; k < length; k += step) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = first_row(i);
        panel<From, Packed> part;
        part.from = p_.a.data + row * p_.a.row_stride;
        part.lane_stride = p_.a.row_stride;
        part.step = p_.a.column_stride;
        part.depth = std::min(step, length - k);
        part.lanes = static_cast<int>(first_row(i + 1) - row);
        part.width = p_.body.rows;
        part.to = to + ((i - begin) * padded(length) + k) * words;
        if (p_.row_scale != nullptr) part.scale = p_.row_scale + row;
        start_at(chunk * p_.chunk + k, part);
        p_.body.pack_rows(part);
      }
    }
  }

  /// A of a tile; `packed` null: where it lies.
  void set_a(tile<Packed, Sum>& t, std::int64_t row, std::int64_t k,
             const Packed* packed) const noexcept {
    if (packed != nullptr) {
      t.a = packed;
      t.a_row = 1;
      t.a_step = p_.body.rows;
      return;
    }
    if constexpr (same_type) {
      t.a = p_.a.data + row * p_.a.row_stride + k * p_.a.column_stride;
      t.a_row = p_.a.row_stride;
      t.a_step = p_.a.column_stride;
    }
  }

  void set_b(tile<Packed, Sum>& t, const column_block<Packed>& block, std::int64_t chunk,
             std::int64_t j) const noexcept {
    if (block.packed != nullptr) {
      t.b = packed_panel(block, chunk, j);
      t.b_step = p_.body.columns;
      return;
    }
    if constexpr (same_type) {
      t.b = p_.b.data + chunk * p_.chunk * p_.b.row_stride + block.from + j * p_.body.columns;
      t.b_step = p_.b.row_stride;
    }
  }

 private:
  // Of all panels together, rows_each_ is then less than a row above the quotient.
  static constexpr int fraction = 31;
  static constexpr std::int64_t most_rows = std::int64_t{1} << fraction;

  void start_at(std::int64_t k, panel<From, Packed>& part) const noexcept {
    if (p_.order == nullptr) {
      part.from += k * part.step;
    } else {
      part.order = p_.order + k;
    }
  }

  const product<From, Packed, Sum>& p_;
  std::int64_t rows_, columns_, depth_, chunks_, row_panels_;
  std::int64_t rows_each_ = 0;  ///< of a panel, in parts of 2^-fraction: tiles wait for no division
};

}  // namespace potl::numeric::detail
