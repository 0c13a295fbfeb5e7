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
#include <potl/numeric/detail/random.hpp>

namespace {

using potl::test::distance;

const potl::random_key key = potl::to_random_key(potl::derive_key(7, "random test"));
constexpr std::size_t many = 100000;

template <class Value>
std::string digest_of(const std::vector<Value>& values) {
  return potl::sha256_of(potl::bytes_view(reinterpret_cast<const std::uint8_t*>(values.data()),
                                          values.size() * sizeof(Value)))
      .hex();
}

double normal_distribution(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

/// The elements of a fill of 1001, made in three pieces, are those of one fill.
template <class Value, class Fill>
void check_pieces(Fill fill) {
  std::vector<Value> whole(1001), pieces(1001);
  fill(std::span<Value>(whole), std::uint64_t{5});
  const std::span<Value> view(pieces);
  fill(view.subspan(700), std::uint64_t{705});
  fill(view.first(3), std::uint64_t{5});
  fill(view.subspan(3, 697), std::uint64_t{8});
  REQUIRE(whole == pieces);
}

}  // namespace

TEST_CASE("the bits of every fill are what they were: changing them breaks recorded runs") {
  std::vector<float> f(1000);
  std::vector<double> d(1000);
  std::vector<std::uint8_t> b(1000);
  std::vector<std::int64_t> i(1000);
  potl::fill_uniform(f, key, 3, -0.5, 2.0);
  CHECK(digest_of(f) == "f13b54d1e707547d3e29a29151bd240ef709785c291bfc4e241261b65c355bf1");
  potl::fill_uniform(d, key, 3, -0.5, 2.0);
  CHECK(digest_of(d) == "2248ad761964aa1717d5a00b8e5aab32a0f8bb866b79adb001b582804d08c751");
  potl::fill_normal(f, key, 3, 1.0, 0.02);
  CHECK(digest_of(f) == "602d9252fb1c3d76e6595933bab84f782e57113810844357acac22bd249752cb");
  potl::fill_normal(d, key, 3, 1.0, 0.02);
  CHECK(digest_of(d) == "3276acb00ef1b2857dfb0c0b31e4846c1cf789f477f1a14508b42f8cbd7a6b9a");
  potl::fill_exponential(f, key, 3, 1.5);
  CHECK(digest_of(f) == "be6ffd0bfff1dcce5f064c33e7f21ef3a3f39df7ff5d48d6addf753d87544c0a");
  potl::fill_exponential(d, key, 3, 1.5);
  CHECK(digest_of(d) == "3f6cf18bc850a0a1cabecbb0f444159be4c7d5d2253b9b129c7f94e86d7432d6");
  potl::fill_uniform(d, key, 3, -1.0, 1.0);
  potl::fill_erfinv(d);
  CHECK(digest_of(d) == "003a3fab641eb2af0cf11d827f93f90bf5e85a3fc1742da1e40b9cc876723a16");
  potl::fill_bernoulli(b, key, 3, 0.3);
  CHECK(digest_of(b) == "5426f7031d847f013e609244e6c061ac40d497323d44680994e8f7446b50f88a");
  potl::fill_integers(i, key, 3, -1000, 1797);
  CHECK(digest_of(i) == "7a57b22f41850fa26e4263893c33536818c939dd53eae692dd11d64d39ab2b90");
}

TEST_CASE("a fill may be cut anywhere: element i is a function of key and counter alone") {
  check_pieces<float>([](auto out, auto start) { potl::fill_uniform(out, key, start, 0, 1); });
  check_pieces<double>([](auto out, auto start) { potl::fill_normal(out, key, start, 0, 1); });
  check_pieces<float>([](auto out, auto start) { potl::fill_exponential(out, key, start, 1); });
  check_pieces<std::uint8_t>(
      [](auto out, auto start) { potl::fill_bernoulli(out, key, start, 0.5); });
  // A range of 3/4 of all integers rejects every fourth value.
  check_pieces<std::int64_t>([](auto out, auto start) {
    potl::fill_integers(out, key, start, std::numeric_limits<std::int64_t>::min(),
                        std::int64_t{1} << 62);
  });
}

TEST_CASE("every instruction set fills with the values of the definition") {
  const potl::random_key chosen{0x0123456789ABCDEFu, 0xFEDCBA9876543210u};
  potl::test::at_each_level_and_end([&](potl::numeric::isa, guarded_end at) {
    for (const std::uint64_t start :
         {std::uint64_t{0}, std::uint64_t{3}, (std::uint64_t{1} << 33) - 5}) {
      for (const std::size_t count : {1U, 2U, 15U, 16U, 63U, 511U, 512U, 513U, 1601U}) {
        guarded<double> uniform(count, at);
        guarded<float> mask(count, at);
        guarded<double> normal(count, at);
        potl::fill_uniform(uniform, chosen, start, 0.0, 1.0);
        potl::fill_bernoulli(mask, chosen, start, 0.3);
        potl::fill_normal(normal, chosen, start, 0.25, 3.0);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) {
          const std::uint64_t bits = potl::random_bits(chosen, start + i);
          const double defined = static_cast<double>(bits >> 11) * 0x1p-53;
          const double between = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
          wrong += normal[i] != 0.25 + 3.0 * potl::normal_quantile(between);
          wrong += uniform[i] != defined;
          wrong += mask[i] != (defined < 0.3 ? 1.0F : 0.0F);
        }
        CHECK(wrong == 0);
      }
    }
  });
}

TEST_CASE("a bernoulli mask is the same in every type") {
  std::vector<float> f(999);
  std::vector<double> d(999);
  std::vector<std::uint8_t> b(999);
  potl::fill_bernoulli(f, key, 0, 0.25);
  potl::fill_bernoulli(d, key, 0, 0.25);
  potl::fill_bernoulli(b, key, 0, 0.25);
  REQUIRE(std::equal(f.begin(), f.end(), b.begin()));
  REQUIRE(std::equal(d.begin(), d.end(), b.begin()));
}

TEST_CASE("uniform values have the uniform distribution and exclude the upper end") {
  std::vector<float> f(many);
  potl::fill_uniform(f, key, 0, -3.0, 5.0);
  REQUIRE(distance(f, [](double x) { return (x + 3) / 8; }) < 2.7);
  // The interval holds two floats, so half of all values would round up to its end.
  const float next = std::nextafter(std::nextafter(1.0f, 2.0f), 2.0f);
  potl::fill_uniform(f, key, 0, 1.0, next);
  REQUIRE(*std::min_element(f.begin(), f.end()) == 1.0f);
  REQUIRE(*std::max_element(f.begin(), f.end()) == std::nextafter(1.0f, 2.0f));
  potl::fill_uniform(f, key, 0, 4.0, 4.0);
  REQUIRE(*std::max_element(f.begin(), f.end()) == 4.0f);
  std::vector<double> d(many);
  potl::fill_uniform(d, key, 0, 1.0, std::nextafter(1.0, 2.0));
  REQUIRE(*std::max_element(d.begin(), d.end()) == 1.0);
}

TEST_CASE("normal values have the normal distribution and its moments") {
  std::vector<double> d(many);
  potl::fill_normal(d, key, 0, 10.0, 2.0);
  REQUIRE(distance(d, [](double x) { return normal_distribution((x - 10) / 2); }) < 2.7);
  double sum[5] = {};
  for (double x : d) {
    const double z = (x - 10) / 2;
    for (int power = 1; power <= 4; ++power) sum[power] += std::pow(z, power) / many;
  }
  // Five standard deviations of each moment: 1, 2, 15 and 96 are the variances of z^1 .. z^4.
  const double unit = 5 / std::sqrt(double{many});
  REQUIRE(std::abs(sum[1]) < unit);
  REQUIRE(std::abs(sum[2] - 1) < unit * std::sqrt(2.0));
  REQUIRE(std::abs(sum[3]) < unit * std::sqrt(15.0));
  REQUIRE(std::abs(sum[4] - 3) < unit * std::sqrt(96.0));
  std::vector<float> f(many);
  potl::fill_normal(f, key, 0, 10.0, 2.0);
  for (std::size_t i = 0; i < many; ++i) REQUIRE(f[i] == static_cast<float>(d[i]));
}

TEST_CASE("exponential values have the exponential distribution and are positive") {
  std::vector<double> d(many);
  potl::fill_exponential(d, key, 0, 0.5);
  REQUIRE(distance(d, [](double x) { return -std::expm1(-0.5 * x); }) < 2.7);
  REQUIRE(*std::min_element(d.begin(), d.end()) > 0);
}

TEST_CASE("bernoulli: the rate, and never or always at the ends") {
  std::vector<std::uint8_t> b(many);
  potl::fill_bernoulli(b, key, 0, 0.1);
  const auto ones = static_cast<double>(std::count(b.begin(), b.end(), 1));
  REQUIRE(std::abs(ones - 0.1 * many) < 5 * std::sqrt(many * 0.1 * 0.9));
  potl::fill_bernoulli(b, key, 0, 0.0);
  REQUIRE(std::count(b.begin(), b.end(), 0) == many);
  potl::fill_bernoulli(b, key, 0, 1.0);
  REQUIRE(std::count(b.begin(), b.end(), 1) == many);
}

TEST_CASE("integers: every value equally often, also in the largest range") {
  std::vector<std::int64_t> values(many);
  potl::fill_integers(values, key, 0, -3, 7);
  for (std::int64_t value = -3; value < 7; ++value) {
    const auto count = static_cast<double>(std::count(values.begin(), values.end(), value));
    REQUIRE(std::abs(count - many / 10.0) < 5.5 * std::sqrt(many * 0.1 * 0.9));
  }
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  potl::fill_integers(values, key, 0, least, most);
  REQUIRE(distance(values, [](double x) { return x / 0x1p64 + 0.5; }) < 2.7);
  potl::fill_integers(values, key, 0, most - 1, most);
  REQUIRE(std::count(values.begin(), values.end(), most - 1) == many);
}

TEST_CASE("different keys, streams and counters are independent") {
  std::vector<double> a(many), b(many);
  potl::fill_normal(a, key, 0, 0, 1);
  for (const potl::random_key other :
       {potl::random_key{key.key + 1, key.stream}, potl::random_key{key.key, key.stream + 1}}) {
    potl::fill_normal(b, other, 0, 0, 1);
    double correlation = 0;
    for (std::size_t i = 0; i < many; ++i) correlation += a[i] * b[i];
    REQUIRE(std::abs(correlation / std::sqrt(double{many})) < 5);
  }
}

TEST_CASE("parameters out of range are refused and nothing is written") {
  std::vector<float> f(2, 42.0f);
  std::vector<std::int64_t> i(2, 42);
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  CHECK_THROWS_AS(potl::fill_uniform(f, key, 0, 1.0, 0.0), potl::exception);
  CHECK_THROWS_AS(potl::fill_uniform(f, key, 0, nan, 0.0), potl::exception);
  CHECK_THROWS_AS(potl::fill_uniform(f, key, 0, 0.0, inf), potl::exception);
  CHECK_THROWS_AS(potl::fill_uniform(f, key, 0, 0.0, 1e300), potl::exception);
  CHECK_THROWS_AS(potl::fill_normal(f, key, 0, 0.0, -1.0), potl::exception);
  CHECK_THROWS_AS(potl::fill_normal(f, key, 0, nan, 1.0), potl::exception);
  CHECK_THROWS_AS(potl::fill_bernoulli(f, key, 0, 1.5), potl::exception);
  CHECK_THROWS_AS(potl::fill_bernoulli(f, key, 0, nan), potl::exception);
  CHECK_THROWS_AS(potl::fill_exponential(f, key, 0, 0.0), potl::exception);
  CHECK_THROWS_AS(potl::fill_integers(i, key, 0, 5, 5), potl::exception);
  CHECK(f == std::vector<float>(2, 42.0f));
  CHECK(i == std::vector<std::int64_t>(2, 42));
}
