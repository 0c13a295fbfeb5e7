// SPDX-License-Identifier: Apache-2.0
// How a product is cut: into column blocks of B that are copied into panels once, tasks of some
// rows and columns of C that run in parallel, chunks of k, and tiles. Neither the cut nor the order
// of tasks touches the sums: each element of C is the sum of its chunks in ascending order, and
// each chunk one chain, as docs/gemm.md defines them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <potl/numeric/executor.hpp>
#include <potl/numeric/matrix.hpp>

#include "numeric/gemm/kernels.hpp"
#include "numeric/gemm/scratch.hpp"

namespace potl::numeric::detail {

constexpr std::int64_t divided_up(std::int64_t value, std::int64_t by) noexcept {
  return (value + by - 1) / by;
}

/// Memory that is needed soon.
struct stretch {
  const void* from = nullptr;
  std::int64_t bytes = 0;

  // What of it to fetch for each k of so many tiles.
  upcoming shared(std::int64_t tiles, std::int64_t depth) const noexcept {
    if (from == nullptr) return {};
    return {from, divided_up(bytes, tiles * depth)};
  }
};

template <class From, class Packed, class Sum = Packed>
struct product {
  const kernels<From, Packed, Sum>& body;
  matrix<const From> a;
  matrix<const From> b;
  std::int64_t chunk = 512;             ///< a multiple of body.terms
  const std::int64_t* order = nullptr;  ///< a permutation of k; null: ascending
  const executor& threads;
  const double* row_scale = nullptr;  ///< for panels of integers
  const double* column_scale = nullptr;
  stretch next{};  ///< operands of the product that comes after this one
};

/// A part of C.
struct area {
  std::int64_t row = 0, column = 0, rows = 0, columns = 0;
};

/// Tiles go straight to C, whose columns are adjacent.
template <class Value>
struct to_memory {
  Value* c = nullptr;
  std::int64_t c_row = 0;
  static constexpr bool finishes = false;
  void finish(const area&, const Value*, std::int64_t) const noexcept {}
};

template <class From, class Packed, class Sum, class Output>
class blocked {
 public:
  blocked(const product<From, Packed, Sum>& p, const Output& output)
      : p_(p),
        output_(output),
        rows_(p.a.rows),
        columns_(p.b.columns),
        depth_(p.a.columns),
        chunks_(divided_up(depth_, p.chunk)),
        panels_(divided_up(rows_, p.body.rows)) {
    // Rows are dealt evenly to panels, panels to threads: all have the same to do.
    const std::int64_t threads = concurrency();
    if (panels_ >= 4 * threads) panels_ = std::min(rows_, divided_up(panels_, threads) * threads);
  }

  /// Precondition: no extent is 0.
  void run() const {
    if constexpr (std::is_same_v<Packed, Sum>) {
      if (splits_chunks()) return run_chunks();
    }
    const copying how = copying_b();
    // So that the panels of a column block stay in the outer caches.
    std::int64_t width = columns_;
    if (how == copying::first) {
      const std::int64_t fitting = packed_bytes / (padded(depth_) * column_bytes());
      width = std::clamp(fitting / p_.body.columns, std::int64_t{1}, most_panels) * p_.body.columns;
      width = std::min(width, divided_up(columns_, p_.body.columns) * p_.body.columns);
    }
    for (std::int64_t from = 0; from < columns_; from += width) {
      run_columns(from, std::min(width, columns_ - from), how);
    }
  }

 private:
  static constexpr std::int64_t packed_bytes = std::int64_t{16} << 20;
  static constexpr std::int64_t most_panels = 256;
  static constexpr std::int64_t packed_together = 8;
  static constexpr std::int64_t packed_a_bytes = std::int64_t{8} << 20;
  // In the second cache: B, and as much again that comes next; A and sums.
  static constexpr std::int64_t inner_bytes = std::int64_t{1} << 17;
  static constexpr std::int64_t task_bytes = std::int64_t{1} << 19;
  // Few rows: what they take of the second cache, beside late panels of B.
  static constexpr std::int64_t few_rows_bytes = std::int64_t{1} << 20;
  static constexpr std::int64_t late_bytes = std::int64_t{1} << 19;
  static constexpr std::int64_t late_columns = 128;  // of each thread
  static constexpr std::int64_t streamed_bytes = std::int64_t{1} << 25;
  static constexpr std::int64_t serial_work = 200000;  // products that pay for no thread
  static constexpr std::int64_t fetched_bytes = std::int64_t{1} << 19;
  static constexpr bool same_type = std::is_same_v<From, Packed>;

  // Work space in bytes per element of A and of B, and the packed length of so many k.
  std::int64_t row_bytes() const noexcept {
    return p_.body.row_words * std::int64_t{sizeof(Packed)};
  }
  std::int64_t column_bytes() const noexcept {
    return p_.body.column_words * std::int64_t{sizeof(Packed)};
  }
  std::int64_t padded(std::int64_t length) const noexcept {
    return divided_up(length, p_.body.terms) * p_.body.terms;
  }
  std::int64_t longest() const noexcept { return padded(std::min(p_.chunk, depth_)); }

  // Column panels that are multiplied together.
  std::int64_t inner_panels() const noexcept {
    return std::max<std::int64_t>(1, inner_bytes / (longest() * p_.body.columns * column_bytes()));
  }
  std::int64_t late_panels() const noexcept {
    return std::max<std::int64_t>(1, late_bytes / (longest() * p_.body.columns * column_bytes()));
  }
  std::int64_t task_panels() const noexcept {
    std::int64_t bytes = longest() * row_bytes();
    if (Output::finishes) {
      bytes += inner_panels() * p_.body.columns * std::int64_t{sizeof(Sum)};
    }
    return std::max<std::int64_t>(1, task_bytes / (bytes * p_.body.rows));
  }

  // Panels of B: none, B is read where it lies; of all of a column block before tasks begin; or of
  // as much as a task multiplies next, where all rows of C are one task.
  enum class copying { none, first, late };

  copying copying_b() const noexcept {
    if (!must_pack_b()) return copying::none;
    const std::int64_t length = Output::finishes ? padded(depth_) : longest();
    const std::int64_t a_bytes = panels_ * p_.body.rows * length * row_bytes();
    const bool wide = columns_ >= late_columns * concurrency();
    return a_bytes <= few_rows_bytes && wide ? copying::late : copying::first;
  }

  bool must_pack_b() const noexcept {
    if (!same_type || p_.order != nullptr || p_.b.column_stride != 1) return true;
    if (panels_ <= 2) return false;
    // Rows far apart share cache sets and touch a page each.
    return p_.b.row_stride < 0 || p_.b.row_stride * std::int64_t{sizeof(From)} > 512;
  }

  // Whether tiles read A where it lies: in a few columns of C each element is used a few times.
  bool must_pack_a(std::int64_t width) const noexcept {
    if (!same_type || p_.order != nullptr) return true;
    if (p_.a.column_stride != 1 && p_.a.row_stride != 1) return true;
    if (p_.a.column_stride < 0 || p_.a.column_stride > 128) return true;
    return width > (depth_ <= 128 ? 8 : 4) * p_.body.columns;
  }

  std::int64_t concurrency() const noexcept {
    if (rows_ * columns_ * depth_ < serial_work) return 1;
    return static_cast<std::int64_t>(p_.threads.concurrency());
  }

  void run_columns(std::int64_t from, std::int64_t width, copying how) const {
    const std::int64_t threads = concurrency();
    column_block block{from, width, divided_up(width, p_.body.columns)};
    if (how == copying::first) {
      static thread_local scratch memory;
      block.packed = memory.get<Packed>(panel_words(block.panels, padded(depth_)));
      const std::int64_t groups = divided_up(block.panels, packed_together);
      share(threads, chunks_ * groups, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t at = begin; at < end; ++at) {
          const std::int64_t first = at % groups * packed_together;
          pack_panels(block, at / groups, first, std::min(block.panels, first + packed_together));
        }
      });
    }
    // Tasks of whole row panels; columns are cut too where there are few rows.
    std::int64_t wanted = threads == 1 ? 1 : 3 * threads;
    // Each of them copies A.
    if (how == copying::late) wanted = std::clamp(columns_ / 512, threads, wanted);
    std::int64_t row_tasks = std::max(wanted, divided_up(panels_, task_panels()));
    row_tasks = std::min(panels_, divided_up(row_tasks, threads) * threads);
    if (how == copying::late) row_tasks = 1;
    const std::int64_t column_tasks = std::clamp(wanted / row_tasks, std::int64_t{1}, block.panels);
    share(threads, row_tasks * column_tasks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t i = task / column_tasks, j = task % column_tasks;
        run_task({block, how == copying::late, panels_ * i / row_tasks,
                  panels_ * (i + 1) / row_tasks, block.panels * j / column_tasks,
                  block.panels * (j + 1) / column_tasks});
      }
    });
  }

  // Calls body(begin, end) for parts of [0, count).
  template <class Body>
  void share(std::int64_t threads, std::int64_t count, std::int64_t least, const Body& body) const {
    const std::int64_t parts = std::min(divided_up(count, least), 4 * threads);
    if (threads == 1 || parts < 2) return body(0, count);
    p_.threads.run(static_cast<std::size_t>(parts), [&](std::size_t part) {
      const auto at = static_cast<std::int64_t>(part);
      body(count * at / parts, count * (at + 1) / parts);
    });
  }

  struct column_block {
    std::int64_t from = 0;
    std::int64_t width = 0;
    std::int64_t panels = 0;
    Packed* packed = nullptr;
    std::int64_t chunk = 0, panel = 0;  ///< what lies first in `packed`
  };

  std::size_t panel_words(std::int64_t count, std::int64_t length) const noexcept {
    return static_cast<std::size_t>(count * p_.body.columns * length * p_.body.column_words);
  }

  Packed* packed_panel(const column_block& block, std::int64_t c, std::int64_t j) const noexcept {
    const std::int64_t length = padded(std::min(p_.chunk, depth_ - c * p_.chunk));
    const std::int64_t words = p_.body.columns * p_.body.column_words;
    return block.packed +
           ((c - block.chunk) * p_.chunk * block.panels + (j - block.panel) * length) * words;
  }

  // Panels first ... last. Rows of B that are contiguous are read for all of them at a time.
  void pack_panels(const column_block& block, std::int64_t chunk, std::int64_t first,
                   std::int64_t last) const {
    const std::int64_t length = std::min(p_.chunk, depth_ - chunk * p_.chunk);
    const bool adjacent = p_.b.column_stride == 1;
    const std::int64_t together = adjacent && p_.body.packs_several ? last - first : 1;
    const std::int64_t step = adjacent && together == 1 ? 16 : length;
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
        part.to = packed_panel(block, chunk, j) + k * p_.body.columns * p_.body.column_words;
        if (together > 1) part.next_panel = packed_panel(block, chunk, j + 1) - part.to;
        if (p_.column_scale != nullptr) part.scale = p_.column_scale + block.from + column;
        start_at(chunk * p_.chunk + k, part);
        p_.body.pack_columns(part);
      }
    }
  }

  void pack_rows(std::int64_t c, std::int64_t begin, std::int64_t end, std::int64_t row,
                 std::int64_t lanes, Packed* to) const {
    const std::int64_t k = c * p_.chunk;
    panel<From, Packed> part;
    part.from = p_.a.data + row * p_.a.row_stride;
    part.lane_stride = p_.a.row_stride;
    part.step = p_.a.column_stride;
    part.depth = end - begin;
    part.lanes = static_cast<int>(lanes);
    part.width = p_.body.rows;
    part.to = to + begin * p_.body.rows * p_.body.row_words;
    if (p_.row_scale != nullptr) part.scale = p_.row_scale + row;
    start_at(k + begin, part);
    p_.body.pack_rows(part);
  }

  void start_at(std::int64_t k, panel<From, Packed>& part) const noexcept {
    if (p_.order == nullptr) {
      part.from += k * part.step;
    } else {
      part.order = p_.order + k;
    }
  }

  // Rows are dealt evenly to the panels: a last panel of one row would wait for its own chain.
  std::int64_t first_row(std::int64_t row_panel) const noexcept {
    return rows_ * row_panel / panels_;
  }

  /// A part of a column block: row panels and column panels, and where sums of it go.
  struct piece {
    column_block block;
    bool late = false;  ///< panels of B are made for each inner block
    std::int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 0;
    Packed* packed_a = nullptr;  ///< of all chunks or of one; null: A is read where it lies
    bool all_chunks = false;
    Sum* sums = nullptr;  ///< Output::finishes: work space for one inner block
    stretch next{};       ///< of B, for the inner block that comes next
  };

  void run_task(piece t) const {
    static thread_local scratch a_memory, b_memory, c_memory;
    const std::int64_t rows = (t.row_end - t.row_begin) * p_.body.rows;
    if (must_pack_a(t.block.width)) {
      t.all_chunks = Output::finishes && rows * padded(depth_) * row_bytes() <= packed_a_bytes;
      const std::int64_t length = t.all_chunks ? padded(depth_) : longest();
      t.packed_a =
          a_memory.get<Packed>(static_cast<std::size_t>(rows * length * p_.body.row_words));
    }
    const std::int64_t inner = t.late ? late_panels() : inner_panels();
    if (t.late) t.block.packed = b_memory.get<Packed>(panel_words(inner, longest()));
    if constexpr (Output::finishes) {
      t.sums = c_memory.get<Sum>(static_cast<std::size_t>(rows * inner * p_.body.columns));
    }
    if (t.all_chunks) {
      for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) pack_task(t, chunk);
    }
    const bool repack = t.packed_a != nullptr && !t.all_chunks;
    const std::int64_t blocks = divided_up(t.column_end - t.column_begin, inner);
    // Sums that are finished stay in a cache near by until they are complete; else a chunk of A
    // does.
    const std::int64_t count = blocks * chunks_;
    for (std::int64_t at = 0; at < count; ++at) {
      const auto [chunk, j] = inner_block(t, inner, blocks, at);
      const std::int64_t end = std::min(t.column_end, j + inner);
      if (repack && (Output::finishes || j == t.column_begin)) pack_task(t, chunk);
      t.next = {};
      if (t.late) {
        t.block.chunk = chunk;
        t.block.panel = j;
        pack_panels(t.block, chunk, j, end);
      } else if (t.block.packed != nullptr && at + 1 < count) {
        const auto [next_chunk, next_j] = inner_block(t, inner, blocks, at + 1);
        t.next = packed_part(t.block, next_chunk, next_j, std::min(t.column_end, next_j + inner));
      }
      if (t.next.from == nullptr) t.next = rows_of_b(chunk + 1, j, end);
      run_inner(t, chunk, j, end);
    }
    if (streams()) p_.body.drain();
  }

  // Whether C is written past the caches: it is larger than they are, and in whole cache lines.
  bool streams() const noexcept {
    if constexpr (Output::finishes) {
      return false;
    } else {
      constexpr std::int64_t size = sizeof(Sum), cache_line = 64;
      return chunks_ == 1 && p_.body.drain != nullptr &&
             rows_ * columns_ * size >= streamed_bytes && columns_ * size % cache_line == 0 &&
             output_.c_row * size % cache_line == 0 &&
             reinterpret_cast<std::uintptr_t>(output_.c) % cache_line == 0;
    }
  }

  struct inner_place {
    std::int64_t chunk = 0, column = 0;
  };
  inner_place inner_block(const piece& t, std::int64_t inner, std::int64_t blocks,
                          std::int64_t at) const noexcept {
    if (Output::finishes) {
      return {at % chunks_, t.column_begin + at / chunks_ * inner};
    }
    return {at / blocks, t.column_begin + at % blocks * inner};
  }

  stretch packed_part(const column_block& block, std::int64_t chunk, std::int64_t begin,
                      std::int64_t end) const noexcept {
    if (block.packed == nullptr) return {};
    const Packed* from = packed_panel(block, chunk, begin);
    const Packed* to = packed_panel(block, chunk, end);
    return {from, (to - from) * std::int64_t{sizeof(Packed)}};
  }

  // A chunk of B where it lies, if a task multiplies all of it and the second cache has room for
  // it: the part of it to fetch beside panels j ... end of the chunk before.
  stretch rows_of_b(std::int64_t chunk, std::int64_t j, std::int64_t end) const noexcept {
    stretch all = p_.next;
    if (chunk < chunks_) {
      const std::int64_t length = std::min(p_.chunk, depth_ - chunk * p_.chunk);
      const bool dense = p_.b.column_stride == 1 && p_.b.row_stride >= 0 &&
                         p_.b.row_stride <= columns_ + columns_ / 8;
      if (dense)
        all = {p_.b.data + chunk * p_.chunk * p_.b.row_stride,
               length * p_.b.row_stride * std::int64_t{sizeof(From)}};
    }
    if (all.from == nullptr || all.bytes > fetched_bytes) return {};
    const std::int64_t panels = divided_up(columns_, p_.body.columns);
    const std::int64_t skipped = all.bytes * j / panels;
    return {static_cast<const char*>(all.from) + skipped, all.bytes * end / panels - skipped};
  }

  Packed* packed_rows(const piece& t, std::int64_t chunk, std::int64_t i) const noexcept {
    const std::int64_t before = t.all_chunks ? chunk * p_.chunk * (t.row_end - t.row_begin) : 0;
    const std::int64_t length = padded(std::min(p_.chunk, depth_ - chunk * p_.chunk));
    const std::int64_t words = p_.body.rows * p_.body.row_words;
    return t.packed_a + (before + (i - t.row_begin) * length) * words;
  }

  // Columns of A that are contiguous are read for all panels at a time: a few, because those that
  // lie far apart share cache sets.
  void pack_task(const piece& t, std::int64_t chunk) const {
    const std::int64_t length = std::min(p_.chunk, depth_ - chunk * p_.chunk);
    const std::int64_t step = p_.a.row_stride == 1 ? 8 : length;
    for (std::int64_t k = 0; k < length; k += step) {
      for (std::int64_t i = t.row_begin; i < t.row_end; ++i) {
        pack_rows(chunk, k, std::min(length, k + step), first_row(i),
                  first_row(i + 1) - first_row(i), packed_rows(t, chunk, i));
      }
    }
  }

  // One chunk of an inner block: its panels of B stay in the second cache, a panel of A in the
  // first.
  void run_inner(const piece& work, std::int64_t chunk, std::int64_t begin,
                 std::int64_t end) const {
    const std::int64_t tile_columns = p_.body.columns;
    const std::int64_t top = first_row(work.row_begin), left = begin * tile_columns;
    const std::int64_t k = chunk * p_.chunk;
    tile<Packed, Sum> t;
    t.depth = std::min(p_.chunk, depth_ - k);
    t.first = chunk == 0;
    t.last = chunk == chunks_ - 1;
    const std::int64_t tiles = end - begin;
    const bool streamed = streams();
    t.next_b = work.next.shared(tiles * (work.row_end - work.row_begin), t.depth);
    for (std::int64_t i = work.row_begin; i < work.row_end; ++i) {
      const std::int64_t row = first_row(i);
      t.rows = static_cast<int>(first_row(i + 1) - row);
      set_a(t, row, k, work.packed_a == nullptr ? nullptr : packed_rows(work, chunk, i));
      if (work.packed_a != nullptr) {
        // The panel of A that comes next lies behind this one, of the next chunk too.
        const std::int64_t words = padded(t.depth) * p_.body.rows * p_.body.row_words;
        t.next_a =
            stretch{t.a + words, words * std::int64_t{sizeof(Packed)}}.shared(tiles, t.depth);
      }
      for (std::int64_t j = begin; j < end; ++j) {
        const std::int64_t column = j * tile_columns;
        t.columns = static_cast<int>(std::min(tile_columns, work.block.width - column));
        set_b(t, work.block, chunk, j);
        if constexpr (Output::finishes) {
          t.c_row = (end - begin) * tile_columns;
          t.c = work.sums + (row - top) * t.c_row + (column - left);
          p_.body.multiply(t);
          if (t.last) {
            output_.finish({row, work.block.from + column, t.rows, t.columns}, t.c, t.c_row);
          }
        } else {
          t.c_row = output_.c_row;
          t.c = output_.c + row * t.c_row + work.block.from + column;
          t.streamed = streamed;
          p_.body.multiply(t);
        }
        advance(t.next_a, t.depth);
        advance(t.next_b, t.depth);
      }
    }
  }

  static void advance(upcoming& next, std::int64_t depth) noexcept {
    if (next.from != nullptr) next.from = static_cast<const char*>(next.from) + depth * next.step;
  }

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

  void set_b(tile<Packed, Sum>& t, const column_block& block, std::int64_t chunk,
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

  // A small C and many k, as weight gradients have: chunks run in parallel and are added in order.
  bool splits_chunks() const noexcept {
    const std::int64_t threads = concurrency();
    const std::int64_t tiles = panels_ * divided_up(columns_, p_.body.columns);
    return threads > 1 && chunks_ >= 4 * threads && tiles < 16 * threads && p_.order == nullptr;
  }

  void run_chunks() const {
    static thread_local scratch memory;
    const std::int64_t size = rows_ * columns_;
    const std::int64_t together = std::clamp<std::int64_t>(
        packed_bytes / (size * std::int64_t{sizeof(Sum)}) - 1, concurrency(), chunks_);
    Sum* sums = memory.get<Sum>(static_cast<std::size_t>(size * (together + 1)));
    Sum* parts = sums + size;
    for (std::int64_t done = 0; done < chunks_; done += together) {
      const std::int64_t count = std::min(together, chunks_ - done);
      share(concurrency(), count, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t at = begin; at < end; ++at) {
          const std::int64_t k = (done + at) * p_.chunk;
          const std::int64_t length = std::min(p_.chunk, depth_ - k);
          matrix<const From> a = p_.a, b = p_.b;
          a.data += k * a.column_stride;
          b.data += k * b.row_stride;
          a.columns = b.rows = length;
          product<From, Packed, Sum> part{p_.body, a, b, p_.chunk, nullptr, inline_executor()};
          if (done + at + 1 < chunks_)
            part.next = rows_of_b(done + at + 1, 0, divided_up(columns_, p_.body.columns));
          blocked<From, Packed, Sum, to_memory<Sum>>(part, {parts + at * size, columns_}).run();
        }
      });
      share(concurrency(), rows_, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t at = 0; at < count; ++at) {
          add(sums, parts + at * size, begin * columns_, end * columns_, done + at == 0);
        }
      });
    }
    share(concurrency(), rows_, 1,
          [&](std::int64_t begin, std::int64_t end) { write_sums(sums, begin, end); });
  }

  static void add(Sum* sums, const Sum* part, std::int64_t begin, std::int64_t end,
                  bool first) noexcept {
    if (first) {
      std::copy(part + begin, part + end, sums + begin);
    } else {
      for (std::int64_t i = begin; i < end; ++i) sums[i] += part[i];
    }
  }

  void write_sums(Sum* sums, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t i = begin * columns_; i < end * columns_; ++i) {
      sums[i] = sums[i] != sums[i] ? std::numeric_limits<Sum>::quiet_NaN() : sums[i];
    }
    if constexpr (Output::finishes) {
      output_.finish({begin, 0, end - begin, columns_}, sums + begin * columns_, columns_);
    } else {
      for (std::int64_t i = begin; i < end; ++i) {
        std::copy(sums + i * columns_, sums + (i + 1) * columns_, output_.c + i * output_.c_row);
      }
    }
  }

  const product<From, Packed, Sum>& p_;
  const Output& output_;
  std::int64_t rows_, columns_, depth_, chunks_, panels_;
};

template <class From, class Packed, class Sum, class Output>
void multiply_blocked(const product<From, Packed, Sum>& p, const Output& output) {
  blocked<From, Packed, Sum, Output>(p, output).run();
}

}  // namespace potl::numeric::detail
