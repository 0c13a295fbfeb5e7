// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)
#include "../elementwise/lanes_neon.hpp"

#include "tile_kernels.hpp"
#include "tile_plain.hpp"

namespace potl::numeric::conv {
namespace {

using elementwise::f32x4;
using elementwise::f64x2;

// What float32 in memory becomes, as Vector.
template <class Vector>
struct lanes_of {
  using type = Vector;
  using sum = typename Vector::element;
  static constexpr bool multiplies_memory = false;
  static constexpr std::int64_t width = Vector::lanes;
  static type zero() { return type(sum{0}); }
  static type load_sums(const sum* at, std::int64_t some) {
    return some == width ? type::load(at) : type::load_first(at, static_cast<std::size_t>(some));
  }
  static type broadcast(sum value) { return type(value); }
  static type fma(type a, type b, type c) { return elementwise::fma(a, b, c); }
  static type add(type a, type b) { return a + b; }
  static type canonical(type a) { return elementwise::canonical(a); }
  static void store(sum* at, type value) { value.store(at); }
  static void store_some(sum* at, std::int64_t some, type value) {
    if (some == width) return store(at, value);
    value.store_first(at, static_cast<std::size_t>(some));
  }
};

struct single : lanes_of<f32x4>, plain_moves {
  static type load(const float* at) { return type::load(at); }
  static type load_some(const float* at, std::int64_t some) { return load_sums(at, some); }
  struct range {
    std::int64_t low, high;
  };
  static range between(std::int64_t low, std::int64_t high) { return {low, high}; }
  static type load_between(const float* at, range lanes) {
    float all[width] = {};
    for (std::int64_t i = lanes.low; i < lanes.high && i < width; ++i) all[i] = at[i];
    return load(all);
  }
  // at[0], at[2] ... for so many lanes, zeros beyond.
  static type load_second(const float* at, std::int64_t some) {
    float all[width] = {};
    for (std::int64_t i = 0; i < some; ++i) all[i] = at[2 * i];
    return load(all);
  }
};

struct wide : lanes_of<f64x2> {
  static type load(const float* at) { return type(vcvt_f64_f32(vld1_f32(at))); }
  static type load_some(const float* at, std::int64_t some) {
    return some == width ? load(at) : type(float64x2_t{static_cast<double>(*at), 0});
  }
  static type root(type a) { return elementwise::sqrt(a); }
};

constexpr kernels table =
    kernels_of<single, wide, 8>(tiles<single, 8, 8, 6, 5>(), tiles<wide, 8, 8, 6, 5>());

}  // namespace

const kernels& neon_kernels() noexcept { return table; }

}  // namespace potl::numeric::conv
#endif
