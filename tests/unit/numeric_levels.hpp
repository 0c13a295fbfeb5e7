// SPDX-License-Identifier: Apache-2.0
// What the tests of kernels share: all instruction set levels, bits, hostile inputs.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <potl/numeric/detail/isa.hpp>

#include "guarded_memory.hpp"

namespace potl::test {

inline const std::vector<numeric::isa> all_levels{numeric::isa::portable, numeric::isa::neon,
                                                  numeric::isa::avx2,     numeric::isa::avx512,
                                                  numeric::isa::vnni,     numeric::isa::amx};

/// Runs body(level) at each of these levels that this processor has; restores the level.
template <class Body>
void at_each_level(const Body& body, const std::vector<numeric::isa>& levels = all_levels) {
  struct restored {
    numeric::isa before = numeric::active_isa();
    ~restored() { numeric::cap_isa(before); }
  } const afterwards;
  for (const numeric::isa level : levels) {
    if (numeric::cap_isa(level) == level) body(level);
  }
}

/// Runs body(level, end) at each level with either end at a forbidden page.
template <class Body>
void at_each_level_and_end(const Body& body) {
  at_each_level([&](numeric::isa level) {
    for (const guarded_end at : guarded_ends) body(level, at);
  });
}

inline std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }
inline std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

/// Of two ranges, each a std::vector or guarded.
template <class A, class B>
bool same_bits(const A& a, const B& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (bits(a[i]) != bits(b[i])) return false;
  return true;
}

/// Zeros, subnormals, infinities, NaNs with payloads, ends of ranges, and every magnitude.
template <class Real>
std::vector<Real> hostile(std::size_t random, std::uint64_t seed) {
  using limits = std::numeric_limits<Real>;
  std::vector<Real> values{Real(0),
                           limits::denorm_min(),
                           limits::min(),
                           limits::max(),
                           limits::infinity(),
                           Real(1),
                           Real(0.5),
                           Real(2),
                           Real(3),
                           Real(88.7),
                           Real(104),
                           Real(746),
                           Real(1e10)};
  values.push_back(std::nextafter(Real(1), Real(0)));
  values.push_back(std::nextafter(Real(1), Real(2)));
  const std::size_t positive = values.size();
  for (std::size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  values.push_back(limits::quiet_NaN());
  values.push_back(-limits::quiet_NaN());
  std::mt19937_64 draw(seed);
  for (std::size_t i = 0; i < random; ++i) {
    const std::uint64_t word = draw();
    if constexpr (sizeof(Real) == 4) {
      values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
    } else {
      values.push_back(std::bit_cast<double>(word));
    }
    // And numbers of the size that functions care about.
    values.push_back(static_cast<Real>(std::ldexp(static_cast<double>(draw() >> 11), -50) - 4));
  }
  return values;
}

}  // namespace potl::test
