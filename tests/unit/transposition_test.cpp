// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <span>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/transposition.hpp>

#include "catch.hpp"

using namespace potl::numeric;

namespace {

template <class Element>
void turn_and_compare() {
  const auto pool = make_thread_pool(3);
  for (const std::size_t height : {1U, 3U, 8U, 11U, 16U, 33U, 400U})
    for (const std::size_t width : {1U, 4U, 15U, 16U, 17U, 32U, 250U}) {
      INFO(height << " x " << width << ", bytes: " << sizeof(Element));
      constexpr std::size_t batch = 2;
      const std::size_t size = height * width;
      std::vector<Element> x(batch * size), out(batch * size), want(batch * size);
      // Of 4 bytes also the bits of NaNs that floating-point moves may change.
      std::iota(x.begin(), x.end(), static_cast<Element>(0x7f7fff00));
      for (std::size_t i = 0; i < x.size(); ++i)
        want[i / size * size + i % width * height + i % size / width] = x[i];
      transpose(batch, height, width, std::span<const Element>(x), std::span<Element>(out), *pool);
      CHECK((out == want));  // without a list of both
    }
}

}  // namespace

TEST_CASE("matrices of any size are turned", "[transposition]") {
  turn_and_compare<std::uint16_t>();
  turn_and_compare<std::uint32_t>();
  turn_and_compare<std::uint64_t>();
}

TEST_CASE("operands that do not fit the shape are refused", "[transposition]") {
  const std::vector<std::uint32_t> x(6);
  std::vector<std::uint32_t> out(6);
  CHECK_THROWS_AS(transpose(1, 2, 4, std::span<const std::uint32_t>(x),
                            std::span<std::uint32_t>(out), inline_executor()),
                  potl::exception);
}
