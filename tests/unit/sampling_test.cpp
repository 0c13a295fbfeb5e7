// SPDX-License-Identifier: Apache-2.0
// Fixed keys: outcomes do not vary from run to run. The statistical bounds are those that a fair
// generator exceeds with a probability of 1e-6 or less.
#include "catch.hpp"
#include "kolmogorov.hpp"
#include "numeric_levels.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <potl/crypto/detail/prf.hpp>
#include <potl/crypto/hasher.hpp>
#include <potl/numeric/detail/sampling.hpp>

namespace {

using potl::test::distance;
using potl::test::excess;

const potl::random_key key = potl::to_random_key(potl::derive_key(7, "sampling test"));
constexpr std::size_t many = 100000;
constexpr double inf = std::numeric_limits<double>::infinity();
const double no_number = std::nan("");

using numbers = std::vector<double>;

numbers gammas(double shape, std::size_t count = many) {
  numbers out(count);
  potl::fill_gamma(out, numbers(count, shape), key, 0);
  return out;
}
/// Of rows of these shapes, the shares in one column.
numbers shares(const numbers& row, std::size_t column) {
  numbers shapes, out(many * row.size()), chosen;
  for (std::size_t i = 0; i < many; ++i) shapes.insert(shapes.end(), row.begin(), row.end());
  potl::fill_dirichlet(out, shapes, row.size(), key, 0);
  for (std::size_t i = column; i < out.size(); i += row.size()) chosen.push_back(out[i]);
  return chosen;
}
numbers poisson(double rate, std::size_t count = many) {
  numbers out(count);
  potl::fill_poisson(out, numbers(count, rate), key, 0);
  return out;
}
numbers binomial(double trials, double probability, std::size_t count = many) {
  numbers out(count);
  potl::fill_binomial(out, numbers(count, trials), numbers(count, probability), key, 0);
  return out;
}
double log_factorial(double k) { return std::lgamma(k + 1); }

template <class Value>
std::string digest_of(const std::vector<Value>& values) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
  return potl::sha256_of(potl::bytes_view(bytes, values.size() * sizeof(Value))).hex();
}

}  // namespace

TEST_CASE("the bits of samples are what they were: changing them breaks recorded runs") {
  numbers shapes, out(1000), chances;
  for (int i = 0; i < 1000; ++i) {
    shapes.push_back(0.03125 * (i % 700));
    chances.push_back(i / 1024.0);
  }
  numbers trials(1000, 37);
  std::vector<std::int64_t> places(1000);
  potl::test::at_each_level([&](potl::numeric::isa) {
    std::string all;
    potl::fill_gamma(out, shapes, key, 3);
    all += digest_of(out).substr(0, 16);
    potl::fill_dirichlet(out, shapes, 4, key, 3);
    all += digest_of(out).substr(0, 16);
    potl::fill_poisson(out, shapes, key, 3);
    all += digest_of(out).substr(0, 16);
    potl::fill_binomial(out, trials, chances, key, 3);
    all += digest_of(out).substr(0, 16);
    potl::fill_categories(places, shapes, key, 3);
    all += digest_of(places).substr(0, 16);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = potl::numeric::gamma_gradient(shapes[i], 8 * chances[i]);
    }
    all += digest_of(out).substr(0, 16);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = potl::numeric::dirichlet_gradient(chances[i], shapes[i], shapes[i] + 2);
    }
    all += digest_of(out).substr(0, 16);
    CHECK(all ==
          "91bed11bcb98ee0d4a9f192943a04851164731ef90a38f2d7a1da5fa7c1ba643eed04c4aab5c0314"
          "80305aa8853f86194364c57171923598");
  });
}

TEST_CASE("a fill of samples may be cut anywhere, and others' parameters do not matter") {
  numbers shapes(1001), whole(1001), pieces(1001), alone(1);
  for (std::size_t i = 0; i < shapes.size(); ++i) shapes[i] = 0.0625 * static_cast<double>(i + 1);
  const std::span<double> view(pieces);
  const auto check = [&](auto fill) {
    fill(std::span<double>(whole), std::span<const double>(shapes), std::uint64_t{5});
    fill(view.subspan(700), std::span<const double>(shapes).subspan(700), std::uint64_t{705});
    fill(view.first(700), std::span<const double>(shapes).first(700), std::uint64_t{5});
    CHECK(whole == pieces);
    fill(std::span<double>(alone), std::span<const double>(shapes).subspan(300, 1),
         std::uint64_t{305});
    CHECK(whole[300] == alone[0]);
  };
  check([](auto out, auto of, auto start) { potl::fill_gamma(out, of, key, start); });
  check([](auto out, auto of, auto start) { potl::fill_poisson(out, of, key, start); });
  check([](auto out, auto of, auto start) {
    numbers chances;
    for (const double x : of) chances.push_back(x / 64);
    potl::fill_binomial(out, numbers(out.size(), 90), chances, key, start);
  });
  potl::fill_dirichlet(whole, shapes, 7, key, 5);
  potl::fill_dirichlet(view.subspan(700), std::span(shapes).subspan(700), 7, key, 705);
  potl::fill_dirichlet(view.first(700), std::span(shapes).first(700), 7, key, 5);
  CHECK(whole == pieces);
}

TEST_CASE("gamma samples have the gamma distribution") {
  CHECK(distance(gammas(0.5), [](double x) { return std::erf(std::sqrt(x)); }) < 2.7);
  CHECK(distance(gammas(1), [](double x) { return -std::expm1(-x); }) < 2.7);
  CHECK(distance(gammas(3), [](double x) { return 1 - std::exp(-x) * (1 + x + x * x / 2); }) < 2.7);
  // Of a large shape, the mean and the deviation; their errors are 5 deviations.
  for (const double shape : {1e3, 1e12}) {
    double sum = 0, squares = 0;
    for (const double x : gammas(shape)) {
      const double z = (x - shape) / std::sqrt(shape);
      sum += z / many;
      squares += z * z / many;
    }
    CHECK(std::abs(sum) < 5 / std::sqrt(double{many}));
    CHECK(std::abs(squares - 1) < 5 * std::sqrt((2 + 6 / shape) / many));
  }
}

TEST_CASE("shares have the beta distribution, also where gamma samples would be 0") {
  CHECK(distance(shares({0.5, 0.5}, 0),
                 [](double x) { return 2 / std::acos(-1.0) * std::asin(std::sqrt(x)); }) < 2.7);
  CHECK(distance(shares({2, 0.25, 0.75}, 0), [](double x) { return x * x; }) < 2.7);
  // Half of the gamma samples are below 1e-300; P(share < x) is nearly x^0.001 / 2 below 1/2.
  numbers rare = shares({0.001, 0.001}, 0);
  for (const double end : {1e-300, 1e-100, 0.25}) {
    const auto below = static_cast<double>(
        std::count_if(rare.begin(), rare.end(), [=](double x) { return x < end; }));
    CHECK(std::abs(below / many - std::pow(end, 0.001) / 2) < 5 * 0.5 / std::sqrt(double{many}));
  }
}

TEST_CASE("counts have the Poisson distribution") {
  for (const double rate : {0.25, 3.0, 9.75, 10.0, 12.5, 400.0, 1e6}) {
    INFO(rate);
    const double off = excess(poisson(rate), rate, std::sqrt(rate), [=](double k) {
      return k * std::log(rate) - rate - log_factorial(k);
    });
    CHECK(off < 1);
  }
}

TEST_CASE("successes have the binomial distribution") {
  for (const auto& [trials, p] :
       {std::pair{1.0, 0.25}, std::pair{30.0, 0.5}, std::pair{40.0, 0.125}, std::pair{40.0, 0.875},
        std::pair{1e3, 0.3}, std::pair{1e6, 0.6}, std::pair{1e12, 1e-11}}) {
    INFO(trials << " " << p);
    const double n = trials, chance = p, mean = n * p;
    const double off = excess(binomial(n, p), mean, std::sqrt(mean * (1 - p)), [=](double k) {
      if (k > n) return -inf;
      const double choices = n > 1e9 ? k * std::log(n) - log_factorial(k)
                                     : log_factorial(n) - log_factorial(k) - log_factorial(n - k);
      return choices + k * std::log(chance) + (n - k) * std::log1p(-chance);
    });
    CHECK(off < 1);
  }
}

TEST_CASE("categories come as often as they weigh, and never with a weight of 0") {
  std::vector<std::int64_t> places(many);
  potl::fill_categories(places, numbers{0, 0.5, 0, 1, 2.5, 0}, key, 0);
  const numbers expected{0, 0.125, 0, 0.25, 0.625, 0};
  for (std::size_t k = 0; k < expected.size(); ++k) {
    const auto seen =
        static_cast<double>(std::count(places.begin(), places.end(), static_cast<std::int64_t>(k)));
    const double p = expected[k];
    CHECK(std::abs(seen - p * many) <= 5 * std::sqrt(many * p * (1 - p)));
  }
  // Uniform numbers times the smallest weight are 0 or that weight itself.
  potl::fill_categories(places, numbers{0, std::numeric_limits<double>::denorm_min(), 0}, key, 0);
  CHECK(std::count(places.begin(), places.end(), 1) == many);
}

TEST_CASE("samples at the ends of their parameters") {
  constexpr double least = std::numeric_limits<double>::min();
  CHECK(gammas(0, 1)[0] == least);
  CHECK(gammas(inf, 1)[0] == inf);
  CHECK(std::isnan(gammas(-1, 1)[0]));
  CHECK(std::isnan(gammas(no_number, 1)[0]));
  CHECK(gammas(1e308, 1)[0] == 1e308);
  numbers row(3);
  potl::fill_dirichlet(row, numbers{0, 2, 0}, 3, key, 0);
  CHECK(row == numbers{least, std::nextafter(1.0, 0.0), least});
  std::vector<float> single(2);
  potl::fill_gamma(single, numbers{0, no_number}, key, 0);
  CHECK(single[0] == std::numeric_limits<float>::min());
  CHECK(std::isnan(single[1]));
  potl::fill_dirichlet(single, numbers{0, 2}, 2, key, 0);
  CHECK(single ==
        std::vector<float>{std::numeric_limits<float>::min(), std::nextafter(1.0F, 0.0F)});
  for (const double wrong : {-1.0, no_number, inf}) {
    potl::fill_dirichlet(row, numbers{1, wrong, 1}, 3, key, 0);
    CHECK((std::isnan(row[0]) && std::isnan(row[1]) && std::isnan(row[2])));
  }
  potl::fill_dirichlet(row, numbers{0, 0, 0}, 3, key, 0);
  CHECK(std::isnan(row[0]));
  CHECK(poisson(0, 9) == numbers(9, 0));
  CHECK(poisson(1e300, 1)[0] == 1e300);
  CHECK(binomial(9, 0, 9) == numbers(9, 0));
  CHECK(binomial(9, 1, 9) == numbers(9, 9));
  CHECK(binomial(0, 0.5, 9) == numbers(9, 0));
  numbers none;
  potl::fill_gamma(none, none, key, 0);
  potl::fill_dirichlet(none, none, 3, key, 0);
}

TEST_CASE("samples of wrong parameters are refused") {
  numbers out(2, 42);
  std::vector<std::int64_t> places(2, 42);
  const numbers one{1}, two{1, 1};
  CHECK_THROWS_AS(potl::fill_gamma(out, one, key, 0), potl::exception);
  CHECK_THROWS_AS(potl::fill_dirichlet(out, one, 1, key, 0), potl::exception);
  CHECK_THROWS_AS(potl::fill_dirichlet(out, two, 0, key, 0), potl::exception);
  CHECK_THROWS_AS(potl::fill_dirichlet(out, two, 3, key, 0), potl::exception);
  CHECK_THROWS_AS(potl::fill_poisson(out, one, key, 0), potl::exception);
  CHECK_THROWS_AS(potl::fill_binomial(out, two, one, key, 0), potl::exception);
  for (const double wrong : {-1.0, no_number, inf}) {
    CHECK_THROWS_AS(potl::fill_poisson(out, numbers{1, wrong}, key, 0), potl::exception);
    CHECK_THROWS_AS(potl::fill_binomial(out, numbers{1, wrong}, two, key, 0), potl::exception);
    CHECK_THROWS_AS(potl::fill_binomial(out, two, numbers{1, wrong}, key, 0), potl::exception);
    CHECK_THROWS_AS(potl::fill_categories(places, numbers{1, wrong}, key, 0), potl::exception);
  }
  CHECK_THROWS_AS(potl::fill_binomial(out, numbers{1, 0.5}, two, key, 0), potl::exception);
  CHECK_THROWS_AS(potl::fill_binomial(out, two, numbers{1, 1.5}, key, 0), potl::exception);
  CHECK_THROWS_AS(potl::fill_categories(places, numbers{0, 0}, key, 0), potl::exception);
  CHECK_THROWS_AS(potl::fill_categories(places, numbers{1e308, 1e308}, key, 0), potl::exception);
  CHECK_THROWS_AS(potl::fill_categories(places, {}, key, 0), potl::exception);
  CHECK(out == numbers(2, 42));
  CHECK(places == std::vector<std::int64_t>(2, 42));
}

TEST_CASE("samples move with their shapes as 40 digits say") {
  struct gamma_case {
    double shape, x, wanted;
  };
  for (const gamma_case& one : {gamma_case{0.001, 0.25, 0x1.4f884d72882f1p+8},
                                {1e-10, 1e-8, 0x1.be162d7e98b6ap+10},
                                {1e-4, 1e-3, 0x1.fb0b040ddf013p+5},
                                {0.1, 1e-30, 0x1.b32527e978b7bp-91},
                                {0.5, 0.25, 0x1.d0e74684d782cp-1},
                                {1, 1, 0x1.2c6ea065b996fp+0},
                                {1, 28, 0x1.f8d3131861379p+1},
                                {2.5, 0.125, 0x1.52f75901bb377p-3},
                                {10, 11, 0x1.10e8db668cd75p+0},
                                {100, 48, 0x1.5b7412e3d2a71p-1},
                                {1000, 1200, 0x1.1817b0a2481fcp+0},
                                {16000, 15500, 0x1.f7ebabb22d1d5p-1}}) {
    INFO(one.shape << " " << one.x);
    CHECK(potl::numeric::gamma_gradient(one.shape, one.x) == Approx(one.wanted).epsilon(1e-9));
  }
  CHECK(potl::numeric::gamma_gradient(20000, 19000) == Approx(0x1.f2fc3e4cfe617p-1).epsilon(1e-6));
  struct share_case {
    double x, shape, total, wanted;
  };
  for (const share_case& one : {share_case{0.0625, 0.1, 0.2, 0x1.332e699c97eb8p+2},
                                {0.9375, 0.1, 0.2, 0x1.85319d466857bp+5},
                                {1e-20, 0.5, 3.5, 0x1.098b7692bf524p-60},
                                {0.5, 0.5, 3.5, 0x1.8c4f793bcc3a0p-1},
                                {0.25, 2, 9, 0x1.104287ccd9305p-3},
                                {0.75, 2, 9, 0x1.c07d9b0b16718p-3},
                                {0.999, 50, 53, 0x1.412d7764ba47fp-6},
                                {1e-38, 1e-20, 1, 0x1.9383ae6c23384p-54},
                                {1e-30, 1e-31, 2, 0x1.5463447f87fb5p+9},
                                {1e-8, 1e-9, 1, 0x1.7069e2e88730bp+7},
                                {0.5, 5, 5, 0x1.364ee9d234f74p-3},
                                {0.25, 0.1, 0.1, 0x1.c9cd6a76e73bdp+4},
                                {0.0009765625, 3, 503, 0x1.83c460fd0d526p-11},
                                {0.015625, 3, 503, 0x1.ad0b3b7dbaae5p-9},
                                {0.9999, 10000, 10000.5, 0x1.a36b7f6872ce6p-14},
                                {0.34, 1000, 3000, 0x1.61188503102e3p-12}}) {
    INFO(one.x << " " << one.shape << " " << one.total);
    CHECK(potl::numeric::dirichlet_gradient(one.x, one.shape, one.total) ==
          Approx(one.wanted).epsilon(1e-9));
  }
  // A share of nearly a constant; the two definitions meet.
  const double edge = 1 << 20;
  CHECK(potl::numeric::dirichlet_gradient(3 / edge, 2, edge * 1.0001) ==
        Approx(potl::numeric::dirichlet_gradient(3 / edge, 2, edge)).epsilon(3e-4));
}

TEST_CASE("gradients of samples at the ends, and of what is no sample") {
  using potl::numeric::dirichlet_gradient;
  using potl::numeric::gamma_gradient;
  CHECK(gamma_gradient(2, 0) == 0);
  CHECK(gamma_gradient(1e300, 1e300) == 1);
  CHECK(dirichlet_gradient(0, 1, 3) == 0);
  CHECK(dirichlet_gradient(1, 1, 2) == Approx(1));
  for (const double wrong : {-1.0, no_number, inf}) {
    CHECK(std::isnan(gamma_gradient(wrong, 1)));
    CHECK(std::isnan(gamma_gradient(1, wrong)));
    CHECK(std::isnan(dirichlet_gradient(wrong, 1, 2)));
    CHECK(std::isnan(dirichlet_gradient(0.5, wrong, 2)));
    CHECK(std::isnan(dirichlet_gradient(0.5, 1, wrong)));
  }
  CHECK(std::isnan(gamma_gradient(0, 1)));
  CHECK(std::isnan(dirichlet_gradient(1.5, 1, 2)));
  CHECK(std::isnan(dirichlet_gradient(0.5, 2, 1.5)));
}
