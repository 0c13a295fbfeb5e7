// SPDX-License-Identifier: Apache-2.0
// The bodies of the CUDA kernels, run by simulated blocks and compared bit for bit.
#include <memory>
#include <string>
#include <type_traits>

#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/crypto/merkle.hpp>

#include "catch.hpp"
#include "digest.hpp"
#include "gemm.hpp"
#include "gemm_cases.hpp"
#include "gemm_definition.hpp"
#include "long_tests.hpp"
#include "simulated_block.hpp"
#include "simulated_device.hpp"

using namespace potl;
using potl::test::is_full;
using potl::test::simulated_block;
using potl::test::simulated_device;

namespace {

/// The product that a device would compute, its blocks in any order.
template <class Tile>
void multiply(const cuda::products& p, std::uint64_t order) {
  using block = simulated_block<Tile::threads>;
  const auto blocks = static_cast<std::uint64_t>(p.batch.count * cuda::tiles_down<Tile>(p) *
                                                 cuda::tiles_across<Tile>(p));
  for (std::uint64_t i = 0; i < blocks; ++i) {
    block one(order % 2 == 0 ? i : blocks - 1 - i, order);
    const auto memory = std::make_unique<cuda::gemm_memory<Tile, block>>();
    cuda::ordered_products<Tile, false>{p, {}}(one, *memory);
  }
}

using cuda::large_tile;
using cuda::medium_tile;
using cuda::small_tile;

/// How many elements of C, and of the memory around them, are not as ord32 has them.
template <class Tile>
std::size_t differences(std::uint64_t number) {
  auto one = gemm_cases::draw<float>(number);
  const auto wanted = gemm_cases::expected(one, [](const auto& row, const auto& column) {
    return gemm_definition::ordered(row, column);
  });
  multiply<Tile>({{1, 0, 0, 0}, one.a.view(), one.b.view(), one.c.view()}, number);
  return gemm_cases::different(wanted, one.c.memory);
}

TEST_CASE("a simulated ord32 product has the defined bits", "[kernels]") {
  for (std::uint64_t number = 0; number < (is_full() ? 1500 : 100); ++number) {
    INFO("case " << number);
    REQUIRE(differences<small_tile>(number) == 0);
  }
  for (std::uint64_t number = 5000; number < (is_full() ? 5100 : 5012); ++number) {
    INFO("case " << number);
    REQUIRE(differences<medium_tile>(number) == 0);
    REQUIRE(differences<large_tile>(number) == 0);
  }
}

/// Two tiles by two, whose operands and result lie in either order, or where fours are not aligned.
template <class Tile>
std::size_t differences_of_whole_tiles(std::int64_t depth, unsigned way) {
  constexpr std::int64_t rows = 2 * Tile::rows, columns = 2 * Tile::columns;
  gemm_cases::source from(way);
  const auto drawn = [&](std::int64_t count) {
    std::vector<float> out(static_cast<std::size_t>(count));
    for (float& x : out) x = static_cast<float>(2 * from.unit() - 1);
    return out;
  };
  const std::vector<float> a = drawn(rows * depth + 4), b = drawn(columns * depth + 4);
  std::vector<float> c = drawn(rows * columns + 1), wanted = c;
  const auto lying = [](auto* data, std::int64_t high, std::int64_t wide, bool is_transposed) {
    return numeric::matrix<std::remove_pointer_t<decltype(data)>>{
        data, high, wide, is_transposed ? 1 : wide, is_transposed ? high : 1};
  };
  const bool is_shifted = way % 8 == 7;
  const auto left = lying(a.data() + is_shifted, rows, depth, (way & 1) != 0);
  const auto right = lying(b.data() + is_shifted, depth, columns, (way & 2) != 0);
  const auto at = lying(c.data() + (way / 8 % 2), rows, columns, (way & 4) != 0);
  auto like = at;
  like.data = wanted.data() + (way / 8 % 2);
  multiply<Tile>({{1, 0, 0, 0}, left, right, at}, way);
  numeric::gemm(numeric::arithmetic::ord32, left, right, like, numeric::inline_executor());
  return gemm_cases::different(c, wanted);
}

TEST_CASE("simulated ord32 products of whole tiles have the defined bits", "[kernels]") {
  // In one chunk, and in two, the second of one slice.
  const std::int64_t depth = GENERATE(8, 24, 520);
  for (unsigned way = 0; way < 16; ++way) {
    INFO("depth " << depth << ", way " << way);
    CHECK(differences_of_whole_tiles<small_tile>(depth, way) == 0);
    if (way % 5 == 0) {
      CHECK(differences_of_whole_tiles<medium_tile>(depth, way) == 0);
      CHECK(differences_of_whole_tiles<large_tile>(depth, way) == 0);
    }
  }
}

TEST_CASE("simulated batched products lie where they should", "[kernels]") {
  constexpr std::int64_t count = 3, rows = 70, columns = 5, depth = 520;
  gemm_cases::source from(1);
  std::vector<float> a(count * rows * depth), b(depth * columns), c(count * rows * columns);
  for (float& x : a) x = static_cast<float>(from.unit());
  for (float& x : b) x = static_cast<float>(from.unit());
  const cuda::products p{{count, rows * depth, 0, rows * columns},
                         numeric::row_major<const float>(a.data(), rows, depth),
                         numeric::row_major<const float>(b.data(), depth, columns),
                         numeric::row_major(c.data(), rows, columns)};
  multiply<small_tile>(p, 3);
  for (std::size_t i = 0; i < c.size(); ++i) {
    const std::size_t line = i / columns;
    std::vector<float> row(a.begin() + static_cast<std::ptrdiff_t>(line * depth),
                           a.begin() + static_cast<std::ptrdiff_t>((line + 1) * depth)),
        column;
    for (std::size_t k = 0; k < depth; ++k) column.push_back(b[k * columns + i % columns]);
    REQUIRE(c[i] == gemm_definition::ordered(row, column));
  }
}

/// The content roots that a device would compute.
std::vector<digest> roots(const std::vector<std::vector<std::uint8_t>>& tensors, std::size_t shift,
                          std::uint64_t order) {
  const simulated_device device(order);
  std::vector<cuda::hashed_tensor> table;
  std::uint64_t chunks = 0, most = 0;
  for (const auto& one : tensors) {
    table.push_back({one.data() + shift, one.size() - shift, chunks});
    chunks += content_chunks(one.size() - shift);
    most = std::max(most, content_chunks(one.size() - shift));
  }
  const auto blocks = [](std::uint64_t work) { return work / cuda::hashed_tensors::threads + 1; };
  std::vector<cuda::hash_words> now(chunks), next(chunks);
  const cuda::hashed_tensors all{table.data(), table.size(), chunks};
  device.run(blocks(chunks), cuda::leaf_hashes{all, now.data()});
  for (unsigned level = 0; (most - 1) >> level != 0; ++level) {
    device.run(blocks(chunks), cuda::node_hashes{all, level, now.data(), next.data()});
    std::swap(now, next);
  }
  std::vector<digest> out(table.size());
  cuda::hash_words empty{};
  for (std::size_t i = 0; i < digest::size; ++i) {
    empty.at[i / 4] = empty.at[i / 4] << 8 | empty_root().bytes[i];
  }
  device.run(blocks(table.size()), cuda::root_digests{all, now.data(), empty, out.data()});
  return out;
}

TEST_CASE("simulated content roots are those of the CPU", "[kernels]") {
  gemm_cases::source from(2);
  // Around the ends of words, of SHA-256's blocks and of chunks, and trees of every small shape.
  std::vector<std::vector<std::uint8_t>> tensors;
  for (const unsigned bytes :
       {0U,  1U,  2U,  0U,  3U,   4U,   5U,   53U,  54U,  55U,    56U,    57U,    61U,
        62U, 63U, 64U, 65U, 118U, 119U, 120U, 127U, 128U, 16383U, 16384U, 16385U, 40000U}) {
    tensors.emplace_back(bytes + 4);
  }
  for (std::size_t chunks = 2; chunks < 12; ++chunks) tensors.emplace_back(chunks * 16384 + 4);
  tensors.emplace_back(4);
  for (auto& one : tensors) {
    for (auto& byte : one) byte = static_cast<std::uint8_t>(from.bits());
  }
  // Aligned to words, and not.
  for (const std::size_t shift : {std::size_t{4}, std::size_t{3}}) {
    const auto found = roots(tensors, shift, shift);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      INFO(tensors[i].size() << " bytes, " << shift);
      REQUIRE(found[i] == content_root(bytes_view(tensors[i]).subspan(shift)));
    }
  }
}

TEST_CASE("a simulated block sees races and unset words", "[kernels]") {
  using block = simulated_block<8>;
  block::shared<int, 8> words;
  block one(0);
  const auto put = [&](unsigned place, unsigned thread) { block::write(words, place, 1, thread); };
  const auto get = [&](unsigned place, unsigned thread) {
    return block::read<1>(words, place, thread).at[0];
  };
  CHECK_THROWS(one.each([&](unsigned thread) { get(thread, thread); }));
  one.each([&](unsigned thread) { put(thread, thread); });
  CHECK_NOTHROW(one.each([&](unsigned thread) { get(7 - thread, thread); }));
  CHECK_NOTHROW(one.each([&](unsigned thread) { get(thread, thread), put(thread, thread); }));
  CHECK_THROWS(one.each([&](unsigned thread) { put(0, thread); }));
  CHECK_THROWS(one.each([&](unsigned thread) { get(0, thread), put(thread, thread); }));
  CHECK_THROWS(one.each([&](unsigned thread) { put(thread, thread), get(0, thread); }));
  CHECK_THROWS(block::read<4>(words, 2, 0));
}

}  // namespace
