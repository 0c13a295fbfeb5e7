// SPDX-License-Identifier: Apache-2.0
#include <potl/statistics/detail/two_sample.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace potl::statistics {
namespace {

constexpr std::size_t exact_limit = 50;  // C(50, 25) subsets are a double exactly

struct ranked {
  double value = 0;
  bool first = false;
};

/// Twice the midrank of each value in ascending order, and the sum of t^3 - t over ties of t.
struct midranks {
  std::vector<std::uint64_t> doubled;
  double ties = 0;
};

midranks midranks_of(const std::vector<ranked>& sorted) {
  midranks out;
  out.doubled.resize(sorted.size());
  for (std::size_t from = 0; from < sorted.size();) {
    std::size_t to = from;
    while (to < sorted.size() && sorted[to].value == sorted[from].value) ++to;
    for (std::size_t i = from; i < to; ++i) out.doubled[i] = from + to + 1;
    const auto size = static_cast<double>(to - from);
    out.ties += size * size * size - size;
    from = to;
  }
  return out;
}

/// The share of the subsets of `size` ranks whose sum is at most `sum`.
double share_of_subsets(const std::vector<std::uint64_t>& ranks, std::size_t size,
                        std::uint64_t sum) {
  std::uint64_t total = 0;
  for (const std::uint64_t rank : ranks) total += rank;
  // ways[k][s]: subsets of k of the ranks so far with sum s.
  std::vector<std::vector<double>> ways(size + 1, std::vector<double>(total + 1, 0.0));
  ways[0][0] = 1;
  for (const std::uint64_t rank : ranks) {
    for (std::size_t k = size; k-- > 0;) {
      for (std::uint64_t s = total + 1 - rank; s-- > 0;) ways[k + 1][s + rank] += ways[k][s];
    }
  }
  double all = 0, low = 0;
  for (std::uint64_t s = 0; s <= total; ++s) {
    all += ways[size][s];
    if (s <= sum) low += ways[size][s];
  }
  return low / all;
}

}  // namespace

rank_test mann_whitney_less(std::span<const double> first, std::span<const double> second) {
  rank_test out;
  if (first.empty() || second.empty()) return out;
  std::vector<ranked> all;
  all.reserve(first.size() + second.size());
  for (const double value : first) all.push_back({value, true});
  for (const double value : second) all.push_back({value, false});
  std::sort(all.begin(), all.end(),
            [](const ranked& a, const ranked& b) { return a.value < b.value; });
  const midranks ranks = midranks_of(all);
  std::uint64_t doubled_sum = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].first) doubled_sum += ranks.doubled[i];
  }
  const double n = static_cast<double>(first.size()), m = static_cast<double>(second.size());
  out.u = static_cast<double>(doubled_sum) / 2 - n * (n + 1) / 2;
  out.exact = all.size() <= exact_limit;
  if (out.exact) {
    out.p_value = share_of_subsets(ranks.doubled, first.size(), doubled_sum);
    return out;
  }
  const double count = n + m;
  const double variance = n * m / 12 * (count + 1 - ranks.ties / (count * (count - 1)));
  if (variance > 0) {
    const double z = (out.u + 0.5 - n * m / 2) / std::sqrt(variance);
    out.p_value = 0.5 * std::erfc(-z / std::sqrt(2.0));
  }
  return out;
}

}  // namespace potl::statistics
