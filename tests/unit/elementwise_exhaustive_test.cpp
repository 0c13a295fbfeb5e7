// SPDX-License-Identifier: Apache-2.0
// Every float32 there is. The long tests are hidden: scripts/test_full.py runs them by tag.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

#include <potl/numeric/detail/isa.hpp>
#include <potl/numeric/elementwise.hpp>

#include "catch.hpp"
#include "elementwise_digests.hpp"
#include "elementwise_reference.hpp"
#include "numeric_levels.hpp"

using namespace potl::numeric;
using namespace potl::test;

namespace {

constexpr std::size_t block = 1 << 16;
constexpr std::size_t blocks = std::size_t{1} << 16;

/// The floats with these bits, in ascending order of their bits.
void fill(std::size_t number, std::vector<float>& x) {
  x.resize(block);
  for (std::size_t i = 0; i < block; ++i)
    x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(number * block + i));
}

std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
  state = (state ^ word) * 0x9E3779B97F4A7C15U;
  return state ^ (state >> 29);
}
std::uint64_t digest(std::span<const float> values) {
  std::array<std::uint64_t, 8> states{};  // side by side, because each waits for itself
  for (std::size_t i = 0; i < values.size(); i += states.size())
    for (std::size_t k = 0; k < states.size(); ++k)
      states[k] = mixed(states[k], bits(values[i + k]));
  std::uint64_t all = 0;
  for (const std::uint64_t state : states) all = mixed(all, state);
  return all;
}

/// As `ulps`, without calls.
double float_ulps(float got, double exact) {
  if (exact != exact || got != got) return exact != exact && got != got ? 0 : 1e9;
  const float rounded = static_cast<float>(exact);
  if (rounded == got) {
    if (std::isinf(got)) return 0;
  } else if (std::isinf(rounded) || std::isinf(got)) {
    return std::isinf(got) && !std::isinf(exact) ? 1 : 1e9;
  }
  const auto field = static_cast<std::uint64_t>(std::max(bits(rounded) >> 23 & 0xFFU, 1U));
  const double unit = std::bit_cast<double>((field + 1023 - 127 - 23) << 52);
  return std::fabs(static_cast<double>(got) - exact) / unit;
}

/// Where a function goes up (1), down (-1), or either within a distance of its extremum (0).
struct shape {
  unary function;
  int below, above;  ///< direction on either side of the turn
  double turn = 0;   ///< place of the extremum
  double flat = 0;   ///< how far around it rounding may show
};
const std::vector<shape>& shapes() {
  static const std::vector<shape> all{{unary::exp, 1, 1},
                                      {unary::exp2, 1, 1},
                                      {unary::expm1, 1, 1},
                                      {unary::log, 1, 1},
                                      {unary::log2, 1, 1},
                                      {unary::log10, 1, 1},
                                      {unary::log1p, 1, 1},
                                      {unary::rsqrt, -1, -1},
                                      {unary::sinh, 1, 1},
                                      {unary::cosh, -1, 1},
                                      {unary::tanh, 1, 1},
                                      {unary::sigmoid, 1, 1},
                                      {unary::log_sigmoid, 1, 1},
                                      {unary::softplus, 1, 1},
                                      {unary::erf, 1, 1},
                                      {unary::erfc, -1, -1},
                                      {unary::erfinv, 1, 1},
                                      {unary::gelu, -1, 1, -0.7517915, 0.002},
                                      {unary::silu, -1, 1, -1.2784645, 0.002},
                                      {unary::mish, -1, 1, -1.1924536, 0.002},
                                      {unary::gelu_tanh, -1, 1, -0.7524614, 0.002}};
  return all;
}
int direction(const shape& of, double x) {
  if (std::fabs(x - of.turn) <= of.flat) return 0;
  return x < of.turn ? of.below : of.above;
}

struct finding {
  double worst = 0;  ///< ulp
  float at = 0;
  std::uint64_t descents = 0;
  float descent_at = 0;
};

/// Compares a block with the reference in double, whose own error is below 1e-6 ulp of float, and
/// looks at neighbours.
finding examine(const reference& row, const shape* form, std::size_t number) {
  std::vector<float> x, y(block);
  fill(number, x);
  apply(row.function, std::span<const float>(x), std::span<float>(y), inline_executor());
  finding found;
  for (std::size_t i = 0; i < block; ++i) {
    const double error = float_ulps(y[i], row.in_double(static_cast<double>(x[i])));
    if (error > found.worst) {
      found.worst = error;
      found.at = x[i];
    }
    if (form == nullptr || x[i] != x[i] || y[i] != y[i]) continue;
    // The next float in ascending bits is the next larger in magnitude.
    const float next = std::bit_cast<float>(bits(x[i]) + 1);
    if (next != next) continue;
    const float after = i + 1 < block ? y[i + 1] : evaluate(row.function, next);
    const int way = direction(*form, x[i]) * (x[i] < 0 || bits(x[i]) >> 31 ? -1 : 1);
    if ((way > 0 && after < y[i]) || (way < 0 && after > y[i])) {
      ++found.descents;
      found.descent_at = x[i];
    }
  }
  return found;
}

/// Every `step`-th block of one function.
void check_function(const reference& row, std::size_t step, const executor& workers) {
  const shape* form = nullptr;
  for (const shape& one : shapes())
    if (one.function == row.function) form = &one;
  std::vector<finding> all(blocks / step);
  workers.run(all.size(),
              [&](std::size_t number) { all[number] = examine(row, form, number * step); });
  finding total;
  for (const finding& one : all) {
    if (one.worst > total.worst) {
      total.worst = one.worst;
      total.at = one.at;
    }
    total.descents += one.descents;
    if (one.descents != 0) total.descent_at = one.descent_at;
  }
  if (step == 1) {  // a row of the table in docs/reference/elementwise.md
    const char* order = form == nullptr ? "" : total.descents == 0 ? "yes" : "no";
    std::printf("| %s | %.4f | %a | %s |\n", to_string(row.function), total.worst,
                static_cast<double>(total.at), order);
    std::fflush(stdout);
  }
  INFO(to_string(row.function) << " is " << total.worst << " ulp off at " << total.at << ", goes "
                               << "back " << total.descents << " times, at " << total.descent_at);
  CHECK(total.worst < 1.0);
  CHECK(total.descents == 0);
}

/// Every `step`-th block of every `share`-th function, beginning with the `first`. One function
/// alone: `potl_unit_tests "[exhaustive_second]" -c tanh`.
void check_accuracy(std::size_t first, std::size_t share, std::size_t step) {
  const auto workers = make_thread_pool(2);
  for (std::size_t k = first; k < references().size(); k += share) {
    const reference& row = references()[k];
    DYNAMIC_SECTION(to_string(row.function)) { check_function(row, step, *workers); }
  }
}

}  // namespace

TEST_CASE("float32 results are within 1 ulp and monotone on a sample of neighbours",
          "[elementwise]") {
  check_accuracy(0, 1, 4099);
}
TEST_CASE("float32 results are within 1 ulp and monotone, half of the functions",
          "[.][exhaustive_first]") {
  check_accuracy(0, 2, 1);
}
TEST_CASE("float32 results are within 1 ulp and monotone, the other half",
          "[.][exhaustive_second]") {
  check_accuracy(1, 2, 1);
}

/// One number for the results at every `step`-th block.
std::uint64_t results_digest(unary function, std::size_t step, const executor& workers) {
  std::vector<std::uint64_t> each(blocks / step);
  workers.run(each.size(), [&](std::size_t number) {
    std::vector<float> x, y(block);
    fill(number * step, x);
    apply(function, std::span<const float>(x), std::span<float>(y), inline_executor());
    each[number] = digest(y);
  });
  std::uint64_t all = 0;
  for (const std::uint64_t one : each) all = mixed(all, one);
  return all;
}

TEST_CASE("every 64th block of float32 results has the recorded bits at every level",
          "[.][digests]") {
  const auto workers = make_thread_pool(2);
  for (const auto& row : elementwise_digests) {
    const unary function = row.first;
    at_each_level([&](isa level) {
      if (level > isa::avx512) return;  // the kernels are those of AVX-512
      const std::uint64_t found = results_digest(function, 64, *workers);
      char line[64];
      std::snprintf(line, sizeof line, "{unary::%s, 0x%016llxU},", to_string(function),
                    static_cast<unsigned long long>(found));
      INFO(line << " at " << to_string(level));
      CHECK(found == row.second);
    });
  }
}

TEST_CASE("every float32 result has the same bits with AVX2 and AVX-512",
          "[.][exhaustive_levels]") {
  const auto workers = make_thread_pool(2);
  for (const auto& row : elementwise_digests) {
    const unary function = row.first;
    std::vector<std::uint64_t> found;
    at_each_level([&](isa level) {
      if (level == isa::avx2 || level == isa::avx512)
        found.push_back(results_digest(function, 1, *workers));
    });
    INFO(to_string(function));
    for (const std::uint64_t one : found) CHECK(one == found.front());
  }
}

TEST_CASE("one power for all gives each float32 the bits of its own", "[.][exhaustive_powers]") {
  const auto workers = make_thread_pool(2);
  for (const float power : {1.0F, 2.0F, 3.0F, 0.5F, -0.5F, -1.0F, -2.0F}) {
    std::vector<char> differs(blocks);
    workers->run(blocks, [&](std::size_t number) {
      std::vector<float> x, for_all(block), each(block);
      fill(number, x);
      const std::vector<float> powers(block, power);
      apply(binary::pow, x, std::span(&power, 1), std::span(for_all), inline_executor());
      apply(binary::pow, x, powers, std::span(each), inline_executor());
      differs[number] = digest(for_all) != digest(each);
    });
    INFO("the power " << power);
    CHECK(std::count(differs.begin(), differs.end(), 1) == 0);
  }
}
