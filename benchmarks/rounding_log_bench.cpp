// SPDX-License-Identifier: Apache-2.0
// The size of a rounding log for products of normal operands, and the speed of its coding against
// copying the float32 results that it is about. The test for ties is part of the product and not
// measured here (gemm.log64). The published packing takes 1.6 bits per value whatever is logged.
#include <cstring>
#include <random>
#include <vector>

#include <potl/numeric/detail/rounding_session.hpp>
#include <potl/numeric/gemm.hpp>
#include <potl/numeric/rounding_log.hpp>

#include "bench.hpp"

namespace {

using namespace potl;
using numeric::rounding_log;

std::vector<float> normal(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& one : out) one = draw(random);
  return out;
}

/// What a trainer logs for one product of 512 x terms by terms x 2048.
numeric::step_log log_of_product(std::int64_t terms) {
  constexpr std::int64_t rows = 512, columns = 2048;
  const std::vector<float> a = normal(rows * terms, 1), b = normal(terms * columns, 2);
  std::vector<float> c(rows * columns);
  const auto left = numeric::row_major(a.data(), rows, terms);
  const auto right = numeric::row_major(b.data(), terms, columns);
  numeric::rounding_session session({numeric::log_role::trainer, 32, 0});
  session.begin_step(1);
  const auto ties = numeric::gemm_log64(left, right, numeric::row_major(c.data(), rows, columns),
                                        {}, numeric::inline_executor());
  session.apply("product", c, ties, numeric::matrix_operands(left, right));
  return session.end_step();
}

/// `values` values with an entry at each with this probability.
rounding_log random_log(std::uint64_t values, double share) {
  std::mt19937_64 random(3);
  std::geometric_distribution<std::uint64_t> gap(share);
  rounding_log out{32, values, {}};
  for (std::uint64_t at = gap(random); at < values; at += 1 + gap(random)) {
    out.entries.push_back({at, (random() & 1) != 0});
  }
  return out;
}

bench::outcome size_of(const std::string& name, std::int64_t terms, double at_most) {
  const numeric::step_log log = log_of_product(terms);
  const auto values = static_cast<double>(log.values);
  std::printf("%s: %.3g of the values are logged\n", name.c_str(),
              static_cast<double>(log.entries) / values);
  bench::outcome out;
  out.name = "rounding_log.bits_per_value." + name;
  out.value = 8 * static_cast<double>(log.bytes.size()) / values;
  out.unit = "bits";
  out.baseline = "published packing: 1.6 bits";
  out.at_most = at_most;
  return out;
}

void speed_of(const std::string& suffix, double share, std::vector<bench::outcome>& out) {
  constexpr std::uint64_t values = std::uint64_t{1} << 24;
  const rounding_log log = random_log(values, share);
  const std::vector<std::uint8_t> bytes = numeric::encode_rounding_log(log);
  const std::vector<float> results = normal(static_cast<std::int64_t>(values), 4);
  std::vector<float> copy(results.size());
  const auto amount = static_cast<double>(values * sizeof(float));
  const auto copying = [&] { std::memcpy(copy.data(), results.data(), values * sizeof(float)); };
  const auto encoding = [&] {
    const auto encoded = numeric::encode_rounding_log(log);
    if (numeric::rounding_log_digest(encoded) != numeric::rounding_log_digest(bytes)) std::abort();
  };
  const auto decoding = [&] {
    if (numeric::decode_rounding_log(bytes)->entries.size() != log.entries.size()) std::abort();
  };
  const char* baseline = "memcpy of the float32 values";
  out.push_back(bench::compare("rounding_log.encode" + suffix, amount, "bytes/s", baseline, 0.3, 25,
                               copying, encoding));
  out.push_back(bench::compare("rounding_log.decode" + suffix, amount, "bytes/s", baseline, 0.3, 25,
                               copying, decoding));
}

}  // namespace

int main() {
  std::vector<bench::outcome> out{size_of("k768", 768, 0.003), size_of("k3072", 3072, 0.006)};
  speed_of("", 3e-4, out);        // more than in any layer of the networks of docs/experiments
  speed_of(".dense", 0.01, out);  // where windows are wide
  bench::report("rounding_log", out);
}
