// SPDX-License-Identifier: Apache-2.0
#include "combine.hpp"

#include <array>
#include <cmath>
#include <utility>

#include <potl/core/error.hpp>
#include <potl/cuda/accumulation.hpp>
#include <potl/cuda/pooling.hpp>
#include <potl/cuda/random.hpp>

#include "stream_device.hpp"

namespace potl::cuda {
namespace {

template <combination Kind>
void combine_as(const combined& of, float* out, std::size_t count, queue stream) {
  const auto number = [&](unsigned i) { return static_cast<float>(of.numbers[i]); };
  stream_device(stream).each(
      count, combined_elements<Kind>{of.a, of.b, of.c, number(0), number(1), number(2), out});
}

constexpr std::size_t combinations =
    static_cast<std::size_t>(combination::elu_gradient_of_result) + 1;

pool_axes axes_of(const pool_windows& of) {
  pool_axes out{{}, {}, {}, of.divisor};
  const std::int64_t* at = of.windows;
  pool_axis* const axes[] = {&out.z, &out.y, &out.x};
  for (unsigned i = 0; i < 3; ++i) {
    *axes[i] = {at, of.inputs[i], of.outputs[i]};
    at += 3 * of.outputs[i];
  }
  return out;
}
std::uint64_t items_of(std::int64_t planes, const std::int64_t (&sizes)[3]) {
  return static_cast<std::uint64_t>(planes * sizes[0] * sizes[1] * sizes[2]);
}

}  // namespace

void combine(const combined& of, float* out, std::size_t count, queue stream) {
  constexpr auto all = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{&combine_as<static_cast<combination>(I)>...};
  }
  (std::make_index_sequence<combinations>{});
  all.at(static_cast<std::size_t>(of.kind))(of, out, count, stream);
}

void cumulate(bool is_product, const numeric::reduction_shape& shape, const float* x, float* y,
              queue stream) {
  const auto count = static_cast<std::uint64_t>(shape.count);
  const auto inner = static_cast<std::uint64_t>(shape.inner);
  const auto items = count == 0 ? 0 : static_cast<std::uint64_t>(shape.outer) * inner;
  const stream_device device(stream);
  if (is_product) {
    device.each(items, cumulated<true>{x, y, count, inner});
  } else {
    device.each(items, cumulated<false>{x, y, count, inner});
  }
}

void pool(const pool_windows& of, const float* x, float* y, queue stream) {
  stream_device(stream).each(items_of(of.planes, of.outputs), pooled{axes_of(of), x, y});
}
void pool_gradient(const pool_windows& of, const float* dy, float* dx, queue stream) {
  stream_device(stream).each(items_of(of.planes, of.inputs), pooled_gradient{axes_of(of), dy, dx});
}

void resample(const resampling& of, const float* x, float* y, queue stream) {
  stream_device(stream).each(static_cast<std::uint64_t>(of.outer * of.outputs * of.inner),
                             resampled{of, x, y});
}

void add_rows(std::int64_t targets, std::int64_t width, const std::int64_t* starts,
              const std::int64_t* order, const float* rows, float* out, queue stream) {
  const auto columns = static_cast<std::uint64_t>(width);
  stream_device(stream).each(static_cast<std::uint64_t>(targets) * columns,
                             added_rows{columns, starts, order, rows, out});
}

void fill_bernoulli(float* out, std::size_t count, random_key key, double probability,
                    queue stream) {
  if (!(probability >= 0.0 && probability <= 1.0))
    throw exception({errc::usage, "random fill: a probability is in [0, 1]", ""});
  const bool is_certain = probability == 1.0;
  const std::uint64_t limit =
      is_certain ? 0 : static_cast<std::uint64_t>(std::ceil(probability * 0x1p53)) << 11;
  stream_device(stream).each(count, bernoulli_draws{key, limit, is_certain, out});
}
void fill_uniform(float* out, std::size_t count, random_key key, double from, double to,
                  queue stream) {
  const auto low = static_cast<float>(from), high = static_cast<float>(to);
  if (!(low <= high && std::isfinite(low) && std::isfinite(high)))
    throw exception({errc::usage, "random fill: uniform needs finite low <= high", ""});
  const double width = static_cast<double>(high) - static_cast<double>(low);
  const float largest = low < high ? std::nextafter(high, low) : low;
  stream_device(stream).each(count,
                             uniform_draws{key, static_cast<double>(low), width, largest, out});
}

}  // namespace potl::cuda
