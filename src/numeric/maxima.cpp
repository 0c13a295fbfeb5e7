// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/maxima.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include <potl/core/error.hpp>

#include "numeric/ranges.hpp"

namespace potl::numeric {
namespace windows {
namespace {

// Of a vector that every processor has: wider ones wait for the same loads.
typedef float numbers __attribute__((vector_size(16)));
typedef std::int32_t integers __attribute__((vector_size(16)));
constexpr std::size_t lanes = 4;

// The same number of elements for each output, those of its window in their order. Where a window
// has fewer, its first one is there several times at the beginning.
struct table {
  std::size_t elements = 0;
  std::size_t outputs = 0;
  std::size_t padded = 0;            // outputs, and as many more as make a multiple of `lanes`
  std::vector<std::int32_t> places;  // [elements][padded]
};

std::int64_t count(const max_window& one) {
  return (one.end - one.begin + one.step - 1) / one.step;
}

std::int64_t longest(const std::vector<max_window>& all) {
  std::int64_t out = 0;
  for (const max_window& one : all) out = std::max(out, count(one));
  return out;
}

void require(const std::vector<max_window>& all, std::int64_t inputs) {
  for (const max_window& one : all) {
    if (one.begin < 0 || one.end > inputs || one.begin >= one.end || one.step < 1) {
      throw exception({errc::usage, "a window of a maximum is empty or outside its input", ""});
    }
  }
}

table table_of(const max_windows& of) {
  table out;
  out.elements = static_cast<std::size_t>(longest(of.rows) * longest(of.columns));
  out.outputs = of.rows.size() * of.columns.size();
  out.padded = (out.outputs + lanes - 1) / lanes * lanes;
  out.places.resize(out.elements * out.padded);
  std::size_t output = 0;
  for (const max_window& row : of.rows) {
    for (const max_window& column : of.columns) {
      std::size_t element = 0;
      const auto put = [&](std::int64_t place) {
        out.places[element++ * out.padded + output] = static_cast<std::int32_t>(place);
      };
      const auto own = static_cast<std::size_t>(count(row) * count(column));
      while (element < out.elements - own) put(row.begin * of.width + column.begin);
      for (std::int64_t h = row.begin; h < row.end; h += row.step) {
        for (std::int64_t w = column.begin; w < column.end; w += column.step) put(h * of.width + w);
      }
      ++output;
    }
  }
  return out;
}

void plane(const table& of, const float* x, float* y, std::int64_t* places) {
  for (std::size_t o = 0; o < of.outputs; o += lanes) {
    numbers best = numbers{} - std::numeric_limits<float>::infinity();
    integers place{};
    std::memcpy(&place, of.places.data() + o, sizeof place);
    for (std::size_t e = 0; e < of.elements; ++e) {
      integers next{};
      std::memcpy(&next, of.places.data() + e * of.padded + o, sizeof next);
      numbers value{};
      for (std::size_t i = 0; i < lanes; ++i) value[i] = x[next[i]];
      const integers takes = (value > best) | (value != value);
      best = takes ? value : best;
      place = takes ? next : place;
    }
    const std::size_t count = std::min(lanes, of.outputs - o);
    for (std::size_t i = 0; i < count; ++i) {
      y[o + i] = best[i];
      places[o + i] = place[i];
    }
  }
}

}  // namespace
}  // namespace windows

void maxima(const max_windows& of, const float* x, float* y, std::int64_t* places,
            const executor& workers) {
  windows::require(of.rows, of.height);
  windows::require(of.columns, of.width);
  if (of.width > 0 && of.height > std::numeric_limits<std::int32_t>::max() / of.width) {
    throw exception({errc::usage, "a plane of 2^31 elements or more", ""});
  }
  const windows::table shared = windows::table_of(of);
  const std::int64_t inputs = of.height * of.width;
  const auto outputs = static_cast<std::int64_t>(shared.outputs);
  const auto cost = static_cast<std::int64_t>(shared.places.size());
  for_ranges(workers, of.planes, cost, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      windows::plane(shared, x + p * inputs, y + p * outputs, places + p * outputs);
    }
  });
}

}  // namespace potl::numeric
