// SPDX-License-Identifier: Apache-2.0
#include "numeric/gemm/integers_avx512.hpp"
#include "numeric/gemm/integers_short.hpp"

namespace potl::numeric::detail {
namespace {

struct vector_with_dot : vector_without_dot {
  static constexpr bool multiplies_memory = true;
  static type add_products(type sum, type a, type b) {
    // g++ 12 copies the sums of the intrinsic from register to register, and runs out of them.
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
  // The operand in memory takes no instruction of its own.
  static type add_products_at(type sum, const std::int16_t* a, type b) {
    using two = int __attribute__((may_alias));
    __asm__("vpdpwssd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(b), "m"(*reinterpret_cast<const two*>(a)));
    return sum;
  }
};

constexpr short_tiles<vector_with_dot> short_table;
void multiply_short_tile(const integer_tile& t) { short_table.run(t); }

constexpr kernels_integer table = [] {
  kernels_integer all = integer_table<vector_with_dot>::value;
  all.bits16_short = {short_rows,
                      short_columns,
                      multiply_short_tile,
                      pack_short<short_side::rows>,
                      pack_short<short_side::columns>,
                      short_terms,
                      short_bytes,
                      short_bytes,
                      integer_chunk};
  return all;
}();

}  // namespace

const kernels_integer& vnni_integer() noexcept { return table; }

}  // namespace potl::numeric::detail
