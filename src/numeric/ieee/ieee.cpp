// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/ieee.hpp>

#include <potl/core/error.hpp>

#include "kernels.hpp"
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

/// body(operands of a part, its output, its length): one that stands for all is read before any
/// output is written, which may be where it lies.
template <class Real, std::size_t Count, class Body>
void with_parts(const std::span<const Real> (&operands)[Count], std::span<Real> out,
                const executor& workers, const Body& body) {
  Real single[Count];
  ieee::stream<Real> in[Count];
  for (std::size_t k = 0; k < Count; ++k) {
    const std::span<const Real> of = operands[k];
    const bool is_single = of.size() == 1;
    require(is_single || of.size() == out.size());
    if (is_single) single[k] = of[0];
    in[k] = {is_single ? &single[k] : of.data(), is_single ? std::size_t{0} : 1};
  }
  in_parts(out.size(), workers, [&](std::size_t begin, std::size_t end) {
    ieee::stream<Real> part[Count];
    for (std::size_t k = 0; k < Count; ++k) {
      part[k] = {in[k].data + in[k].step * begin, in[k].step};
    }
    body(part, out.data() + begin, end - begin);
  });
}

template <class Real>
void apply_to(ieee_binary function, std::span<const Real> x, std::span<const Real> y,
              std::span<Real> out, const executor& workers) {
  const auto& kernels = ieee::active_kernels().of<Real>();
  with_parts({x, y}, out, workers, [&](const auto* in, Real* to, std::size_t count) {
    kernels.two(function, in, to, count);
  });
}

/// Numbers are rounded to the element type.
template <class Real, std::size_t Count>
void compute(ieee::formula function, const std::span<const Real> (&operands)[Count], bounds of,
             std::span<Real> out, const executor& workers) {
  const auto& kernels = ieee::active_kernels().of<Real>();
  with_parts(operands, out, workers, [&](const auto* in, Real* to, std::size_t count) {
    kernels.elements(function, in, static_cast<Real>(of.low), static_cast<Real>(of.high), to,
                     count);
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
  compute(ieee::formula::square_root, {x}, {}, y, workers);
}
void square_root(std::span<const double> x, std::span<double> y, const executor& workers) {
  compute(ieee::formula::square_root, {x}, {}, y, workers);
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
  compute(ieee::formula::choose_below, {x, yes, no}, {bound}, out, workers);
}
void choose_below(std::span<const double> x, double bound, std::span<const double> yes,
                  std::span<const double> no, std::span<double> out, const executor& workers) {
  compute(ieee::formula::choose_below, {x, yes, no}, {bound}, out, workers);
}

void soft_shrink(std::span<const float> x, double lambda, std::span<float> out,
                 const executor& workers) {
  compute(ieee::formula::soft_shrink, {x}, {lambda}, out, workers);
}
void soft_shrink(std::span<const double> x, double lambda, std::span<double> out,
                 const executor& workers) {
  compute(ieee::formula::soft_shrink, {x}, {lambda}, out, workers);
}

void hard_swish(std::span<const float> x, std::span<float> y, const executor& workers) {
  compute(ieee::formula::hard_swish, {x}, {}, y, workers);
}
void hard_swish(std::span<const double> x, std::span<double> y, const executor& workers) {
  compute(ieee::formula::hard_swish, {x}, {}, y, workers);
}

void hard_swish_gradient(std::span<const float> dy, std::span<const float> x, std::span<float> dx,
                         const executor& workers) {
  compute(ieee::formula::hard_swish_gradient, {dy, x}, {}, dx, workers);
}
void hard_swish_gradient(std::span<const double> dy, std::span<const double> x,
                         std::span<double> dx, const executor& workers) {
  compute(ieee::formula::hard_swish_gradient, {dy, x}, {}, dx, workers);
}

void pass_between(std::span<const float> value, std::span<const float> x, bounds of,
                  std::span<float> out, const executor& workers) {
  compute(ieee::formula::pass_between, {value, x}, of, out, workers);
}
void pass_between(std::span<const double> value, std::span<const double> x, bounds of,
                  std::span<double> out, const executor& workers) {
  compute(ieee::formula::pass_between, {value, x}, of, out, workers);
}

void pass_beyond(std::span<const float> value, std::span<const float> x, bounds of,
                 std::span<float> out, const executor& workers) {
  compute(ieee::formula::pass_beyond, {value, x}, of, out, workers);
}
void pass_beyond(std::span<const double> value, std::span<const double> x, bounds of,
                 std::span<double> out, const executor& workers) {
  compute(ieee::formula::pass_beyond, {value, x}, of, out, workers);
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
