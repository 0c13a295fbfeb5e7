// SPDX-License-Identifier: Apache-2.0
// The order of additions, revealed from outside. All terms are 1, but for M and -M: what is added
// to M before -M comes is lost, so the result counts the terms that lie outside of the smallest
// subtree that holds both.
#include <algorithm>
#include <vector>

#include <potl/numeric/convolution.hpp>
#include <potl/numeric/gemm.hpp>

#include "catch.hpp"
#include "gemm_cases.hpp"
#include "numeric_levels.hpp"

using namespace potl::numeric;

namespace {

struct pair_of_terms {
  std::int64_t first = 0, second = 0;
};

// Some pairs of terms, those at the borders of chunks among them.
std::vector<pair_of_terms> pairs(std::int64_t terms, std::size_t count) {
  gemm_cases::source from(static_cast<std::uint64_t>(terms));
  std::vector<pair_of_terms> out;
  for (std::int64_t i = 511; i < terms; i += 512) {
    out.push_back({0, i});
    if (i + 1 < terms) out.push_back({i, i + 1});
    if (i + 2 < terms) out.push_back({i + 1, i + 2});
  }
  while (out.size() < count) {
    const std::int64_t a = from.below(terms), b = from.below(terms);
    if (a != b) out.push_back({std::min(a, b), std::max(a, b)});
  }
  return out;
}

// docs/reference/gemm.md: chunks of 512, a chain in each; then the sums of the chunks, in order.
std::int64_t outside(std::int64_t terms, const pair_of_terms& pair) {
  const std::int64_t chunk = pair.second / 512;
  if (pair.first / 512 == chunk) return terms - (pair.second % 512 + 1);
  return terms - std::min(terms, (chunk + 1) * 512);
}

template <class Value>
std::vector<Value> masks(std::int64_t terms, const std::vector<pair_of_terms>& all, Value large) {
  std::vector<Value> out(all.size() * static_cast<std::size_t>(terms), Value{1});
  for (std::size_t i = 0; i < all.size(); ++i) {
    Value* row = out.data() + i * static_cast<std::size_t>(terms);
    row[all[i].first] = large;
    row[all[i].second] = -large;
  }
  return out;
}

template <class Value, class Multiply>
void check_tree(std::int64_t terms, std::int64_t columns, Value large, const Multiply& multiply) {
  const auto all = pairs(terms, 120);
  const auto a = masks(terms, all, large);
  const auto rows = static_cast<std::int64_t>(all.size());
  const std::vector<Value> b(static_cast<std::size_t>(terms * columns), Value{1});
  for (const std::size_t threads : {1U, 4U}) {
    const auto pool = make_thread_pool(threads);
    potl::test::at_each_level([&](isa level) {
      std::vector<Value> c(static_cast<std::size_t>(rows * columns));
      multiply(row_major<const Value>(a.data(), rows, terms),
               row_major<const Value>(b.data(), terms, columns), row_major(c.data(), rows, columns),
               *pool);
      for (std::size_t i = 0; i < c.size(); ++i) {
        const pair_of_terms& pair = all[i / static_cast<std::size_t>(columns)];
        INFO("terms " << pair.first << " and " << pair.second << " of " << terms << ", "
                      << to_string(level) << ", threads " << threads);
        REQUIRE(c[i] == static_cast<Value>(outside(terms, pair)));
      }
    });
  }
}

}  // namespace

TEST_CASE("masks reveal the documented tree of ord32 and ord64", "[gemm]") {
  for (const std::int64_t terms : {2, 37, 512, 513, 1300, 4099}) {
    for (const std::int64_t columns : {1, 40}) {
      check_tree<float>(terms, columns, 0x1p60F, [](auto a, auto b, auto c, const executor& pool) {
        gemm(arithmetic::ord32, a, b, c, pool);
      });
      check_tree<double>(terms, columns, 0x1p100, [](auto a, auto b, auto c, const executor& pool) {
        gemm_ord64(a, b, c, pool);
      });
    }
  }
}

TEST_CASE("masks reveal the documented tree of convolutions", "[convolution]") {
  // Forward: 60 channels of 3 x 3. Weights: 5 images of 17 x 17, the output of 3 x 3 without
  // padding.
  const auto all = pairs(540, 80);
  const auto w = masks(std::int64_t{540}, all, 0x1p60F);
  convolution g{2,         60,          static_cast<std::int64_t>(all.size()),
                1,         {1, 19, 19}, {1, 3, 3},
                {1, 1, 1}, {0, 0, 0},   {1, 1, 1}};
  const auto spots = pairs(5 * 289, 80);
  const auto by_channel = masks(std::int64_t{5 * 289}, spots, 0x1p60F);
  convolution h = g;
  h.batch = 5;
  h.in_channels = 6;
  h.out_channels = static_cast<std::int64_t>(spots.size());
  std::vector<float> dy(
      by_channel.size());  // from (channel, image, place) to (image, channel, place)
  for (std::size_t c = 0; c < spots.size(); ++c) {
    for (std::size_t n = 0; n < 5; ++n) {
      std::copy_n(by_channel.data() + (c * 5 + n) * 289, 289,
                  dy.data() + (n * spots.size() + c) * 289);
    }
  }
  const std::vector<float> ones(2 * 60 * 19 * 19, 1.0F);
  const auto pool = make_thread_pool(3);
  potl::test::at_each_level([&](isa level) {
    INFO(to_string(level));
    std::vector<float> y(2 * all.size() * 289), dw(spots.size() * 54);
    convolve(arithmetic::ord32, g, ones.data(), w.data(), y.data(), *pool);
    for (std::size_t i = 0; i < y.size(); ++i) {
      REQUIRE(y[i] == static_cast<float>(outside(540, all[i / 289 % all.size()])));
    }
    convolve_weight_gradient(arithmetic::ord32, h, ones.data(), dy.data(), dw.data(), *pool);
    for (std::size_t i = 0; i < dw.size(); ++i) {
      REQUIRE(dw[i] == static_cast<float>(outside(5 * 289, spots[i / 54])));
    }
  });
}
