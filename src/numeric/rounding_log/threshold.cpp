// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/rounding_threshold.hpp>

#include <cmath>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/rounding.hpp>

namespace potl::numeric {
namespace {

std::uint64_t uncovered_at(double tau, std::span<const double> distances) {
  std::uint64_t count = 0;
  for (const double distance : distances) count += !(distance > tau);
  return count;
}

}  // namespace

double grid_distance(double x, int bits) noexcept {
  const auto rounded = static_cast<double>(round_to(x, bits));
  return std::fabs(x - rounded) / grid_spacing(x, bits);
}

threshold search_threshold(std::span<const double> trainer, std::span<const double> auditor,
                           int bits, int rounds) {
  if (trainer.size() != auditor.size()) {
    throw exception({errc::usage, "trainer and auditor have different numbers of values", ""});
  }
  threshold out;
  std::vector<double> distances;  // of the mismatches
  for (std::size_t i = 0; i < trainer.size(); ++i) {
    if (round_to(trainer[i], bits) != round_to(auditor[i], bits)) {
      distances.push_back(grid_distance(trainer[i], bits));
    }
  }
  out.mismatches = distances.size();
  double high = 0.5;
  for (int round = 0; round < rounds; ++round) {
    const double middle = 0.5 * (out.tau + high);
    (uncovered_at(middle, distances) == 0 ? out.tau : high) = middle;
  }
  out.uncovered = uncovered_at(out.tau, distances);
  std::uint64_t logged = 0;
  for (const double x : trainer) logged += grid_distance(x, bits) > out.tau;
  if (!trainer.empty()) {
    out.logged = static_cast<double>(logged) / static_cast<double>(trainer.size());
  }
  return out;
}

}  // namespace potl::numeric
