// SPDX-License-Identifier: Apache-2.0
#include "combine.hpp"

#include <cmath>

#include <potl/core/error.hpp>
#include <potl/cuda/accumulation.hpp>
#include <potl/cuda/random.hpp>

#include "stream_device.hpp"

namespace potl::cuda {
namespace {

template <weighted Kind>
void combined(operand a, operand b, operand c, double scalar, float* out, std::size_t count,
              void* stream) {
  stream_device(stream).each(count, weighted_sum<Kind>{a, b, c, static_cast<float>(scalar), out});
}

}  // namespace

void add_scaled(operand a, operand b, double alpha, float* out, std::size_t count, void* stream) {
  combined<weighted::add_scaled>(a, b, {}, alpha, out, count, stream);
}
void lerp(operand a, operand b, operand weight, float* out, std::size_t count, void* stream) {
  combined<weighted::lerp>(a, b, weight, 0.0, out, count, stream);
}
void lerp(operand a, operand b, double weight, float* out, std::size_t count, void* stream) {
  combined<weighted::lerp_by_number>(a, b, {}, weight, out, count, stream);
}
void addcmul(operand a, operand b, operand c, double value, float* out, std::size_t count,
             void* stream) {
  combined<weighted::addcmul>(a, b, c, value, out, count, stream);
}
void addcdiv(operand a, operand b, operand c, double value, float* out, std::size_t count,
             void* stream) {
  combined<weighted::addcdiv>(a, b, c, value, out, count, stream);
}
void square_root(const float* x, float* y, std::size_t count, void* stream) {
  stream_device(stream).each(count, square_roots{x, y});
}
void power(operand x, operand y, float* out, std::size_t count, void* stream) {
  stream_device(stream).each(count, powers{x, y, out});
}

void add_rows(std::int64_t targets, std::int64_t width, const std::int64_t* starts,
              const std::int64_t* order, const float* rows, float* out, void* stream) {
  const auto columns = static_cast<std::uint64_t>(width);
  stream_device(stream).each(static_cast<std::uint64_t>(targets) * columns,
                             added_rows{columns, starts, order, rows, out});
}

void fill_bernoulli(float* out, std::size_t count, random_key key, double probability,
                    void* stream) {
  if (!(probability >= 0.0 && probability <= 1.0))
    throw exception({errc::usage, "random fill: a probability is in [0, 1]", ""});
  const bool is_certain = probability == 1.0;
  const std::uint64_t limit =
      is_certain ? 0 : static_cast<std::uint64_t>(std::ceil(probability * 0x1p53)) << 11;
  stream_device(stream).each(count, bernoulli_draws{key, limit, is_certain, out});
}
void fill_uniform(float* out, std::size_t count, random_key key, double from, double to,
                  void* stream) {
  const auto low = static_cast<float>(from), high = static_cast<float>(to);
  if (!(low <= high && std::isfinite(low) && std::isfinite(high)))
    throw exception({errc::usage, "random fill: uniform needs finite low <= high", ""});
  const double width = static_cast<double>(high) - static_cast<double>(low);
  const float largest = low < high ? std::nextafter(high, low) : low;
  stream_device(stream).each(count,
                             uniform_draws{key, static_cast<double>(low), width, largest, out});
}

}  // namespace potl::cuda
