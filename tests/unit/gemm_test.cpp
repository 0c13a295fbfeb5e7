// SPDX-License-Identifier: Apache-2.0
// Every mode equals its definition on drawn shapes, layouts and hostile operands, at every level of
// the instruction set and with any number of threads; POTL_FULL=1 draws 2,000 shapes.
#include <string>

#include <potl/core/error.hpp>
#include <potl/crypto/hasher.hpp>
#include <potl/numeric/detail/isa.hpp>
#include <potl/numeric/gemm.hpp>

#include "catch.hpp"
#include "gemm_cases.hpp"
#include "gemm_definition.hpp"
#include "long_tests.hpp"
#include "numeric_levels.hpp"

using namespace potl::numeric;
using potl::test::at_each_level;
using potl::test::is_full;

namespace {

std::uint64_t case_count() { return is_full() ? 2000 : 160; }

template <class Element>
std::string bits_of(const std::vector<Element>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Element)};
}

// Runs every case at every level; threads vary with the case. Returns one digest of all results.
template <class Element, class Define, class Multiply>
std::string digest_of_cases(const Define& define, const Multiply& multiply) {
  static constexpr std::size_t thread_counts[] = {1, 2, 3, 4, 7, 8};
  std::vector<std::unique_ptr<executor>> pools;
  for (const std::size_t threads : thread_counts) pools.push_back(make_thread_pool(threads));
  potl::sha256 hash;
  for (std::uint64_t number = 0; number < case_count(); ++number) {
    auto one = gemm_cases::draw<Element>(number);
    const std::string wanted = bits_of(gemm_cases::expected(one, define));
    at_each_level([&](isa level) {
      auto result = one.c;
      const auto& pool = *pools[(number + static_cast<std::size_t>(level)) % pools.size()];
      const guarded_end at = guarded_ends[number % 2];
      const gemm_cases::guarded_matrix a(one.a, at), b(one.b, at), c(one.c, at);
      multiply(a.view(), b.view(), c.view(), pool);
      c.copy_to(result);
      INFO("case " << number << " at " << to_string(level) << " with " << pool.concurrency()
                   << " threads: " << one.extent.rows << " x " << one.extent.columns << " x "
                   << one.extent.depth << ", kind " << static_cast<int>(one.what));
      REQUIRE((bits_of(result.memory) == wanted));
    });
    hash.update({reinterpret_cast<const std::uint8_t*>(wanted.data()), wanted.size()});
  }
  return hash.finish().hex();
}

std::string digest_of_mode(arithmetic mode,
                           float (*define)(const std::vector<float>&, const std::vector<float>&)) {
  return digest_of_cases<float>(define, [mode](auto a, auto b, auto c, const executor& threads) {
    gemm(mode, a, b, c, threads);
  });
}

using row = std::vector<float>;

}  // namespace

TEST_CASE("ord32 is the chain of its definition", "[gemm]") {
  const auto digest = digest_of_mode(arithmetic::ord32, gemm_definition::ordered<float>);
  CHECK(digest == (is_full() ? "73f3a92bd68f7f435ab0879dfeb8b5c71aab04b242cf3fdad17d543af34c24ce"
                             : "afd4d96368c3eedc6420a2b495d9a783246f0160c71ce1a0cb754407ef4b29db"));
}

TEST_CASE("ord64 is the chain of its definition", "[gemm]") {
  const auto digest = digest_of_cases<double>(
      gemm_definition::ordered<double>,
      [](auto a, auto b, auto c, const executor& threads) { gemm_ord64(a, b, c, threads); });
  CHECK(digest == (is_full() ? "d63906c116f12e6e128b4ed8d366dc1f8c118bb958f9b07341d87da8b21f111c"
                             : "feac92bcb172c0a252b95f20fef786c6cfc65a0c0e0d18b3e1a8fe4014860350"));
}

TEST_CASE("cr32 is the exact dot product rounded once", "[gemm]") {
  const auto digest = digest_of_mode(arithmetic::cr32, [](const row& a, const row& b) {
    return gemm_definition::rounded(a, b, 32);
  });
  CHECK(digest == (is_full() ? "bae57c90704060d1549023c5604db679620ac9f6ce6370cd10a4357bb2db6014"
                             : "c8f8bd8907701b545b2c658c3ee2b91f88066e7c1f960e36ccbcf07ba049bccf"));
}

TEST_CASE("xint24 is the scaled integer dot product", "[gemm]") {
  const auto digest = digest_of_mode(arithmetic::xint24, [](const row& a, const row& b) {
    return gemm_definition::scaled_integers(a, b, 24);
  });
  CHECK(digest == (is_full() ? "989f7879572869e2833f28ab94155d80491182722b61aee8a53000628e625371"
                             : "ac062e8ca358b42d446450203e2442605ed800f659506e83b87096ea6a48de57"));
}

TEST_CASE("xint16 is the scaled integer dot product", "[gemm]") {
  const auto digest = digest_of_mode(arithmetic::xint16, [](const row& a, const row& b) {
    return gemm_definition::scaled_integers(a, b, 16);
  });
  CHECK(digest == (is_full() ? "d8d220d7a63767cd5ddbff7e42d905602db1c1d8b5de8e8c6055f0a9ae9b6f0b"
                             : "40468ded51ad86714708c8e0da5da1780f5b2fda259f93e935d7f8f13129b38f"));
}

TEST_CASE("integer sums of more terms than 64 bits hold are exact", "[gemm]") {
  constexpr std::int64_t m = 2, n = 3, k = (1 << 17) + 301;
  gemm_cases::source from(6);
  std::vector<float> a(m * k), b(k * n), c(m * n);
  // As large as integers get, all of one sign in the first row.
  for (float& x : a) x = 2.0F - 0x1p-22F * static_cast<float>(1 + from.below(4));
  for (float& x : b) x = 2.0F - 0x1p-22F * static_cast<float>(1 + from.below(4));
  for (std::int64_t i = k; i < m * k; ++i)
    a[static_cast<std::size_t>(i)] *= i % 2 == 0 ? 1.0F : -1.0F;
  at_each_level([&](isa) {
    for (const auto mode : {arithmetic::xint24, arithmetic::xint16}) {
      const auto view = row_major<const float>(a.data(), m, k);
      gemm(mode, view, row_major<const float>(b.data(), k, n), row_major(c.data(), m, n),
           inline_executor());
      for (std::int64_t i = 0; i < m * n; ++i) {
        row left, right;
        for (std::int64_t at = 0; at < k; ++at) {
          left.push_back(view(i / n, at));
          right.push_back(b[static_cast<std::size_t>(at * n + i % n)]);
        }
        const float wanted =
            gemm_definition::scaled_integers(left, right, mode == arithmetic::xint24 ? 24 : 16);
        CHECK(c[static_cast<std::size_t>(i)] == wanted);
      }
    }
  });
}

TEST_CASE("no terms give +0, and an empty C is left alone", "[gemm]") {
  for (const auto mode : {arithmetic::ord32, arithmetic::cr32, arithmetic::xint24}) {
    std::vector<float> c(6, -3.0F);
    gemm(mode, {nullptr, 2, 0, 0, 1}, {nullptr, 0, 3, 3, 1}, row_major(c.data(), 2, 3),
         inline_executor());
    CHECK(bits_of(c) == std::string(24, '\0'));
    gemm(mode, {nullptr, 0, 5, 5, 1}, {nullptr, 5, 0, 0, 1}, {nullptr, 0, 0, 0, 1},
         inline_executor());
  }
}

TEST_CASE("a batch is one product after the other", "[gemm]") {
  constexpr std::int64_t count = 9, m = 5, n = 19, k = 33;
  gemm_cases::source from(5);
  std::vector<float> a(count * m * k), b(count * k * n), c(count * m * n), wanted(count * m * n);
  for (float& x : a) x = gemm_cases::element(gemm_cases::kind::ordinary, 0, from);
  for (float& x : b) x = gemm_cases::element(gemm_cases::kind::ordinary, 0, from);
  const gemm_batch batch{count, m * k, k * n, m * n};
  for (const auto mode : {arithmetic::ord32, arithmetic::cr32, arithmetic::xint24}) {
    for (std::int64_t i = 0; i < count; ++i) {
      gemm(mode, row_major<const float>(a.data() + i * m * k, m, k),
           row_major<const float>(b.data() + i * k * n, k, n),
           row_major(wanted.data() + i * m * n, m, n), inline_executor());
    }
    for (const std::size_t threads : {1U, 3U, 16U}) {
      c.assign(c.size(), 0.0F);
      gemm(mode, batch, row_major<const float>(a.data(), m, k),
           row_major<const float>(b.data(), k, n), row_major(c.data(), m, n),
           *make_thread_pool(threads));
      CHECK(bits_of(c) == bits_of(wanted));
    }
  }
}

TEST_CASE("shapes that do not fit, and log64 without its log, are misuse", "[gemm]") {
  std::vector<float> x(64);
  const auto view = [&](std::int64_t rows, std::int64_t columns) {
    return row_major(x.data(), rows, columns);
  };
  const auto product = [&](arithmetic mode, auto a, auto b, auto c) {
    gemm(mode, a, b, c, inline_executor());
  };
  CHECK_THROWS_AS(product(arithmetic::ord32, view(2, 3), view(2, 3), view(2, 3)), potl::exception);
  CHECK_THROWS_AS(product(arithmetic::ord32, view(2, 3), view(3, 2), view(3, 2)), potl::exception);
  CHECK_THROWS_AS(product(arithmetic::log64, view(2, 3), view(3, 2), view(2, 2)), potl::exception);
  CHECK_THROWS_AS(gemm_log64(view(2, 2), view(2, 2), view(2, 2), {22, 0}, inline_executor()),
                  potl::exception);
}
