// SPDX-License-Identifier: Apache-2.0
#include "words_body.hpp"

namespace potl::randoms {
namespace {

struct lane {
  std::uint64_t v;
  static constexpr std::size_t lanes = 1;
  static constexpr std::size_t together = 4;
  static lane all(std::uint64_t x) { return {x}; }
  static lane counting(std::uint64_t x) { return {x}; }
  static lane multiply(lane x, lane y) { return {(x.v & 0xFFFFFFFFu) * (y.v & 0xFFFFFFFFu)}; }
  static lane exclusive(lane x, lane y, lane z) { return {x.v ^ y.v ^ z.v}; }
  lane upper() const { return {v >> 32}; }
  static lane joined(lane upper, lane lower) { return {upper.v << 32 | (lower.v & 0xFFFFFFFFu)}; }
  static void store_pairs(lane even, lane odd, std::uint64_t* to) {
    to[0] = even.v;
    to[1] = odd.v;
  }
};

void below(const std::uint64_t* words, std::size_t count, std::uint64_t limit, float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = words[i] < limit ? 1.0F : 0.0F;
}

}  // namespace

const kernels& portable_kernels() noexcept {
  static constexpr kernels all{&words<lane>, &below, &centre<numeric::elementwise::single<double>>};
  return all;
}

}  // namespace potl::randoms
