// SPDX-License-Identifier: Apache-2.0
// Sums, norms, softmax and losses, run by simulated blocks and compared with the CPU.
#include <string>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/normalization.hpp>
#include <potl/numeric/detail/softmax.hpp>
#include <potl/numeric/reduction.hpp>

#include "catch.hpp"
#include "layers.hpp"
#include "numeric_levels.hpp"
#include "simulated_device.hpp"
#include "sum_definition.hpp"

using namespace potl;
using namespace potl::test;
using numeric::inline_executor;
using numeric::reduction;
using numeric::reduction_shape;

namespace {

using row_result = cuda::row_result;
using numbers = std::vector<float>;

enum class kind { plain, wide, hostile };

numbers draw(std::int64_t count, kind of, std::uint64_t seed) {
  std::mt19937_64 from(seed);
  numbers out(static_cast<std::size_t>(count));
  const numbers bad = hostile<float>(200, seed);
  for (float& x : out) {
    const auto unit = static_cast<float>(from() >> 40) * 0x1p-24F;
    x = 2 * unit - 1;
    if (of == kind::wide) x = std::ldexp(x, static_cast<int>(from() % 60) - 30);
    // Rare, or every result would be NaN.
    if (of == kind::hostile && from() % 40 == 0) x = bad[from() % bad.size()];
  }
  return out;
}

constexpr kind kinds[] = {kind::plain, kind::wide, kind::hostile};

TEST_CASE("simulated reductions have the CPU's bits", "[kernels]") {
  std::uint64_t seed = 0;
  for (const reduction_shape s : {reduction_shape{3, 1, 1},
                                  {2, 31, 1},
                                  {9, 33, 1},
                                  {2, 33, 3},
                                  {1, 64, 130},
                                  {5, 4095, 1},
                                  {1, 4096, 2},
                                  {2, 4097, 1},
                                  {1, 4097, 33},
                                  {1, 20000, 1},
                                  {2, 8200, 5},
                                  {0, 5, 3},
                                  {3, 0, 2},
                                  {40, 7, 40}}) {
    for (const kind of : kinds) {
      const simulated_device device(++seed);
      const auto x = draw(s.outer * s.count * s.inner, of, seed);
      for (const reduction what : {reduction::sum, reduction::mean, reduction::sum_of_squares,
                                   reduction::norm, reduction::product, reduction::maximum}) {
        if (what == reduction::maximum && s.count == 0) continue;
        numbers found(static_cast<std::size_t>(s.outer * s.inner), 7), wanted = found;
        cuda::reduce(device, what, s, x.data(), found.data());
        reduce(what, s, x.data(), wanted.data(), inline_executor());
        INFO(to_string(what) << " of " << s.outer << " x " << s.count << " x " << s.inner);
        CHECK(same_bits(found, wanted));
      }
    }
  }
  const simulated_device device(1);
  float x = 1;
  CHECK_THROWS_AS(cuda::reduce(device, reduction::minimum, {1, 1, 1}, &x, &x), exception);
  CHECK_THROWS_AS(cuda::reduce(device, reduction::maximum, {1, 0, 1}, &x, &x), exception);
  CHECK_THROWS_AS(cuda::reduce(device, reduction::sum, {1, -1, 1}, &x, &x), exception);
}

TEST_CASE("a simulated sum has the order that the page defines", "[kernels]") {
  for (const std::size_t count : {1U, 100U, 4096U, 4097U, 9000U}) {
    const auto x = draw(static_cast<std::int64_t>(count), kind::wide, count);
    float found = 7;
    cuda::reduce(simulated_device(count), reduction::sum, {1, static_cast<std::int64_t>(count), 1},
                 x.data(), &found);
    CHECK(bits(found) == bits(defined_sum(x)));
  }
}

TEST_CASE("simulated softmax and its gradient have the CPU's bits", "[kernels]") {
  std::uint64_t seed = 0;
  for (const reduction_shape s : {reduction_shape{1, 1, 1},
                                  {7, 10, 1},
                                  {3, 33, 1},
                                  {2, 4097, 1},
                                  {1, 9001, 1},
                                  {0, 4, 1},
                                  {40, 3, 1}}) {
    for (const kind of : kinds) {
      const simulated_device device(++seed);
      const auto x = draw(s.outer * s.count, of, seed), dy = draw(s.outer * s.count, of, seed + 90);
      numbers found = x, wanted(x.size()), slope = dy, wanted_slope(x.size());
      INFO(s.outer << " x " << s.count);
      softmax(s, x.data(), wanted.data(), inline_executor());
      cuda::softmax<row_result::softmax>(device, s, found.data(), found.data());
      CHECK(same_bits(found, wanted));
      softmax_backward(s, dy.data(), wanted.data(), wanted_slope.data(), inline_executor());
      cuda::softmax_backward<row_result::softmax_slope>(device, s, slope.data(), wanted.data(),
                                                        slope.data());
      CHECK(same_bits(slope, wanted_slope));
      log_softmax(s, x.data(), wanted.data(), inline_executor());
      cuda::softmax<row_result::log_softmax>(device, s, x.data(), found.data());
      CHECK(same_bits(found, wanted));
      log_softmax_backward(s, dy.data(), wanted.data(), wanted_slope.data(), inline_executor());
      cuda::softmax_backward<row_result::log_softmax_slope>(device, s, dy.data(), wanted.data(),
                                                            slope.data());
      CHECK(same_bits(slope, wanted_slope));
    }
  }
  // Rows of nothing but -inf or with +inf, as masks make them.
  const float infinity = std::numeric_limits<float>::infinity();
  const numbers masked{-infinity, -infinity, 1, infinity, -infinity, 2};
  numbers found(6), wanted(6);
  softmax({3, 2, 1}, masked.data(), wanted.data(), inline_executor());
  cuda::softmax<row_result::softmax>(simulated_device(5), {3, 2, 1}, masked.data(), found.data());
  CHECK(same_bits(found, wanted));
  CHECK_THROWS_AS(cuda::softmax<row_result::softmax>(simulated_device(5), {1, 2, 3}, masked.data(),
                                                     found.data()),
                  exception);
}

TEST_CASE("simulated losses have the CPU's bits", "[kernels]") {
  const simulated_device device(3);
  for (const auto& [inner, ignore] : {std::pair{1, -100}, std::pair{3, 4}}) {
    const reduction_shape s{50, 11, inner};
    const auto x = draw(50 * 11 * inner, kind::hostile, 8), weights = draw(11, kind::plain, 9);
    std::vector<std::int64_t> targets;
    for (std::int64_t i = 0; i < 50 * inner; ++i) targets.push_back(i % 5 == 0 ? ignore : i % 11);
    for (const float* w : {static_cast<const float*>(nullptr), weights.data()}) {
      numbers losses(targets.size()), used = losses, wanted = losses, wanted_used = losses;
      nll_losses(s, x.data(), targets.data(), w, ignore, wanted.data(), wanted_used.data(),
                 inline_executor());
      device.each(losses.size(), cuda::target_losses{x.data(), w, targets.data(), 11, inner, ignore,
                                                     losses.data(), used.data()});
      CHECK(same_bits(losses, wanted));
      CHECK(same_bits(used, wanted_used));
      // -(dy / total) w at the target.
      const float dy = 0.37F, total = 31.5F;
      numbers slopes(x.size(), 7), wanted_slopes(x.size());
      for (std::size_t i = 0; i < targets.size(); ++i) {
        if (targets[i] == ignore) continue;
        const auto width = static_cast<std::size_t>(inner);
        const auto c = static_cast<std::size_t>(targets[i]);
        float value = -(dy / total);
        if (w != nullptr) value *= w[c];
        wanted_slopes[(i / width * 11 + c) * width + i % width] = value;
      }
      device.each(slopes.size(), cuda::target_slopes{&dy, &total, w, targets.data(), 11, inner,
                                                     ignore, slopes.data(), false});
      CHECK(same_bits(slopes, wanted_slopes));
    }
  }
  // A device cannot throw: what is no class has a loss that nobody overlooks.
  const std::int64_t wrong[] = {11, -1};
  const numbers x(22, 1.0F);
  numbers losses(2);
  device.each(2,
              cuda::target_losses{x.data(), nullptr, wrong, 11, 1, -100, losses.data(), nullptr});
  CHECK((std::isnan(losses[0]) && std::isnan(losses[1])));
}

TEST_CASE("a simulated layer norm and its gradient have the CPU's bits", "[kernels]") {
  std::uint64_t seed = 0;
  for (const auto& [rows, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {5, 33}, {40, 64}, {3, 4097}, {4099, 3}, {0, 7}, {3, 0}}) {
    for (const kind of : kinds) {
      for (const bool affine : {false, true}) {
        const simulated_device device(++seed);
        const auto x = draw(rows * count, of, seed), dy = draw(rows * count, of, seed + 50);
        const auto weight = draw(count, kind::plain, seed + 1), bias = draw(count, of, seed + 2);
        struct results {
          numbers y, mean, reciprocal, dx, dweight, dbias;
        };
        results here, there;
        const auto compute = [&](results& to, const auto& run) {
          to.y.resize(x.size()), to.dx = dy;
          for (numbers* one : {&to.mean, &to.reciprocal})
            one->resize(static_cast<std::size_t>(rows));
          for (numbers* one : {&to.dweight, &to.dbias})
            one->resize(static_cast<std::size_t>(count));
          const float* w = affine ? weight.data() : nullptr;
          run(numeric::layer_norm_forward<float>{rows, count, 1e-5, x.data(), w,
                                                 affine ? bias.data() : nullptr, to.y.data(),
                                                 to.mean.data(), to.reciprocal.data()});
          run(numeric::layer_norm_backward<float>{
              rows, count, to.dx.data(), x.data(), to.mean.data(), to.reciprocal.data(), w,
              to.dx.data(), to.dweight.data(), to.dbias.data()});
        };
        compute(here, [&](const auto& work) { layer_norm(work, inline_executor()); });
        compute(there, [&](const auto& work) { cuda::layer_norm(device, work); });
        INFO(rows << " x " << count << (affine ? " with weights" : ""));
        CHECK(same_bits(here.y, there.y));
        CHECK((same_bits(here.mean, there.mean) && same_bits(here.reciprocal, there.reciprocal)));
        CHECK(same_bits(here.dx, there.dx));
        CHECK((same_bits(here.dweight, there.dweight) && same_bits(here.dbias, there.dbias)));
      }
    }
  }
}

TEST_CASE("a simulated batch norm and its gradient have the CPU's bits", "[kernels]") {
  std::uint64_t seed = 0;
  struct shape {
    std::int64_t batch, channels, size;
  };
  for (const shape s : {shape{1, 1, 2},
                        {5, 33, 1},
                        {3, 7, 64},
                        {2, 3, 49},
                        {9, 2, 500},
                        {4100, 3, 1},
                        {3, 2, 4100},
                        {2, 0, 4}}) {
    for (const kind of : kinds) {
      for (const bool affine : {false, true}) {
        const simulated_device device(++seed);
        const std::int64_t all = s.batch * s.channels * s.size;
        const auto x = draw(all, of, seed), dy = draw(all, of, seed + 50);
        const auto weight = draw(s.channels, kind::plain, seed + 1),
                   bias = draw(s.channels, of, seed + 2);
        auto variance = draw(s.channels, kind::plain, seed + 4);
        for (float& one : variance) one = std::fabs(one);
        struct results {
          numbers running_mean, running_variance, y, mean, reciprocal, tested, dx, dweight, dbias;
        };
        results here, there;
        const auto compute = [&](results& to, const auto& run) {
          to.running_mean = draw(s.channels, kind::plain, seed + 3);
          to.running_variance = variance;
          to.y.resize(x.size()), to.tested.resize(x.size()), to.dx = dy;
          for (numbers* one : {&to.mean, &to.reciprocal, &to.dweight, &to.dbias})
            one->resize(static_cast<std::size_t>(s.channels));
          numeric::batch_norm_forward<float> forward{s.batch, s.channels, s.size,  1e-5,
                                                     0.1,     true,       x.data()};
          if (affine) forward.weight = weight.data(), forward.bias = bias.data();
          forward.running_mean = to.running_mean.data();
          forward.running_variance = to.running_variance.data();
          forward.y = to.y.data();
          forward.mean = to.mean.data(), forward.reciprocal = to.reciprocal.data();
          run(forward);
          run(numeric::batch_norm_backward<float>{s.batch, s.channels, s.size, true, to.dx.data(),
                                                  x.data(), to.mean.data(), to.reciprocal.data(),
                                                  forward.weight, to.dx.data(), to.dweight.data(),
                                                  to.dbias.data()});
          forward.training = false;
          forward.y = to.tested.data(), forward.mean = nullptr, forward.reciprocal = nullptr;
          run(forward);
        };
        compute(here, [&](const auto& work) { batch_norm(work, inline_executor()); });
        compute(there, [&](const auto& work) { cuda::batch_norm(device, work); });
        INFO(s.batch << " x " << s.channels << " x " << s.size << (affine ? " with weights" : ""));
        CHECK(same_bits(here.y, there.y));
        CHECK(same_bits(here.tested, there.tested));
        CHECK((same_bits(here.mean, there.mean) && same_bits(here.reciprocal, there.reciprocal)));
        CHECK((same_bits(here.running_mean, there.running_mean) &&
               same_bits(here.running_variance, there.running_variance)));
        CHECK(same_bits(here.dx, there.dx));
        CHECK((same_bits(here.dweight, there.dweight) && same_bits(here.dbias, there.dbias)));
      }
    }
  }
}

}  // namespace
