// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/pooling.hpp>

#include "catch.hpp"
#include "guarded_memory.hpp"

using namespace potl::numeric;

namespace {

average_pool sample(bool count_padding, bool adaptive) {
  average_pool of;
  of.planes = 70;
  of.input = {3, 9, 11};
  if (adaptive) {
    of.windows = {adaptive_windows(3, 2), adaptive_windows(9, 4), adaptive_windows(11, 13)};
  } else {
    of.windows = {sliding_windows(3, 2, 2, 1, 0, count_padding),
                  sliding_windows(9, 5, 3, 2, 1, count_padding),
                  sliding_windows(11, 5, 4, 3, 2, count_padding)};
  }
  return of;
}

}  // namespace

TEST_CASE("windows are averaged, and the gradient is shared out, in ascending order", "[pooling]") {
  std::mt19937 random(3);
  const auto draw = [&] {
    return static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 7;
  };
  const int kind = GENERATE(0, 1, 2);
  average_pool of = sample(kind == 0, kind == 2);
  of.channels = GENERATE(1, 2, 21);
  std::vector<float> x(static_cast<std::size_t>(of.planes * 3 * 9 * 11 * of.channels));
  for (float& value : x) value = draw();
  std::vector<float> want, dy, dx(x.size(), 0.0F);
  for (std::int64_t p = 0; p < of.planes; ++p) {
    for (const auto& a : of.windows[0]) {
      for (const auto& b : of.windows[1]) {
        for (const auto& c : of.windows[2]) {
          for (std::int64_t channel = 0; channel < of.channels; ++channel) {
            float sum = 0;
            dy.push_back(draw());
            const auto divisor = static_cast<float>(a.extent * b.extent * c.extent);
            for (std::int64_t i = a.begin; i < a.end; ++i) {
              for (std::int64_t j = b.begin; j < b.end; ++j) {
                for (std::int64_t k = c.begin; k < c.end; ++k) {
                  const auto place = static_cast<std::size_t>(
                      (((p * 3 + i) * 9 + j) * 11 + k) * of.channels + channel);
                  sum = sum + x[place];
                  dx[place] = dx[place] + dy.back() / divisor;
                }
              }
            }
            want.push_back(sum / divisor);
          }
        }
      }
    }
  }
  for (const std::size_t threads : {1U, 3U}) {
    const auto workers = make_thread_pool(threads);
    for (const guarded_end at : guarded_ends) {
      const guarded from(x, at), up(dy, at);
      guarded<float> y(want.size(), at), gradient(x.size(), at);
      pool(of, from.data(), y.data(), *workers);
      pool_gradient(of, up.data(), gradient.data(), *workers);
      REQUIRE(std::ranges::equal(y, want));
      REQUIRE(std::ranges::equal(gradient, dx));
    }
  }
}

TEST_CASE("padding counts in the divisor only when it is asked for", "[pooling]") {
  const auto with = sliding_windows(4, 3, 3, 2, 1, true);
  const auto without = sliding_windows(4, 3, 3, 2, 1, false);
  CHECK(with[0].extent == 3);
  CHECK(without[0].extent == 2);
  CHECK(with[2].begin == 3);
  CHECK(with[2].end == 4);
  CHECK(with[2].extent == 2);  // the window ends with the padding
}

TEST_CASE("a window outside of the input is refused", "[pooling]") {
  average_pool of = sample(true, false);
  of.windows[1][0].end = 10;
  std::vector<float> x(1 << 16), y(1 << 16);
  CHECK_THROWS_AS(pool(of, x.data(), y.data(), inline_executor()), potl::exception);
}
