// SPDX-License-Identifier: Apache-2.0
// Products in cr32 and log64, run by simulated blocks: cr32 is compared with its definition, and
// log64 with the CPU's results and near ties.
#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "double_layers.hpp"
#include "gemm_cases.hpp"
#include "gemm_definition.hpp"
#include "long_tests.hpp"
#include "simulated_device.hpp"

using namespace potl;
using gemm_cases::different;
using potl::test::is_full;
using potl::test::simulated_device;

namespace {

/// Whether both have the same elements near ties. Their sums are of different orders.
bool agree(const std::vector<numeric::near_tie>& here,
           const std::vector<numeric::near_tie>& there) {
  return std::equal(here.begin(), here.end(), there.begin(), there.end(),
                    [](const numeric::near_tie& a, const numeric::near_tie& b) {
                      return a.index == b.index && a.window == b.window &&
                             std::fabs(a.value - b.value) <= a.window;
                    });
}

TEST_CASE("a simulated product in cr32 is rounded correctly", "[kernels]") {
  for (std::uint64_t number = 0; number < (is_full() ? 1000 : 60); ++number) {
    auto one = gemm_cases::draw<float>(number);
    const auto wanted = gemm_cases::expected(one, [](const auto& row, const auto& column) {
      return gemm_definition::rounded(row, column, 32);
    });
    cuda::multiply_rounded(simulated_device(number), 32,
                           {{1, 0, 0, 0}, one.a.view(), one.b.view(), one.c.view()}, nullptr);
    INFO("case " << number);
    REQUIRE(different(wanted, one.c.memory) == 0);
  }
}

TEST_CASE("a simulated product in log64 has the CPU's results and near ties", "[kernels]") {
  const int bits = GENERATE(32, 26);
  for (std::uint64_t number = 0; number < (is_full() ? 1000 : 60); ++number) {
    auto one = gemm_cases::draw<float>(number), there = one;
    const auto wanted = numeric::gemm_log64(one.a.view(), one.b.view(), one.c.view(), {bits, 0},
                                            numeric::inline_executor());
    std::vector<numeric::near_tie> found;
    cuda::multiply_rounded(simulated_device(number), bits,
                           {{1, 0, 0, 0}, there.a.view(), there.b.view(), there.c.view()}, &found);
    INFO("case " << number << ", " << bits << " bits");
    REQUIRE(agree(found, wanted));
    for (const numeric::near_tie& tie : found) {
      const auto i = static_cast<std::int64_t>(tie.index);
      const auto at = [&](auto& of) -> float& {
        return of.view()(i / one.c.columns, i % one.c.columns);
      };
      at(there.c) = at(one.c);
    }
    REQUIRE(different(one.c.memory, there.c.memory) == 0);
  }
}

TEST_CASE("simulated products in log64 log what lies around ties", "[kernels]") {
  const int bits = GENERATE(32, 26);
  constexpr std::int64_t count = 2, rows = 70, columns = 5, depth = 4;
  gemm_cases::source from(3);
  // Half a step beside a number, and a little more or less: in the window or not. Sums in double
  // are the same in any order, so that no element lies now in it and now beside it.
  std::vector<float> a, b;
  for (std::int64_t i = 0; i < count * rows; ++i) {
    const float half = bits == 32 ? 0x1p-24F : 0x1p-18F;
    const double part = std::ldexp(2 * from.unit() - 1, 8 - static_cast<int>(i % 12));
    const auto little = static_cast<float>(std::ldexp(std::round(part), -52));
    a.insert(a.end(), {1.0F, half, little, i % 7 == 0 ? 0.0F : 0x1.8p-90F});
  }
  for (std::int64_t k = 0; k < depth * columns; ++k) b.push_back(k % 3 == 1 ? -1.0F : 1.0F);
  std::vector<float> c(static_cast<std::size_t>(count * rows * columns)), there = c;
  const numeric::gemm_batch batch{count, rows * depth, 0, rows * columns};
  const auto left = numeric::row_major<const float>(a.data(), rows, depth);
  const auto right = numeric::row_major<const float>(b.data(), depth, columns);
  const auto wanted =
      numeric::gemm_log64(batch, left, right, numeric::row_major(c.data(), rows, columns),
                          {bits, 0}, numeric::inline_executor());
  std::vector<numeric::near_tie> found;
  cuda::multiply_rounded(simulated_device(5), bits,
                         {batch, left, right, numeric::row_major(there.data(), rows, columns)},
                         &found);
  CHECK(agree(found, wanted));
  for (const numeric::near_tie& tie : found) there[tie.index] = c[tie.index];
  CHECK(different(c, there) == 0);
  CHECK(found.size() > 50);
  CHECK(found.size() < c.size());
}

TEST_CASE("a simulated sum in double is one of chunks", "[kernels]") {
  // One chain loses 4,093 terms of 0.75 u and ends 2,970 u below a tie, which is beyond the bound
  // of 162 u; the exact sum lies 100 u above.
  constexpr std::int64_t depth = 4096;
  const auto small = static_cast<float>(std::sqrt(0.75 * 0x1p-53));
  std::vector<float> a(depth, small), b(depth, small);
  a[0] = b[0] = 1;
  a[1] = b[1] = 0x1p-12F;
  a[2] = -2970 * 0x1p-30F;
  b[2] = 0x1p-23F;
  float c = 0;
  cuda::multiply_rounded(simulated_device(1), 32,
                         {{1, 0, 0, 0},
                          numeric::row_major<const float>(a.data(), 1, depth),
                          numeric::row_major<const float>(b.data(), depth, 1),
                          numeric::row_major(&c, 1, 1)},
                         nullptr);
  CHECK(c == gemm_definition::rounded(a, b, 32));
  CHECK(c == 0x1.000002p0F);
}

/// Vectors of this many terms, and what their product is.
struct dot {
  std::vector<float> a, b;

  void add(float x, float y) {
    a.push_back(x);
    b.push_back(y);
  }
  float wanted(int bits) const { return gemm_definition::rounded(a, b, bits); }
};

/// Row i of A and column i of B: C[i][i] is their product, and the only doubtful elements.
std::vector<float> settled_by_hand(const std::vector<dot>& dots, int bits, std::uint64_t blocks) {
  const auto count = static_cast<std::int64_t>(dots.size());
  const auto depth = static_cast<std::int64_t>(dots.front().a.size());
  std::vector<float> a, b, c(dots.size() * dots.size(), -77.0F), out;
  std::vector<cuda::doubtful_element> doubtful;
  for (const dot& one : dots) {
    a.insert(a.end(), one.a.begin(), one.a.end());
    b.insert(b.end(), one.b.begin(), one.b.end());
    const auto i = static_cast<std::int64_t>(doubtful.size());
    doubtful.push_back({0, i, i, 0});
  }
  auto found = static_cast<std::uint64_t>(count);
  using lines = cuda::stored_lines;
  const cuda::settled_elements<lines, lines, cuda::stored_targets> work{
      {{numeric::row_major<const float>(a.data(), count, depth), 0},
       {numeric::row_major<const float>(b.data(), count, depth), 0},
       {numeric::row_major(c.data(), count, count), 0},
       {nullptr, 0},
       {nullptr, 0},
       {bits, 0, false},
       {doubtful.data(), &found, found},
       {nullptr, nullptr, 0}},
      1,
      blocks};
  simulated_device(blocks).run(blocks, work);
  for (std::size_t i = 0; i < dots.size(); ++i) {
    out.push_back(c[i * dots.size() + i]);
    c[i * dots.size() + i] = -77;
  }
  CHECK(c == std::vector<float>(c.size(), -77.0F));
  return out;
}

std::vector<float> wanted(const std::vector<dot>& dots, int bits) {
  std::vector<float> out;
  for (const dot& one : dots) out.push_back(one.wanted(bits));
  return out;
}

TEST_CASE("a warp sums products of any number exactly", "[kernels]") {
  const std::int64_t depth = GENERATE(0, 1, 2, 31, 32, 33, 127, 129, 4097);
  const int bits = GENERATE(32, 26, 23);
  gemm_cases::source from(static_cast<std::uint64_t>(depth));
  using gemm_cases::kind;
  std::vector<dot> dots;
  for (const kind what : {kind::ordinary, kind::mountain, kind::cancelling, kind::subnormal,
                          kind::huge_range, kind::signed_zeros, kind::integers, kind::near_ties}) {
    dot one;
    for (std::int64_t k = 0; k < depth; ++k) {
      const float x = gemm_cases::element(what, k, from);
      one.add(x, gemm_cases::element(what, k, from));
    }
    dots.push_back(one);
  }
  INFO(depth << " products, " << bits << " bits");
  CHECK(different(settled_by_hand(dots, bits, 3), wanted(dots, bits)) == 0);
}

TEST_CASE("a warp's exact sum keeps what cancels, and knows the ends of the range", "[kernels]") {
  constexpr float most = std::numeric_limits<float>::max();
  constexpr float least = std::numeric_limits<float>::denorm_min();
  // Where terms stand says which lanes have them.
  const auto dots_of = [&](std::size_t first, std::size_t step) {
    const auto sum = [&](std::initializer_list<std::pair<float, float>> terms) {
      dot out{std::vector<float>(150), std::vector<float>(150)};
      std::size_t at = first;
      for (const auto& [x, y] : terms) {
        out.a[at] = x;
        out.b[at] = y;
        at += step;
      }
      return out;
    };
    return std::vector<dot>{
        // What is left of the largest products is the least one, too small for any grid.
        sum({{most, most}, {least, least}, {-most, most}}),
        sum({{most, most}, {least, 1}, {most, -most}}),
        sum({{least, -1}, {least, least}}),
        // A tie of two subnormals, and beside it.
        sum({{least, 0.5F}}),
        sum({{least, 1.5F}}),
        sum({{least, 0.5F}, {least, least}}),
        sum({{least, -0.5F}, {-least, least}}),
        sum({{least, 0.5F}, {-least, least}}),
        // The tie between the largest number and infinity.
        sum({{most, 1}, {0x1p100F, 0x1p3F}}),
        sum({{most, 1}, {0x1p100F, 0x1p3F}, {-least, least}}),
        sum({{-most, 1}, {-0x1p100F, 0x1p3F}, {least, least}}),
        sum({{-most, 1}, {-0x1p100F, 0x1p3F}, {-least, least}}),
        sum({{most, most}, {most, most}, {most, most}}),
        sum({{most, -most}, {most, -most}, {least, least}}),
        sum({{0x1p127F, 0x1p110F}}),
        sum({{0x1p127F, -0x1p110F}}),
        // 1 + 2^-24 and what is left of much.
        sum({{1, 1}, {0x1p-24F, 1}, {most, most}, {-most, most}}),
        sum({{1, 1}, {0x1p-24F, 1}, {0x1p-140F, 0x1p-140F}}),
        sum({{1, 1}, {0x1p-24F, 1}, {0x1p-140F, -0x1p-140F}}),
        sum({{-1, 1}, {-0x1p-24F, 1}, {0x1p-140F, -0x1p-140F}}),
        sum({{-0.0F, 1}, {0.0F, -1}}),
        sum({{3, 5}, {-5, 3}}),
    };
  };
  const std::size_t step = GENERATE(1U, 31U, 32U);
  const auto dots = dots_of(step % 7, step);
  INFO("terms are " << step << " apart");
  CHECK(different(settled_by_hand(dots, 32, 7), wanted(dots, 32)) == 0);
  CHECK(different(settled_by_hand(dots, 25, 2), wanted(dots, 25)) == 0);
}

TEST_CASE("digits of an exact sum do not overflow", "[kernels]") {
  // More than a lane has room for. Significands are the largest there are, and fill a digit.
  const std::int64_t depth = 1'100'000;
  dot one, other;
  for (std::int64_t k = 0; k < depth; ++k) {
    one.add(0x1.fffffep-1F, 0x1.fffffep-11F);
    other.add(0x1.fffffep20F, -0x1.fffffep16F);
  }
  const std::vector<dot> dots{one, other};
  CHECK(different(settled_by_hand(dots, 32, 1), wanted(dots, 32)) == 0);
}

/// C of a product of row-major matrices, by a device.
std::vector<float> product_of(const simulated_device& device, int bits, const std::vector<float>& a,
                              const std::vector<float>& b, std::int64_t depth,
                              std::vector<numeric::near_tie>* ties,
                              std::uint64_t room = cuda::most_doubtful) {
  const std::int64_t rows = static_cast<std::int64_t>(a.size()) / depth;
  const std::int64_t columns = static_cast<std::int64_t>(b.size()) / depth;
  std::vector<float> c(static_cast<std::size_t>(rows * columns), -77.0F);
  const cuda::products p{{1, 0, 0, 0},
                         numeric::row_major<const float>(a.data(), rows, depth),
                         numeric::row_major<const float>(b.data(), depth, columns),
                         numeric::row_major(c.data(), rows, columns)};
  cuda::multiply_rounded(device, bits, p, ties, room);
  return c;
}

TEST_CASE("simulated products of whole tiles are rounded correctly", "[kernels]") {
  const std::int64_t depth = GENERATE(8, 16, 24, 128, 136, 264);
  const bool is_transposed = GENERATE(false, true);
  constexpr std::int64_t rows = 64, columns = 128;
  gemm_cases::source from(static_cast<std::uint64_t>(depth));
  std::vector<float> a, b, c(rows * columns), wanted(rows * columns);
  for (std::int64_t i = 0; i < rows * depth; ++i)
    a.push_back(gemm_cases::element(gemm_cases::kind::cancelling, i, from));
  for (std::int64_t i = 0; i < columns * depth; ++i)
    b.push_back(gemm_cases::element(gemm_cases::kind::mountain, i, from));
  // Nobody reads behind the last slice.
  const guarded guarded_a(std::span<const float>(a), guarded_end::back);
  const guarded guarded_b(std::span<const float>(b), guarded_end::back);
  const auto matrix = [&](const auto& of, std::int64_t high, std::int64_t wide) {
    return is_transposed ? numeric::matrix<const float>{of.data(), high, wide, 1, high}
                         : numeric::matrix<const float>{of.data(), high, wide, wide, 1};
  };
  const auto left = matrix(guarded_a, rows, depth), right = matrix(guarded_b, depth, columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      dot one;
      for (std::int64_t k = 0; k < depth; ++k) one.add(left(i, k), right(k, j));
      wanted[static_cast<std::size_t>(i * columns + j)] = one.wanted(32);
    }
  }
  cuda::multiply_rounded(simulated_device(3), 32,
                         {{1, 0, 0, 0}, left, right, numeric::row_major(c.data(), rows, columns)},
                         nullptr);
  INFO("depth " << depth);
  CHECK(different(c, wanted) == 0);
}

TEST_CASE("simulated products have infinities and NaN where the definition has them", "[kernels]") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float most = std::numeric_limits<float>::max();
  constexpr std::int64_t depth = 3;
  // Of each kind a row. The fifth is at the tie between the largest number and infinity.
  const std::vector<float> rows{1, 0x1p-24F, 0x1p-100F, infinity, 0, 1,    std::nanf(""),
                                1, 1,        0,         0,        0, most, 0x1p103F,
                                0, most,     0x1p103F,  -0x1p-60F};
  const std::vector<float> columns{1, 1, infinity, 0, 1, 1, 0, -1, 1, -1, 1, -1};
  std::vector<float> found = product_of(simulated_device(4), 32, rows, columns, depth, nullptr);
  for (std::size_t i = 0; i < 6; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      dot one;
      for (std::size_t k = 0; k < 3; ++k) one.add(rows[i * 3 + k], columns[k * 4 + j]);
      INFO("row " << i << ", column " << j);
      CHECK(std::bit_cast<std::uint32_t>(found[i * 4 + j]) ==
            std::bit_cast<std::uint32_t>(one.wanted(32)));
    }
  }
}

/// Rows whose sums are near a tie: 1 + 2^-24, and what double cannot hold.
std::vector<float> rows_near_ties(std::int64_t rows) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < rows; ++i) {
    out.insert(out.end(), {1.0F, 0x1p-24F, i % 3 == 0 ? -0x1.5p-80F : 0x1.5p-80F});
  }
  return out;
}

TEST_CASE("a list without room changes no result", "[kernels]") {
  const std::int64_t rows = GENERATE(70, 1300);
  const std::uint64_t room = GENERATE(1U, 69U, 70U, 4096U);
  const auto a = rows_near_ties(rows);
  const std::vector<float> b{1.0F, 1.0F, 1.0F};
  const auto c = product_of(simulated_device(room), 32, a, b, 3, nullptr, room);
  for (std::size_t i = 0; i < c.size(); ++i) CHECK(c[i] == (i % 3 == 0 ? 1 : 0x1.000002p0F));

  // More near ties than there is room for at first, too.
  std::vector<numeric::near_tie> ties, all;
  const auto d = product_of(simulated_device(room), 32, a, b, 3, &ties, room);
  CHECK(product_of(simulated_device(room + 1), 32, a, b, 3, &all) == d);
  CHECK(ties == all);
  REQUIRE(ties.size() == static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < ties.size(); ++i) CHECK(ties[i].index == i);
}

TEST_CASE("a norm has the CPU's bits wherever its line lies", "[kernels]") {
  const std::int64_t depth = GENERATE(0, 1, 7, 8, 9, 63, 64, 65, 500);
  const bool along_k = GENERATE(false, true);
  constexpr std::int64_t products = 3, lines = 5;
  gemm_cases::source from(static_cast<std::uint64_t>(depth));
  std::vector<float> x;
  for (std::int64_t i = 0; i < products * lines * depth; ++i)
    x.push_back(gemm_cases::element(gemm_cases::kind::huge_range, i, from));
  const std::int64_t line_step = along_k ? depth : 1, k_step = along_k ? 1 : lines;
  const cuda::stored_lines stored{{x.data(), lines, depth, line_step, k_step}, lines * depth};
  const cuda::operand_norms<simulated_device> norms(simulated_device(6), stored, products);
  for (std::int64_t i = 0; i < products * lines; ++i) {
    const float* const line = x.data() + i / lines * lines * depth + i % lines * line_step;
    INFO(depth << " terms, line " << i);
    CHECK(norms.found().at(i / lines, i % lines) == numeric::norm(line, depth, k_step));
  }
}

}  // namespace
