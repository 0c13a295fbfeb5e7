// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>

#include "tile_kernels.hpp"
#include "tile_plain.hpp"

namespace potl::numeric::conv {
namespace {

struct scalar : plain_moves {
  using type = float;
  using sum = float;
  static constexpr bool multiplies_memory = false;
  static constexpr std::int64_t width = 1;
  static float zero() { return 0.0F; }
  static float load(const float* at) { return *at; }
  static float load_some(const float* at, std::int64_t) { return *at; }
  static float load_sums(const float* at, std::int64_t) { return *at; }
  static float load_second(const float* at, std::int64_t) { return *at; }
  static float broadcast(float value) { return value; }
  static float fma(float a, float b, float c) { return std::fma(a, b, c); }
  static float add(float a, float b) { return a + b; }
  static float canonical(float a) { return std::isnan(a) ? std::bit_cast<float>(0x7fc00000U) : a; }
  static void store(float* at, float value) { *at = value; }
  static void store_some(float* at, std::int64_t, float value) { *at = value; }
};

// Products of float32 are exact in double: a multiplication and an addition are what fma is.
struct wide_scalar {
  using type = double;
  using sum = double;
  static constexpr bool multiplies_memory = false;
  static constexpr std::int64_t width = 1;
  static double zero() { return 0; }
  static double load(const float* at) { return *at; }
  static double load_some(const float* at, std::int64_t) { return *at; }
  static double load_sums(const double* at, std::int64_t) { return *at; }
  static double broadcast(double value) { return value; }
  static double fma(double a, double b, double c) { return a * b + c; }
  static double add(double a, double b) { return a + b; }
  static double root(double a) { return std::sqrt(a); }
  static double canonical(double a) {
    return std::isnan(a) ? std::bit_cast<double>(0x7ff8000000000000U) : a;
  }
  static void store_some(double* at, std::int64_t, double value) { *at = value; }
};

constexpr kernels table = kernels_of<scalar, wide_scalar, 4>(tiles<scalar, 8, 4, 4, 4>(),
                                                             tiles<wide_scalar, 8, 4, 4, 4>());

}  // namespace

const kernels& portable_kernels() noexcept { return table; }

}  // namespace potl::numeric::conv
