// SPDX-License-Identifier: Apache-2.0
// Products in cr32 and log64, run by simulated blocks: cr32 is compared with its definition, and
// log64 with the CPU's results and near ties.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "catch.hpp"
#include "double_layers.hpp"
#include "gemm_cases.hpp"
#include "gemm_definition.hpp"
#include "simulated_device.hpp"

using namespace potl;
using potl::test::simulated_device;

namespace {

std::size_t different(const std::vector<float>& a, const std::vector<float>& b) {
  std::size_t out = a.size() != b.size();
  for (std::size_t i = 0; out == 0 && i < a.size(); ++i) {
    out += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]);
  }
  return out;
}

/// Whether both have the same elements near ties. Their sums are of different orders.
bool agree(const std::vector<numeric::near_tie>& here,
           const std::vector<numeric::near_tie>& there) {
  return std::equal(here.begin(), here.end(), there.begin(), there.end(),
                    [](const numeric::near_tie& a, const numeric::near_tie& b) {
                      return a.index == b.index && a.window == b.window &&
                             std::fabs(a.value - b.value) <= a.window;
                    });
}

std::uint64_t cases(std::uint64_t quick, std::uint64_t full) {
  const char* value = std::getenv("POTL_FULL");
  return value != nullptr && *value == '1' ? full : quick;
}

TEST_CASE("a simulated product in cr32 is rounded correctly", "[kernels]") {
  for (std::uint64_t number = 0; number < cases(60, 1000); ++number) {
    auto one = gemm_cases::draw<float>(number);
    auto wanted = one.c;
    for (std::int64_t j = 0; j < wanted.columns; ++j) {
      const auto column = gemm_cases::column(one.b, j);
      for (std::int64_t i = 0; i < wanted.rows; ++i) {
        wanted.view()(i, j) = gemm_definition::rounded(gemm_cases::row(one.a, i), column, 32);
      }
    }
    cuda::multiply_rounded(simulated_device(number), 32,
                           {{1, 0, 0, 0}, one.a.view(), one.b.view(), one.c.view()}, nullptr);
    INFO("case " << number);
    REQUIRE(different(wanted.memory, one.c.memory) == 0);
  }
}

TEST_CASE("a simulated product in log64 has the CPU's results and near ties", "[kernels]") {
  const int bits = GENERATE(32, 26);
  for (std::uint64_t number = 0; number < cases(60, 1000); ++number) {
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

TEST_CASE("a list without room changes no result", "[kernels]") {
  // All of its sums are near a tie: 1 + 2^-24, and what double cannot hold.
  constexpr std::int64_t rows = 70, depth = 3;
  const std::vector<float> a = [] {
    std::vector<float> out;
    for (std::int64_t i = 0; i < rows; ++i) out.insert(out.end(), {1.0F, 0x1p-24F, 0x1.5p-80F});
    return out;
  }();
  const std::vector<float> b{1.0F, 1.0F, 1.0F};
  const auto product = [&](std::vector<float>& c) {
    return cuda::products{{1, 0, 0, 0},
                          numeric::row_major<const float>(a.data(), rows, depth),
                          numeric::row_major<const float>(b.data(), depth, 1),
                          numeric::row_major(c.data(), rows, 1)};
  };
  std::vector<float> c(rows), d(rows);
  cuda::multiply_rounded(simulated_device(1), 32, product(c), nullptr);
  CHECK(c == std::vector<float>(rows, 0x1.000002p0F));
  std::vector<numeric::near_tie> ties;
  cuda::multiply_rounded(simulated_device(1), 32, product(d), &ties);
  CHECK(ties.size() == rows);

  // The same by hand, with room for one element of each list.
  const simulated_device device(2);
  const cuda::products p = product(d);
  const cuda::stored_lines left{p.a, 0}, right{cuda::columns_of(p.b), 0};
  const cuda::operand_norms<simulated_device> of_a(device, left, 1), of_b(device, right, 1);
  std::vector<cuda::doubtful_element> doubtful(1);
  std::vector<std::uint64_t> counts(2);
  const cuda::rounded_products<cuda::stored_lines, cuda::stored_lines, cuda::stored_targets> work{
      {left,
       right,
       {p.c, 0},
       of_a.found(),
       of_b.found(),
       {32, numeric::error_factor(depth), false},
       {doubtful.data(), counts.data(), 1},
       {nullptr, counts.data() + 1, 0}}};
  device.run(static_cast<std::uint64_t>(work.tiles()), work);
  CHECK(counts[0] == rows);
  work.elements.settle(doubtful[0]);
  CHECK(d == c);
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
