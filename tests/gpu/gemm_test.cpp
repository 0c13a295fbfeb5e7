// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <potl/core/error.hpp>
#include <potl/cuda/gemm.hpp>

#include "catch.hpp"
#include "device_memory.hpp"
#include "gemm_cases.hpp"

using namespace potl;
using numeric::arithmetic;

namespace {

template <class Element>
numeric::matrix<Element> at(Element* data, const numeric::matrix<Element>& like,
                            const Element* from) {
  numeric::matrix<Element> out = like;
  out.data = data + (like.data - from);
  return out;
}

/// How many floats have other bits.
std::size_t differing(const std::vector<float>& found, const std::vector<float>& wanted) {
  std::size_t out = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    out += std::bit_cast<std::uint32_t>(found[i]) != std::bit_cast<std::uint32_t>(wanted[i]);
  }
  return out;
}

/// How many elements differ from the CPU's, in C and in the memory around it.
std::size_t differences(arithmetic mode, gemm_cases::one_case<float>& one) {
  const test::device_memory<float> a(one.a.memory), b(one.b.memory), c(one.c.memory);
  cuda::gemm(mode, {1, 0, 0, 0}, at(a.data(), one.a.view(), one.a.memory.data()),
             at(b.data(), one.b.view(), one.b.memory.data()),
             at(c.data(), one.c.view(), one.c.memory.data()), nullptr);
  const std::vector<float> found = c.read();
  numeric::gemm(mode, one.a.view(), one.b.view(), one.c.view(), numeric::inline_executor());
  return differing(found, one.c.memory);
}

TEST_CASE("a product has the CPU's bits on a device", "[gpu][small]") {
  const arithmetic mode =
      GENERATE(arithmetic::ord32, arithmetic::xint24, arithmetic::xint16, arithmetic::cr32);
  for (std::uint64_t number = 0; number < 600; ++number) {
    auto one = gemm_cases::draw<float>(number);
    INFO("case " << number << " in " << to_string(mode));
    REQUIRE(differences(mode, one) == 0);
  }
}

/// Memory of the driver, counted.
class counted final : public cuda::stream_allocator {
 public:
  void* take(std::size_t bytes) const override {
    void* memory = nullptr;
    test::require(cudaMalloc(&memory, bytes));
    ++taken;
    return memory;
  }
  void give_back(void* memory) const noexcept override {
    if (cudaDeviceSynchronize() == cudaSuccess && cudaFree(memory) == cudaSuccess) ++returned;
  }
  mutable int taken = 0, returned = 0;
};

TEST_CASE("a product uses its queue's memory, and gives it back", "[gpu][small]") {
  const counted memory;
  const std::vector<float> ones(64 * 64, 1);
  const test::device_memory<float> a(ones), b(ones), c(ones);
  cuda::gemm(arithmetic::xint24, {1, 0, 0, 0}, numeric::row_major<const float>(a.data(), 64, 64),
             numeric::row_major<const float>(b.data(), 64, 64),
             numeric::row_major(c.data(), 64, 64), {nullptr, &memory});
  CHECK(c.read() == std::vector<float>(64 * 64, 64));
  CHECK(memory.taken > 0);
  CHECK(memory.returned == memory.taken);
}

TEST_CASE("sums of the largest integers do not overflow on a device", "[gpu]") {
  // In one chunk, and in two.
  const std::int64_t depth = GENERATE(16384, 16385), size = 512;
  const std::vector<float> all(static_cast<std::size_t>(size * depth), 0x1.fffffep-1F);
  const test::device_memory<float> a(all), b(all);
  const test::device_memory<float> c(std::vector<float>(static_cast<std::size_t>(size * size)));
  cuda::gemm(arithmetic::xint24, {1, 0, 0, 0},
             numeric::row_major<const float>(a.data(), size, depth),
             numeric::row_major<const float>(b.data(), depth, size),
             numeric::row_major(c.data(), size, size), nullptr);
  float expected = 0;
  numeric::gemm(arithmetic::xint24, numeric::row_major<const float>(all.data(), 1, depth),
                numeric::row_major<const float>(all.data(), depth, 1),
                numeric::row_major(&expected, 1, 1), numeric::inline_executor());
  const std::vector<float> found = c.read();
  CHECK(std::count(found.begin(), found.end(), expected) == size * size);
}

TEST_CASE("large and batched products have the CPU's bits on a device", "[gpu]") {
  const arithmetic mode =
      GENERATE(arithmetic::ord32, arithmetic::xint24, arithmetic::xint16, arithmetic::cr32);
  const std::int64_t depth = GENERATE(2100, 20000);
  const auto pool = numeric::make_thread_pool(8);
  gemm_cases::source from(1);
  const std::int64_t count = depth > 10000 ? 1 : 3, rows = 517, columns = 1030;
  const auto size = [](std::int64_t elements) { return static_cast<std::size_t>(elements); };
  std::vector<float> a(size(count * rows * depth)), b(size(depth * columns));
  std::vector<float> c(size(count * rows * columns));
  for (float& x : a) x = static_cast<float>(2 * from.unit() - 1);
  for (float& x : b) x = static_cast<float>(2 * from.unit() - 1);
  const numeric::gemm_batch batch{count, rows * depth, 0, rows * columns};
  const test::device_memory<float> a_there(a), b_there(b), c_there(c);
  cuda::gemm(mode, batch, numeric::row_major<const float>(a_there.data(), rows, depth),
             numeric::row_major<const float>(b_there.data(), depth, columns),
             numeric::row_major(c_there.data(), rows, columns), nullptr);
  numeric::gemm(mode, batch, numeric::row_major<const float>(a.data(), rows, depth),
                numeric::row_major<const float>(b.data(), depth, columns),
                numeric::row_major(c.data(), rows, columns), *pool);
  REQUIRE(differing(c_there.read(), c) == 0);
}

TEST_CASE("products of whole tiles have the CPU's bits on a device", "[gpu]") {
  const arithmetic mode =
      GENERATE(arithmetic::ord32, arithmetic::xint24, arithmetic::xint16, arithmetic::cr32);
  // Where large tiles fill the device, where medium ones do, and where chunks have to.
  const std::int64_t rows = GENERATE(2048, 1536, 512);
  const unsigned way = GENERATE(0U, 1U, 2U, 3U);
  const std::int64_t columns = rows == 1536 ? 2048 : 1792, depth = 1032;
  const auto pool = numeric::make_thread_pool(16);
  gemm_cases::source from(way);
  std::vector<float> a(static_cast<std::size_t>(rows * depth));
  std::vector<float> b(static_cast<std::size_t>(depth * columns));
  std::vector<float> c(static_cast<std::size_t>(rows * columns));
  for (float& x : a) x = static_cast<float>(2 * from.unit() - 1);
  for (float& x : b) x = static_cast<float>(2 * from.unit() - 1);
  const auto lying = [](const float* data, std::int64_t high, std::int64_t wide, bool transposed) {
    return numeric::matrix<const float>{data, high, wide, transposed ? 1 : wide,
                                        transposed ? high : 1};
  };
  const test::device_memory<float> a_there(a), b_there(b), c_there(c);
  const auto left = [&](const float* data) { return lying(data, rows, depth, (way & 1) != 0); };
  const auto right = [&](const float* data) { return lying(data, depth, columns, (way & 2) != 0); };
  cuda::gemm(mode, {1, 0, 0, 0}, left(a_there.data()), right(b_there.data()),
             numeric::row_major(c_there.data(), rows, columns), nullptr);
  numeric::gemm(mode, left(a.data()), right(b.data()), numeric::row_major(c.data(), rows, columns),
                *pool);
  INFO(to_string(mode) << ", " << rows << " rows, way " << way);
  CHECK(differing(c_there.read(), c) == 0);
}

TEST_CASE("a product in log64 has the CPU's bits away from ties, and its ties", "[gpu]") {
  const int bits = GENERATE(32, 26);
  const auto pool = numeric::make_thread_pool(8);
  gemm_cases::source from(2);
  constexpr std::int64_t rows = 300, columns = 700, depth = 3000;
  std::vector<float> a(rows * depth), b(depth * columns), c(rows * columns);
  for (float& x : a) x = static_cast<float>(2 * from.unit() - 1);
  for (float& x : b) x = static_cast<float>(2 * from.unit() - 1);
  const test::device_memory<float> a_there(a), b_there(b), c_there(c);
  const auto found =
      cuda::gemm_log64({1, 0, 0, 0}, numeric::row_major<const float>(a_there.data(), rows, depth),
                       numeric::row_major<const float>(b_there.data(), depth, columns),
                       numeric::row_major(c_there.data(), rows, columns), bits, nullptr);
  const auto wanted =
      numeric::gemm_log64(numeric::row_major<const float>(a.data(), rows, depth),
                          numeric::row_major<const float>(b.data(), depth, columns),
                          numeric::row_major(c.data(), rows, columns), {bits, 0}, *pool);
  std::vector<float> there = c_there.read();
  std::size_t both = 0;
  for (const auto& one : wanted) {
    there[one.index] = c[one.index];
    both += std::any_of(found.begin(), found.end(),
                        [&](const auto& other) { return other.index == one.index; });
  }
  // An element at the end of its window may be near a tie on one side alone.
  for (const auto& one : found) there[one.index] = c[one.index];
  CHECK(differing(there, c) == 0);
  CHECK(both + 2 >= wanted.size());
  CHECK(found.size() <= wanted.size() + 2);
}

TEST_CASE("what a device cannot multiply is refused", "[gpu][small]") {
  const numeric::matrix<const float> a{nullptr, 2, 3, 3, 1}, b{nullptr, 4, 2, 2, 1};
  const numeric::matrix<float> c{nullptr, 2, 2, 2, 1};
  CHECK_THROWS_AS(cuda::gemm(arithmetic::ord32, {1, 0, 0, 0}, a, b, c, nullptr), exception);
  CHECK_THROWS_AS(cuda::gemm(arithmetic::log64, {1, 0, 0, 0}, a, a.transposed(), c, nullptr),
                  exception);
  CHECK_THROWS_AS(cuda::gemm_log64({1, 0, 0, 0}, a, a.transposed(), c, 22, nullptr), exception);
}

}  // namespace
