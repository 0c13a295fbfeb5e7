// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <potl/numeric/detail/distance.hpp>

#include "widen.hpp"

namespace potl::numeric {
namespace {

constexpr std::size_t block = 512;
constexpr std::size_t lanes = 8;  // independent sums, so that the compiler may use vectors

struct sums {
  double l1 = 0, l2 = 0, linf = 0, dot = 0, update = 0, replayed = 0, weight = 0;
  double rounding = 0, excess = 0, beyond = 0;

  void add(const sums& other) noexcept {
    l1 += other.l1;
    l2 += other.l2;
    linf = std::max(linf, other.linf);
    dot += other.dot;
    update += other.update;
    replayed += other.replayed;
    weight += other.weight;
    rounding += other.rounding;
    excess += other.excess;
    beyond += other.beyond;
  }
  bool is_finite() const noexcept {
    return std::isfinite(l2) && std::isfinite(update) && std::isfinite(replayed) &&
           std::isfinite(weight) && std::isfinite(dot);
  }
  // Whether no number may stand for an infinity.
  bool is_small() const noexcept {
    constexpr double most = furthest * furthest;
    return l2 < most && update < most && replayed < most && weight < most && std::isfinite(dot);
  }
};

struct values {
  std::array<double, block> start, recorded, replayed;
};

// Every sum is NaN or infinite if one of its terms is.
sums add_up(const values& v, double allowance) noexcept {
  std::array<double, lanes> l1{}, l2{}, linf{}, dot{}, update{}, replayed{}, weight{}, rounding{},
      excess{}, beyond{};
  for (std::size_t i = 0; i < block; i += lanes) {
    for (std::size_t k = 0; k < lanes; ++k) {
      const double off = v.replayed[i + k] - v.recorded[i + k];
      const double by = v.recorded[i + k] - v.start[i + k];
      const double again = v.replayed[i + k] - v.start[i + k];
      const double size = std::fabs(off);
      const double before = std::fabs(v.start[i + k]), after = std::fabs(v.replayed[i + k]);
      const double allowed = allowance * (before > after ? before : after);
      const double left = size - (again == 0 ? 0 : allowed);
      l1[k] += size;
      l2[k] += off * off;
      linf[k] = size > linf[k] ? size : linf[k];
      dot[k] += by * again;
      update[k] += by * by;
      replayed[k] += again * again;
      weight[k] += v.recorded[i + k] * v.recorded[i + k];
      rounding[k] += allowed * allowed;
      excess[k] += left <= 0 ? 0 : left * left;
      beyond[k] += size <= allowed ? 0 : 1;
    }
  }
  sums out;
  for (std::size_t k = 0; k < lanes; ++k) {
    out.add({l1[k], l2[k], linf[k], dot[k], update[k], replayed[k], weight[k], rounding[k],
             excess[k], beyond[k]});
  }
  return out;
}

// Of which no sum of squares is finite.
constexpr double vast = 1e150;

double sign_of_furthest(double of) noexcept {
  return std::fabs(of) >= furthest ? std::copysign(1, of) : 0;
}

// What was as good as infinite and is not now came from 0, and what both sides have (a mask, a
// place that is not filled yet) is no difference: whether a state may hold it is another question
// (checks/detail/finite.hpp). Everything else that is not finite is reported.
bool settle(values& v, std::size_t count, bool without_infinities) noexcept {
  bool finite = true;
  for (std::size_t i = 0; i < count; ++i) {
    double &a = v.start[i], &b = v.recorded[i], &c = v.replayed[i];
    if (!(std::fabs(a) < furthest)) a = 0;
    if (std::fabs(b) < furthest && std::fabs(c) < furthest) continue;
    if (b == c || (std::isnan(b) && std::isnan(c))) {
      a = b = c = 0;
      continue;
    }
    // Two numbers that are not the same, however large, are off by their difference.
    const bool numbers = std::fabs(b) < vast && std::fabs(c) < vast;
    if (numbers && sign_of_furthest(b) == sign_of_furthest(c)) continue;
    if (without_infinities && sign_of_furthest(b) != 0) b = 0;
    if (without_infinities && sign_of_furthest(c) != 0) c = 0;
    if (!(std::fabs(b) < furthest && std::fabs(c) < furthest)) finite = false;
  }
  return finite;
}

using slice = std::array<double, block>;

double squared_distance(const slice& a, const slice& b) noexcept {
  std::array<double, lanes> squares{};
  for (std::size_t i = 0; i < block; i += lanes) {
    for (std::size_t k = 0; k < lanes; ++k) {
      const double by = b[i + k] - a[i + k];
      squares[k] += by * by;
    }
  }
  double out = 0;
  for (const double one : squares) out += one;
  return out;
}

// Leaves numbers, and NaN that only one of both has.
void take_infinities(slice& a, slice& b, moved& count) noexcept {
  for (std::size_t i = 0; i < block; ++i) {
    const double before = sign_of_furthest(a[i]), after = sign_of_furthest(b[i]);
    if (before != after) {
      count.came += after == 0 ? 0 : 1;
      count.went += before == 0 ? 0 : 1;
    }
    if (std::isnan(a[i]) && std::isnan(b[i])) a[i] = b[i] = 0;
    for (double* one : {&a[i], &b[i]}) {
      if (sign_of_furthest(*one) != 0) *one = 0;
    }
  }
}

template <class Whole>
void subtract(const std::uint8_t* from, const std::uint8_t* what, std::size_t count, double* to) {
  for (std::size_t i = 0; i < count; ++i) {
    Whole a = 0, b = 0;
    if (from != nullptr) std::memcpy(&a, from + i * sizeof a, sizeof a);
    if (what != nullptr) std::memcpy(&b, what + i * sizeof b, sizeof b);
    const auto size = static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b);
    to[i] = a < b ? -static_cast<double>(0 - size) : static_cast<double>(size);
  }
}

// 64-bit integers, of which doubles hold differences alone; null stands for zeros.
bool subtract(dtype type, const std::uint8_t* from, const std::uint8_t* what, std::size_t count,
              slice& to) {
  if (type == dtype::i64) {
    subtract<std::int64_t>(from, what, count, to.data());
  } else if (type == dtype::u64) {
    subtract<std::uint64_t>(from, what, count, to.data());
  } else {
    return false;
  }
  return true;
}

}  // namespace

double unit_roundoff(dtype type) noexcept {
  switch (type) {
    case dtype::f64: return 0x1p-53;
    case dtype::f32:
    case dtype::c64: return 0x1p-24;
    case dtype::f16: return 0x1p-11;
    case dtype::bf16: return 0x1p-8;
    case dtype::f8_e4m3: return 0x1p-4;
    case dtype::f8_e5m2: return 0x1p-3;
    default: return 0;
  }
}

double smallest(dtype type) noexcept {
  switch (type) {
    case dtype::f64: return 0x1p-1074;
    case dtype::f32:
    case dtype::c64: return 0x1p-149;
    case dtype::f16: return 0x1p-24;
    case dtype::bf16: return 0x1p-133;
    case dtype::f8_e4m3: return 0x1p-9;
    case dtype::f8_e5m2: return 0x1p-16;
    default: return 0;
  }
}

norms tensor_norms(dtype type, bytes_view start, bytes_view recorded, bytes_view replayed,
                   double roundings, bool without_infinities) {
  const std::size_t size = info(type).size / lanes_of(type);
  const std::size_t total = recorded.size() / size;
  const double allowance = rounding_allowance * roundings * unit_roundoff(type);
  values v;
  sums all;
  norms out;
  for (std::size_t at = 0; at < total; at += block) {
    const std::size_t count = std::min(block, total - at);
    const std::uint8_t* before = start.empty() ? nullptr : start.data() + at * size;
    const std::uint8_t *there = recorded.data() + at * size, *here = replayed.data() + at * size;
    v.start.fill(0);
    v.replayed.fill(0);
    // As seen from the replay, if a double does not hold them.
    if (subtract(type, there, here, count, v.recorded)) {
      subtract(type, before, here, count, v.start);
    } else {
      if (before != nullptr) widen(type, before, count, v.start.data());
      widen(type, there, count, v.recorded.data());
      widen(type, here, count, v.replayed.data());
    }
    for (auto* row : {&v.start, &v.recorded, &v.replayed}) {
      std::fill(row->begin() + static_cast<std::ptrdiff_t>(count), row->end(), 0.0);
    }
    sums some = add_up(v, allowance);
    if (!some.is_small()) {
      if (!settle(v, count, without_infinities)) out.finite = false;
      some = add_up(v, allowance);
    }
    all.add(some);
  }
  out.l1 = all.l1;
  out.l2 = std::sqrt(all.l2);
  out.linf = std::isnan(all.l1) ? all.l1 : all.linf;
  out.dot = all.dot;
  out.update_l2 = std::sqrt(all.update);
  out.replayed_update_l2 = std::sqrt(all.replayed);
  out.weight_l2 = std::sqrt(all.weight);
  out.rounding_l2 = std::sqrt(all.rounding);
  out.excess_l2 = std::sqrt(all.excess);
  out.rounding_only = all.beyond == 0;
  if (!all.is_finite()) out.finite = false;
  return out;
}

norms places(std::size_t size, bytes_view start, bytes_view recorded, bytes_view replayed) {
  const std::vector<std::uint8_t> zero(size);
  norms out;
  for (std::size_t at = 0; at < recorded.size(); at += size) {
    const auto differ = [at, size](bytes_view a, bytes_view b) {
      return std::memcmp(a.data() + at, b.data() + at, size) == 0 ? 0.0 : 1.0;
    };
    const auto moved = [&](bytes_view end) {
      if (!start.empty()) return differ(start, end);
      return std::memcmp(end.data() + at, zero.data(), size) == 0 ? 0.0 : 1.0;
    };
    out.l2 += differ(recorded, replayed);
    out.update_l2 += moved(recorded);
    out.replayed_update_l2 += moved(replayed);
  }
  out.l1 = out.excess_l2 = out.l2;
  out.linf = out.l2 > 0 ? 1 : 0;
  out.rounding_only = out.l2 == 0;
  return out;
}

bool is_mask(std::size_t size, bytes_view recorded, bytes_view replayed) {
  if (replayed.size() <= 2 * size) return false;
  const auto same = [size](const std::uint8_t* a, const std::uint8_t* b) {
    return std::memcmp(a, b, size) == 0;
  };
  const std::uint8_t *one = replayed.data(), *other = one;
  for (const bytes_view each : {replayed, recorded}) {
    for (std::size_t at = 0; at < each.size(); at += size) {
      const std::uint8_t* here = each.data() + at;
      if (same(here, one) || same(here, other)) continue;
      if (other != one || each.data() != replayed.data()) return false;
      other = here;
    }
  }
  return true;
}

std::vector<std::uint8_t> signs_of_infinities(dtype type, bytes_view values) {
  const std::size_t size = info(type).size / lanes_of(type);
  std::vector<std::uint8_t> out(values.size() / size);
  slice some{};
  for (std::size_t at = 0; at < out.size(); at += block) {
    const std::size_t count = std::min(block, out.size() - at);
    widen(type, values.data() + at * size, count, some.data());
    for (std::size_t i = 0; i < count; ++i) {
      out[at + i] = static_cast<std::uint8_t>(static_cast<int>(sign_of_furthest(some[i])));
    }
  }
  return out;
}

moved movement(dtype type, bytes_view before, bytes_view after) {
  const std::size_t size = info(type).size / lanes_of(type);
  const std::size_t total = std::max(before.size(), after.size()) / size;
  slice old{}, now{};
  moved out;
  for (std::size_t at = 0; at < total; at += block) {
    const std::size_t count = std::min(block, total - at);
    const std::uint8_t* from = before.empty() ? nullptr : before.data() + at * size;
    const std::uint8_t* to = after.empty() ? nullptr : after.data() + at * size;
    if (!subtract(type, to, from, count, now)) {
      if (from != nullptr) widen(type, from, count, old.data());
      if (to != nullptr) widen(type, to, count, now.data());
    }
    for (auto* row : {&old, &now}) {
      std::fill(row->begin() + static_cast<std::ptrdiff_t>(count), row->end(), 0.0);
    }
    double squares = squared_distance(old, now);
    if (!(squares < furthest * furthest)) {
      take_infinities(old, now, out);
      squares = squared_distance(old, now);
    }
    out.numbers += squares;
  }
  return {std::sqrt(out.numbers), std::sqrt(out.came), std::sqrt(out.went)};
}

}  // namespace potl::numeric
