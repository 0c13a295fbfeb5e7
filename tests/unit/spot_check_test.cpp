// SPDX-License-Identifier: Apache-2.0
// A guarded training: honest workers finish it, false gradients are caught as often as planned, and
// what comes over the wire changes nothing else.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <potl/checks/detail/spot_check_judge.hpp>
#include <potl/checks/detail/spot_check_link.hpp>

#include "catch.hpp"
#include "tiny_training.hpp"

using namespace potl;
using namespace potl::checks;
using namespace potl::test;

namespace {

struct session {
  spot_check_result found;
  spot_check_served served;
  sgd_state state;
};

/// One session with a worker that changes what it reports.
session play(std::uint64_t steps, const spot_check_options& options, tampering::change what = {},
             spot_check_sgd* training = nullptr) {
  tiny_gradients honest(steps), own(steps);
  tampering worker(honest, std::move(what));
  spot_check_sgd fresh = test::tiny_training(steps);
  spot_check_sgd& trained = training == nullptr ? fresh : *training;
  auto [left, right] = spot_check_socket::pair();
  test::serving serving(std::move(right), key, worker);
  session out;
  out.found = guard(std::move(left), key, job, trained, own, options);
  out.served = serving.wait();
  out.state = trained.state();
  return out;
}

/// The training without anybody else.
sgd_state alone(std::uint64_t steps) {
  tiny_gradients own(steps);
  spot_check_sgd training = test::tiny_training(steps);
  std::vector<float> gradient(tiny_gradients::inputs);
  for (std::uint64_t step = 1; step <= steps; ++step) {
    const double loss = own.gradient(step, training.weights().front(), 0, gradient);
    training.update(step, gradient, checks::gradient_norm(gradient), loss);
  }
  return training.state();
}

tampering::change at(std::uint64_t step, std::function<void(std::span<float>)> what) {
  return [=](std::uint64_t now, std::span<float> gradient) {
    if (now == step) what(gradient);
  };
}

}  // namespace

TEST_CASE("an honest worker trains what the trusted side would have trained", "[spot_check]") {
  const bool background = GENERATE(false, true);
  spot_check_options options = test::tiny_options(137, 0.3);
  options.background = background;
  std::vector<std::uint64_t> told;
  options.told = [&](std::uint64_t step, std::uint64_t) { told.push_back(step); };
  const session done = play(137, options);
  CHECK(done.found.end == spot_check_end::finished);
  CHECK(done.found.reason.empty());
  CHECK(done.found.final_step == 137);
  CHECK(done.found.entries.size() == 137);
  CHECK(done.found.checked > 10);
  CHECK(done.found.checked < 80);
  CHECK(done.state == alone(137));
  CHECK(done.served.stopped);
  CHECK(done.served.reason.empty());
  CHECK(done.served.steps == 137);
  CHECK(told.size() == 137);
  const auto judged = judge_spot_check(done.found, {0.999, 2, 0, 8});
  REQUIRE(judged.size() == 1);
  CHECK(judged[0].result == outcome::pass);
}

TEST_CASE("each false gradient is caught, at its step and for its reason", "[spot_check]") {
  struct cheat {
    std::string name;
    tampering::change what;
  };
  std::vector<float> stale(tiny_gradients::inputs, 0.25F);
  const std::vector<cheat> cheats{
      {"zero", at(23, [](auto g) { std::fill(g.begin(), g.end(), 0.0F); })},
      {"sign", at(23,
                  [](auto g) {
                    for (float& one : g) one = -one;
                  })},
      {"stale", at(23, [=](auto g) { std::copy(stale.begin(), stale.end(), g.begin()); })},
      {"clipped away", at(23, [](auto g) { g[4] += 1e30F; })},
      {"one bit", at(23, [](auto g) { g[5] = std::nextafter(g[5], 2.0F); })},
      {"NaN", at(23, [](auto g) { g[4] = std::numeric_limits<float>::quiet_NaN(); })},
      {"infinite", at(23, [](auto g) { g[4] = std::numeric_limits<float>::infinity(); })},
  };
  for (const cheat& one : cheats) {
    INFO(one.name);
    const session done = play(60, test::tiny_options(60, 1.0), one.what);
    CHECK(done.found.end == spot_check_end::caught);
    CHECK(done.found.step == 23);
    // What is not finite is never applied, so that the step before it can become final.
    const std::uint64_t kept = one.name == "NaN" || one.name == "infinite" ? 22 : 20;
    CHECK(done.found.final_step == kept);
    CHECK(done.state == alone(kept));
    CHECK(done.served.stopped);
    CHECK_FALSE(done.served.reason.empty());
    if (one.name == "clipped away" || one.name == "one bit" || one.name == "NaN") {
      CHECK(done.found.tensor == "second");
    }
    const auto judged = judge_spot_check(done.found, {0.999, 2, 0, 8});
    REQUIRE(judged.size() == 1);
    CHECK(judged[0].result == outcome::reject);
    CHECK(judged[0].rule == "spot_check.gradients");
    CHECK(judged[0].reason.find("step 23") != std::string::npos);
  }
}

TEST_CASE("a session that pauses is not accepted, and the next one finishes it", "[spot_check]") {
  spot_check_sgd training = test::tiny_training(60);
  spot_check_options options = test::tiny_options(60, 1.0);
  options.until = 25;
  const session first = play(60, options, {}, &training);
  CHECK(first.found.end == spot_check_end::paused);
  CHECK(first.found.final_step == 25);
  CHECK_FALSE(first.served.stopped);
  CHECK(first.state == alone(25));
  const auto judged = judge_spot_check(first.found, {0.999, 2, 0, 8});
  CHECK(judged[0].result == outcome::inconclusive);
  CHECK(judged[0].rule == "spot_check.session");
  const session second = play(60, test::tiny_options(60, 1.0), {}, &training);
  CHECK(second.found.end == spot_check_end::finished);
  CHECK(second.found.first_step == 26);
  CHECK(second.state == alone(60));
}

TEST_CASE("after a worker was caught another one goes on, and the certificate counts both",
          "[spot_check]") {
  spot_check_sgd training = test::tiny_training(60);
  const auto flip = at(37, [](auto g) { g[0] = -g[0]; });
  const session first = play(60, test::tiny_options(60, 1.0), flip, &training);
  CHECK(first.found.end == spot_check_end::caught);
  CHECK(training.step() == 30);
  const session second = play(60, test::tiny_options(60, 1.0), {}, &training);
  CHECK(second.found.end == spot_check_end::finished);
  CHECK(second.found.first_step == 31);
  CHECK(second.state == alone(60));
  const auto judged = judge_spot_check(second.found, {0.999, 2, 0.5, 8}, 1);
  CHECK(*judged[0].detail<double>("displacement") == 4);
  CHECK(*judged[0].detail<double>("probability") == Approx(0.998));
  CHECK(judge_spot_check(second.found, {0.5, 2, 0.5, 8}, 1)[0].result == outcome::inconclusive);
}

TEST_CASE("false steps are caught as often as the plan says", "[spot_check]") {
  // Pairs of false steps and probability; the worker adapts: it stops being false once a segment
  // passed in which it was.
  struct config {
    std::uint64_t false_steps;
    double probability;
    std::uint64_t trainings;
  };
  const auto [false_steps, probability, trainings] =
      GENERATE(config{1, .5, 500}, config{1, .067, 500}, config{10, .067, 500}, config{10, .5, 100},
               config{100, .0069, 400}, config{100, .067, 100}, config{30, .0069, 300});
  const std::uint64_t steps = 15 + false_steps;
  std::uint64_t caught = 0;
  for (std::uint64_t i = 0; i < trainings; ++i) {
    const session done = play(steps, test::tiny_options(steps, probability),
                              [&](std::uint64_t step, std::span<float> gradient) {
                                if (step > 10 && step <= 10 + false_steps) gradient[0] += 0.01F;
                              });
    CHECK((done.found.end == spot_check_end::caught || done.found.end == spot_check_end::finished));
    caught += done.found.end == spot_check_end::caught;
  }
  const double expected = 1 - std::pow(1 - probability, static_cast<double>(false_steps));
  const double n = static_cast<double>(trainings);
  // Bernstein's bound at significance 1e-6.
  const double l = std::log(2e6);
  const double most = std::sqrt(2 * l * n * expected * (1 - expected)) + l / 3 + 1;
  INFO(false_steps << " false steps at " << probability << ": " << caught << " of " << trainings);
  CHECK(std::fabs(static_cast<double>(caught) - n * expected) <= most);
}

TEST_CASE("a bias below the tolerance on every step is seen in the sum", "[spot_check]") {
  spot_check_options options = test::tiny_options(400, 0.5);
  options.tolerance = 1e-3;
  const auto biased = [](std::uint64_t, std::span<float> gradient) { gradient[2] += 6e-4F; };
  const session done = play(400, options, biased);
  CHECK(done.found.end == spot_check_end::caught);
  CHECK(done.found.largest <= 1e-3);
  const auto judged = judge_spot_check(done.found, {0.999, 2, 0, 8});
  CHECK(judged[0].rule == "spot_check.direction");
  CHECK(judged[0].error_probability == 1e-6);

  SECTION("honest noise of that size has no direction") {
    std::mt19937 random(7);
    std::normal_distribution<float> noise(0, 2e-4F);
    const session quiet = play(400, options, [&](std::uint64_t, std::span<float> gradient) {
      for (float& one : gradient) one += noise(random);
    });
    CHECK(quiet.found.end == spot_check_end::finished);
  }
  SECTION("arithmetic that rounds in one direction by little is not accused") {
    const session rounding =
        play(400, options, [](std::uint64_t, std::span<float> gradient) { gradient[2] += 1e-4F; });
    CHECK(rounding.found.end == spot_check_end::finished);
  }
}

TEST_CASE("what honest rounding may do at a place is doubtful and not false", "[spot_check]") {
  /// A trusted side whose other ways of computing differ much at one step.
  class shaky final : public tiny_gradients {
   public:
    using tiny_gradients::tiny_gradients;
    double gradient(std::uint64_t step, bytes_view weights, std::uint64_t way,
                    std::span<float> out) override {
      const double loss = tiny_gradients::gradient(step, weights, way, out);
      if (step == 12 && way > 0) out[1] += 0.01F * static_cast<float>(way);
      return loss;
    }
  };
  spot_check_options options = test::tiny_options(20, 1.0);
  options.tolerance = 1e-3;
  tiny_gradients honest(20);
  tampering worker(honest, at(12, [](auto g) { g[1] += 0.02F; }));
  shaky own(20);
  spot_check_sgd training = test::tiny_training(20);
  auto [left, right] = spot_check_socket::pair();
  test::serving serving(std::move(right), key, worker);
  const auto found = guard(std::move(left), key, job, training, own, options);
  CHECK(found.end == spot_check_end::doubtful);
  CHECK(found.step == 12);
  CHECK(judge_spot_check(found, {0.999, 2, 0, 8})[0].result == outcome::inconclusive);
  CHECK(training.step() == 10);
}

TEST_CASE("a direction that other arithmetic has as well is doubtful", "[spot_check]") {
  /// A trusted side whose last way of computing rounds to the same side in some steps.
  class coarse final : public tiny_gradients {
   public:
    coarse(std::uint64_t steps, float off, std::function<bool(std::uint64_t)> in)
        : tiny_gradients(steps), off_(off), in_(std::move(in)) {}
    double gradient(std::uint64_t step, bytes_view weights, std::uint64_t way,
                    std::span<float> out) override {
      const double loss = tiny_gradients::gradient(step, weights, way, out);
      if (way == spot_check_ways && in_(step)) out[2] += off_;
      return loss;
    }

   private:
    float off_;
    std::function<bool(std::uint64_t)> in_;
  };
  spot_check_options options = test::tiny_options(400, 1.0);
  options.tolerance = 1e-3;
  const auto always = [](std::uint64_t) { return true; };
  std::function<float(std::uint64_t)> bias = [](std::uint64_t) { return 6e-4F; };
  const auto found = [&](float off, std::function<bool(std::uint64_t)> in) {
    tiny_gradients honest(400);
    tampering worker(honest, [&](std::uint64_t step, std::span<float> g) { g[2] += bias(step); });
    coarse own(400, off, std::move(in));
    spot_check_sgd training = test::tiny_training(400);
    auto [left, right] = spot_check_socket::pair();
    test::serving serving(std::move(right), key, worker);
    return guard(std::move(left), key, job, training, own, options);
  };
  CHECK(found(4e-4F, always).end == spot_check_end::doubtful);
  CHECK(found(1e-4F, always).end == spot_check_end::caught);
  // A worker that computed so would not have passed its checks.
  CHECK(found(1e-2F, always).end == spot_check_end::caught);

  const std::uint64_t alarm = found(0, always).step;
  CHECK(found(4e-4F, [=](std::uint64_t step) { return step == alarm; }).end ==
        spot_check_end::caught);
  CHECK(found(4e-4F, [=](std::uint64_t step) { return step < alarm; }).end ==
        spot_check_end::doubtful);
  CHECK(found(4e-4F, [=](std::uint64_t step) { return step < alarm / 2; }).end ==
        spot_check_end::caught);

  // An honest worker of the other arithmetic, in which two batches of five round to one side.
  const auto batch = [](std::uint64_t step) { return step % 5 < 2; };
  bias = [&](std::uint64_t step) { return batch(step) ? 9e-4F : 0; };
  CHECK(found(9e-4F, batch).end == spot_check_end::doubtful);
  CHECK(found(0, batch).end == spot_check_end::caught);

  // The bias becomes large enough long after the evidence: one step is not the only one looked at.
  bias = [](std::uint64_t step) { return step < 100 ? 2.5e-4F : 6e-4F; };
  const std::uint64_t late = found(0, always).step;
  CHECK(late > 100);
  CHECK(found(8e-4F, [=](std::uint64_t step) { return step + 5 >= late; }).end ==
        spot_check_end::doubtful);
  CHECK(found(8e-4F, [=](std::uint64_t step) { return step + 5 == late; }).end ==
        spot_check_end::caught);
}

TEST_CASE("a trusted side that fails, or computes twice with two results, accuses nobody",
          "[spot_check]") {
  class broken final : public tiny_gradients {
   public:
    explicit broken(bool throws) : tiny_gradients(20), throws_(throws) {}
    double gradient(std::uint64_t step, bytes_view weights, std::uint64_t way,
                    std::span<float> out) override {
      if (throws_) throw std::runtime_error("out of memory");
      const double loss = tiny_gradients::gradient(step, weights, way, out);
      out[0] += 1 + 0.001F * static_cast<float>(++calls_);  // far off, and almost the same twice
      return loss;
    }

   private:
    bool throws_;
    int calls_ = 0;
  };
  const bool throws = GENERATE(true, false), background = GENERATE(true, false);
  broken own(throws);
  tiny_gradients honest(20);
  spot_check_options options = test::tiny_options(20, 1.0);
  options.background = background;
  spot_check_sgd training = test::tiny_training(20);
  auto [left, right] = spot_check_socket::pair();
  test::serving serving(std::move(right), key, honest);
  const auto found = guard(std::move(left), key, job, training, own, options);
  CHECK(found.end == spot_check_end::doubtful);
  CHECK(found.reason.find(throws ? "could not execute" : "with two results") != std::string::npos);
  CHECK(found.final_step == 0);
  CHECK(training.step() == 0);
}

TEST_CASE("a training that honestly diverges is no cheat", "[spot_check]") {
  class diverging final : public tiny_gradients {
   public:
    using tiny_gradients::tiny_gradients;
    double gradient(std::uint64_t step, bytes_view weights, std::uint64_t way,
                    std::span<float> out) override {
      const double loss = tiny_gradients::gradient(step, weights, way, out);
      if (step == 15) out[0] = std::numeric_limits<float>::infinity();
      return loss;
    }
  };
  diverging worker(20), own(20);
  spot_check_sgd training = test::tiny_training(20);
  auto [left, right] = spot_check_socket::pair();
  test::serving serving(std::move(right), key, worker);
  const auto found = guard(std::move(left), key, job, training, own, test::tiny_options(20, 0.0));
  CHECK(found.end == spot_check_end::diverged);
  CHECK(found.step == 15);
  CHECK(judge_spot_check(found, {0.999, 2, 0, 8})[0].result == outcome::inconclusive);
}

TEST_CASE("what was reported before a worker went is decided, and kept", "[spot_check]") {
  const bool is_false = GENERATE(false, true);
  tiny_gradients honest(60);
  auto [left, right] = spot_check_socket::pair();
  // The worker's process dies while it works on step 34.
  auto end = std::make_shared<spot_check_socket>(std::move(right));
  std::atomic<bool> died = false;
  tampering worker(honest, [&](std::uint64_t step, std::span<float> gradient) {
    if (step == 33 && is_false) gradient[0] = 0;
    if (step == 34) {
      died = true;
      throw std::runtime_error("killed");
    }
  });
  spot_check_sgd training = test::tiny_training(60);
  std::thread serving([&] {
    static_cast<void>(serve(
        std::move(*end), key, [&](const std::string&) -> gradient_source& { return worker; }, 20));
  });
  tiny_gradients own(60);
  const auto found = guard(std::move(left), key, job, training, own, test::tiny_options(60, 1.0));
  serving.join();
  CHECK(died);
  CHECK(found.end == (is_false ? spot_check_end::caught : spot_check_end::refused));
  CHECK(training.step() == (is_false ? 30 : 33));
  CHECK(training.state() == alone(training.step()));
  if (!is_false) CHECK(found.reason == "the worker cannot go on: killed");
}

TEST_CASE("an exception of the training itself takes back what was not checked", "[spot_check]") {
  tiny_gradients honest(60), own(60);
  spot_check_options options = test::tiny_options(60, 0.0);
  options.told = [](std::uint64_t step, std::uint64_t) {
    if (step == 27) throw std::runtime_error("stopped by the user");
  };
  spot_check_sgd training = test::tiny_training(60);
  auto [left, right] = spot_check_socket::pair();
  test::serving serving(std::move(right), key, honest);
  CHECK_THROWS_WITH(guard(std::move(left), key, job, training, own, options),
                    "stopped by the user");
  CHECK(training.step() == 20);
  CHECK(training.state() == alone(20));
}

TEST_CASE("each step is drawn with its own probability", "[spot_check]") {
  spot_check_options options = test::tiny_options(20, 0);
  for (std::size_t i = 0; i < 20; ++i) options.probabilities[i] = 0.01 * static_cast<double>(i);
  std::vector<double> seen(20, -1);
  options.coin = [&](std::uint64_t step, double probability) {
    seen.at(step - 1) = probability;
    return false;
  };
  CHECK(play(20, options).found.end == spot_check_end::finished);
  CHECK(seen == options.probabilities);
}

TEST_CASE("a training waits when too many segments are undecided", "[spot_check]") {
  class slow final : public tiny_gradients {
   public:
    slow() : tiny_gradients(60) {}
    double gradient(std::uint64_t step, bytes_view weights, std::uint64_t way,
                    std::span<float> out) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return tiny_gradients::gradient(step, weights, way, out);
    }
  } own;
  tiny_gradients honest(60);
  spot_check_options options = test::tiny_options(60, 1.0);
  options.segment = 5;
  options.lag = 2;
  options.background = true;
  std::uint64_t most = 0;
  options.told = [&](std::uint64_t step, std::uint64_t final_step) {
    most = std::max(most, step - final_step);
  };
  spot_check_sgd training = test::tiny_training(60);
  auto [left, right] = spot_check_socket::pair();
  test::serving serving(std::move(right), key, honest);
  CHECK(guard(std::move(left), key, job, training, own, options).end == spot_check_end::finished);
  CHECK(most < 15);  // two segments, and the one that is being trained
}

TEST_CASE("a bias that is a small share of the tolerance is seen soon", "[spot_check]") {
  residual_direction sum(1, 1e-3);
  const std::vector<float> own{0, 0}, reported{1e-3F / 6, 0};
  for (int i = 0; i < 60; ++i) sum.add(reported, own);
  CHECK(sum.alarm());
}

TEST_CASE("gradients are compared as they are applied: clipped", "[spot_check]") {
  const std::vector<float> own{30, 40}, twice{60, 80}, small{0.3F, 0.4F};
  const std::vector<spot_check_tensor> tensors{{"all", 2}};
  CHECK(compare_gradients(twice, own, tensors, 1).distance < 1e-6);
  CHECK(compare_gradients(twice, own, tensors, 50).distance < 1e-4);
  CHECK(compare_gradients(small, own, tensors, 1).distance == Approx(0.5).margin(1e-6));
  CHECK(compare_gradients(small, own, tensors, 1000).distance == Approx(49.5));
}

TEST_CASE("options that would check nothing are refused", "[spot_check]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::function<void(spot_check_options&)> wrong = GENERATE_COPY(
      std::function<void(spot_check_options&)>(
          [=](spot_check_options& o) { o.probabilities[7] = nan; }),
      [](spot_check_options& o) { o.probabilities[7] = -0.1; },
      [](spot_check_options& o) { o.probabilities.pop_back(); },
      [=](spot_check_options& o) { o.tolerance = nan; }, [](spot_check_options& o) { o.clip = 0; },
      [](spot_check_options& o) { o.tolerance = o.clip; },
      [](spot_check_options& o) { o.segment = 0; });
  spot_check_options options = test::tiny_options(20, 1.0);
  wrong(options);
  tiny_gradients own(20);
  spot_check_sgd training = test::tiny_training(20);
  auto [left, right] = spot_check_socket::pair();
  CHECK_THROWS_AS(guard(std::move(left), key, job, training, own, options), exception);
}

TEST_CASE("nothing of the exchange before a segment ends depends on the coins", "[spot_check]") {
  // What the worker sees of two sessions, one with every step checked and one with none.
  const auto seen = [&](double probability) {
    std::vector<std::string> out;
    play(40, test::tiny_options(40, probability),
         [&](std::uint64_t step, std::span<float> gradient) {
           out.push_back(std::to_string(step) + std::to_string(gradient[0]));
         });
    return out;
  };
  CHECK(seen(1.0) == seen(0.0));
}

namespace {

constexpr std::size_t many = 50'000;  // elements: several parts of a payload

/// Gradients and weights that come in parts.
struct large_gradients final : gradient_source {
  std::vector<spot_check_tensor> tensors() override { return {{"w", many}}; }
  std::uint64_t weights_bytes() override { return many * sizeof(float); }
  std::uint64_t steps() override { return 6; }
  double gradient(std::uint64_t step, bytes_view weights, std::uint64_t /*way*/,
                  std::span<float> out) override {
    std::vector<float> own(many);
    std::memcpy(own.data(), weights.data(), weights.size());
    for (std::size_t i = 0; i < many; ++i) {
      out[i] = own[i] * 0.5F + static_cast<float>(i % 7 + step) * 1e-3F;
    }
    return 0;
  }
};

struct large_training final : guarded_training {
  std::vector<float> first = std::vector<float>(30'001, 0.25F);
  std::vector<float> second = std::vector<float>(many - 30'001, -0.5F);
  std::vector<double> norms;
  std::uint64_t done = 0;
  std::uint64_t step() override { return done; }
  std::vector<bytes_view> weights() override {
    const auto bytes = [](const std::vector<float>& of) {
      return bytes_view(reinterpret_cast<const std::uint8_t*>(of.data()),
                        of.size() * sizeof(float));
    };
    return {bytes(first), bytes(second)};
  }
  void update(std::uint64_t step, std::span<float> gradient, double norm, double) override {
    norms.push_back(norm - checks::gradient_norm(gradient));
    for (std::size_t i = 0; i < many; ++i) {
      (i < first.size() ? first[i] : second[i - first.size()]) -= 0.1F * gradient[i];
    }
    std::fill(gradient.begin(), gradient.end(), 7.0F);  // what is checked is what came
    done = step;
  }
  void keep() override {}
  void finalise(std::uint64_t) override {}
  void roll_back() override {}
};

}  // namespace

TEST_CASE("weights and gradients of several parts are checked as they were", "[spot_check]") {
  const std::size_t changed = GENERATE(std::size_t{0}, std::size_t{16'384}, many - 1);
  large_gradients honest, own;
  tampering worker(honest, at(5, [&](auto g) {
                     if (changed != 0) g[changed] += 1.0F;
                   }));
  large_training training;
  spot_check_options options = test::tiny_options(6, 1.0);
  auto [left, right] = spot_check_socket::pair();
  test::serving serving(std::move(right), key, worker);
  const spot_check_result found = guard(std::move(left), key, job, training, own, options);
  static_cast<void>(serving.wait());
  CHECK(found.end == (changed == 0 ? spot_check_end::finished : spot_check_end::caught));
  CHECK(found.step == (changed == 0 ? 6 : 5));
  CHECK(found.checked == (changed == 0 ? 6 : 5));
  CHECK(training.norms == std::vector<double>(6, 0.0));
}
