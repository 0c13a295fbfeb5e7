// SPDX-License-Identifier: Apache-2.0
// Softmax and normalisations against their formulas, at every level and with threads.
#include <cmath>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/normalization.hpp>
#include <potl/numeric/detail/softmax.hpp>
#include <potl/numeric/elementwise.hpp>

#include "catch.hpp"
#include "numeric_levels.hpp"
#include "sum_definition.hpp"

using namespace potl::numeric;
using namespace potl::test;

namespace {

template <class Real>
std::vector<Real> values(std::size_t count, std::uint64_t seed, double scale = 2) {
  std::mt19937_64 draw(seed);
  std::normal_distribution<double> normal(0.3, scale);
  std::vector<Real> x(count);
  for (Real& one : x) one = static_cast<Real>(normal(draw));
  return x;
}

template <class Real>
struct rows_of {
  std::vector<Real> softmax, log_softmax, logsumexp, softmax_slope, log_slope;
};

/// A row's results, as numeric/detail/softmax.hpp writes them.
template <class Real>
rows_of<Real> row_results(const std::vector<Real>& x, const std::vector<Real>& dy) {
  rows_of<Real> r;
  Real m = *std::max_element(x.begin(), x.end());
  if (std::isinf(m)) m = 0;
  for (const Real one : x) r.softmax.push_back(evaluate(unary::exp, one - m));
  const Real s = defined_sum(r.softmax);
  const Real log_s = evaluate(unary::log, s);
  std::vector<Real> products;
  for (std::size_t i = 0; i < x.size(); ++i) {
    r.softmax[i] /= s;
    r.log_softmax.push_back((x[i] - m) - log_s);
    products.push_back(dy[i] * r.softmax[i]);
  }
  r.logsumexp.push_back(m + log_s);
  const Real dot = defined_sum(products), total = defined_sum(dy);
  for (std::size_t i = 0; i < x.size(); ++i) {
    r.softmax_slope.push_back(r.softmax[i] * (dy[i] - dot));
    r.log_slope.push_back(dy[i] - evaluate(unary::exp, r.log_softmax[i]) * total);
  }
  return r;
}

template <class Real>
void softmax_check() {
  const auto pool = make_thread_pool(3);
  for (const reduction_shape s : {reduction_shape{7, 1, 1},
                                  {5, 10, 1},
                                  {3, 33, 1},
                                  {2, 1000, 1},
                                  {1, 9001, 1},
                                  {2, 21, 19},
                                  {1, 5, 100}}) {
    const std::size_t total = static_cast<std::size_t>(s.outer * s.count * s.inner);
    const std::size_t results = static_cast<std::size_t>(s.outer * s.inner);
    const auto x = values<Real>(total, 3, 5), dy = values<Real>(total, 4);
    rows_of<Real> want;
    want.softmax.resize(total);
    want.log_softmax = want.softmax_slope = want.log_slope = want.softmax;
    want.logsumexp.resize(results);
    for (std::size_t i = 0; i < results; ++i) {
      const std::size_t inner = static_cast<std::size_t>(s.inner),
                        count = static_cast<std::size_t>(s.count);
      const std::size_t at = i / inner * count * inner + i % inner;
      std::vector<Real> row, row_dy;
      for (std::size_t k = 0; k < count; ++k) {
        row.push_back(x[at + k * inner]);
        row_dy.push_back(dy[at + k * inner]);
      }
      const auto one = row_results(row, row_dy);
      for (std::size_t k = 0; k < count; ++k) {
        want.softmax[at + k * inner] = one.softmax[k];
        want.log_softmax[at + k * inner] = one.log_softmax[k];
        want.softmax_slope[at + k * inner] = one.softmax_slope[k];
        want.log_slope[at + k * inner] = one.log_slope[k];
      }
      want.logsumexp[i] = one.logsumexp[0];
    }
    at_each_level_and_end([&](isa level, guarded_end at) {
      INFO(to_string(level) << " " << s.outer << " x " << s.count << " x " << s.inner);
      const guarded from(x, at), up(dy, at), p(want.softmax, at), log_p(want.log_softmax, at);
      guarded<Real> y(total, at), short_y(results, at);
      softmax(s, from.data(), y.data(), *pool);
      CHECK(same_bits(y, want.softmax));
      softmax_backward(s, up.data(), p.data(), y.data(), *pool);
      CHECK(same_bits(y, want.softmax_slope));
      log_softmax(s, from.data(), y.data(), *pool);
      CHECK(same_bits(y, want.log_softmax));
      log_softmax_backward(s, up.data(), log_p.data(), y.data(), *pool);
      CHECK(same_bits(y, want.log_slope));
      logsumexp(s, from.data(), short_y.data(), *pool);
      CHECK(same_bits(short_y, want.logsumexp));
      guarded in_place(x, at);
      softmax(s, in_place.data(), in_place.data(), *pool);
      CHECK(same_bits(in_place, want.softmax));
    });
  }
}

/// What a group gives, as numeric/detail/normalization.hpp writes it. weight and bias: one per
/// element.
template <class Real>
struct group {
  std::vector<Real> y, h, dx;
  Real mean, r;
  group(const std::vector<Real>& x, const std::vector<Real>& dy, const std::vector<Real>& weight,
        const std::vector<Real>& bias, double epsilon) {
    const Real n = static_cast<Real>(x.size());
    mean = defined_sum(x) / n;
    std::vector<Real> squares, g, products;
    for (const Real one : x) squares.push_back((one - mean) * (one - mean));
    r = Real(1) / std::sqrt(defined_sum(squares) / n + static_cast<Real>(epsilon));
    for (std::size_t i = 0; i < x.size(); ++i) {
      h.push_back((x[i] - mean) * r);
      y.push_back(std::fma(h[i], weight[i], bias[i]));
      g.push_back(dy[i] * weight[i]);
      products.push_back(g[i] * h[i]);
    }
    const Real a = defined_sum(g) / n, b = defined_sum(products) / n;
    for (std::size_t i = 0; i < x.size(); ++i) dx.push_back(((g[i] - a) - h[i] * b) * r);
  }
};

/// [batch][channels][size], groups of neighbouring channels (layer norm: size 1, one group).
template <class Real>
struct group_case {
  std::size_t batch, channels, size, groups;
  std::vector<Real> x, dy, weight, bias, y, dx, mean, r, dweight, dbias;

  group_case(std::size_t b, std::size_t c, std::size_t s, std::size_t g)
      : batch(b),
        channels(c),
        size(s),
        groups(g),
        x(values<Real>(b * c * s, 41)),
        dy(values<Real>(b * c * s, 42)),
        weight(values<Real>(c, 43)),
        bias(values<Real>(c, 44)) {
    const std::size_t wide = c / g * s;
    std::vector<std::vector<Real>> of_weight(c), of_bias(c);
    for (std::size_t item = 0; item < b * g; ++item) {
      std::vector<Real> gx, gdy, gw, gb;
      for (std::size_t i = 0; i < wide; ++i) {
        gx.push_back(x[item * wide + i]);
        gdy.push_back(dy[item * wide + i]);
        gw.push_back(weight[item % g * (c / g) + i / s]);
        gb.push_back(bias[item % g * (c / g) + i / s]);
      }
      const group<Real> one(gx, gdy, gw, gb, 1e-5);
      y.insert(y.end(), one.y.begin(), one.y.end());
      dx.insert(dx.end(), one.dx.begin(), one.dx.end());
      mean.push_back(one.mean);
      r.push_back(one.r);
      for (std::size_t i = 0; i < wide; ++i) {
        const std::size_t channel = item % g * (c / g) + i / s;
        of_weight[channel].push_back(gdy[i] * one.h[i]);
        of_bias[channel].push_back(gdy[i]);
      }
    }
    for (std::size_t i = 0; i < c; ++i) {
      dweight.push_back(defined_sum(of_weight[i]));
      dbias.push_back(defined_sum(of_bias[i]));
    }
  }
};

/// What a case is given.
template <class Real>
struct operands {
  guarded<Real> x, dy, weight, bias;
  operands(const group_case<Real>& of, guarded_end at)
      : x(of.x, at), dy(of.dy, at), weight(of.weight, at), bias(of.bias, at) {}
};

template <class Real>
void group_norm_check() {
  const auto pool = make_thread_pool(3);
  for (const auto& shape :
       {std::array<std::size_t, 4>{3, 6, 35, 2}, {2, 4, 1, 2}, {150, 3, 40, 3}, {1, 8, 700, 1}}) {
    const group_case<Real> want(shape[0], shape[1], shape[2], shape[3]);
    at_each_level_and_end([&](isa level, guarded_end at) {
      INFO(to_string(level) << " " << shape[0] << " x " << shape[1] << " x " << shape[2]);
      const operands<Real> in(want, at);
      guarded<Real> y(want.x.size(), at), mean(want.mean.size(), at), r(mean.size(), at);
      guarded<Real> dw(shape[1], at), db(shape[1], at);
      group_norm_forward<Real> f{
          static_cast<std::int64_t>(shape[0]), static_cast<std::int64_t>(shape[1]),
          static_cast<std::int64_t>(shape[2]), static_cast<std::int64_t>(shape[3])};
      f.x = in.x.data(), f.weight = in.weight.data(), f.bias = in.bias.data();
      f.y = y.data(), f.mean = mean.data(), f.reciprocal = r.data();
      group_norm(f, *pool);
      CHECK(same_bits(y, want.y));
      CHECK(same_bits(mean, want.mean));
      CHECK(same_bits(r, want.r));
      group_norm_backward<Real> b{f.batch, f.channels, f.size, f.groups};
      b.dy = in.dy.data(), b.x = f.x, b.mean = mean.data(), b.reciprocal = r.data();
      b.weight = f.weight, b.dx = y.data(), b.dweight = dw.data(), b.dbias = db.data();
      group_norm(b, *pool);
      CHECK(same_bits(y, want.dx));
      CHECK(same_bits(dw, want.dweight));
      CHECK(same_bits(db, want.dbias));
    });
  }
}

template <class Real>
void layer_norm_check() {
  const auto pool = make_thread_pool(3);
  for (const auto& shape :
       {std::array<std::size_t, 2>{5, 1}, {7, 31}, {130, 48}, {3, 5000}, {5000, 20}}) {
    // One group whose weights differ element by element.
    const group_case<Real> want(shape[0], shape[1], 1, 1);
    at_each_level_and_end([&](isa level, guarded_end at) {
      INFO(to_string(level) << " " << shape[0] << " x " << shape[1]);
      const operands<Real> in(want, at);
      guarded<Real> y(want.x.size(), at), mean(shape[0], at), r(shape[0], at);
      guarded<Real> dw(shape[1], at), db(shape[1], at);
      layer_norm_forward<Real> f{static_cast<std::int64_t>(shape[0]),
                                 static_cast<std::int64_t>(shape[1])};
      f.x = in.x.data(), f.weight = in.weight.data(), f.bias = in.bias.data();
      f.y = y.data(), f.mean = mean.data(), f.reciprocal = r.data();
      layer_norm(f, *pool);
      CHECK(same_bits(y, want.y));
      CHECK(same_bits(r, want.r));
      layer_norm_backward<Real> b{f.rows, f.count};
      b.dy = in.dy.data(), b.x = f.x, b.mean = mean.data(), b.reciprocal = r.data();
      b.weight = f.weight, b.dx = y.data(), b.dweight = dw.data(), b.dbias = db.data();
      layer_norm(b, *pool);
      CHECK(same_bits(y, want.dx));
      CHECK(same_bits(dw, want.dweight));
      CHECK(same_bits(db, want.dbias));
    });
  }
}

template <class Real>
void batch_norm_check() {
  const auto pool = make_thread_pool(3);
  for (const auto& shape : {std::array<std::size_t, 3>{4, 3, 50},
                            {100, 5, 1},
                            {200, 2, 49},
                            {50, 4, 96},
                            {3, 3, 4160}}) {
    const std::size_t batch = shape[0], channels = shape[1], size = shape[2];
    const auto x = values<Real>(batch * channels * size, 51);
    const auto dy = values<Real>(x.size(), 52);
    const auto weight = values<Real>(channels, 53), bias = values<Real>(channels, 54);
    const std::vector<Real> running(channels, Real(0.5));
    const Real n = static_cast<Real>(batch * size), momentum = static_cast<Real>(0.1);
    std::vector<Real> y(x.size()), dx(x.size()), mean, r, dweight, dbias, new_mean, new_variance;
    for (std::size_t c = 0; c < channels; ++c) {
      std::vector<Real> cx, cdy, squares, products;
      const auto each = [&](const auto& body) {
        for (std::size_t k = 0; k < batch * size; ++k)
          body(k, (k / size * channels + c) * size + k % size);
      };
      each([&](std::size_t, std::size_t at) {
        cx.push_back(x[at]);
        cdy.push_back(dy[at]);
      });
      const Real m = defined_sum(cx) / n;
      for (const Real one : cx) squares.push_back((one - m) * (one - m));
      const Real total = defined_sum(squares);
      const Real reciprocal = Real(1) / std::sqrt(total / n + static_cast<Real>(1e-5));
      for (std::size_t k = 0; k < cx.size(); ++k)
        products.push_back(cdy[k] * ((cx[k] - m) * reciprocal));
      mean.push_back(m);
      r.push_back(reciprocal);
      dbias.push_back(defined_sum(cdy));
      dweight.push_back(defined_sum(products));
      new_mean.push_back(std::fma(momentum, m, running[c] * (Real(1) - momentum)));
      new_variance.push_back(
          std::fma(momentum, total / (n - 1), running[c] * (Real(1) - momentum)));
      each([&](std::size_t, std::size_t at) {
        const Real h = (x[at] - m) * reciprocal;
        y[at] = std::fma(h, weight[c], bias[c]);
        dx[at] = ((dy[at] - dbias[c] / n) - h * (dweight[c] / n)) * (reciprocal * weight[c]);
      });
    }
    at_each_level_and_end([&](isa level, guarded_end at) {
      INFO(to_string(level) << " " << batch << " x " << channels << " x " << size);
      const guarded from(x, at), up(dy, at), scale(weight, at), shift(bias, at);
      guarded<Real> out(x.size(), at), m(channels, at), rec(channels, at);
      guarded rm(running, at), rv(running, at);
      batch_norm_forward<Real> f{static_cast<std::int64_t>(batch),
                                 static_cast<std::int64_t>(channels),
                                 static_cast<std::int64_t>(size)};
      f.x = from.data(), f.weight = scale.data(), f.bias = shift.data(), f.y = out.data();
      f.running_mean = rm.data(), f.running_variance = rv.data();
      f.mean = m.data(), f.reciprocal = rec.data();
      batch_norm(f, *pool);
      CHECK(same_bits(out, y));
      CHECK(same_bits(m, mean));
      CHECK(same_bits(rec, r));
      CHECK(same_bits(rm, new_mean));
      CHECK(same_bits(rv, new_variance));
      batch_norm_backward<Real> b{f.batch, f.channels, f.size};
      guarded<Real> dw(channels, at), db(channels, at);
      b.dy = up.data(), b.x = from.data(), b.mean = m.data(), b.reciprocal = rec.data();
      b.weight = scale.data(), b.dx = out.data(), b.dweight = dw.data(), b.dbias = db.data();
      batch_norm(b, *pool);
      CHECK(same_bits(out, dx));
      CHECK(same_bits(dw, dweight));
      CHECK(same_bits(db, dbias));
      b.dweight = b.dbias = nullptr;
      std::fill(out.begin(), out.end(), Real(0));
      batch_norm(b, *pool);
      CHECK(same_bits(out, dx));
      // Evaluation: the running statistics, unchanged.
      f.training = b.training = false;
      std::copy(running.begin(), running.end(), rm.begin());
      std::copy(running.begin(), running.end(), rv.begin());
      batch_norm(f, *pool);
      CHECK(same_bits(rm, running));
      const Real inverse = Real(1) / std::sqrt(running[0] + static_cast<Real>(1e-5));
      CHECK(bits(out[0]) == bits(std::fma((x[0] - running[0]) * inverse, weight[0], bias[0])));
      batch_norm(b, *pool);
      CHECK(bits(out[0]) == bits(dy[0] * (inverse * weight[0])));
    });
  }
}

}  // namespace

TEST_CASE("softmax and its relatives are their formulas", "[softmax]") {
  softmax_check<float>();
  softmax_check<double>();
}

TEST_CASE("softmax of rows with infinities and NaN", "[softmax]") {
  const float infinity = std::numeric_limits<float>::infinity();
  at_each_level([&](isa) {
    const std::vector<float> masked{1, -infinity, 2};
    std::vector<float> y(3);
    softmax({1, 3, 1}, masked.data(), y.data(), inline_executor());
    CHECK(bits(y[1]) == 0);
    CHECK(y[0] + y[2] == Approx(1));
    const std::vector<float> all(3, -infinity);
    softmax({1, 3, 1}, all.data(), y.data(), inline_executor());
    CHECK(bits(y[0]) == 0x7FC00000);
    logsumexp({1, 3, 1}, all.data(), y.data(), inline_executor());
    CHECK(y[0] == -infinity);
    const std::vector<float> with_nan{1, std::numeric_limits<float>::quiet_NaN(), 2};
    softmax({1, 3, 1}, with_nan.data(), y.data(), inline_executor());
    CHECK(bits(y[0]) == 0x7FC00000);
  });
}

TEST_CASE("the losses of targets", "[softmax]") {
  const std::vector<float> x{-1, -2, -3, -4, -5, -6};
  const std::vector<float> weights{0.5F, 1, 2};
  const std::vector<std::int64_t> targets{2, -100};
  std::vector<float> losses(2), used(2);
  nll_losses({2, 3, 1}, x.data(), targets.data(), weights.data(), -100, losses.data(), used.data(),
             inline_executor());
  CHECK(losses == std::vector<float>{6, 0});
  CHECK(used == std::vector<float>{2, 0});
  const std::vector<std::int64_t> wrong{3, 0};
  CHECK_THROWS_AS(nll_losses({2, 3, 1}, x.data(), wrong.data(), nullptr, -100, losses.data(),
                             used.data(), inline_executor()),
                  potl::exception);
}

TEST_CASE("the slopes of targets", "[softmax]") {
  const std::vector<float> weights{0.5F, 1, 2}, slopes{3, 5};
  const std::vector<std::int64_t> targets{2, -100, 0, 1};  // [2][2]
  const std::vector<float> own{3, 5, 7, std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> dx(12);
  nll_slopes({2, 3, 2}, own.data(), false, targets.data(), weights.data(), -100, dx.data(),
             inline_executor());
  CHECK(bits(dx[9]) == 0x7FC00000);
  dx[9] = 4;
  CHECK(dx == std::vector<float>{0, 0, 0, 0, 6, 0, 3.5, 0, 0, 4, 0, 0});
  std::fill(dx.begin(), dx.end(), 0.0F);
  nll_slopes({4, 3, 1}, slopes.data(), true, targets.data(), nullptr, -100, dx.data(),
             inline_executor());
  CHECK(dx == std::vector<float>{0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 3, 0});
  const std::vector<std::int64_t> wrong{3, 0};
  CHECK_THROWS_AS(nll_slopes({2, 3, 1}, slopes.data(), true, wrong.data(), nullptr, -100, dx.data(),
                             inline_executor()),
                  potl::exception);
}

TEST_CASE("layer norm is its formula", "[normalization]") {
  layer_norm_check<float>();
  layer_norm_check<double>();
}
TEST_CASE("group norm is its formula", "[normalization]") {
  group_norm_check<float>();
  group_norm_check<double>();
}
TEST_CASE("sums of channels are the defined ones of their elements", "[normalization]") {
  const auto check = [](auto zero, const channel_shape& s) {
    using Real = decltype(zero);
    const auto x = values<Real>(static_cast<std::size_t>(s.batch * s.channels * s.size), 7);
    std::vector<Real> wanted;
    for (std::int64_t c = 0; c < s.channels; ++c) {
      std::vector<Real> terms;
      for (std::int64_t n = 0; n < s.batch; ++n)
        for (std::int64_t i = 0; i < s.size; ++i)
          terms.push_back(x[static_cast<std::size_t>((n * s.channels + c) * s.size + i)]);
      wanted.push_back(defined_sum(terms));
    }
    at_each_level_and_end([&](isa level, guarded_end at) {
      INFO(to_string(level) << " " << s.batch << " x " << s.channels << " x " << s.size);
      const guarded from(x, at);
      guarded<Real> sums(wanted.size(), at);
      sum_channels(s, from.data(), sums.data(), inline_executor());
      CHECK(same_bits(sums, wanted));
    });
  };
  for (const channel_shape& s : std::vector<channel_shape>{{1, 1, 1},
                                                           {3, 5, 7},
                                                           {2, 3, 64},
                                                           {5, 130, 1},
                                                           {4, 2, 4096},
                                                           {70, 2, 96},
                                                           {3, 2, 4099}}) {
    check(float{}, s);
    check(double{}, s);
  }
}

TEST_CASE("batch norm is its formula, in training and not", "[normalization]") {
  batch_norm_check<float>();
  batch_norm_check<double>();
}
