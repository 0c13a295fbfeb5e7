// SPDX-License-Identifier: Apache-2.0
// How a product is cut: into column blocks of B that are copied into panels once, tasks of some
// rows and columns of C that run in parallel, chunks of k, and tiles. Neither the cut nor the order
// of tasks touches the sums: each element of C is the sum of its chunks in ascending order, and
// each chunk one chain, as docs/reference/gemm.md defines them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "numeric/gemm/added_tasks.hpp"
#include "numeric/gemm/finished_tasks.hpp"

namespace potl::numeric::detail {

template <class From, class Packed, class Sum, class Output>
class blocked {
 public:
  blocked(const product<From, Packed, Sum>& p, const Output& output)
      : p_(p), output_(output), cut_(p), tasks_(p, cut_, output) {}

  /// Precondition: no extent is 0.
  void run() const {
    if constexpr (std::is_same_v<Packed, Sum>) {
      if (splits_chunks()) return run_chunks();
    }
    const copying how = copying_b();
    // So that the panels of a column block stay in the outer caches.
    std::int64_t width = cut_.columns();
    if (how == copying::first) {
      const std::int64_t fitting = packed_bytes / (cut_.padded(cut_.depth()) * cut_.column_bytes());
      width = std::clamp(fitting / p_.body.columns, std::int64_t{1}, most_panels) * p_.body.columns;
      width = std::min(width, cut_.column_panels() * p_.body.columns);
    }
    for (std::int64_t from = 0; from < cut_.columns(); from += width) {
      run_columns(from, std::min(width, cut_.columns() - from), how);
    }
  }

 private:
  static constexpr std::int64_t packed_bytes = std::int64_t{16} << 20;
  static constexpr std::int64_t most_panels = 256;
  static constexpr std::int64_t packed_together = 8;
  // Few rows: what they take of the second cache, beside late panels of B.
  static constexpr std::int64_t few_rows_bytes = std::int64_t{1} << 20;
  static constexpr std::int64_t late_columns = 128;  // of each thread

  using tasks = std::conditional_t<Output::finishes, finished_tasks<From, Packed, Sum, Output>,
                                   added_tasks<From, Packed, Sum>>;

  // Panels of B: none, B is read where it lies; of all of a column block before tasks begin; or of
  // as much as a task multiplies next, where all rows of C are one task.
  enum class copying { none, first, late };

  copying copying_b() const noexcept {
    if (!cut_.must_pack_b()) return copying::none;
    const std::int64_t rows = cut_.row_panels() * p_.body.rows;
    const std::int64_t length = Output::finishes ? cut_.padded(cut_.depth()) : cut_.longest();
    const bool few = rows * length * cut_.row_bytes() <= few_rows_bytes;
    const bool wide = cut_.columns() >= late_columns * cut_.concurrency();
    return few && wide ? copying::late : copying::first;
  }

  void run_columns(std::int64_t from, std::int64_t width, copying how) const {
    const std::int64_t threads = cut_.concurrency();
    column_block<Packed> block{from, width, divided_up(width, p_.body.columns)};
    if (how == copying::first) {
      static thread_local scratch memory;
      block.packed = memory.get<Packed>(cut_.panel_words(block.panels, cut_.padded(cut_.depth())));
      const std::int64_t groups = divided_up(block.panels, packed_together);
      share(threads, cut_.chunks() * groups, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t at = begin; at < end; ++at) {
          const std::int64_t first = at % groups * packed_together;
          cut_.pack_columns(block, at / groups, first,
                            std::min(block.panels, first + packed_together));
        }
      });
    }
    // Tasks of whole row panels; columns are cut too where there are few rows.
    const std::int64_t panels = cut_.row_panels();
    std::int64_t wanted = threads == 1 ? 1 : 3 * threads;
    // Each of them copies A.
    if (how == copying::late) wanted = std::clamp(cut_.columns() / 512, threads, wanted);
    std::int64_t row_tasks = std::max(wanted, divided_up(panels, tasks_.task_panels()));
    row_tasks = std::min(panels, divided_up(row_tasks, threads) * threads);
    if (how == copying::late) row_tasks = 1;
    const std::int64_t column_tasks = std::clamp(wanted / row_tasks, std::int64_t{1}, block.panels);
    share(threads, row_tasks * column_tasks, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t i = task / column_tasks, j = task % column_tasks;
        tasks_.run({block, how == copying::late, panels * i / row_tasks,
                    panels * (i + 1) / row_tasks, block.panels * j / column_tasks,
                    block.panels * (j + 1) / column_tasks});
      }
    });
  }

  // Calls body(begin, end) for parts of [0, count).
  template <class Body>
  void share(std::int64_t threads, std::int64_t count, const Body& body) const {
    const std::int64_t parts = std::min(count, 4 * threads);
    if (threads == 1 || parts < 2) return body(0, count);
    p_.threads.run(static_cast<std::size_t>(parts), [&](std::size_t part) {
      const auto at = static_cast<std::int64_t>(part);
      body(count * at / parts, count * (at + 1) / parts);
    });
  }

  // A small C and many k, as weight gradients have: chunks run in parallel and are added in order.
  bool splits_chunks() const noexcept {
    const std::int64_t threads = cut_.concurrency();
    const std::int64_t tiles = cut_.row_panels() * cut_.column_panels();
    return threads > 1 && cut_.chunks() >= 4 * threads && tiles < 16 * threads &&
           p_.order == nullptr;
  }

  void run_chunks() const {
    static thread_local scratch memory;
    const std::int64_t columns = cut_.columns(), size = cut_.rows() * columns;
    const std::int64_t chunks = cut_.chunks(), threads = cut_.concurrency();
    const std::int64_t together = std::clamp<std::int64_t>(
        packed_bytes / (size * std::int64_t{sizeof(Sum)}) - 1, threads, chunks);
    Sum* sums = memory.get<Sum>(static_cast<std::size_t>(size * (together + 1)));
    Sum* parts = sums + size;
    for (std::int64_t done = 0; done < chunks; done += together) {
      const std::int64_t count = std::min(together, chunks - done);
      share(threads, count, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t at = begin; at < end; ++at) {
          const std::int64_t k = (done + at) * p_.chunk;
          matrix<const From> a = p_.a, b = p_.b;
          a.data += k * a.column_stride;
          b.data += k * b.row_stride;
          a.columns = b.rows = cut_.length_of(done + at);
          product<From, Packed, Sum> part{p_.body, a, b, p_.chunk, nullptr, inline_executor()};
          if (done + at + 1 < chunks)
            part.next = cut_.rows_of_b(done + at + 1, 0, cut_.column_panels());
          blocked<From, Packed, Sum, to_memory<Sum>>(part, {parts + at * size, columns}).run();
        }
      });
      share(threads, cut_.rows(), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t at = 0; at < count; ++at) {
          add(sums, parts + at * size, begin * columns, end * columns, done + at == 0);
        }
      });
    }
    share(threads, cut_.rows(),
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
    const std::int64_t columns = cut_.columns();
    for (std::int64_t i = begin * columns; i < end * columns; ++i) {
      sums[i] = sums[i] != sums[i] ? std::numeric_limits<Sum>::quiet_NaN() : sums[i];
    }
    if constexpr (Output::finishes) {
      output_.finish({begin, 0, end - begin, columns}, sums + begin * columns, columns);
    } else {
      for (std::int64_t i = begin; i < end; ++i) {
        std::copy(sums + i * columns, sums + (i + 1) * columns, output_.c + i * output_.c_row);
      }
    }
  }

  const product<From, Packed, Sum>& p_;
  const Output& output_;
  panels<From, Packed, Sum> cut_;
  tasks tasks_;
};

template <class From, class Packed, class Sum, class Output>
void multiply_blocked(const product<From, Packed, Sum>& p, const Output& output) {
  blocked<From, Packed, Sum, Output>(p, output).run();
}

}  // namespace potl::numeric::detail
