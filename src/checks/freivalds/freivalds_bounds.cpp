// SPDX-License-Identifier: Apache-2.0
#include "freivalds_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <potl/core/error.hpp>
#include <potl/crypto/challenge.hpp>
#include <potl/crypto/detail/prf.hpp>
#include <potl/numeric/detail/random.hpp>

namespace potl::checks::freivalds_detail {

double gamma(double terms, double unit) noexcept {
  const double product = terms * unit;
  return product < 1 ? product / (1 - product) : std::numeric_limits<double>::infinity();
}

double gauge(double cases, double probability) noexcept {
  return std::sqrt(2 * std::log(std::max(1.0, cases) / probability));
}

double gauge_of_pairs(double cases, double probability) noexcept {
  // E exp(l r E s) = prod (1 - l^2 e_i^2)^(-1/2) <= (1 - l^2)^(-1/2), where the singular values e_i
  // have squares of sum 1. With l = 1 - 1 / (2 x) that is below sqrt(x).
  const double least = std::log(2 * std::max(1.0, cases) / probability) + 0.5;
  double x = least;
  for (int i = 0; i < 8; ++i) x = least + std::log(x) / 2;
  return x;
}

void validate(const freivalds_options& options) {
  if (options.probes < 1 || options.probes > 64) {
    throw exception({errc::usage, "Freivalds' check takes 1 to 64 probes", ""});
  }
  if (!(options.false_alarm > 0 && options.false_alarm < 1)) {
    throw exception({errc::usage, "false_alarm is a probability between 0 and 1", ""});
  }
  if (!(options.stored >= 0 && options.stored < 1)) {
    throw exception({errc::usage, "the unit roundoff of what is stored lies between 0 and 1",
                     "2^-8 is that of bfloat16, 0 that of the type itself"});
  }
}

probes::probes(const std::optional<digest>& key)
    : key_(to_random_key(key ? *key : fresh_nonce())) {}

void probes::draw(std::span<double> out) {
  fill_normal(out, key_, drawn_, 0, 1);
  drawn_ += out.size();
}

void limits::set_gauge(double residuals, double false_alarm) noexcept {
  z = gauge(residuals, false_alarm);
  // |sum of rounded terms - sum| <= gamma sum of |terms| <= gamma |M_i| |r|, and |r| exceeds
  // sqrt(n) + z seldom enough.
  own = gamma(2 * (depth + columns) + 8, 0x1p-53) * (std::sqrt(columns) + z);
}

void limits::set_gauge_of_pairs(double residuals, double taps, double false_alarm) noexcept {
  z = gauge_of_pairs(residuals, false_alarm / 2);
  const double length = gauge(residuals, false_alarm / 4);
  own = gamma(2 * (depth + columns) + 8, 0x1p-53) * (std::sqrt(columns / taps) + length) *
        (std::sqrt(taps) + length);
}

template <class Real>
limits limits_of(std::int64_t depth, std::int64_t columns, const freivalds_options& options) {
  limits out;
  out.depth = static_cast<double>(depth);
  out.columns = static_cast<double>(columns);
  out.unit = unit_of<Real>;
  out.stored = options.stored == 0 ? out.unit : options.stored;
  out.least = least_of<Real>;
  if (!(gamma(out.depth, out.unit) <= 1)) {
    throw exception({errc::usage, "rounding has no bound in sums of so many products",
                     "check parts of the depth by themselves"});
  }
  return out;
}

template limits limits_of<float>(std::int64_t, std::int64_t, const freivalds_options&);
template limits limits_of<double>(std::int64_t, std::int64_t, const freivalds_options&);

void comparison::row(std::int64_t row, const double* residuals, std::size_t stride, int vectors,
                     double terms, double result) noexcept {
  const double flushed = limits_.depth * limits_.least * std::sqrt(limits_.columns);
  const double rounded = limits_.stored * std::min(terms, result);
  const double own = limits_.own * (terms + result) + flushed;
  const double sound = limits_.z * (gamma_ * terms + rounded + flushed) + own;
  const double usual =
      limits_.z * (limits_.unit * (usual_of_terms * terms + usual_of_results * result) + rounded +
                   flushed) +
      own;
  for (int v = 0; v < vectors; ++v) {
    add(row, residuals[static_cast<std::size_t>(v) * stride], sound, usual, terms);
  }
}

void comparison::add(std::int64_t row, double residual, double sound, double usual,
                     double terms) noexcept {
  constexpr double most = std::numeric_limits<double>::max();
  const double size = std::fabs(residual);
  ++out_.compared;
  if (!(size <= most && sound <= most)) {
    if (out_.outcome != freivalds_outcome::not_finite) out_.row = row;
    out_.outcome = freivalds_outcome::not_finite;
    return;
  }
  if (size == 0) return;
  const double share = size / sound;
  if (share > out_.worst) {
    out_.worst = share;
    if (out_.outcome != freivalds_outcome::not_finite) out_.row = row;
  }
  out_.usual = std::max(out_.usual, size / std::min(sound, usual));
  if (terms > 0) squares_ += (size / terms) * (size / terms);
}

freivalds_result comparison::finish(double false_alarm) noexcept {
  if (out_.outcome != freivalds_outcome::not_finite) {
    out_.outcome = !(out_.worst <= 1)   ? freivalds_outcome::inconsistent
                   : !(out_.usual <= 1) ? freivalds_outcome::unusual
                                        : freivalds_outcome::consistent;
  }
  if (out_.compared > 0) out_.rounding = std::sqrt(squares_ / static_cast<double>(out_.compared));
  out_.false_alarm = false_alarm;
  return out_;
}

}  // namespace potl::checks::freivalds_detail
