// SPDX-License-Identifier: Apache-2.0
// Segments of one layer: honest ones pass, and one false step of 64 stands out.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <potl/checks/freivalds_segment.hpp>
#include <potl/core/error.hpp>

#include "catch.hpp"

using namespace potl;
using checks::freivalds_outcome;
using checks::segment_optimizer;
using checks::segment_result;
using checks::segment_step;
using checks::segment_update;
using numeric::inline_executor;
using numeric::row_major;

namespace {

constexpr std::int64_t rows = 24, columns = 40, batch = 16;
constexpr std::size_t size = 24 * 40;

struct layer {
  std::vector<float> weights = std::vector<float>(size), first = weights, second = weights;

  checks::segment_state view(bool moments) const {
    const auto of = [](const std::vector<float>& v) { return row_major(v.data(), rows, columns); };
    if (!moments) return {of(weights), {}, {}};
    return {of(weights), of(first), of(second)};
  }
};

struct step_data {
  std::vector<float> x, dy;  // batch x columns, batch x rows
  double rate, scale;
};

std::vector<float> normal(std::size_t count, float deviation, std::mt19937_64& random) {
  std::normal_distribution<float> draw(0, deviation);
  std::vector<float> out(count);
  for (float& one : out) one = draw(random);
  return out;
}

/// One training of a layer in float32, as torch.optim does it.
struct training {
  segment_optimizer optimizer;
  std::vector<step_data> steps;
  layer start, end;

  training(const segment_optimizer& with, std::size_t count, std::uint64_t seed) : optimizer(with) {
    std::mt19937_64 random(seed);
    start.weights = normal(size, 0.1f, random);
    if (with.steps_before > 0) {
      start.first = normal(size, 0.01f, random);
      start.second = normal(size, 0.01f, random);
      for (float& one : start.second) one *= one;
    }
    for (std::size_t t = 0; t < count; ++t) {
      steps.push_back({normal(batch * columns, 1, random), normal(batch * rows, 0.01f, random),
                       0.05 / static_cast<double>(1 + t % 7), t % 3 == 0 ? 0.5 : 1.0});
    }
    train();
  }

  void train() {
    end = start;
    for (std::size_t t = 0; t < steps.size(); ++t) one_step(t);
  }

  std::vector<float> gradient(const step_data& s) const {
    std::vector<float> out(size);
    numeric::gemm(numeric::arithmetic::ord32, row_major(s.dy.data(), batch, rows).transposed(),
                  row_major(s.x.data(), batch, columns), row_major(out.data(), rows, columns),
                  inline_executor());
    for (float& one : out) one *= static_cast<float>(s.scale);
    return out;
  }

  void one_step(std::size_t t) {
    const std::vector<float> g = gradient(steps[t]);
    const auto eta = static_cast<float>(steps[t].rate);
    const auto& o = optimizer;
    const double done = static_cast<double>(o.steps_before + t + 1);
    for (std::size_t i = 0; i < size; ++i) {
      float &w = end.weights[i], &m = end.first[i], &v = end.second[i];
      if (o.update == segment_update::adam) {
        const auto b2 = static_cast<float>(o.beta2), fresh1 = static_cast<float>(1 - o.beta1),
                   fresh2 = static_cast<float>(1 - o.beta2);
        w *= 1 - eta * static_cast<float>(o.weight_decay);
        m += (g[i] - m) * fresh1;
        v = v * b2 + fresh2 * g[i] * g[i];
        const auto left1 = static_cast<float>(1 - std::pow(o.beta1, done));
        const auto left2 = static_cast<float>(std::sqrt(1 - std::pow(o.beta2, done)));
        w -= eta / left1 * (m / (std::sqrt(v) / left2 + static_cast<float>(o.epsilon)));
        continue;
      }
      const float direction = g[i] + static_cast<float>(o.weight_decay) * w;
      float update = direction;
      if (o.momentum > 0) {
        const bool first_ever = o.steps_before + t == 0;
        const auto mu = static_cast<float>(o.momentum);
        const auto fresh = first_ever ? 1.0f : static_cast<float>(1 - o.dampening);
        m = mu * m + fresh * direction;
        update = o.nesterov ? direction + mu * m : m;
      }
      w -= eta * update;
    }
  }

  segment_result check(const checks::freivalds_options& options = {},
                       std::int64_t sampled = 8) const {
    const bool moments = optimizer.momentum > 0 || optimizer.update == segment_update::adam;
    return checks::freivalds_segment(
        start.view(moments), end.view(moments), steps.size(),
        [this](std::uint64_t t) {
          const step_data& s = steps[t];
          return segment_step{row_major<const float>(s.dy.data(), batch, rows).transposed(),
                              row_major<const float>(s.x.data(), batch, columns), s.rate, s.scale};
        },
        optimizer, options, sampled);
  }
};

segment_optimizer sgd(double momentum, bool nesterov, double decay, double dampening = 0) {
  segment_optimizer out;
  out.momentum = momentum;
  out.nesterov = nesterov;
  out.weight_decay = decay;
  out.dampening = dampening;
  return out;
}

segment_optimizer adam(double decay) {
  segment_optimizer out;
  out.update = segment_update::adam;
  out.weight_decay = decay;
  return out;
}

std::vector<segment_optimizer> all_of_sgd() {
  auto late = sgd(0.9, false, 1e-3, 0.3);
  late.steps_before = 5;
  return {sgd(0, false, 0),
          sgd(0, false, 1e-2),
          sgd(0.9, false, 0),
          sgd(0.9, false, 5e-4),
          sgd(0.9, true, 5e-4),
          sgd(0.5, false, 0, 0.5),
          late};
}

digest key_of(std::uint8_t number) {
  digest out;
  out.bytes.fill(number);
  return out;
}

}  // namespace

TEST_CASE("honest segments are consistent, whatever torch's SGD is asked for", "[freivalds]") {
  for (const segment_optimizer& optimizer : all_of_sgd()) {
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      for (const std::size_t count : {0u, 1u, 64u}) {
        const auto got = training(optimizer, count, seed).check();
        INFO("momentum " << optimizer.momentum << ", decay " << optimizer.weight_decay << ", "
                         << count << " steps: " << got.weights.usual << " " << got.first.usual);
        CHECK(got.weights.outcome == freivalds_outcome::consistent);
        CHECK(got.first.outcome == freivalds_outcome::consistent);
      }
    }
  }
}

TEST_CASE("one false step of 64 leaves a residual of a hundred honest ones", "[freivalds]") {
  const std::string cheat =
      GENERATE("skipped", "other batch", "other rate", "not clipped", "no decay");
  CAPTURE(cheat);
  for (const segment_optimizer& optimizer : all_of_sgd()) {
    if (cheat == "no decay" && optimizer.weight_decay == 0) continue;
    training honest(optimizer, 64, 9), cheated = honest;
    step_data& false_step = cheated.steps[30];
    std::mt19937_64 random(77);
    if (cheat == "skipped") false_step.scale = 0;
    if (cheat == "other batch") false_step.x = normal(batch * columns, 1, random);
    if (cheat == "other rate") false_step.rate *= 1.1;
    if (cheat == "not clipped") false_step.scale *= 2;
    if (cheat == "no decay") cheated.optimizer.weight_decay = 0;
    cheated.train();
    // The cheat's weights with the honest story.
    training presented = honest;
    presented.end = cheated.end;
    const checks::freivalds_options options{4, 1e-9, 0, key_of(4)};
    const auto good = honest.check(options), bad = presented.check(options);
    CHECK(bad.weights.rounding > 100 * good.weights.rounding);
    CHECK(bad.weights.outcome == freivalds_outcome::inconsistent);
    CHECK_FALSE(bad.holds());
  }
}

TEST_CASE("an edited weight or buffer is found, and a NaN is not finite", "[freivalds]") {
  const training honest(sgd(0.9, true, 1e-4), 20, 5);
  auto edited = honest;
  edited.end.weights[100] += 1e-3f;
  CHECK(edited.check().weights.outcome == freivalds_outcome::inconsistent);
  CHECK(edited.check().weights.row == 100 / columns);
  CHECK(edited.check().first.holds());
  edited = honest;
  edited.end.first[100] += 1e-3f;
  CHECK(edited.check().first.outcome == freivalds_outcome::inconsistent);
  edited = honest;
  edited.steps[3].x[0] = std::nanf("");
  CHECK(edited.check().weights.outcome == freivalds_outcome::not_finite);
  CHECK_FALSE(edited.check().holds());
}

TEST_CASE("invented operands pass a segment alone", "[freivalds]") {
  // Negative control: the wanted movement of the weights, split over invented batches. Only a
  // forward and a backward pass from the agreed data tells that nobody computed these operands.
  training forged(sgd(0, false, 0), 4, 8);
  std::mt19937_64 random(3);
  for (step_data& step : forged.steps) {
    step.x = normal(batch * columns, 1, random);
    step.dy = normal(batch * rows, 0.3f, random);  // thirty times what training gives
  }
  forged.train();
  CHECK(forged.check().holds());
}

TEST_CASE("Adam: the first moment wholly, weights and second moment in the sampled columns",
          "[freivalds]") {
  for (const double decay : {0.0, 0.01}) {
    for (const std::uint64_t before : {0u, 100u}) {
      auto optimizer = adam(decay);
      optimizer.steps_before = before;
      const training honest(optimizer, 32, 11 + before);
      const auto got = honest.check();
      INFO(got.first.usual << " " << got.second.worst << " " << got.weights.worst);
      CHECK(got.first.outcome == freivalds_outcome::consistent);
      CHECK(got.second.outcome == freivalds_outcome::consistent);
      CHECK(got.weights.outcome == freivalds_outcome::consistent);
      CHECK(got.sampled == 8);
      CHECK(got.columns == columns);
      auto forged = honest;
      forged.end.first[7] += 1e-3f;
      CHECK(forged.check().first.outcome == freivalds_outcome::inconsistent);
      forged = honest;
      for (std::size_t i = 3 * columns; i < 4 * columns; ++i) forged.end.second[i] *= 1.01f;
      CHECK(forged.check().second.outcome == freivalds_outcome::inconsistent);
      forged = honest;
      for (std::size_t i = 3 * columns; i < 4 * columns; ++i) forged.end.weights[i] += 1e-2f;
      CHECK(forged.check().weights.outcome == freivalds_outcome::inconsistent);
    }
  }
}

TEST_CASE("Adam: another decay, rate or correction of the bias is found", "[freivalds]") {
  const training honest(adam(0.5), 32, 12);
  CHECK(honest.check().holds());
  auto other = honest;
  other.optimizer.weight_decay = 0;
  CHECK(other.check().weights.outcome == freivalds_outcome::inconsistent);
  other = honest;
  other.steps[20].rate *= 2;
  CHECK(other.check().weights.outcome == freivalds_outcome::inconsistent);
  CHECK(other.check().first.holds());
  other = honest;
  other.optimizer.steps_before = 20;
  CHECK(other.check().weights.outcome == freivalds_outcome::inconsistent);
}

TEST_CASE("Adam: an edit of one column is seen when that column is sampled", "[freivalds]") {
  training forged(adam(0), 8, 21);
  for (std::size_t row = 0; row < 24; ++row) forged.end.weights[row * columns + 5] += 1e-2f;
  int seen = 0;
  const int trials = 400;
  for (int i = 0; i < trials; ++i) seen += forged.check({1, 1e-9, 0, {}}, 10).holds() ? 0 : 1;
  // 10 of 40 columns; six deviations of a binomial distribution are 1e-9.
  CHECK(std::fabs(seen - 0.25 * trials) < 6 * std::sqrt(trials * 0.25 * 0.75));
  CHECK_FALSE(forged.check({1, 1e-9, 0, {}}, columns).holds());
}

TEST_CASE("Adam: a spike of one gradient is no false arithmetic", "[freivalds]") {
  // A28: what the operands say was done. It is found where they are computed again.
  training spiked(adam(0), 32, 31);
  for (float& one : spiked.steps[2].dy) one *= 1e4f;
  spiked.train();
  CHECK(spiked.check().holds());
}

TEST_CASE("segments that do not fit are the caller's mistake", "[freivalds]") {
  training one(sgd(0.9, false, 0), 2, 1);
  one.optimizer.momentum = 1;
  CHECK_THROWS_AS(one.check(), exception);
  one = training(adam(0), 2, 1);
  CHECK_THROWS_AS(one.check({}, 0), exception);
  one.optimizer.epsilon = 0;
  CHECK_THROWS_AS(one.check(), exception);
  one = training(sgd(0, false, 0), 2, 1);
  one.steps[1].rate = std::nan("");
  CHECK_THROWS_AS(one.check(), exception);
  one.optimizer.momentum = 0.5;
  CHECK_THROWS_AS(
      checks::freivalds_segment(one.start.view(false), one.end.view(false), 0, {}, one.optimizer),
      exception);
}
