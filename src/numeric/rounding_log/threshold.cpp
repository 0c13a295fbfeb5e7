// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/rounding_threshold.hpp>

#include <cmath>
#include <string>

#include <potl/numeric/detail/rounding.hpp>

namespace potl::numeric {
namespace {

constexpr std::uint64_t symbols_per_byte = 5;
constexpr int weight[symbols_per_byte] = {1, 3, 9, 27, 81};
constexpr int packed_values = 243;

error malformed(const char* what) {
  return {errc::malformed, std::string("packed rounding log: ") + what, ""};
}

std::uint64_t uncovered_at(double tau, std::span<const double> distances) {
  std::uint64_t count = 0;
  for (const double distance : distances) count += !(distance > tau);
  return count;
}

}  // namespace

std::vector<std::uint8_t> pack_rounding_log(const rounding_log& log) {
  std::vector<std::uint8_t> out((log.values + symbols_per_byte - 1) / symbols_per_byte);
  for (const log_entry& entry : log.entries) {
    if (entry.position >= log.values) {
      throw exception({errc::usage, "rounding log: a position beyond the values", ""});
    }
    std::uint8_t& byte = out[entry.position / symbols_per_byte];
    byte = static_cast<std::uint8_t>(byte + (entry.up ? 2 : 1) *
                                                weight[entry.position % symbols_per_byte]);
  }
  return out;
}

result<rounding_log> unpack_rounding_log(bytes_view bytes, int bits, std::uint64_t values) {
  if (values > max_logged_values ||
      bytes.size() != (values + symbols_per_byte - 1) / symbols_per_byte) {
    return malformed("wrong length");
  }
  rounding_log out{bits, values, {}};
  for (std::uint64_t at = 0; at < bytes.size(); ++at) {
    int left = bytes[at];
    if (left >= packed_values) return malformed("a byte that packs nothing");
    for (std::uint64_t i = 0; left != 0; ++i, left /= 3) {
      if (left % 3 == 0) continue;
      const std::uint64_t position = at * symbols_per_byte + i;
      if (position >= values) return malformed("symbols beyond the last value");
      out.entries.push_back({position, left % 3 == 2});
    }
  }
  return out;
}

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
