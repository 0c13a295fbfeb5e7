// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/fourier.hpp>

#include "catch.hpp"

using namespace potl::numeric;

namespace {

std::vector<double> drawn(std::size_t count) {
  std::mt19937_64 random(count);
  std::normal_distribution<double> normal;
  std::vector<double> out(count);
  for (double& value : out) value = normal(random);
  return out;
}

std::vector<double> transformed(const fourier_shape& shape, bool backward, std::vector<double> x,
                                const executor& workers = inline_executor()) {
  fourier(shape, fourier_kind::complex, backward, 1, x.data(), x.data(), workers);
  return x;
}

/// The largest error of a transform of one line, in units of 2^-53 times the norm of its operand.
double error_of(std::int64_t length, bool backward) {
  const auto count = static_cast<std::size_t>(length);
  const std::vector<double> x = drawn(2 * count);
  const std::vector<double> y = transformed({1, length, 1}, backward, x);
  std::vector<long double> cosines, sines;
  for (std::size_t k = 0; k < count; ++k) {
    const long double angle = 2 * acosl(-1.0L) * static_cast<long double>(k) /
                              static_cast<long double>(length) * (backward ? 1 : -1);
    cosines.push_back(cosl(angle));
    sines.push_back(sinl(angle));
  }
  long double worst = 0;
  for (std::size_t k = 0; k < count; ++k) {
    long double re = 0, im = 0;
    for (std::size_t j = 0; j < count; ++j) {
      const std::size_t at = j * k % count;
      re += x[2 * j] * cosines[at] - x[2 * j + 1] * sines[at];
      im += x[2 * j] * sines[at] + x[2 * j + 1] * cosines[at];
    }
    worst = std::max({worst, fabsl(re - y[2 * k]), fabsl(im - y[2 * k + 1])});
  }
  const double norm = std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
  return static_cast<double>(worst / (norm * 0x1p-53L));
}

}  // namespace

TEST_CASE("a transform of every length is near the sum in extended precision", "[fourier]") {
  std::vector<std::int64_t> lengths(130);
  std::iota(lengths.begin(), lengths.end(), 1);
  lengths.insert(lengths.end(), {360, 400, 509, 1001, 1024, 1155, 1536});
  for (const std::int64_t length : lengths) {
    CAPTURE(length);
    for (const bool backward : {false, true}) CHECK(error_of(length, backward) < 16);
  }
}

TEST_CASE("a line has the same bits wherever it lies and whoever computes it", "[fourier]") {
  const std::unique_ptr<const executor> pool = make_thread_pool(3);
  for (const std::int64_t length : {1, 6, 17, 64, 385}) {
    const auto count = static_cast<std::size_t>(length);
    const std::vector<double> line = drawn(2 * count);
    const std::vector<double> want = transformed({1, length, 1}, false, line);
    constexpr std::size_t outer = 5, inner = 7;
    std::vector<double> x(2 * outer * count * inner);
    const auto at = [&](std::size_t o, std::size_t j, std::size_t i) {
      return 2 * ((o * count + j) * inner + i);
    };
    for (std::size_t o = 0; o < outer; ++o) {
      for (std::size_t i = 0; i < inner; ++i) {
        for (std::size_t j = 0; j < 2 * count; ++j) x[at(o, j / 2, i) + j % 2] = line[j];
      }
    }
    // Beside others of which one is not finite.
    x[at(2, 0, 3)] = std::numeric_limits<double>::infinity();
    for (const executor* workers : {&inline_executor(), pool.get()}) {
      const std::vector<double> y = transformed({outer, length, inner}, false, x, *workers);
      for (std::size_t o = 0; o < outer; ++o) {
        for (std::size_t i = 0; i < inner; ++i) {
          if (o == 2 && i == 3) continue;
          for (std::size_t j = 0; j < 2 * count; ++j) {
            REQUIRE(y[at(o, j / 2, i) + j % 2] == want[j]);
          }
        }
      }
    }
  }
}

TEST_CASE("a transform of no number is the canonical one", "[fourier]") {
  for (const std::int64_t length : {1, 2, 3, 4, 16, 17}) {
    std::vector<double> x(2 * static_cast<std::size_t>(length));
    x[0] = x[1] = -std::numeric_limits<double>::quiet_NaN();
    for (const double value : transformed({1, length, 1}, false, x)) {
      CHECK(std::isnan(value));
      CHECK(!std::signbit(value));
    }
  }
}

TEST_CASE("real numbers have half of the spectrum of complex ones, and come back", "[fourier]") {
  for (const std::int64_t length : {1, 2, 4, 5, 6, 8, 17, 34, 60}) {
    constexpr std::size_t inner = 3;
    const auto count = static_cast<std::size_t>(length), half = count / 2 + 1;
    const std::vector<double> x = drawn(count * inner);
    std::vector<double> whole(2 * x.size()), spectrum(2 * half * inner), back(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) whole[2 * i] = x[i];
    whole = transformed({1, length, inner}, false, whole);
    const fourier_shape shape{1, length, inner};
    fourier(shape, fourier_kind::from_real, false, 1, x.data(), spectrum.data(), inline_executor());
    whole.resize(spectrum.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const double off = std::abs(spectrum[i] - whole[i]);
      CHECK(off <= (count % 2 == 0 ? 1e-13 : 0.0));
    }
    std::vector<double> backward(spectrum.size());
    fourier(shape, fourier_kind::from_real, true, 1, x.data(), backward.data(), inline_executor());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      CHECK(std::abs(backward[i] - (i % 2 == 0 ? spectrum[i] : -spectrum[i])) <= 1e-13);
    }
    // Numbers that mirror themselves: their imaginary parts are ignored.
    for (std::size_t i = 0; i < inner; ++i) {
      constexpr double inf = std::numeric_limits<double>::infinity();
      spectrum[2 * i + 1] = inf;
      if (count % 2 == 0) spectrum[2 * ((half - 1) * inner + i) + 1] = -inf;
    }
    const double factor = 1 / static_cast<double>(length);
    fourier(shape, fourier_kind::to_real, true, factor, spectrum.data(), back.data(),
            inline_executor());
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(back[i] - x[i]) < 1e-14);
    std::vector<float> single(x.size());
    fourier(shape, fourier_kind::to_real, true, factor, spectrum.data(), single.data(),
            inline_executor());
    CHECK(single == std::vector<float>(back.begin(), back.end()));
  }
}

TEST_CASE("long lines are computed one after the other: each thread has memory", "[fourier]") {
  struct counting final : executor {
    mutable int runs = 0;
    std::size_t concurrency() const noexcept override { return 2; }
    void run(std::size_t tasks, task_body body) const override {
      ++runs;
      inline_executor().run(tasks, body);
    }
  };
  // The second one is a convolution of 2^21 elements.
  for (const auto& [length, runs] : {std::pair{1 << 15, 1}, std::pair{(1 << 19) + 17, 0}}) {
    const counting workers;
    std::vector<float> x(4 * static_cast<std::size_t>(length), 1.0f), y(x.size());
    fourier({2, length, 1}, fourier_kind::complex, false, 1, x.data(), y.data(), workers);
    CHECK(workers.runs == runs);
    CHECK(y[0] == Approx(length));
  }
}

TEST_CASE("a transform takes what is there to transform alone", "[fourier]") {
  double none[2] = {};
  fourier({0, 4, 3}, fourier_kind::complex, false, 1, none, none, inline_executor());
  for (const fourier_shape& shape : {fourier_shape{1, 0, 1}, fourier_shape{-1, 4, 1},
                                     fourier_shape{1, std::int64_t{1} << 31, 1}}) {
    CHECK_THROWS_AS(fourier(shape, fourier_kind::complex, false, 1, none, none, inline_executor()),
                    potl::exception);
  }
  // Refused before any memory is taken: 97 is a factor.
  const fourier_shape long_line{1, (std::int64_t{1} << 24) + 1, 1};
  CHECK_THROWS_AS(
      fourier(long_line, fourier_kind::complex, false, 1, none, none, inline_executor()),
      potl::exception);
}
