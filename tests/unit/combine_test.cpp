// SPDX-License-Identifier: Apache-2.0
// Weighted sums and optimizer updates against their formulas, one element at a time.
#include <cmath>

#include <potl/core/error.hpp>
#include <potl/numeric/combine.hpp>
#include <potl/numeric/elementwise.hpp>

#include "catch.hpp"
#include "numeric_levels.hpp"

using namespace potl::numeric;
using namespace potl::test;

namespace {

template <class Real>
Real canonical(Real x) {
  return x == x ? x : std::numeric_limits<Real>::quiet_NaN();
}
template <class Real>
Real lerp_of(Real a, Real b, Real w) {
  const Real d = b - a;
  return canonical(std::fabs(w) < Real(0.5) ? std::fma(w, d, a) : std::fma(w - Real(1), d, b));
}

template <class Real>
struct tensors {
  std::vector<Real> p, g, m, v, u;
  explicit tensors(std::uint64_t seed) {
    std::mt19937_64 draw(seed);
    std::normal_distribution<double> normal;
    for (int i = 0; i < 301; ++i) {
      p.push_back(static_cast<Real>(normal(draw)));
      g.push_back(static_cast<Real>(normal(draw) * 1e-2));
      m.push_back(static_cast<Real>(normal(draw) * 1e-2));
      v.push_back(static_cast<Real>(std::fabs(normal(draw)) * 1e-4));
      u.push_back(static_cast<Real>(std::fabs(normal(draw)) * 1e-4));
    }
    g[7] = std::numeric_limits<Real>::quiet_NaN();
    g[8] = std::numeric_limits<Real>::infinity();
    g[9] = 0;
  }
};

template <class Real>
void formulas(std::uint64_t seed) {
  const auto a = hostile<Real>(299, seed), b = hostile<Real>(299, seed + 1);
  auto c = hostile<Real>(299, seed + 2);
  std::reverse(c.begin(), c.end());
  const Real s = static_cast<Real>(-0.37);
  std::vector<Real> sum, between, times, over;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum.push_back(canonical(std::fma(s, c[i], a[i])));
    between.push_back(lerp_of(a[i], b[i], c[i]));
    times.push_back(canonical(std::fma(s * b[i], c[i], a[i])));
    over.push_back(canonical(std::fma(s, b[i] / c[i], a[i])));
  }
  using view = std::span<const Real>;
  at_each_level_and_end([&](isa level, guarded_end at) {
    INFO(to_string(level));
    const guarded first(a, at), second(b, at), third(c, at);
    guarded<Real> out(a.size(), at);
    add_scaled(view(first), view(third), -0.37, std::span<Real>(out), inline_executor());
    CHECK(same_bits(out, sum));
    lerp(view(first), view(second), view(third), std::span<Real>(out), inline_executor());
    CHECK(same_bits(out, between));
    addcmul(view(first), view(second), view(third), -0.37, std::span<Real>(out), inline_executor());
    CHECK(same_bits(out, times));
    addcdiv(view(first), view(second), view(third), -0.37, std::span<Real>(out), inline_executor());
    CHECK(same_bits(out, over));
    // One element stands for all.
    const guarded one(std::vector<Real>{Real(0.25)}, at);
    lerp(view(first), view(second), view(one), std::span<Real>(out), inline_executor());
    for (std::size_t i = 0; i < a.size(); ++i)
      CHECK(bits(out[i]) == bits(lerp_of(a[i], b[i], one[0])));
  });
}

/// torch's plain SGD, operation by operation.
template <class Real>
void sgd_check(const sgd_options& o) {
  const tensors<Real> before(11);
  tensors<Real> want = before;
  const std::span<Real> p(want.p), m(want.m);
  std::vector<Real> g = want.g;
  if (o.maximize)
    for (Real& one : g) one = -one;
  const executor& e = inline_executor();
  if (o.weight_decay != 0)
    add_scaled(std::span<const Real>(g), std::span<const Real>(p), o.weight_decay,
               std::span<Real>(g), e);
  if (o.momentum != 0) {
    if (o.first_step) {
      for (std::size_t i = 0; i < g.size(); ++i) m[i] = canonical(g[i]);
    } else {
      for (Real& one : m) one *= static_cast<Real>(o.momentum);
      add_scaled(std::span<const Real>(m), std::span<const Real>(g), 1 - o.dampening, m, e);
    }
    if (o.nesterov) {
      add_scaled(std::span<const Real>(g), std::span<const Real>(m), o.momentum, std::span<Real>(g),
                 e);
    } else {
      g = want.m;
    }
  }
  add_scaled(std::span<const Real>(p), std::span<const Real>(g), -o.learning_rate, p, e);
  at_each_level_and_end([&](isa level, guarded_end at) {
    INFO(to_string(level));
    const guarded gradients(before.g, at);
    guarded got_p(before.p, at), got_m(before.m, at);
    sgd(o, std::span<Real>(got_p), gradients, got_m, e);
    CHECK(same_bits(got_p, want.p));
    CHECK(same_bits(got_m, want.m));
  });
}

/// torch's plain Adam, operation by operation.
template <class Real>
void adam_check(const adam_options& o, bool amsgrad) {
  const tensors<Real> before(12);
  tensors<Real> want = before;
  using view = std::span<const Real>;
  const executor& e = inline_executor();
  std::vector<Real> g = want.g, one{static_cast<Real>(1 - o.beta1)};
  if (o.maximize)
    for (Real& x : g) x = -x;
  if (o.weight_decay != 0) {
    if (o.decoupled_decay) {
      for (Real& x : want.p) x *= static_cast<Real>(1 - o.learning_rate * o.weight_decay);
    } else {
      add_scaled(view(g), view(want.p), o.weight_decay, std::span<Real>(g), e);
    }
  }
  lerp(view(want.m), view(g), view(one), std::span<Real>(want.m), e);
  for (Real& x : want.v) x *= static_cast<Real>(o.beta2);
  addcmul(view(want.v), view(g), view(g), 1 - o.beta2, std::span<Real>(want.v), e);
  std::vector<Real> denominator = want.v;
  if (amsgrad) {
    for (std::size_t i = 0; i < g.size(); ++i)
      if (!(want.u[i] >= want.v[i])) want.u[i] = want.v[i];
    denominator = want.u;
  }
  const double c1 = 1 - exact_pow(o.beta1, o.step), c2 = 1 - exact_pow(o.beta2, o.step);
  for (Real& x : denominator)
    x = std::sqrt(x) / static_cast<Real>(std::sqrt(c2)) + static_cast<Real>(o.epsilon);
  addcdiv(view(want.p), view(want.m), view(denominator), -(o.learning_rate / c1),
          std::span<Real>(want.p), e);
  at_each_level_and_end([&](isa level, guarded_end at) {
    INFO(to_string(level));
    const guarded gradients(before.g, at);
    guarded got_p(before.p, at), got_m(before.m, at), got_v(before.v, at);
    guarded got_u(amsgrad ? before.u : std::vector<Real>{}, at);
    adam(o, std::span<Real>(got_p), gradients, got_m, got_v, got_u, e);
    CHECK(same_bits(got_p, want.p));
    CHECK(same_bits(got_m, want.m));
    CHECK(same_bits(got_v, want.v));
    if (amsgrad) CHECK(same_bits(got_u, want.u));
  });
}

}  // namespace

TEST_CASE("weighted sums are their formulas at every level", "[combine]") {
  formulas<float>(21);
  formulas<double>(22);
}

TEST_CASE("fused SGD is the plain one", "[combine]") {
  for (const double momentum : {0.0, 0.9})
    for (const double decay : {0.0, 5e-4})
      for (const int flags : {0, 1, 2, 4, 7}) {
        const sgd_options o{0.1,
                            momentum,
                            (flags & 1) != 0 ? 0.0 : 0.1,
                            decay,
                            (flags & 1) != 0,
                            (flags & 2) != 0,
                            (flags & 4) != 0};
        sgd_check<float>(o);
        sgd_check<double>(o);
      }
}

TEST_CASE("fused Adam and AdamW are the plain ones", "[combine]") {
  for (const double decay : {0.0, 1e-2})
    for (const int flags : {0, 1, 2, 3})
      for (const bool amsgrad : {false, true}) {
        adam_options o;
        o.learning_rate = 1e-3;
        o.weight_decay = decay;
        o.step = 17;
        o.decoupled_decay = (flags & 1) != 0;
        o.maximize = (flags & 2) != 0;
        adam_check<float>(o, amsgrad);
        adam_check<double>(o, amsgrad);
      }
}

TEST_CASE("softplus and elu follow their parameters", "[combine]") {
  const auto x = hostile<float>(499, 31), dy = hostile<float>(499, 32);
  const elu_options o{1.6732632423543772, 1.0507009873554805, 0.5};
  const float low = static_cast<float>(o.alpha * o.scale), scale = static_cast<float>(o.scale);
  at_each_level_and_end([&](isa level, guarded_end at) {
    INFO(to_string(level));
    const guarded from(x, at), from_above(dy, at);
    guarded<float> y(x.size(), at), dx(x.size(), at);
    softplus(std::span<const float>(from), 2.0, 15.0, y, inline_executor());
    softplus_gradient(std::span<const float>(from_above), from, 2.0, 15.0, dx, inline_executor());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float s = x[i] * 2.0F;
      const float want = s > 15.0F ? x[i] : evaluate(unary::softplus, s) / 2.0F;
      const float slope = s > 15.0F ? dy[i] : evaluate(gradient::softplus, dy[i], s);
      CHECK(bits(y[i]) == bits(canonical(want)));
      CHECK(bits(dx[i]) == bits(canonical(slope)));
    }
    elu(o, std::span<const float>(from), y, inline_executor());
    elu_gradient(o, false, std::span<const float>(from_above), from, dx, inline_executor());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool up = x[i] > 0;
      const float want = up ? x[i] * scale : evaluate(unary::expm1, x[i] * 0.5F) * low;
      const float slope =
          up ? dy[i] * scale : ((dy[i] * 0.5F) * low) * evaluate(unary::exp, x[i] * 0.5F);
      CHECK(bits(y[i]) == bits(canonical(want)));
      CHECK(bits(dx[i]) == bits(canonical(slope)));
    }
  });
}

TEST_CASE("updates with missing state are refused", "[combine]") {
  std::vector<float> p(4), g(4), none;
  CHECK_THROWS_AS(sgd({0.1, 0.9}, std::span<float>(p), g, none, inline_executor()),
                  potl::exception);
}
