// SPDX-License-Identifier: Apache-2.0
// Random tensors whose bits are the same on every machine: initial weights, dropout masks, noise.
//
// Claims: element i is a function of (key, start + i) and the parameters alone, so that a fill may
// be cut in any way, and its bits depend neither on the processor nor on the mathematical library:
// integer operations, and + - * / and square root in IEEE double precision, rounded once to
// float32 where that is asked for. Assumes round-to-nearest without flush-to-zero.
// Cannot: be secret (see core/detail/rng.hpp), nor equal what torch draws from the same seed.
// Sources: Philox in core/detail/rng.hpp; the transforms in statistics/detail/quantile.hpp.
//
// Parameters out of range throw potl::exception (usage), and nothing has been written then.
#pragma once

#include <cstdint>
#include <span>

#include <potl/core/detail/rng.hpp>
#include <potl/statistics/detail/quantile.hpp>

namespace potl {

/// Uniform in [low, high): low + u (high - low), u a multiple of 2^-53. For float32 both ends are
/// rounded first. low == high gives low everywhere. Needs finite low <= high, finite high - low.
void fill_uniform(std::span<float> out, random_key key, std::uint64_t start, double low,
                  double high);
void fill_uniform(std::span<double> out, random_key key, std::uint64_t start, double low,
                  double high);

/// mean + deviation * normal_quantile(u), u an odd multiple of 2^-53. Needs deviation >= 0.
void fill_normal(std::span<float> out, random_key key, std::uint64_t start, double mean,
                 double deviation);
void fill_normal(std::span<double> out, random_key key, std::uint64_t start, double mean,
                 double deviation);

/// 1 with the given probability (to 2^-53), else 0. Needs 0 <= probability <= 1.
void fill_bernoulli(std::span<float> out, random_key key, std::uint64_t start, double probability);
void fill_bernoulli(std::span<double> out, random_key key, std::uint64_t start, double probability);
void fill_bernoulli(std::span<std::uint8_t> out, random_key key, std::uint64_t start,
                    double probability);

/// -exact_log(u) / rate, u an odd multiple of 2^-53: always positive. Needs rate > 0.
void fill_exponential(std::span<float> out, random_key key, std::uint64_t start, double rate);
void fill_exponential(std::span<double> out, random_key key, std::uint64_t start, double rate);

/// Uniform integers in [low, high), without modulo bias. Needs low < high.
void fill_integers(std::span<std::int64_t> out, random_key key, std::uint64_t start,
                   std::int64_t low, std::int64_t high);

/// Replaces every element by its erfinv, computed in double.
void fill_erfinv(std::span<float> in_out) noexcept;
void fill_erfinv(std::span<double> in_out) noexcept;

}  // namespace potl
