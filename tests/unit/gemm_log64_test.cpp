// SPDX-License-Identifier: Apache-2.0
// What log64 reports: rounding away from ties is that of the exact value, whatever the order.
#include <algorithm>
#include <map>

#include <potl/numeric/detail/exact_sum.hpp>
#include <potl/numeric/detail/isa.hpp>
#include <potl/numeric/gemm.hpp>

#include "catch.hpp"
#include "gemm_cases.hpp"
#include "gemm_definition.hpp"

using namespace potl::numeric;

namespace {

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

struct outcome {
  gemm_cases::placed<float> c;
  std::vector<near_tie> ties;
};

outcome multiply(gemm_cases::one_case<float>& one, guarded_end at, const log64_options& options,
                 const executor& threads) {
  const gemm_cases::guarded_matrix a(one.a, at), b(one.b, at), c(one.c, at);
  outcome out{one.c, gemm_log64(a.view(), b.view(), c.view(), options, threads)};
  c.copy_to(out.c);
  return out;
}

}  // namespace

TEST_CASE("log64 rounds the exact value except where it reports a tie", "[gemm]") {
  const auto pool = make_thread_pool(3);
  const isa before = active_isa();
  std::size_t reported = 0;
  for (std::uint64_t number = 0; number < 120; ++number) {
    auto one = gemm_cases::draw<float>(number);
    const bool ties_of_float = one.what == gemm_cases::kind::near_ties;
    const int bits = ties_of_float ? 32 : 23 + static_cast<int>(number % 10);
    const std::int64_t columns = one.c.columns;
    for (const isa level :
         {isa::portable, isa::neon, isa::avx2, isa::avx512, isa::vnni, isa::amx}) {
      cap_isa(level);
      const std::uint64_t order = number % 3 * static_cast<std::uint64_t>(level);
      outcome got = multiply(one, guarded_ends[number / 2 % 2], {bits, order},
                             number % 2 == 0 ? *pool : inline_executor());
      std::map<std::uint64_t, near_tie> ties;
      for (const near_tie& tie : got.ties) ties[tie.index] = tie;
      INFO("case " << number << " at " << to_string(level) << ": " << one.extent.rows << " x "
                   << columns << " x " << one.extent.depth);
      CHECK(std::is_sorted(got.ties.begin(), got.ties.end(),
                           [](const near_tie& x, const near_tie& y) { return x.index < y.index; }));
      reported += ties.size();
      for (std::int64_t i = 0; i < one.c.rows; ++i) {
        const std::vector<float> row = gemm_cases::row(one.a, i);
        for (std::int64_t j = 0; j < columns; ++j) {
          const std::vector<float> column = gemm_cases::column(one.b, j);
          const auto found = ties.find(static_cast<std::uint64_t>(i * columns + j));
          const float y = got.c.view()(i, j);
          if (found == ties.end()) {
            REQUIRE(same_bits(y, gemm_definition::rounded(row, column, bits)));
            continue;
          }
          const near_tie& tie = found->second;
          const dot_operands operands{one.extent.depth, row.data(), 1, column.data(), 1};
          REQUIRE(same_bits(y, round_to(tie.value, bits)));
          REQUIRE(tie.window == exact_window(operands));
          REQUIRE(nearest_tie(tie.value, bits).distance <= tie.window);
          REQUIRE(exact_dot(operands).is_within(tie.value, tie.window / 2));
        }
      }
    }
  }
  cap_isa(before);
  CHECK(reported > 100);
}

TEST_CASE("two orders of log64 differ before rounding, and after it only where both say so",
          "[gemm]") {
  constexpr std::int64_t n = 96, k = 700;
  gemm_cases::source from(3);
  std::vector<float> a(n * k), b(k * n), first(n * n), second(n * n);
  for (float& x : a) x = gemm_cases::element(gemm_cases::kind::ordinary, 0, from);
  for (float& x : b) x = gemm_cases::element(gemm_cases::kind::ordinary, 0, from);
  const auto run = [&](std::vector<float>& c, std::uint64_t order) {
    return gemm_log64(row_major<const float>(a.data(), n, k),
                      row_major<const float>(b.data(), k, n), row_major(c.data(), n, n),
                      {32, order}, inline_executor());
  };
  const auto ties = run(first, 0), others = run(second, 9);
  REQUIRE_FALSE(ties.empty());
  std::size_t moved = 0;
  for (const near_tie& tie : ties) {
    const auto same = std::find_if(others.begin(), others.end(),
                                   [&](const near_tie& one) { return one.index == tie.index; });
    if (same != others.end() && same->value != tie.value) ++moved;
  }
  CHECK(moved > 0);
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (same_bits(first[i], second[i])) continue;
    const auto here = [&](const near_tie& one) { return one.index == i; };
    CHECK(std::any_of(ties.begin(), ties.end(), here));
    CHECK(std::any_of(others.begin(), others.end(), here));
  }
}

TEST_CASE("a batch of log64 counts its indices on", "[gemm]") {
  constexpr std::int64_t count = 6, n = 40, k = 300;
  gemm_cases::source from(4);
  std::vector<float> a(count * n * k), b(count * k * n), c(count * n * n), d(n * n);
  for (float& x : a) x = gemm_cases::element(gemm_cases::kind::ordinary, 0, from);
  for (float& x : b) x = gemm_cases::element(gemm_cases::kind::ordinary, 0, from);
  const auto view = [](const std::vector<float>& m, std::int64_t rows, std::int64_t columns,
                       std::int64_t i) {
    return row_major<const float>(m.data() + i * rows * columns, rows, columns);
  };
  std::vector<near_tie> wanted;
  for (std::int64_t i = 0; i < count; ++i) {
    for (near_tie tie : gemm_log64(view(a, n, k, i), view(b, k, n, i), row_major(d.data(), n, n),
                                   {30, 0}, inline_executor())) {
      tie.index += static_cast<std::uint64_t>(i * n * n);
      wanted.push_back(tie);
    }
  }
  for (const std::size_t threads : {1U, 3U}) {
    const auto ties = gemm_log64({count, n * k, k * n, n * n}, view(a, n, k, 0), view(b, k, n, 0),
                                 row_major(c.data(), n, n), {30, 0}, *make_thread_pool(threads));
    CHECK(ties == wanted);
    CHECK(std::equal(d.begin(), d.end(), c.end() - n * n));
  }
}
