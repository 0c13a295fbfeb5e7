// SPDX-License-Identifier: Apache-2.0
// Honest products pass, false ones fall at the rate that the mathematics says.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <potl/checks/freivalds.hpp>
#include <potl/core/error.hpp>
#include <potl/crypto/detail/prf.hpp>
#include <potl/numeric/detail/isa.hpp>
#include <potl/numeric/detail/random.hpp>

#include "catch.hpp"
#include "numeric_levels.hpp"

using namespace potl;
using checks::freivalds;
using checks::freivalds_outcome;
using checks::freivalds_result;
using numeric::inline_executor;
using numeric::matrix;
using numeric::row_major;

namespace {

template <class Real>
struct product {
  std::int64_t rows, depth, columns;
  std::vector<Real> a, b, c;

  matrix<const Real> left() const { return row_major(a.data(), rows, depth); }
  matrix<const Real> right() const { return row_major(b.data(), depth, columns); }
  matrix<const Real> result() const { return row_major(c.data(), rows, columns); }
  freivalds_result check(const checks::freivalds_options& options = {}) const {
    return freivalds(left(), right(), result(), options);
  }
};

void multiply(product<float>& p) {
  numeric::gemm(numeric::arithmetic::ord32, p.left(), p.right(),
                row_major(p.c.data(), p.rows, p.columns), inline_executor());
}
void multiply(product<double>& p) {
  numeric::gemm_ord64(p.left(), p.right(), row_major(p.c.data(), p.rows, p.columns),
                      inline_executor());
}

/// Numbers of one of the families that trainings have.
template <class Real>
std::vector<Real> numbers(std::int64_t count, int family, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<Real> out(static_cast<std::size_t>(count));
  for (Real& one : out) {
    const double x = normal(random);
    switch (family % 5) {
      case 0: one = static_cast<Real>(x); break;
      case 1: one = static_cast<Real>(std::max(0.0, x)); break;
      case 2: one = static_cast<Real>(std::fabs(x)); break;
      case 3: one = static_cast<Real>(x * std::exp(3 * normal(random))); break;
      default: one = static_cast<Real>(std::ldexp(x, -130)); break;
    }
  }
  return out;
}

template <class Real = float>
product<Real> honest(std::int64_t rows, std::int64_t depth, std::int64_t columns,
                     std::uint64_t seed, int family = 0) {
  std::mt19937_64 random(seed);
  product<Real> out{rows,
                    depth,
                    columns,
                    numbers<Real>(rows * depth, family, random),
                    numbers<Real>(depth * columns, family / 5, random),
                    std::vector<Real>(static_cast<std::size_t>(rows * columns))};
  multiply(out);
  return out;
}

bool is_near(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::fabs(b); }

digest key_of(std::uint64_t number) {
  digest out;
  std::memcpy(out.bytes.data(), &number, sizeof number);
  return out;
}

/// How far `hits` of `trials` is from a probability, in deviations.
double deviations(double hits, double trials, double probability) {
  return std::fabs(hits - trials * probability) /
         std::sqrt(trials * probability * (1 - probability));
}

// P(|N| > 4.9) = 1e-6.
constexpr double significant = 4.9;

float round_to_bits(float value, int bits) {
  int exponent = 0;
  const float mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
}

/// The product in float32 of operands with fewer bits, as tensor cores compute it.
product<float> downgraded(product<float> p, int bits) {
  product<float> coarse = p;
  for (float& one : coarse.a) one = round_to_bits(one, bits);
  for (float& one : coarse.b) one = round_to_bits(one, bits);
  multiply(coarse);
  p.c = coarse.c;
  return p;
}

std::vector<double> times(const matrix<const float>& m, const std::vector<double>& x) {
  std::vector<double> out(static_cast<std::size_t>(m.rows));
  for (std::int64_t i = 0; i < m.rows; ++i) {
    for (std::int64_t j = 0; j < m.columns; ++j) {
      out[static_cast<std::size_t>(i)] +=
          static_cast<double>(m(i, j)) * x[static_cast<std::size_t>(j)];
    }
  }
  return out;
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double one : x) sum += one * one;
  return std::sqrt(sum);
}

/// Honest products of random shapes and numbers: the worst shares of both bounds.
struct shares {
  double worst = 0, usual = 0;
};
shares of_honest_products(std::uint64_t trials, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto size = [&] { return static_cast<std::int64_t>(1 + random() % 48 * (random() % 2)); };
  shares out;
  for (std::uint64_t i = 0; i < trials; ++i) {
    const auto rows = size(), depth = size(), columns = size();
    const auto p = honest(rows, depth, columns, seed + i, static_cast<int>(random() % 25));
    const freivalds_result got = p.check({1 + static_cast<int>(i % 4), 1e-9, 0, {}});
    if (!got.holds()) return {std::numeric_limits<double>::infinity(), 0};
    out.worst = std::max(out.worst, got.worst);
    out.usual = std::max(out.usual, got.usual);
  }
  return out;
}

}  // namespace

TEST_CASE("honest products of any shape and numbers are consistent", "[freivalds]") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  const shares got = of_honest_products(3000, seed);
  INFO("seed " << seed << ": " << got.worst << " of the bound, " << got.usual << " of the usual");
  CHECK(got.worst <= 1);
  CHECK(got.usual <= 1);
}

TEST_CASE("a million honest products are consistent", "[.][freivalds_million]") {
  const shares got = of_honest_products(1'000'000, 11);
  WARN(
      "1,000,000 products at a false alarm of 1e-9 each, so at most 1e-3 in all: the worst came to "
      << got.worst << " of the sound bound and to " << got.usual << " of what is usual");
  CHECK(got.worst <= 1);
}

TEST_CASE("what is added to a product is one more term, a bias and a matrix", "[freivalds]") {
  auto p = honest(20, 60, 30, 5);
  // Far larger than the product: the rounding of the sum is theirs.
  std::vector<float> bias = honest(1, 1, 30, 6).b, all = honest(1, 1, 600, 7).b;
  for (auto* values : {&bias, &all}) {
    for (float& one : *values) one *= 1e6F;
  }
  const auto sum = p.c;
  const auto check = [&](matrix<const float> d) {
    return freivalds({1, 0, 0, 0}, p.left(), p.right(), {d, 0}, p.result());
  };
  for (const matrix<const float> d : {matrix<const float>{bias.data(), 20, 30, 0, 1},
                                      row_major<const float>(all.data(), 20, 30)}) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      p.c[i] = sum[i] + d(static_cast<std::int64_t>(i / 30), static_cast<std::int64_t>(i % 30));
    }
    CHECK(check(d).outcome == freivalds_outcome::consistent);
    CHECK(p.check().outcome == freivalds_outcome::inconsistent);
    p.c[17 * 30 + 4] += 1e5F;
    CHECK(check(d).outcome == freivalds_outcome::inconsistent);
    CHECK(check(d).row == 17);
  }
  CHECK_THROWS_AS(check(matrix<const float>{bias.data(), 19, 30, 0, 1}), exception);
}

TEST_CASE("products of a batch have addends of their own", "[freivalds]") {
  auto p = honest(20, 60, 30, 8);
  const std::vector<float> added = honest(1, 1, 30, 9).b;
  for (std::size_t i = 0; i < p.c.size(); ++i) p.c[i] += added[i / 300 * 15 + i % 30 % 15];
  // Two products of 10 x 30 whose addends are 1 x 15, twice: the halves of each row.
  const matrix<const float> a = row_major(p.a.data(), 10, 60);
  for (const std::int64_t half : {0, 1}) {
    const matrix<const float> b{p.b.data() + 15 * half, 60, 15, 30, 1};
    const matrix<const float> c{p.c.data() + 15 * half, 10, 15, 30, 1};
    const matrix<const float> d{added.data(), 10, 15, 0, 1};
    CHECK(freivalds({2, 600, 0, 300}, a, b, {d, 15}, c).holds());
    CHECK_FALSE(freivalds({2, 600, 0, 300}, a, b, {d, 0}, c).holds());
  }
}

TEST_CASE("every level and layout sees the same residuals", "[freivalds]") {
  const std::int64_t rows = 37, depth = 130, columns = 71;
  auto p = honest(rows, depth, columns, 5);
  p.c[40] += 1;
  const checks::freivalds_options options{5, 1e-9, 0, key_of(3)};
  const freivalds_result expected = p.check(options);
  CHECK(expected.outcome == freivalds_outcome::inconsistent);
  CHECK(expected.row == 0);
  const auto turned = [](const std::vector<float>& m, std::int64_t r, std::int64_t c) {
    std::vector<float> out(m.size());
    for (std::int64_t i = 0; i < r; ++i) {
      for (std::int64_t j = 0; j < c; ++j) {
        out[static_cast<std::size_t>(j * r + i)] = m[static_cast<std::size_t>(i * c + j)];
      }
    }
    return out;
  };
  const auto at = turned(p.a, rows, depth), bt = turned(p.b, depth, columns),
             ct = turned(p.c, rows, columns);
  std::vector<float> apart(2 * p.a.size());
  for (std::size_t i = 0; i < p.a.size(); ++i) apart[2 * i] = p.a[i];
  const auto pool = numeric::make_thread_pool(3);
  const numeric::executor* const executors[] = {&inline_executor(), pool.get()};
  test::at_each_level([&](numeric::isa level) {
    for (const numeric::executor* threads : executors) {
      INFO(numeric::to_string(level));
      const auto by_columns =
          freivalds(matrix<const float>{at.data(), rows, depth, 1, rows},
                    matrix<const float>{bt.data(), depth, columns, 1, depth},
                    matrix<const float>{ct.data(), rows, columns, 1, rows}, options, *threads);
      CHECK(is_near(by_columns.worst, expected.worst));
      CHECK(by_columns.row == expected.row);
      const auto with_gaps = freivalds(matrix<const float>{apart.data(), rows, depth, 2 * depth, 2},
                                       p.right(), p.result(), options, *threads);
      CHECK(is_near(with_gaps.worst, expected.worst));
      CHECK(is_near(with_gaps.rounding, expected.rounding));
    }
  });
}

TEST_CASE("errors of ten tolerances are missed as often as normal numbers are small",
          "[freivalds]") {
  auto p = honest(12, 60, 40, 7);
  const bool single = GENERATE(true, false);
  const int probes = GENERATE(1, 2);
  const std::vector<float> exact = p.c;
  std::vector<double> error(p.c.size());
  std::mt19937_64 random(single ? 1 : 2);
  std::normal_distribution<double> normal;
  if (single) {
    error[5 * 40 + 7] = 1;
  } else {  // rank one, in one row only: other rows would be further looks at the same vector
    for (std::size_t j = 0; j < 40; ++j) error[5 * 40 + j] = normal(random) / std::sqrt(40.0);
  }
  double length = 0;
  for (const double one : error) length += one * one;
  length = std::sqrt(length);
  // The tolerance, from an error that dwarfs everything else: |error . r| / tolerance is `worst`.
  const auto corrupt = [&](double size) {
    for (std::size_t i = 0; i < p.c.size(); ++i) {
      p.c[i] = static_cast<float>(exact[i] + size / length * error[i]);
    }
  };
  const digest key = key_of(9);
  corrupt(1);
  std::vector<double> r(40);
  fill_normal(r, to_random_key(key), 0, 0, 1);
  double along = 0;
  for (std::size_t j = 0; j < 40; ++j) along += r[j] * error[5 * 40 + j] / length;
  const double tolerance = std::fabs(along) / p.check({1, 1e-9, 0, key}).worst;
  corrupt(10 * tolerance);
  const int trials = 20000;
  int missed = 0;
  for (int i = 0; i < trials; ++i) {
    const auto got =
        p.check({probes, 1e-9 * probes, 0, key_of(100 + static_cast<std::uint64_t>(i))});
    missed += got.rejected() ? 0 : 1;
  }
  // float32 rounds the error, and the honest residual moves the threshold: by some percent at most.
  const double predicted = std::pow(std::erf(0.1 / std::sqrt(2.0)), probes);
  INFO(missed << " of " << trials << " missed, " << predicted * trials << " predicted");
  CHECK(deviations(missed, trials, predicted) < significant + 0.05 * std::sqrt(trials * predicted));
}

TEST_CASE("checks that accept forgeries: the product of the prover, and biased vectors",
          "[freivalds]") {
  auto p = honest(64, 256, 256, 3, 12);  // positive numbers on both sides
  const std::vector<float> exact = p.c;
  for (std::size_t i = 0; i < 64; ++i) {  // half of two columns moves to the other
    const float half = p.c[i * 256] / 2;
    p.c[i * 256] -= half;
    p.c[i * 256 + 1] += half;
  }
  std::mt19937_64 random(4);
  std::vector<double> r(256);
  for (double& one : r) one = static_cast<double>(random() % 2);
  const auto honest_side = times(p.left(), times(p.right(), r));
  const auto forged_side = times(p.result(), r);
  std::vector<double> off(64);
  for (std::size_t i = 0; i < 64; ++i) off[i] = honest_side[i] - forged_side[i];
  CHECK(norm(off) <= 0.01 * norm(forged_side));  // accepted: vectors of 0 and 1, one per cent
  // Who is asked for C r answers with A (B r), whatever C is: the residual is zero.
  const auto answered = times(p.left(), times(p.right(), r));
  for (std::size_t i = 0; i < 64; ++i) CHECK(answered[i] - honest_side[i] == 0);
  CHECK(p.check().outcome == freivalds_outcome::inconsistent);
}

TEST_CASE("what is not finite is never consistent", "[freivalds]") {
  const float bad =
      GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
  const auto p = honest(20, 33, 18, 1);
  for (int which = 0; which < 3; ++which) {
    auto broken = p;
    (which == 0 ? broken.a : which == 1 ? broken.b : broken.c)[17] = bad;
    const auto got = broken.check();
    CHECK(got.outcome == freivalds_outcome::not_finite);
    CHECK_FALSE(got.holds());
    CHECK(got.rejected());
    CHECK(got.row >= 0);
  }
  auto large = honest<double>(4, 5, 6, 2);
  for (double& one : large.b) one = 1e300;
  CHECK(large.check().outcome == freivalds_outcome::not_finite);
}

TEST_CASE("products of tensor cores are unusual, and a bfloat16 result may be agreed",
          "[freivalds]") {
  const auto p = honest(64, 512, 64, 2);
  CHECK(p.check().outcome == freivalds_outcome::consistent);
  CHECK(p.check().rounding < 0x1p-23);
  const auto tf32 = downgraded(p, 11).check();
  CHECK(tf32.outcome == freivalds_outcome::unusual);
  CHECK_FALSE(tf32.holds());
  CHECK_FALSE(tf32.rejected());
  CHECK(tf32.rounding > 0x1p-20);
  CHECK(downgraded(p, 8).check().outcome != freivalds_outcome::consistent);
  auto stored = p;
  for (float& one : stored.c) one = round_to_bits(one, 8);
  CHECK(stored.check().outcome != freivalds_outcome::consistent);
  CHECK(stored.check({4, 1e-9, 0x1p-8, {}}).outcome == freivalds_outcome::consistent);
}

TEST_CASE("products in float64 are checked in float64", "[freivalds]") {
  auto p = honest<double>(50, 300, 40, 8);
  CHECK(p.check().outcome == freivalds_outcome::consistent);
  p.c[77] += 1e-7;
  const auto got = p.check();
  CHECK(got.outcome == freivalds_outcome::inconsistent);
  CHECK(got.row == 1);
}

TEST_CASE("each product of a batch has vectors of its own", "[freivalds]") {
  std::vector<float> a, b, c;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto p = honest(6, 20, 9, 30 + i);
    a.insert(a.end(), p.a.begin(), p.a.end());
    b.insert(b.end(), p.b.begin(), p.b.end());
    c.insert(c.end(), p.c.begin(), p.c.end());
  }
  const auto check = [&] {
    return freivalds(numeric::gemm_batch{3, 120, 180, 54}, row_major<const float>(a.data(), 6, 20),
                     row_major<const float>(b.data(), 20, 9),
                     row_major<const float>(c.data(), 6, 9));
  };
  CHECK(check().outcome == freivalds_outcome::consistent);
  CHECK(check().compared == 3 * 6 * 4);
  // The same product twice, under one key: other vectors see other residuals of the second.
  const auto times = [&](std::int64_t count) {
    return freivalds(numeric::gemm_batch{count, 0, 0, 0}, row_major<const float>(a.data(), 6, 20),
                     row_major<const float>(b.data(), 20, 9),
                     row_major<const float>(c.data(), 6, 9), {4, 1e-9, 0, key_of(1)});
  };
  CHECK_FALSE(is_near(times(2).rounding, times(1).rounding));
  c[2 * 54 + 3 * 9] += 1;
  CHECK(check().outcome == freivalds_outcome::inconsistent);
  CHECK(check().row == 2 * 6 + 3);
}

TEST_CASE("empty products, and shapes and options that do not fit", "[freivalds]") {
  const auto nothing = honest(3, 0, 4, 1);
  CHECK(nothing.check().outcome == freivalds_outcome::consistent);
  auto something = nothing;
  something.c[0] = 1e-30f;
  CHECK(something.check().outcome == freivalds_outcome::inconsistent);
  // Nothing to compare is no evidence.
  CHECK_THROWS_AS(honest(0, 4, 5, 1).check(), exception);
  CHECK_THROWS_AS(honest(3, 4, 0, 1).check(), exception);
  const auto p = honest(3, 4, 5, 1);
  const float* const b = p.b.data();
  CHECK_THROWS_AS(freivalds(p.left(), row_major(b, 3, 5), p.result()), exception);
  CHECK_THROWS_AS(freivalds(p.left(), row_major(b, 4, 4), p.result()), exception);
  CHECK_THROWS_AS(freivalds(row_major(p.a.data(), 2, 4), p.right(), p.result()), exception);
  CHECK_THROWS_AS(p.check({0, 1e-9, 0, {}}), exception);
  CHECK_THROWS_AS(p.check({65, 1e-9, 0, {}}), exception);
  CHECK_THROWS_AS(p.check({4, 0, 0, {}}), exception);
  CHECK_THROWS_AS(p.check({4, 1e-9, 1, {}}), exception);
  const float one = 1;
  CHECK_THROWS_AS(
      freivalds(matrix<const float>{&one, 1, 1 << 24, 0, 0},
                matrix<const float>{&one, 1 << 24, 1, 0, 0}, matrix<const float>{&one, 1, 1, 0, 0}),
      exception);
}

TEST_CASE("whole numbers are checked exactly", "[freivalds]") {
  std::mt19937_64 random(6);
  const std::int64_t rows = 9, depth = 50, columns = 7;
  std::vector<std::int32_t> a(450), b(350);
  std::vector<std::int64_t> c(63);
  for (auto* m : {&a, &b}) {
    for (auto& one : *m) one = static_cast<std::int32_t>(random() % (1u << 24)) - (1 << 23);
  }
  for (std::size_t i = 0; i < 9; ++i) {
    for (std::size_t j = 0; j < 7; ++j) {
      for (std::size_t k = 0; k < 50; ++k) {
        c[i * 7 + j] += std::int64_t{a[i * 50 + k]} * b[k * 7 + j];
      }
    }
  }
  const auto check = [&] {
    return checks::freivalds_exact(row_major<const std::int32_t>(a.data(), rows, depth),
                                   row_major<const std::int32_t>(b.data(), depth, columns),
                                   row_major<const std::int64_t>(c.data(), rows, columns));
  };
  CHECK(check());
  c[62] += 1;
  CHECK_FALSE(check());
  c[62] -= 1;
  c[5] += (std::int64_t{1} << 61) - 1;  // equal modulo the prime
  CHECK_FALSE(check());
  c[5] = std::numeric_limits<std::int64_t>::min();
  CHECK_FALSE(check());
  a[0] = std::numeric_limits<std::int32_t>::min();
  b[0] = std::numeric_limits<std::int32_t>::min();
  CHECK_THROWS_AS(check(), exception);
}
