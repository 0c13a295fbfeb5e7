// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/resampling.hpp>

namespace potl::numeric {
namespace {

void require(const resize& of) {
  if (of.inputs <= 0 || of.outputs < 0) {
    throw exception({errc::usage, "resizing needs at least one input", ""});
  }
}

/// How far one output is from the next, in inputs.
double step_of(const resize& of) {
  if (of.align_corners) {
    return of.outputs > 1 ? static_cast<double>(of.inputs - 1) / static_cast<double>(of.outputs - 1)
                          : 0.0;
  }
  if (of.scale && *of.scale > 0) return 1.0 / *of.scale;
  return static_cast<double>(of.inputs) / static_cast<double>(of.outputs);
}

double source(const resize& of, double step, std::int64_t output) {
  const auto j = static_cast<double>(output);
  return of.align_corners ? step * j : step * (j + 0.5) - 0.5;
}

/// The integer part, kept within [low, high]: a scale near 0 puts outputs beyond every integer.
std::int64_t within(double at, std::int64_t low, std::int64_t high) {
  if (!(at > static_cast<double>(low))) return low;
  return at < static_cast<double>(high) ? static_cast<std::int64_t>(at) : high;
}

double near_cubic(double x, double a) { return ((a + 2) * x - (a + 3)) * x * x + 1; }
double far_cubic(double x, double a) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }

double triangle(double x) { return std::max(0.0, 1 - std::abs(x)); }

double smooth_cubic(double x) {
  const double distance = std::abs(x);
  if (distance < 1) return near_cubic(distance, -0.5);
  return distance < 2 ? far_cubic(distance, -0.5) : 0.0;
}

tap_table filtered(const resize& of, double radius, double (*filter)(double)) {
  require(of);
  const double step = step_of(of);
  const double stretch = std::max(step, 1.0);
  const double support = radius * stretch;
  tap_table out;
  out.inputs = of.inputs;
  for (std::int64_t j = 0; j < of.outputs; ++j) {
    const double centre = step * (static_cast<double>(j) + 0.5);
    const std::int64_t begin = within(centre - support + 0.5, 0, of.inputs);
    const std::int64_t end = within(centre + support + 0.5, 0, of.inputs);
    const std::size_t first = out.weights.size();
    double total = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const double weight = filter((static_cast<double>(i) - centre + 0.5) / stretch);
      out.positions.push_back(i);
      out.weights.push_back(weight);
      total += weight;
    }
    if (total != 0) {
      for (std::size_t k = first; k < out.weights.size(); ++k) out.weights[k] /= total;
    }
    out.close();
  }
  return out;
}

}  // namespace

tap_table transposed(const tap_table& table) {
  tap_table out;
  out.inputs = table.outputs();
  std::vector<std::int64_t> next(static_cast<std::size_t>(table.inputs) + 1, 0);
  for (const std::int64_t position : table.positions)
    ++next[static_cast<std::size_t>(position) + 1];
  for (std::size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  out.first = next;
  out.positions.resize(table.positions.size());
  out.weights.resize(table.positions.size());
  for (std::int64_t j = 0; j < table.outputs(); ++j) {
    for (std::int64_t k = table.first[static_cast<std::size_t>(j)];
         k < table.first[static_cast<std::size_t>(j) + 1]; ++k) {
      const auto tap = static_cast<std::size_t>(k);
      const auto slot =
          static_cast<std::size_t>(next[static_cast<std::size_t>(table.positions[tap])]++);
      out.positions[slot] = j;
      out.weights[slot] = table.weights[tap];
    }
  }
  return out;
}

tap_table nearest_taps(const resize& of, bool exact) {
  require(of);
  // torch computes these positions in float; so does this, for they must be the same ones.
  const float step = of.scale && *of.scale > 0
                         ? static_cast<float>(1.0 / *of.scale)
                         : static_cast<float>(of.inputs) / static_cast<float>(of.outputs);
  tap_table out;
  out.inputs = of.inputs;
  for (std::int64_t j = 0; j < of.outputs; ++j) {
    const auto output = static_cast<float>(j);
    const float at = exact ? (output + 0.5F) * step : output * step;
    out.positions.push_back(within(at, 0, of.inputs - 1));
    out.weights.push_back(1);
    out.close();
  }
  return out;
}

tap_table linear_taps(const resize& of) {
  require(of);
  const double step = step_of(of);
  tap_table out;
  out.inputs = of.inputs;
  for (std::int64_t j = 0; j < of.outputs; ++j) {
    const double at = std::max(source(of, step, j), 0.0);
    const std::int64_t low = within(at, 0, of.inputs - 1);
    const double part = std::min(at - static_cast<double>(low), 1.0);
    out.positions.push_back(low);
    out.weights.push_back(1 - part);
    out.positions.push_back(std::min(low + 1, of.inputs - 1));
    out.weights.push_back(part);
    out.close();
  }
  return out;
}

tap_table cubic_taps(const resize& of) {
  require(of);
  constexpr double a = -0.75;
  const double step = step_of(of);
  tap_table out;
  out.inputs = of.inputs;
  for (std::int64_t j = 0; j < of.outputs; ++j) {
    const double at = source(of, step, j);
    const double low = std::floor(at);
    const double part = at - low;
    const std::int64_t from = within(low, -3, of.inputs + 1) - 1;
    const double weights[] = {far_cubic(part + 1, a), near_cubic(part, a), near_cubic(1 - part, a),
                              far_cubic(2 - part, a)};
    for (std::int64_t tap = 0; tap < 4; ++tap) {
      out.positions.push_back(std::clamp<std::int64_t>(from + tap, 0, of.inputs - 1));
      out.weights.push_back(weights[tap]);
    }
    out.close();
  }
  return out;
}

tap_table smooth_linear_taps(const resize& of) { return filtered(of, 1, &triangle); }

tap_table smooth_cubic_taps(const resize& of) { return filtered(of, 2, &smooth_cubic); }

tap_table padding_taps(std::int64_t inputs, std::int64_t before, std::int64_t after, bool reflect) {
  if (inputs <= 0 || inputs + before + after < 0 ||
      (reflect && (before >= inputs || after >= inputs))) {
    throw exception({errc::usage, "this border does not fit its tensor", ""});
  }
  tap_table out;
  out.inputs = inputs;
  for (std::int64_t j = -before; j < inputs + after; ++j) {
    std::int64_t from = std::clamp<std::int64_t>(j, 0, inputs - 1);
    if (reflect) from = j < 0 ? -j : j >= inputs ? 2 * (inputs - 1) - j : j;
    out.positions.push_back(from);
    out.weights.push_back(1);
    out.close();
  }
  return out;
}

}  // namespace potl::numeric
