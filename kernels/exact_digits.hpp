// SPDX-License-Identifier: Apache-2.0
// The exact sum of products of floats, shared out among the threads of a warp. Private: needs
// block.hpp's macros.
//
// Claims: the same value as numeric::exact_sum, which rounds it. Each lane adds its products to
// digits of its own, digits of lanes are added, and integers have no order.
// How: a product of two significands has 48 bits and digits have 48, so that it fills two of them.
// Assumes finite operands, and a sum below 2^290.
// Cost: 3 KB of shared memory; for a product two words of it are read and written.
#pragma once

#include <bit>
#include <cstdint>

#include <potl/numeric/detail/exact_sum.hpp>

#include "block.hpp"

namespace potl::cuda {

template <class Block>
class exact_digits {
  static constexpr unsigned count = 12, width = 48;
  static constexpr int lowest = -298;  ///< exponent of digit 0: both operands are 2^-149
  static constexpr std::int64_t mask = (std::int64_t{1} << width) - 1;

 public:
  static constexpr unsigned lanes = 32, pitch = lanes + 1;
  /// Lane by lane, and behind them the sum of all.
  using memory = typename Block::template shared<std::int64_t, count * pitch>;
  /// A product adds less than 2^48 to a digit, so these leave it below 2^63.
  static constexpr std::int64_t most_unsettled = std::int64_t{1} << 14;

  POTL_BODY explicit exact_digits(memory& words) : words_(words) {}

  POTL_BODY void clear(unsigned lane, unsigned thread) const {
    POTL_UNROLL
    for (unsigned digit = 0; digit < count; ++digit) put(digit, lane, 0, thread);
  }

  /// Adds a b to the digits of a lane.
  POTL_BODY void add(float a, float b, unsigned lane, unsigned thread) const {
    const parts x(a), y(b);
    const std::uint64_t product = std::uint64_t{x.significand} * y.significand;
    const unsigned shift = x.exponent + y.exponent - 2;
    const unsigned digit = shift / width, within = shift % width;
    const auto low = static_cast<std::int64_t>(product << within) & mask;
    const auto high = static_cast<std::int64_t>(product >> (width - within));
    const bool is_negative = x.is_negative != y.is_negative;
    raise_by(digit, lane, is_negative ? -low : low, thread);
    raise_by(digit + 1, lane, is_negative ? -high : high, thread);
  }

  /// All digits but the highest into [0, 2^48).
  POTL_BODY void settle(unsigned lane, unsigned thread) const {
    std::int64_t carry = 0;
    POTL_UNROLL
    for (unsigned digit = 0; digit < count - 1; ++digit) {
      const std::int64_t sum = at(digit, lane, thread) + carry;
      carry = sum >> width;  // arithmetic: rounds towards minus infinity
      put(digit, lane, sum & mask, thread);
    }
    raise_by(count - 1, lane, carry, thread);
  }

  /// The digits of all lanes, which are settled, are added: each digit by one thread.
  POTL_BODY void join(unsigned thread) const {
    if (thread >= count) return;
    std::int64_t sum = 0;
    POTL_UNROLL
    for (unsigned lane = 0; lane < lanes; ++lane) sum += at(thread, lane, thread);
    put(thread, lanes, sum, thread);
  }

  /// The joined sum, rounded by its definition. Changes the digits.
  POTL_BODY float rounded(int bits, unsigned thread) const {
    settle(lanes, thread);
    const bool is_negative = at(count - 1, lanes, thread) < 0;
    if (is_negative) {
      POTL_UNROLL
      for (unsigned digit = 0; digit < count; ++digit) {
        put(digit, lanes, -at(digit, lanes, thread), thread);
      }
      settle(lanes, thread);
    }
    numeric::exact_sum sum;
    // Half a digit fits into a float.
    POTL_ROLLED
    for (unsigned half = 0; half < 2 * (count - 1); ++half) {
      const auto digit = static_cast<std::uint64_t>(at(half / 2, lanes, thread));
      const auto part = static_cast<float>(digit >> (half % 2 * 24) & 0xffffffU);
      const float unit = power_of_two(lowest / 2 + 12 * static_cast<int>(half));
      sum.add_product((is_negative ? -part : part) * unit, unit);
    }
    // The highest digit stands for 2^230 and more. All that is infinite.
    if (at(count - 1, lanes, thread) != 0) {
      sum.add_product(is_negative ? -0x1p127F : 0x1p127F, 0x1p103F);
    }
    return sum.round_to(bits);
  }

 private:
  /// x = +-significand 2^(exponent - 150).
  struct parts {
    std::uint32_t significand;
    unsigned exponent;
    bool is_negative;

    POTL_BODY explicit parts(float x) {
      const auto word = std::bit_cast<std::uint32_t>(x);
      const unsigned biased = word >> 23 & 0xffU;
      significand = (word & 0x7fffffU) | (biased == 0 ? 0U : 0x800000U);
      exponent = biased == 0 ? 1 : biased;
      is_negative = word >> 31 != 0;
    }
  };

  POTL_BODY static float power_of_two(int exponent) {
    const unsigned word =
        exponent < -126 ? 1U << (exponent + 149) : static_cast<unsigned>(exponent + 127) << 23;
    return std::bit_cast<float>(word);
  }

  POTL_BODY std::int64_t at(unsigned digit, unsigned lane, unsigned thread) const {
    return Block::template read<1>(words_, digit * pitch + lane, thread).at[0];
  }
  POTL_BODY void put(unsigned digit, unsigned lane, std::int64_t value, unsigned thread) const {
    Block::write(words_, digit * pitch + lane, value, thread);
  }
  POTL_BODY void raise_by(unsigned digit, unsigned lane, std::int64_t value,
                          unsigned thread) const {
    put(digit, lane, at(digit, lane, thread) + value, thread);
  }

  memory& words_;
};

}  // namespace potl::cuda
