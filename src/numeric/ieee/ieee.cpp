// SPDX-License-Identifier: Apache-2.0
// Compiled with -fno-math-errno (CMakeLists.txt): square roots become one instruction.
#include <potl/numeric/detail/ieee.hpp>

#include <cmath>

#include <potl/core/error.hpp>

#include "binary.hpp"
#include "numeric/ranges.hpp"

namespace potl::numeric {
namespace {

/// body(begin, end) over parts of [0, count).
template <class Body>
void in_parts(std::size_t count, const executor& workers, const Body& body) {
  for_ranges(workers, static_cast<std::int64_t>(count), 1,
             [&](std::int64_t begin, std::int64_t end) {
               body(static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
             });
}

void require(bool fits) {
  if (!fits) throw exception({errc::usage, "operands have different lengths", ""});
}

using ieee::canonical;

/// body(x at i, y at i): an element that stands for all is no load, which would keep a compiler
/// from vectors.
template <class Value, class Body>
void with_each(std::span<const Value> x, std::span<const Value> y, std::size_t count,
               const Body& body) {
  require((x.size() == count || x.size() == 1) && (y.size() == count || y.size() == 1));
  const auto each = [](std::span<const Value> of) {
    return [from = of.data()](std::size_t i) { return from[i]; };
  };
  const auto one = [](std::span<const Value> of) {
    return [value = of[0]](std::size_t) { return value; };
  };
  if (count == 0) return;
  if (x.size() == count && y.size() == count) return body(each(x), each(y));
  if (x.size() == count) return body(each(x), one(y));
  if (y.size() == count) return body(one(x), each(y));
  body(one(x), one(y));
}

/// out[i] = body(x[i], y[i])
template <class Real, class Body>
void each_of_two(std::span<const Real> x, std::span<const Real> y, std::span<Real> out,
                 const executor& workers, const Body& body) {
  with_each(x, y, out.size(), [&](const auto& of_x, const auto& of_y) {
    in_parts(out.size(), workers, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) out[i] = body(of_x(i), of_y(i));
    });
  });
}

template <class Real>
void apply_to(ieee_binary function, std::span<const Real> x, std::span<const Real> y,
              std::span<Real> out, const executor& workers) {
  // A loop for each function, which a compiler can turn into vectors.
  const auto loop = [&]<ieee_binary Function>() {
    each_of_two(x, y, out, workers, [](Real a, Real b) {
      return ieee::compute(Function, a, b, [](Real c, Real d) { return std::fmod(c, d); });
    });
  };
  switch (function) {
    case ieee_binary::fmod: return loop.template operator()<ieee_binary::fmod>();
    case ieee_binary::remainder: return loop.template operator()<ieee_binary::remainder>();
    case ieee_binary::floor_divide: return loop.template operator()<ieee_binary::floor_divide>();
    case ieee_binary::trunc_divide: return loop.template operator()<ieee_binary::trunc_divide>();
    case ieee_binary::maximum: return loop.template operator()<ieee_binary::maximum>();
    case ieee_binary::minimum: return loop.template operator()<ieee_binary::minimum>();
    case ieee_binary::fmax: return loop.template operator()<ieee_binary::fmax>();
    case ieee_binary::fmin: return loop.template operator()<ieee_binary::fmin>();
  }
}

template <class Word>
void choose_from(std::span<const std::uint8_t> where, std::span<const Word> yes,
                 std::span<const Word> no, std::span<Word> out, const executor& workers) {
  require(where.size() == out.size());
  const std::uint8_t* chosen = where.data();
  const auto pick = [](std::uint8_t from_yes, Word a, Word b) {
    // Without a branch: a processor cannot foresee a mask.
    const auto mask = static_cast<Word>(Word{0} - static_cast<Word>(from_yes != 0));
    return static_cast<Word>((a & mask) | (b & ~mask));
  };
  with_each(yes, no, out.size(), [&](const auto& a, const auto& b) {
    in_parts(out.size(), workers, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) out[i] = pick(chosen[i], a(i), b(i));
    });
  });
}

template <class Real>
void choose_below_to(std::span<const Real> x, double bound, std::span<const Real> yes,
                     std::span<const Real> no, std::span<Real> out, const executor& workers) {
  require(x.size() == out.size());
  const auto limit = static_cast<Real>(bound);
  with_each(yes, no, out.size(), [&](const auto& a, const auto& b) {
    in_parts(out.size(), workers, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        // Both are read: a compiler then needs no branch.
        const Real if_below = a(i), if_not = b(i);
        out[i] = x[i] < limit ? if_below : if_not;
      }
    });
  });
}

template <class Real>
void soft_shrink_to(std::span<const Real> x, double lambda, std::span<Real> out,
                    const executor& workers) {
  require(x.size() == out.size());
  const auto high = static_cast<Real>(lambda);
  // x less its nearest within the bounds: no branch, and +0 where x is that itself.
  const auto body = [high, low = -high](Real value, Real) {
    const Real not_above = value > high ? high : value;
    return canonical(value - (not_above < low ? low : not_above));
  };
  each_of_two(x, x, out, workers, body);
}

template <class Real>
void hard_swish_to(std::span<const Real> x, std::span<Real> y, const executor& workers) {
  require(x.size() == y.size());
  each_of_two(x, x, y, workers, [](Real value, Real) {
    const Real up = value + Real{3}, not_below = up < Real{0} ? Real{0} : up;
    return canonical((not_below > Real{6} ? Real{6} : not_below) * value / Real{6});
  });
}

template <class Real>
void hard_swish_gradient_to(std::span<const Real> dy, std::span<const Real> x, std::span<Real> dx,
                            const executor& workers) {
  each_of_two(dy, x, dx, workers, [](Real slope, Real at) {
    const Real inside = (at / Real{3} + Real{0.5}) * slope;
    const Real from_low = at <= Real{3} ? inside : slope;
    return canonical(at < Real{-3} ? Real{0} : from_low);
  });
}

template <class Real>
void pass_between_to(std::span<const Real> value, std::span<const Real> x, bounds of,
                     std::span<Real> out, const executor& workers) {
  const auto low = static_cast<Real>(of.low);
  const auto high = static_cast<Real>(of.high);
  each_of_two(value, x, out, workers,
              [=](Real v, Real at) { return low < at && at < high ? canonical(v) : Real{0}; });
}

template <class Real>
void pass_beyond_to(std::span<const Real> value, std::span<const Real> x, bounds of,
                    std::span<Real> out, const executor& workers) {
  const auto low = static_cast<Real>(of.low);
  const auto high = static_cast<Real>(of.high);
  each_of_two(value, x, out, workers,
              [=](Real v, Real at) { return at < low || at > high ? canonical(v) : Real{0}; });
}

template <class Real>
void square_roots(std::span<const Real> x, std::span<Real> y, const executor& workers) {
  require(x.size() == y.size());
  in_parts(y.size(), workers, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) y[i] = canonical(std::sqrt(x[i]));
  });
}

template <class Real>
void steps(double start, double step, std::span<Real> out, const executor& workers) {
  in_parts(out.size(), workers, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      out[i] = static_cast<Real>(start + static_cast<double>(i) * step);
    }
  });
}

template <class Real>
void line(double start, double end_value, std::span<Real> out, const executor& workers) {
  const std::size_t count = out.size();
  const double step = count < 2 ? 0.0 : (end_value - start) / static_cast<double>(count - 1);
  in_parts(count, workers, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      out[i] = i < count / 2 || count == 1
                   ? static_cast<Real>(start + static_cast<double>(i) * step)
                   : static_cast<Real>(end_value - static_cast<double>(count - 1 - i) * step);
    }
  });
}

}  // namespace

void square_root(std::span<const float> x, std::span<float> y, const executor& workers) {
  square_roots(x, y, workers);
}
void square_root(std::span<const double> x, std::span<double> y, const executor& workers) {
  square_roots(x, y, workers);
}

void apply(ieee_binary function, std::span<const float> x, std::span<const float> y,
           std::span<float> out, const executor& workers) {
  apply_to(function, x, y, out, workers);
}
void apply(ieee_binary function, std::span<const double> x, std::span<const double> y,
           std::span<double> out, const executor& workers) {
  apply_to(function, x, y, out, workers);
}

void choose(std::span<const std::uint8_t> where, std::span<const std::uint32_t> yes,
            std::span<const std::uint32_t> no, std::span<std::uint32_t> out,
            const executor& workers) {
  choose_from(where, yes, no, out, workers);
}
void choose(std::span<const std::uint8_t> where, std::span<const std::uint64_t> yes,
            std::span<const std::uint64_t> no, std::span<std::uint64_t> out,
            const executor& workers) {
  choose_from(where, yes, no, out, workers);
}

void choose_below(std::span<const float> x, double bound, std::span<const float> yes,
                  std::span<const float> no, std::span<float> out, const executor& workers) {
  choose_below_to(x, bound, yes, no, out, workers);
}
void choose_below(std::span<const double> x, double bound, std::span<const double> yes,
                  std::span<const double> no, std::span<double> out, const executor& workers) {
  choose_below_to(x, bound, yes, no, out, workers);
}

void soft_shrink(std::span<const float> x, double lambda, std::span<float> out,
                 const executor& workers) {
  soft_shrink_to(x, lambda, out, workers);
}
void soft_shrink(std::span<const double> x, double lambda, std::span<double> out,
                 const executor& workers) {
  soft_shrink_to(x, lambda, out, workers);
}

void hard_swish(std::span<const float> x, std::span<float> y, const executor& workers) {
  hard_swish_to(x, y, workers);
}
void hard_swish(std::span<const double> x, std::span<double> y, const executor& workers) {
  hard_swish_to(x, y, workers);
}

void hard_swish_gradient(std::span<const float> dy, std::span<const float> x, std::span<float> dx,
                         const executor& workers) {
  hard_swish_gradient_to(dy, x, dx, workers);
}
void hard_swish_gradient(std::span<const double> dy, std::span<const double> x,
                         std::span<double> dx, const executor& workers) {
  hard_swish_gradient_to(dy, x, dx, workers);
}

void pass_between(std::span<const float> value, std::span<const float> x, bounds of,
                  std::span<float> out, const executor& workers) {
  pass_between_to(value, x, of, out, workers);
}
void pass_between(std::span<const double> value, std::span<const double> x, bounds of,
                  std::span<double> out, const executor& workers) {
  pass_between_to(value, x, of, out, workers);
}

void pass_beyond(std::span<const float> value, std::span<const float> x, bounds of,
                 std::span<float> out, const executor& workers) {
  pass_beyond_to(value, x, of, out, workers);
}
void pass_beyond(std::span<const double> value, std::span<const double> x, bounds of,
                 std::span<double> out, const executor& workers) {
  pass_beyond_to(value, x, of, out, workers);
}

void fill_steps(double start, double step, std::span<float> out, const executor& workers) {
  steps(start, step, out, workers);
}
void fill_steps(double start, double step, std::span<double> out, const executor& workers) {
  steps(start, step, out, workers);
}

void fill_line(double start, double end, std::span<float> out, const executor& workers) {
  line(start, end, out, workers);
}
void fill_line(double start, double end, std::span<double> out, const executor& workers) {
  line(start, end, out, workers);
}

}  // namespace potl::numeric
