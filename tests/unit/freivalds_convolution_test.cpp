// SPDX-License-Identifier: Apache-2.0
// The three products of a convolution pass when they are honest and fall when an element is not.
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <potl/checks/freivalds.hpp>
#include <potl/core/error.hpp>

#include "catch.hpp"
#include "checks/freivalds/freivalds_bounds.hpp"

using namespace potl;
using checks::freivalds_outcome;
using numeric::arithmetic;
using numeric::convolution;
using numeric::inline_executor;

namespace {

struct convolved {
  convolution geometry;
  std::vector<float> x, w, y, dy, dx, dw;
};

convolved compute(const convolution& g, arithmetic mode, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const auto volume = [](const std::array<std::int64_t, 3>& s) { return s[0] * s[1] * s[2]; };
  const auto drawn = [&](std::int64_t count) {
    std::vector<float> out(static_cast<std::size_t>(count));
    for (float& one : out) one = normal(random);
    return out;
  };
  const std::int64_t inputs = g.batch * g.in_channels * volume(g.input);
  const std::int64_t weights = g.out_channels * g.in_channels / g.groups * volume(g.kernel);
  const std::int64_t outputs = g.batch * g.out_channels * volume(g.output());
  convolved out{g,
                drawn(inputs),
                drawn(weights),
                drawn(outputs),
                drawn(outputs),
                drawn(inputs),
                drawn(weights)};
  convolve(mode, g, out.x.data(), out.w.data(), out.y.data(), inline_executor());
  convolve_input_gradient(mode, g, out.dy.data(), out.w.data(), out.dx.data(), inline_executor());
  convolve_weight_gradient(mode, g, out.x.data(), out.dy.data(), out.dw.data(), inline_executor());
  return out;
}

std::vector<convolution> geometries() {
  convolution plain;
  plain.batch = 3;
  plain.in_channels = 6;
  plain.out_channels = 8;
  plain.input = {1, 9, 11};
  plain.kernel = {1, 3, 3};
  plain.padding = {0, 1, 1};
  convolution strided = plain;
  strided.stride = {1, 2, 3};
  strided.dilation = {1, 2, 1};
  convolution grouped = plain;
  grouped.groups = 2;
  convolution depthwise = plain;
  depthwise.groups = 6;
  depthwise.out_channels = 12;
  convolution pointwise = plain;
  pointwise.kernel = {1, 1, 1};
  pointwise.padding = {0, 0, 0};
  convolution deep = plain;
  deep.input = {5, 4, 6};
  deep.kernel = {3, 2, 2};
  deep.batch = 1;
  return {plain, strided, grouped, depthwise, pointwise, deep};
}

using check_of =
    std::function<checks::freivalds_result(const convolved&, const checks::freivalds_options&)>;

struct one_direction {
  const char* name;
  check_of with;
  std::vector<float> convolved::*result;

  checks::freivalds_result check(const convolved& c) const { return with(c, {}); }
  checks::freivalds_result once(const convolved& c) const { return with(c, {1, 1e-9, 0, {}}); }
};

const std::vector<one_direction>& directions() {
  static const std::vector<one_direction> all{
      {"y",
       [](const convolved& c, const checks::freivalds_options& options) {
         return checks::freivalds_convolution(c.geometry, c.x.data(), c.w.data(), nullptr,
                                              c.y.data(), options);
       },
       &convolved::y},
      {"dx",
       [](const convolved& c, const checks::freivalds_options& options) {
         return checks::freivalds_input_gradient(c.geometry, c.dy.data(), c.w.data(), c.dx.data(),
                                                 options);
       },
       &convolved::dx},
      {"dw",
       [](const convolved& c, const checks::freivalds_options& options) {
         return checks::freivalds_weight_gradient(c.geometry, c.x.data(), c.dy.data(), c.dw.data(),
                                                  options);
       },
       &convolved::dw}};
  return all;
}

}  // namespace

TEST_CASE("honest convolutions are consistent, with any geometry and arithmetic", "[freivalds]") {
  std::uint64_t seed = 0;
  for (const convolution& g : geometries()) {
    for (const arithmetic mode : {arithmetic::ord32, arithmetic::cr32}) {
      const convolved c = compute(g, mode, ++seed);
      for (const auto& one : directions()) {
        const auto got = one.check(c);
        INFO("geometry " << (seed - 1) / 2 << ", " << one.name << ": " << got.worst << " "
                         << got.usual);
        CHECK(got.outcome == freivalds_outcome::consistent);
        CHECK(got.rounding < 0x1p-21);
      }
    }
  }
}

TEST_CASE("one false element of a convolution is found, and where", "[freivalds]") {
  std::uint64_t seed = 20;
  for (const convolution& g : geometries()) {
    const convolved c = compute(g, arithmetic::ord32, ++seed);
    for (const auto& one : directions()) {
      convolved false_one = c;
      auto& result = false_one.*one.result;
      result[result.size() / 2] += one.result == &convolved::dw ? 3000 : 3;
      const auto got = one.check(false_one);
      INFO("geometry " << seed - 21 << ", " << one.name);
      CHECK(got.outcome == freivalds_outcome::inconsistent);
      CHECK(got.row >= 0);
      result[result.size() / 2] = std::numeric_limits<float>::quiet_NaN();
      CHECK(one.check(false_one).outcome == freivalds_outcome::not_finite);
    }
  }
}

TEST_CASE("errors of two taps, channels or images do not cancel", "[freivalds]") {
  convolution g = geometries().front();
  g.batch = 20;
  const convolved c = compute(g, arithmetic::ord32, 49);
  // Distances of neighbours: taps in dw, output channels of dw, channels and images of y.
  for (const std::size_t apart : {1u, 54u}) {
    convolved edited = c;
    edited.dw[0] += 20000;
    edited.dw[apart] -= 20000;
    CHECK(directions()[2].check(edited).outcome == freivalds_outcome::inconsistent);
  }
  for (const std::size_t apart : {99u, 792u}) {
    convolved edited = c;
    edited.y[5] += 20;
    edited.y[5 + apart] -= 20;
    CHECK(directions()[0].check(edited).outcome == freivalds_outcome::inconsistent);
  }
}

TEST_CASE("the row that is named is the position of the false element", "[freivalds]") {
  convolution g = geometries().front();
  convolved c = compute(g, arithmetic::ord32, 50);
  const std::size_t positions = 9 * 11, channels = 8;
  c.y[(2 * channels + 5) * positions + 42] += 1;
  const auto got = checks::freivalds_convolution(g, c.x.data(), c.w.data(), nullptr, c.y.data());
  CHECK(got.row == static_cast<std::int64_t>(2 * positions + 42));
}

TEST_CASE("a bias is one more term, and a false one is found, over channels and over images",
          "[freivalds]") {
  for (const std::int64_t batch : {3, 20}) {
    for (const std::int64_t groups : {1, 2}) {
      convolution g = geometries().front();
      g.batch = batch;
      g.groups = groups;
      convolved c = compute(g, arithmetic::ord32, 60);
      std::vector<float> bias{1, -2, 3, 0, 5, -6, 7, 8};
      const std::size_t positions = 9 * 11;
      for (std::size_t i = 0; i < c.y.size(); ++i) c.y[i] += bias[i / positions % bias.size()];
      const auto check = [&] {
        return checks::freivalds_convolution(g, c.x.data(), c.w.data(), bias.data(), c.y.data());
      };
      CHECK(check().outcome == freivalds_outcome::consistent);
      bias[3] = 1;
      CHECK(check().outcome == freivalds_outcome::inconsistent);
    }
  }
}

TEST_CASE("with many images the named row is a position of all of them", "[freivalds]") {
  convolution g = geometries().front();
  g.batch = 20;
  const convolved c = compute(g, arithmetic::ord32, 61);
  for (const auto& one : directions()) {
    INFO(one.name);
    const auto honest = one.check(c);
    CHECK(honest.outcome == freivalds_outcome::consistent);
    // The verifier's own sums are float64 everywhere.
    CHECK(honest.rounding < 0x1p-23);
    convolved edited = c;
    auto& result = edited.*one.result;
    const std::size_t row = 11;
    result[result.size() / 20 * (one.result == &convolved::dw ? 0 : 4) + row] += 20000;
    const auto got = one.check(edited);
    CHECK(got.outcome == freivalds_outcome::inconsistent);
    if (std::string(one.name) != "dw") CHECK(got.row == static_cast<std::int64_t>(row));
  }
}

TEST_CASE("operands of fewer bits are unusual in convolutions, over channels and over images",
          "[freivalds]") {
  for (const std::int64_t batch : {3, 20}) {
    convolution g = geometries().front();
    g.batch = batch;
    convolved c = compute(g, arithmetic::ord32, 62), coarse = c;
    for (auto* values : {&coarse.x, &coarse.w}) {
      for (float& one : *values) {
        one =
            std::ldexp(std::nearbyint(std::ldexp(one, 10 - std::ilogb(one))), std::ilogb(one) - 10);
      }
    }
    convolve(arithmetic::ord32, g, coarse.x.data(), coarse.w.data(), c.y.data(), inline_executor());
    CHECK(directions().front().check(c).outcome != freivalds_outcome::consistent);
  }
}

TEST_CASE("an error is missed as often as a product of two normal numbers is small",
          "[freivalds]") {
  convolution g;
  g.batch = 12;
  g.in_channels = 4;
  g.out_channels = 4;
  g.input = {1, 1, 3};
  convolved c = compute(g, arithmetic::ord32, 63);
  for (const auto* one : {&directions()[0], &directions()[1], &directions()[2]}) {
    convolved edited = c;
    (edited.*one->result)[0] += 1000;
    // The residual is a multiple of |r s|, whose mean is 2 / pi.
    constexpr int trials = 6000;
    std::vector<double> seen;
    double mean = 0;
    for (int i = 0; i < trials; ++i) {
      seen.push_back(one->once(edited).worst);
      mean += seen.back() / trials;
    }
    double missed = 0;
    for (const double share : seen) missed += share < 0.1 * mean * 1.5707963 ? 1 : 0;
    // P(|r s| < 0.1) = 0.217; six deviations are 1e-9, and the mean is off by some 2 %.
    INFO(one->name << ": " << missed / trials);
    CHECK(std::fabs(missed / trials - 0.217) < 6 * std::sqrt(0.217 * 0.783 / trials) + 0.02);
  }
}

TEST_CASE("the tolerance over images is that of all their elements at a position", "[freivalds]") {
  convolution g;
  g.batch = 12;
  g.in_channels = 4;
  g.out_channels = 3;
  const std::vector<float> x(48, 1), w(12, 1);
  std::vector<float> y(36, 4);
  y[7] += 1;
  double mean = 0;
  constexpr int trials = 6000;
  for (int i = 0; i < trials; ++i) {
    mean +=
        checks::freivalds_convolution(g, x.data(), w.data(), nullptr, y.data(), {1, 1e-9, 0, {}})
            .worst /
        trials;
  }
  namespace detail = checks::freivalds_detail;
  const double terms = 4 * std::sqrt(12.0 * 3), unit = 0x1p-24;
  const double sound = detail::gauge_of_pairs(1, 0.5e-9) * (detail::gamma(4, unit) + unit) * terms;
  // The deviation of |r s| is .77.
  CHECK(std::fabs(mean * sound / 0.63662 - 1) < 6 * 0.77 / 0.63662 / std::sqrt(trials));
}

TEST_CASE("pairs of vectors are beyond their gauge as seldom as it says", "[freivalds]") {
  std::mt19937_64 random(64);
  std::normal_distribution<double> normal;
  for (const double probability : {0.3, 0.01, 0.001}) {
    const double gauge = checks::freivalds_detail::gauge_of_pairs(1, probability);
    constexpr int trials = 400'000;
    double beyond = 0;
    // The longest tail is that of a matrix of rank one.
    for (int i = 0; i < trials; ++i) beyond += std::fabs(normal(random) * normal(random)) > gauge;
    CHECK(beyond / trials <= probability);
    CHECK(gauge < 1.5 * std::log(1 / probability) + 4);
  }
}

TEST_CASE("a convolution that is none is the caller's mistake", "[freivalds]") {
  convolution g = geometries().front();
  const convolved c = compute(g, arithmetic::ord32, 51);
  g.kernel = {1, 30, 30};
  CHECK_THROWS_AS(checks::freivalds_convolution(g, c.x.data(), c.w.data(), nullptr, c.y.data()),
                  exception);
}
