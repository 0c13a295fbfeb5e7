// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/random.hpp>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include <potl/numeric/detail/isa.hpp>

#include "../../statistics/quantile_centre.hpp"
#include "uniform.hpp"
#include "words.hpp"

namespace potl {
namespace {

using randoms::check;
using randoms::half_open;
using randoms::open;

const randoms::kernels& active() {
#if defined(__x86_64__)
  const numeric::isa level = numeric::active_isa();
  if (level >= numeric::isa::avx512) return randoms::avx512_kernels();
  if (level >= numeric::isa::avx2) return randoms::avx2_kernels();
#endif
  return randoms::portable_kernels();
}

constexpr std::size_t most_words = 512;

/// body(words, part) for neighbouring parts of `out`, with the values of their elements.
template <class Value, class Body>
void for_words(std::span<Value> out, random_key key, std::uint64_t start, const Body& body) {
  constexpr std::size_t most = most_words / 2, together = 32;  // pairs of values
  std::uint64_t words[most_words];
  std::size_t skipped = start % 2;
  for (std::uint64_t pair = start / 2; !out.empty(); pair += most) {
    const std::size_t wanted = std::min(most, (skipped + out.size() + 1) / 2);
    active().words(key.key, key.stream, pair, (wanted + together - 1) / together * together, words);
    const std::size_t count = std::min(2 * wanted - skipped, out.size());
    body(words + skipped, out.first(count));
    out = out.subspan(count);
    skipped = 0;
  }
}

/// out[i] = convert(value at start + i).
template <class Value, class Convert>
void fill(std::span<Value> out, random_key key, std::uint64_t start, Convert convert) {
  for_words(out, key, start, [&](const std::uint64_t* words, std::span<Value> part) {
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = convert(words[i]);
  });
}

template <class Real>
void uniform(std::span<Real> out, random_key key, std::uint64_t start, double from, double to) {
  const auto low = static_cast<Real>(from);
  const auto high = static_cast<Real>(to);
  const double width = static_cast<double>(high) - static_cast<double>(low);
  check(low <= high && std::isfinite(low) && std::isfinite(width),
        "uniform needs finite low <= high");
  const Real largest = low < high ? std::nextafter(high, low) : low;
  fill(out, key, start, [=](std::uint64_t bits) {
    const auto value = static_cast<Real>(static_cast<double>(low) + half_open(bits) * width);
    return value < largest ? value : largest;
  });
}

template <class Real>
void normal(std::span<Real> out, random_key key, std::uint64_t start, double mean,
            double deviation) {
  check(std::isfinite(mean) && std::isfinite(deviation) && deviation >= 0.0,
        "normal needs a finite mean and a deviation >= 0");
  for_words(out, key, start, [&](const std::uint64_t* words, std::span<Real> part) {
    double z[most_words];
    const std::size_t several = part.size() / 8 * 8;
    active().centre(words, several, z);
    // One value in seven lies further out, at places that no processor foresees.
    std::uint16_t others[most_words];
    std::size_t count = 0;
    for (std::size_t i = 0; i < part.size(); ++i) {
      others[count] = static_cast<std::uint16_t>(i);
      const double distance = std::fabs(open(words[i]) - 0.5);
      count += static_cast<std::size_t>((distance > quantiles::centre_end) | (i >= several));
    }
    for (std::size_t k = 0; k < count; ++k) z[others[k]] = normal_quantile(open(words[others[k]]));
    for (std::size_t i = 0; i < part.size(); ++i)
      part[i] = static_cast<Real>(mean + deviation * z[i]);
  });
}

template <class Value>
void bernoulli(std::span<Value> out, random_key key, std::uint64_t start, double probability) {
  check(probability >= 0.0 && probability <= 1.0, "a probability is in [0, 1]");
  if (probability == 1.0) return std::fill(out.begin(), out.end(), Value{1});
  // half_open(bits) < probability, as integers.
  const std::uint64_t limit = static_cast<std::uint64_t>(std::ceil(probability * 0x1p53)) << 11;
  for_words(out, key, start, [&](const std::uint64_t* words, std::span<Value> part) {
    std::size_t i = 0;
    if constexpr (std::is_same_v<Value, float>) {
      i = part.size() / 16 * 16;
      active().below(words, i, limit, part.data());
    }
    for (; i < part.size(); ++i) part[i] = static_cast<Value>(words[i] < limit);
  });
}

template <class Real>
void exponential(std::span<Real> out, random_key key, std::uint64_t start, double rate) {
  check(std::isfinite(rate) && rate > 0.0, "exponential needs a rate > 0");
  fill(out, key, start,
       [=](std::uint64_t bits) { return static_cast<Real>(-exact_log(open(bits)) / rate); });
}

}  // namespace

void fill_uniform(std::span<float> out, random_key key, std::uint64_t start, double low,
                  double high) {
  uniform(out, key, start, low, high);
}
void fill_uniform(std::span<double> out, random_key key, std::uint64_t start, double low,
                  double high) {
  uniform(out, key, start, low, high);
}
void fill_normal(std::span<float> out, random_key key, std::uint64_t start, double mean,
                 double deviation) {
  normal(out, key, start, mean, deviation);
}
void fill_normal(std::span<double> out, random_key key, std::uint64_t start, double mean,
                 double deviation) {
  normal(out, key, start, mean, deviation);
}
void fill_bernoulli(std::span<float> out, random_key key, std::uint64_t start, double probability) {
  bernoulli(out, key, start, probability);
}
void fill_bernoulli(std::span<double> out, random_key key, std::uint64_t start,
                    double probability) {
  bernoulli(out, key, start, probability);
}
void fill_bernoulli(std::span<std::uint8_t> out, random_key key, std::uint64_t start,
                    double probability) {
  bernoulli(out, key, start, probability);
}
void fill_exponential(std::span<float> out, random_key key, std::uint64_t start, double rate) {
  exponential(out, key, start, rate);
}
void fill_exponential(std::span<double> out, random_key key, std::uint64_t start, double rate) {
  exponential(out, key, start, rate);
}

void fill_integers(std::span<std::int64_t> out, random_key key, std::uint64_t start,
                   std::int64_t low, std::int64_t high) {
  check(low < high, "integers need low < high");
  const std::uint64_t width = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t offset = random_below(key, start + i, width);
    out[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
  }
}

void fill_erfinv(std::span<float> in_out) noexcept {
  for (float& x : in_out) x = static_cast<float>(erfinv(x));
}
void fill_erfinv(std::span<double> in_out) noexcept {
  for (double& x : in_out) x = erfinv(x);
}

}  // namespace potl
