// SPDX-License-Identifier: Apache-2.0
// The logarithm of the gamma function and its first two derivatives. From 10 on, Stirling's series
// (Abramowitz and Stegun 6.1.40, 6.3.18, 6.4.12); below, the recurrences (6.1.15, 6.3.5, 6.4.6)
// lead to a power series or to Stirling's; reflection (6.1.17, 6.3.7, 6.4.7) to the negative half.
#include "functions.hpp"
#include "scalar.hpp"

namespace potl::numeric::specials {
namespace {

constexpr double large = 10.0;

/// The Bernoulli numbers B2, B4, ... B20.
constexpr double bernoulli[] = {1.0 / 6,       -1.0 / 30,      1.0 / 42, -1.0 / 30,
                                5.0 / 66,      -691.0 / 2730,  7.0 / 6,  -3617.0 / 510,
                                43867.0 / 798, -174611.0 / 330};

/// The sum of B2k weight(2k) z^(k-1).
template <class Weight>
constexpr double stirling(double z, Weight weight) {
  double sum = 0.0;
  for (int k = 10; k-- > 0;) sum = sum * z + bernoulli[k] * weight(2.0 * (k + 1));
  return sum;
}

/// lgamma(2 + z) for |z| <= 1/2, by the coefficients (zeta(k) - 1) / k of 6.1.33 from k = 2 on.
double above_two(double z) {
  constexpr double one_less_gamma = 0x1.b0ee6072093cep-2;
  constexpr double excess[] = {
      0x1.4a34cc4a60fa6p-2,  -0x1.13e001a557607p-4,  0x1.51322ac7d8483p-6,  -0x1.e404fc218f5f2p-8,
      0x1.7add6eadb6c30p-9,  -0x1.38ac5c2bf8e08p-10, 0x1.0b36af86396e9p-11, -0x1.d3fd4c76d2fc8p-13,
      0x1.a127b0f17d65ap-14, -0x1.78de5bd7c81efp-15, 0x1.580dcee66eb02p-16, -0x1.3cbc963ce2243p-17,
      0x1.2597a39f34aacp-18, -0x1.11b2eb7679541p-19, 0x1.0064cdeb22f0fp-20, -0x1.e2600d93cfd2fp-22,
      0x1.c76bbb3f07a4dp-23, -0x1.af5a6cbbf8a97p-24, 0x1.99b93c2070b0fp-25, -0x1.862c734df3eacp-26,
      0x1.7469daccfadcdp-27, -0x1.6434a8447aeadp-28, 0x1.555a877ffd2c3p-29, -0x1.47b1679258d0ep-30,
      0x1.3b15d2b2fc10cp-31, -0x1.2f69a9fabe3e0p-32, 0x1.24932a337434cp-33};
  return z * fused(z, polynomial(excess, z), one_less_gamma);
}

/// For 1 <= x <= 2: the Taylor series about the root, which keeps its relative accuracy there.
double digamma_near_root(double x) {
  constexpr double root_high = 0x1.762d86356be3fp+0, root_low = 0x1.b86a722197829p-54;
  constexpr double slopes[] = {
      0x1.ef72bc8ee38acp-1,  -0x1.c563b54aa1a35p-2,  0x1.08b4294d50381p-2,  -0x1.4fc1317257da8p-3,
      0x1.b9a5b6370f3abp-4,  -0x1.27baba261cc2cp-4,  0x1.8fce02b239ca7p-5,  -0x1.0fa7ec36a7d8fp-5,
      0x1.723d6807edcc0p-6,  -0x1.f970508e1b6a2p-7,  0x1.5955caaa962f3p-7,  -0x1.d828079282eb8p-8,
      0x1.42e1acf81d8dcp-8,  -0x1.b9afc7cee8a14p-9,  0x1.2e23345f79aafp-9,  -0x1.9d626f71d1f7ap-10,
      0x1.1acebbd761089p-10, -0x1.82f6345c65b35p-11, 0x1.08bdae1a261d4p-11, -0x1.6a3fddea11304p-12,
      0x1.efacab6fb8985p-13, -0x1.531f5dc5eb563p-13, 0x1.d0080f810fab5p-14, -0x1.3d7972688af67p-14,
      0x1.b2691182c5c34p-15, -0x1.29357f7d6cb86p-15, 0x1.96ae4a8e32b49p-16, -0x1.163cc7373be8bp-16,
      0x1.7cb8b3916fd29p-17, -0x1.047a1894e0fdep-17, 0x1.646b54f410bdfp-18, -0x1.e7b34a5b78a3cp-19,
      0x1.4dab173747443p-19, -0x1.c891c9fca61dep-20, 0x1.385e9fcb1c6a8p-20, -0x1.ab6cff79188aap-21,
      0x1.246e3329dab55p-21};
  const double distance = (x - root_high) - root_low;
  return distance * polynomial(slopes, distance);
}

/// All from 2^52 on are.
bool is_whole(double x) {
  return magnitude(x) >= 0x1p52 || static_cast<double>(static_cast<long long>(x)) == x;
}

double lgamma_above_half(double x) {
  if (x >= large) {
    const double z = 1.0 / x;
    const double rest = z * stirling(z * z, [](double n) { return 1.0 / (n * (n - 1.0)); });
    constexpr double half_log_two_pi = 0x1.d67f1c864beb5p-1;
    return (x - 0.5) * (log(x) - 1.0) + (half_log_two_pi - 0.5 + rest);
  }
  if (x < 1.5) return above_two(x - 1.0) - log1p(x - 1.0);
  double product = 1.0;
  while (x > 2.5) {
    x -= 1.0;
    product *= x;
  }
  const double value = above_two(x - 2.0);
  return product == 1.0 ? value : value + log(product);
}

}  // namespace

double lgamma(double x) noexcept {
  if (x != x) return x;
  const double a = magnitude(x);
  if (a == infinity || (x <= 0.0 && is_whole(x))) return infinity;
  if (a < 0.5) return (above_two(x) - log1p(x)) - log(a);
  if (x > 0.0) return lgamma_above_half(x);
  return log(pi / (a * magnitude(turn(a).sine))) - lgamma_above_half(a);
}

double digamma(double x) noexcept {
  if (x == infinity) return x;
  if (x == 0.0) return is_negative(x) ? infinity : -infinity;
  if (x != x || (x < 0.0 && is_whole(x))) return not_a_number;
  if (x < -0.5) {
    const turned at = turn(x);
    return digamma(1.0 - x) - pi * (at.cosine / at.sine);
  }
  double sum = 0.0;
  for (; x < 1.0; x += 1.0) sum -= 1.0 / x;
  if (x >= large) {
    const double z = 1.0 / x, square = z * z;
    return log(x) - (0.5 * z + square * stirling(square, [](double n) { return 1.0 / n; }));
  }
  while (x > 2.0) {
    x -= 1.0;
    sum += 1.0 / x;
  }
  return sum + digamma_near_root(x);
}

double trigamma(double x) noexcept {
  if (x != x || x == -infinity) return not_a_number;
  if (x <= 0.0 && is_whole(x)) return infinity;
  if (x < -0.5) {
    const double cosecant = pi / turn(x).sine;
    return cosecant * cosecant - trigamma(1.0 - x);
  }
  double sum = 0.0;
  for (; x < large; x += 1.0) sum += 1.0 / (x * x);
  const double z = 1.0 / x, square = z * z;
  return sum + (z + square * (0.5 + z * stirling(square, [](double) { return 1.0; })));
}

}  // namespace potl::numeric::specials
