// SPDX-License-Identifier: Apache-2.0
// Freivalds' check against computing the product again with potl's own kernels, on one thread: the
// ratio is how many times cheaper the check is. A segment is 64 steps of a layer of 1024 x 1024
// with batches of 128, against the 64 products that give its gradients.
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <potl/checks/freivalds.hpp>
#include <potl/checks/freivalds_segment.hpp>
#include <potl/numeric/gemm.hpp>

#include "bench.hpp"

namespace {

using namespace potl;
using numeric::inline_executor;
using numeric::matrix;
using numeric::row_major;

template <class Real>
std::vector<Real> normal(std::int64_t count, double deviation, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw(0, deviation);
  std::vector<Real> out(static_cast<std::size_t>(count));
  for (Real& one : out) one = static_cast<Real>(draw(random));
  return out;
}

void multiply(matrix<const float> a, matrix<const float> b, matrix<float> c) {
  numeric::gemm(numeric::arithmetic::ord32, a, b, c, inline_executor());
}
void multiply(matrix<const double> a, matrix<const double> b, matrix<double> c) {
  numeric::gemm_ord64(a, b, c, inline_executor());
}

template <class Real>
bench::outcome product(const std::string& name, const char* baseline, std::int64_t size, int probes,
                       double at_least) {
  const auto a = normal<Real>(size * size, 1, 1), b = normal<Real>(size * size, 1, 2);
  std::vector<Real> c(a.size());
  const auto left = row_major(a.data(), size, size), right = row_major(b.data(), size, size);
  const auto result = row_major(c.data(), size, size);
  multiply(left, right, result);
  const auto check = [&] {
    const matrix<const Real> claimed = result;
    if (checks::freivalds(left, right, claimed, {probes, 1e-9, 0, {}}).outcome !=
        checks::freivalds_outcome::consistent) {
      std::abort();
    }
  };
  std::vector<Real> again(c.size());
  const auto recompute = [&] { multiply(left, right, row_major(again.data(), size, size)); };
  const auto bytes = static_cast<double>(3 * a.size() * sizeof(Real));
  return bench::compare("freivalds." + name + "." + std::to_string(size), bytes, "bytes/s",
                        baseline, at_least, size > 2048 ? 7 : 15, recompute, check);
}

bench::outcome segment(int probes, double at_least) {
  constexpr std::int64_t size = 1024, batch = 128;
  constexpr std::size_t steps = 64;
  std::vector<std::vector<float>> x, dy;
  for (std::size_t t = 0; t < steps; ++t) {
    x.push_back(normal<float>(batch * size, 1, 2 * t));
    dy.push_back(normal<float>(batch * size, 0.01, 2 * t + 1));
  }
  const auto before = normal<float>(size * size, 0.03, 1000);
  auto after = before;
  std::vector<float> gradient(before.size());
  const auto operands = [&](std::size_t t) {
    return checks::segment_step{row_major<const float>(dy[t].data(), batch, size).transposed(),
                                row_major<const float>(x[t].data(), batch, size), 1e-3, 1};
  };
  const auto compute = [&](std::size_t t) {
    const auto step = operands(t);
    multiply(step.a, step.b, row_major(gradient.data(), size, size));
  };
  for (std::size_t t = 0; t < steps; ++t) {
    compute(t);
    for (std::size_t i = 0; i < after.size(); ++i) after[i] -= 1e-3f * gradient[i];
  }
  const auto recompute = [&] {
    for (std::size_t t = 0; t < steps; ++t) compute(t);
  };
  const auto check = [&] {
    const auto got =
        checks::freivalds_segment({row_major<const float>(before.data(), size, size), {}, {}},
                                  {row_major<const float>(after.data(), size, size), {}, {}}, steps,
                                  operands, {}, {probes, 1e-9, 0, {}});
    if (got.weights.outcome != checks::freivalds_outcome::consistent) std::abort();
  };
  const auto bytes = static_cast<double>(steps) * 2 * batch * size * sizeof(float);
  return bench::compare("freivalds.segment.k64.1024" + (probes == 1 ? std::string() : ".4probes"),
                        bytes, "bytes/s", "the 64 products in ord32", at_least, 9, recompute,
                        check);
}

}  // namespace

int main() {
  const char* ord32 = "the product in ord32";
  const char* ord64 = "the product in ord64";
  std::vector<bench::outcome> out;
  out.push_back(product<float>("fp32.k1", ord32, 1024, 1, 40));
  out.push_back(product<float>("fp32.k1", ord32, 2048, 1, 40));
  out.push_back(product<float>("fp32.k1", ord32, 4096, 1, 60));
  out.push_back(product<float>("fp32.k4", ord32, 2048, 4, 0));
  out.push_back(product<double>("fp64.k8", ord64, 1024, 8, 12));
  out.push_back(product<double>("fp64.k8", ord64, 2048, 8, 20));
  out.push_back(segment(1, 40));
  out.push_back(segment(4, 0));
  bench::report("freivalds", out);
}
