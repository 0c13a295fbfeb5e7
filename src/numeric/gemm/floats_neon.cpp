// SPDX-License-Identifier: Apache-2.0
// float32 and float64 on 64-bit ARM: tiles of 8 x 8 and 8 x 4, 16 of the 32 registers. Copies,
// rounding and squares are those for any processor.
#if defined(__aarch64__)
#include "numeric/elementwise/lanes_neon.hpp"
#include "numeric/gemm/tile_vector.hpp"

namespace potl::numeric::detail {
namespace {

template <class Lanes>
struct vector {
  using value = typename Lanes::element;
  using type = Lanes;
  using mask = std::size_t;  // the first so many
  static constexpr bool multiplies_memory = false;
  static constexpr bool fetches_next = false;
  static constexpr int width = Lanes::lanes;
  static type zero() { return Lanes(value{0}); }
  static type load(const value* from) { return Lanes::load(from); }
  static type load(const value* from, mask lanes) {
    return lanes == width ? load(from) : Lanes::load_first(from, lanes);
  }
  static type broadcast(const value* from) { return Lanes(*from); }
  static type multiply_add(type a, type b, type c) { return fma(a, b, c); }
  static type multiply_add_at(const value* a, type b, type c) { return fma(broadcast(a), b, c); }
  static type add(type a, type b) { return a + b; }
  static void store(value* to, type x) { x.store(to); }
  static void store(value* to, type x, mask lanes) {
    if (lanes == width) return store(to, x);
    x.store_first(to, lanes);
  }
  static void stream(value* to, type x) { store(to, x); }  // unused: drain is null
  static mask first_lanes(int count) { return static_cast<mask>(count); }
  static type canonical(type x) { return elementwise::canonical(x); }
};

constexpr int rows = 8, vectors = 2;

template <class Lanes>
void multiply(const tile<typename Lanes::element>& t) {
  static constexpr tile_table<vector<Lanes>, rows, vectors> tiles;
  tiles.run(t);
}

template <class Lanes, class From>
auto with_tiles(kernels<From, typename Lanes::element> portable) {
  portable.rows = rows;
  portable.columns = vectors * Lanes::lanes;
  portable.multiply = multiply<Lanes>;
  return portable;
}

}  // namespace

const kernels_f32& neon_f32() noexcept {
  static const kernels_f32 all = with_tiles<elementwise::f32x4>(portable_f32());
  return all;
}

const kernels_f64& neon_f64() noexcept {
  static const kernels_f64 all = with_tiles<elementwise::f64x2>(portable_f64());
  return all;
}

const kernels_widening& neon_widening() noexcept {
  static const kernels_widening all = [] {
    kernels_widening widening = portable_widening();
    widening.product = with_tiles<elementwise::f64x2>(widening.product);
    return widening;
  }();
  return all;
}

}  // namespace potl::numeric::detail
#endif
