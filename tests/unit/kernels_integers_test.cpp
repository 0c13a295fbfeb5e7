// SPDX-License-Identifier: Apache-2.0
// Products in xint24 and xint16, run by simulated blocks and compared with their definition.
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "catch.hpp"
#include "gemm_cases.hpp"
#include "gemm_definition.hpp"
#include "integer_layers.hpp"
#include "long_tests.hpp"
#include "simulated_device.hpp"

using namespace potl;
using potl::test::is_full;
using potl::test::simulated_device;

namespace {

/// How many elements of C, and of the memory around them, are not as the mode has them.
std::size_t differences(std::uint64_t number, int bits) {
  auto one = gemm_cases::draw<float>(number);
  const auto wanted = gemm_cases::expected(one, [bits](const auto& row, const auto& column) {
    return gemm_definition::scaled_integers(row, column, bits);
  });
  cuda::multiply_integers(simulated_device(number), bits,
                          {{1, 0, 0, 0}, one.a.view(), one.b.view(), one.c.view()});
  return gemm_cases::different(wanted, one.c.memory);
}

TEST_CASE("a simulated integer product has the defined bits", "[kernels]") {
  const int bits = GENERATE(24, 16);
  for (std::uint64_t number = 0; number < (is_full() ? 1000 : 60); ++number) {
    INFO("case " << number << ", " << bits << " bits");
    REQUIRE(differences(number, bits) == 0);
  }
}

std::vector<float> drawn(std::size_t count, std::uint64_t seed) {
  gemm_cases::source from(seed);
  std::vector<float> out(count);
  for (float& x : out) x = static_cast<float>(2 * from.unit() - 1);
  return out;
}

TEST_CASE("simulated integer products of a batch lie where they should", "[kernels]") {
  constexpr std::int64_t count = 3, rows = 70, columns = 133, depth = 50;
  const auto a = drawn(count * rows * depth, 1), b = drawn(depth * columns, 2);
  std::vector<float> c(count * rows * columns);
  cuda::multiply_integers(simulated_device(3), 24,
                          {{count, rows * depth, 0, rows * columns},
                           numeric::row_major<const float>(a.data(), rows, depth),
                           numeric::row_major<const float>(b.data(), depth, columns),
                           numeric::row_major(c.data(), rows, columns)});
  for (std::size_t i = 0; i < c.size(); ++i) {
    const std::size_t line = i / columns;
    const std::vector<float> row(a.begin() + static_cast<std::ptrdiff_t>(line * depth),
                                 a.begin() + static_cast<std::ptrdiff_t>((line + 1) * depth));
    std::vector<float> column;
    for (std::size_t k = 0; k < depth; ++k) column.push_back(b[k * columns + i % columns]);
    REQUIRE(c[i] == gemm_definition::scaled_integers(row, column, 24));
  }
}

/// C of one row and one column in a single chunk, by blocks with a body `Tiles`.
template <unsigned Digits, template <unsigned, class> class Tiles>
float in_one_chunk(const std::vector<float>& a, const std::vector<float>& b) {
  const simulated_device device(1);
  const auto depth = static_cast<std::int64_t>(a.size());
  const cuda::stored_lines left{numeric::row_major<const float>(a.data(), 1, depth), 0};
  const cuda::stored_lines right{numeric::row_major<const float>(b.data(), 1, depth), 0};
  using operand = cuda::integer_operand<Digits, simulated_device>;
  using tiles = Tiles<Digits, cuda::stored_targets>;
  const operand rows(device, left, 0, 1, true, cuda::operand_side::left, tiles::rows, tiles::depth);
  const operand columns(device, right, 0, 1, true, tiles::right, tiles::columns, tiles::depth);
  float c = 0;
  const cuda::stored_targets to{numeric::row_major(&c, 1, 1), 0};
  device.run(1, tiles{{to, 0, rows.planes(), columns.planes(), 1, 1, depth, 1, {nullptr, 1, 1}}});
  return c;
}

TEST_CASE("the largest integers of a chunk do not overflow", "[kernels]") {
  const auto depth = static_cast<std::size_t>(cuda::integer_form<3>::chunk);
  const std::vector<float> a(depth, 0x1.fffffep0F);  // 0x7fffff, and 0x7fff
  const float wanted = gemm_definition::scaled_integers(a, a, 24);
  CHECK(in_one_chunk<3, cuda::integer_products>(a, a) == wanted);
  CHECK(in_one_chunk<3, cuda::wide_integer_products>(a, a) == wanted);
  const float of_two_bytes = gemm_definition::scaled_integers(a, a, 16);
  CHECK(in_one_chunk<2, cuda::integer_products>(a, a) == of_two_bytes);
  CHECK(in_one_chunk<2, cuda::wide_integer_products>(a, a) == of_two_bytes);
}

TEST_CASE("an integer sum of several chunks is rounded once", "[kernels]") {
  constexpr std::size_t depth = 1700;
  auto a = drawn(depth, 4), b = drawn(depth, 5);
  const auto product = [&](int bits) {
    float c = 0;
    cuda::multiply_integers(simulated_device(2), bits,
                            {{1, 0, 0, 0},
                             numeric::row_major<const float>(a.data(), 1, depth),
                             numeric::row_major<const float>(b.data(), depth, 1),
                             numeric::row_major(&c, 1, 1)});
    return c;
  };
  CHECK(product(24) == gemm_definition::scaled_integers(a, b, 24));
  CHECK(product(16) == gemm_definition::scaled_integers(a, b, 16));
  a[1300] = std::numeric_limits<float>::infinity();
  CHECK(std::bit_cast<std::uint32_t>(product(24)) == 0x7fc00000U);
}

TEST_CASE("sums of integers beyond 64 bits are rounded once", "[kernels]") {
  using numeric::detail::scaled_back;
  // 2^64 + 2^40 lies between two floats, and the least bit says to which it goes.
  constexpr std::int64_t high = (std::int64_t{1} << 32) + (1 << 8);
  CHECK(scaled_back(high, 0, 1.0) == 0x1p64F);
  CHECK(scaled_back(high, 1, 1.0) == 0x1.000002p64F);
  CHECK(scaled_back(-high, 0, 1.0) == -0x1p64F);
  CHECK(scaled_back(-high - 1, 0xffffffffU, 1.0) == -0x1.000002p64F);
  CHECK(scaled_back(high, 1, 0x1p-200) == 0x1.000002p-136F);
  // Low parts of many chunks, more than 32 bits of them.
  CHECK(scaled_back(0, (std::uint64_t{1} << 40) + 1, 1.0) == 0x1p40F);
  // Rounded as a subnormal, not before: 2^-150 (1 + 2^-30) and its neighbours.
  CHECK(scaled_back((std::int64_t{1} << 30) + 1, 0x1p-180) == 0x1p-149F);
  CHECK(scaled_back(std::int64_t{1} << 30, 0x1p-180) == 0.0F);
  CHECK(scaled_back((std::int64_t{3} << 30) - 1, 0x1p-180) == 0x1p-149F);
  CHECK(scaled_back(std::int64_t{3} << 30, 0x1p-180) == 0x1p-148F);
  CHECK(scaled_back(std::int64_t{1} << 62, 0x1p70) == std::numeric_limits<float>::infinity());
  CHECK_FALSE(std::signbit(scaled_back(std::int64_t{0}, 0x1p-180)));
}

}  // namespace
