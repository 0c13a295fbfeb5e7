// SPDX-License-Identifier: Apache-2.0
// Which tensors move as an average of another; by hand, the cases that trainings seldom make.
#include "catch.hpp"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <potl/numeric/detail/averages.hpp>

using namespace potl;
using numeric::is_average;
using numeric::tensor_course;

namespace {

using numbers = std::vector<double>;

std::uint16_t half_of(double value) {  // exact, or to nearest where it is between two
  if (!std::isfinite(value)) return std::isnan(value) ? 0x7e00 : value < 0 ? 0xfc00 : 0x7c00;
  const int exponent = value == 0 ? -14 : std::max(std::ilogb(value), -14);
  const double whole = std::nearbyint(std::fabs(value) * std::ldexp(1, 10 - exponent));
  const auto bits = static_cast<std::uint16_t>((exponent + 14) * 1024 + whole);
  return static_cast<std::uint16_t>(bits | (std::signbit(value) ? 0x8000 : 0));
}

/// Values of one tensor after each step, kept as the type has them.
struct course {
  dtype type;
  std::vector<std::uint64_t> dims;
  std::vector<std::vector<std::uint8_t>> kept{};

  void add(const numbers& values) {
    auto& bytes = kept.emplace_back();
    for (const double one : values) {
      const auto single = static_cast<float>(one);
      std::uint32_t word = 0;
      std::memcpy(&word, &single, 4);
      const std::uint64_t rounded = word + 0x7fffu + (word >> 16 & 1);
      const auto brain = static_cast<std::uint16_t>(rounded >> 16);
      const std::uint16_t half = type == dtype::f16 ? half_of(one) : std::uint16_t{0};
      const void* from = type == dtype::f64    ? static_cast<const void*>(&one)
                         : type == dtype::bf16 ? static_cast<const void*>(&brain)
                         : type == dtype::f16  ? static_cast<const void*>(&half)
                                               : static_cast<const void*>(&single);
      const auto* first = static_cast<const std::uint8_t*>(from);
      bytes.insert(bytes.end(), first, first + info(type).size);
    }
  }
  tensor_course view() const {
    tensor_course out{type, dims, {}};
    for (const auto& one : kept) out.values.emplace_back(one.data(), one.size());
    return out;
  }
};

numbers noise(std::size_t count, unsigned seed, double size = 1) {
  std::mt19937 bits(seed);
  numbers out(count);
  for (double& one : out) one = size * (static_cast<double>(bits()) * 0x1p-31 - 1);
  return out;
}

using step_of = std::function<double(double own, double before, double after, std::size_t i)>;

/// A parameter that moves by chance, and what `move` makes of its first values times `start`.
struct pair {
  course own, other;

  pair(dtype own_type, dtype other_type, const step_of& move, double start = 1,
       std::size_t count = 24, double size = 1, bool matrix = true) {
    const std::vector<std::uint64_t> dims =
        matrix ? std::vector<std::uint64_t>{count / 2, 2} : std::vector<std::uint64_t>{count};
    own = {own_type, dims};
    other = {other_type, dims};
    numbers weights = noise(count, 1, size), averages;
    for (double& one : weights) averages.push_back(start * (one = static_cast<float>(one)));
    own.add(averages);
    other.add(weights);
    for (unsigned step = 0; step < 2; ++step) {
      const numbers by = noise(count, 2 + step, 0.01 * size), before = weights;
      for (std::size_t i = 0; i < count; ++i) {
        weights[i] = static_cast<float>(weights[i] + by[i]);
        averages[i] = move(averages[i], before[i], weights[i], i);
      }
      own.add(averages);
      other.add(weights);
    }
  }
  bool found() const { return is_average(own.view(), other.view()); }
};

double slowly(double own, double, double after, std::size_t) { return 0.9 * own + 0.1 * after; }
double rests(double own, double, double, std::size_t) { return own; }

}  // namespace

TEST_CASE("what starts as a parameter and follows it is an average, in every type") {
  for (const dtype type : {dtype::f64, dtype::f32, dtype::f16, dtype::bf16}) {
    CAPTURE(static_cast<int>(type));
    CHECK(pair(type, dtype::f32, slowly).found());
    CHECK(pair(type, dtype::f32, slowly, 0).found());
    CHECK(pair(type, dtype::f32, rests).found());
    CHECK(pair(type, dtype::f32, [](double, double, double after, std::size_t) {
            return after;
          }).found());
    CHECK(pair(type, dtype::f32, [](double, double before, double, std::size_t) {
            return before;
          }).found());
    CHECK_FALSE(pair(type, dtype::f32, slowly, 0.5).found());
    CHECK_FALSE(pair(type, dtype::f32, rests, 0).found());
  }
}

TEST_CASE("where one type holds fewer numbers the start is rounded, below the normal ones too") {
  CHECK(pair(dtype::f16, dtype::f32, rests, 1, 24, 1e-5).found());
  CHECK(pair(dtype::bf16, dtype::f32, rests, 1, 24, 1e-39).found());
  CHECK_FALSE(pair(dtype::f16, dtype::f32, rests, 1.01, 24, 1e-5).found());
}

TEST_CASE("one element that moves otherwise is enough, wherever it is looked for") {
  for (const std::size_t odd : {0u, 13u, 23u}) {
    const pair one(dtype::f32, dtype::f32, [&](double own, double b, double a, std::size_t i) {
      return slowly(own, b, a, i) + (i == odd ? 1e-4 : 0);
    });
    CHECK_FALSE(one.found());
  }
}

TEST_CASE("what is not finite is no average") {
  for (const double odd : {std::nan(""), std::numeric_limits<double>::infinity(), 1e300}) {
    const pair own(dtype::f64, dtype::f64, [&](double one, double b, double a, std::size_t i) {
      return i == 3 ? odd : slowly(one, b, a, i);
    });
    CHECK_FALSE(own.found());
    pair other(dtype::f64, dtype::f64, rests);
    std::memcpy(other.other.kept[1].data(), &odd, 8);
    CHECK_FALSE(other.found());
  }
}

TEST_CASE("three numbers, other shapes and integers tell nothing") {
  CHECK_FALSE(pair(dtype::f32, dtype::f32, slowly, 1, 3, 1, false).found());
  CHECK(pair(dtype::f32, dtype::f32, slowly, 1, 4, 1, false).found());
  pair turned(dtype::f32, dtype::f32, slowly);
  std::swap(turned.own.dims[0], turned.own.dims[1]);
  CHECK_FALSE(turned.found());
  pair whole(dtype::f32, dtype::f32, rests);
  whole.own.type = whole.other.type = dtype::i32;
  CHECK_FALSE(whole.found());
}

TEST_CASE("a vector of one number that rests may be anything") {
  const auto ones = [](bool matrix) {
    pair out(dtype::f32, dtype::f32, rests, 1, 24, 1, matrix);
    for (auto* all : {&out.own, &out.other}) {
      for (auto& bytes : all->kept) {
        for (std::size_t at = 0; at < bytes.size(); at += 4) bytes[at] = bytes[0];
        for (std::size_t at = 4; at < bytes.size(); ++at) bytes[at] = bytes[at % 4];
      }
    }
    return out.found();
  };
  CHECK_FALSE(ones(false));
  CHECK(ones(true));
}

TEST_CASE("of a parameter that rests every multiple in between is an average") {
  pair one(dtype::f32, dtype::f32, slowly, 0);
  one.other.kept[1] = one.other.kept[2] = one.other.kept[0];
  one.own.kept.clear();
  const numbers weights = noise(24, 1);
  for (const double share : {0.0, 0.1, 0.19}) {
    numbers own = weights;
    for (double& each : own) each *= share;
    one.own.add(own);
  }
  CHECK(one.found());
}

TEST_CASE("where a parameter goes on as before its values give fewer factors") {
  const numbers by = noise(24, 2), odd = noise(24, 3);
  for (const double size : {0.0, 1e-3}) {
    pair one(dtype::f64, dtype::f64, rests);
    one.own.kept.clear();
    one.other.kept.clear();
    for (const int step : {0, 1, 2}) {
      numbers own(24), its(24);
      for (std::size_t i = 0; i < 24; ++i) {
        const double start = static_cast<double>(i) - 11.5,
                     on = std::ldexp(std::round(64 * by[i]), -6);
        its[i] = start + step * on;
        own[i] = start + (step == 2 ? 0.5 * on + size * odd[i] : 0);
      }
      one.own.add(own);
      one.other.add(its);
    }
    CHECK(one.found() == (size == 0));
  }
}

TEST_CASE("of large tensors a part is looked at, and their start wholly") {
  constexpr std::size_t count = 140'000;  // every third
  const auto move = [](double own, double b, double a, std::size_t i) {
    return slowly(own, b, a, i) + (i == 30'000 ? 0.5 : i == 30'001 ? 0.7 : 0);
  };
  CHECK_FALSE(pair(dtype::f32, dtype::f32, move, 1, count).found());
  pair start(dtype::f32, dtype::f32, slowly, 1, count);
  CHECK(start.found());
  start.own.kept[0][4 * 30'001] ^= 1;
  CHECK_FALSE(start.found());
}
