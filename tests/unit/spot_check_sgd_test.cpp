// SPDX-License-Identifier: Apache-2.0
// The trusted side's update, against torch.optim.SGD as its documentation defines it.
#include <potl/checks/detail/spot_check_judge.hpp>
#include <potl/checks/spot_check_sgd.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "catch.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

std::vector<float> gradient_of(std::uint64_t step) {
  std::vector<float> out(5);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = std::sin(static_cast<float>(7 * step + i)) * (step == 3 ? 10.0F : 0.3F);
  }
  return out;
}

/// The same in double, written from torch's pseudocode.
std::vector<double> defined(const sgd_recipe& recipe) {
  std::vector<double> weights(5, 0.5), momentum(5, 0);
  for (std::uint64_t step = 1; step <= recipe.rates.size(); ++step) {
    const std::vector<float> given = gradient_of(step);
    double norm = 0;
    for (const float one : given) norm += double{one} * double{one};
    const double factor = std::min(1.0, recipe.clip / (std::sqrt(norm) + 1e-6));
    for (std::size_t i = 0; i < 5; ++i) {
      double g = factor * double{given[i]} + recipe.weight_decay * weights[i];
      if (recipe.momentum != 0) {
        momentum[i] = step == 1 ? g : recipe.momentum * momentum[i] + (1 - recipe.dampening) * g;
        g = recipe.nesterov ? g + recipe.momentum * momentum[i] : momentum[i];
      }
      weights[i] -= recipe.rates[step - 1] * g;
    }
  }
  return weights;
}

spot_check_sgd trained(const sgd_recipe& recipe, std::uint64_t steps) {
  spot_check_sgd out({0, std::vector<float>(5, 0.5F), {}}, recipe);
  for (std::uint64_t step = 1; step <= steps; ++step) {
    std::vector<float> gradient = gradient_of(step);
    out.update(step, gradient, checks::gradient_norm(gradient), 0);
  }
  return out;
}

}  // namespace

TEST_CASE("updates are those of SGD with clipping", "[spot_check]") {
  sgd_recipe plain;
  plain.rates = {0.1, 0.1, 0.2, 0.05, 0.01};
  plain.clip = 1;
  std::vector<sgd_recipe> recipes(5, plain);
  recipes[1].momentum = 0.9;
  recipes[2].momentum = 0.9;
  recipes[2].nesterov = true;
  recipes[3].weight_decay = 0.2;
  recipes[3].momentum = 0.5;
  recipes[4].momentum = 0.5;
  recipes[4].dampening = 0.25;
  for (const sgd_recipe& recipe : recipes) {
    const spot_check_sgd done = trained(recipe, 5);
    const std::vector<double> expected = defined(recipe);
    for (std::size_t i = 0; i < 5; ++i) {
      CHECK(double{done.state().weights[i]} == Approx(expected[i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("no gradient moves the weights further than the clip, however large it is",
          "[spot_check]") {
  // The clip over the norm of these is half of the smallest float, and a little more.
  std::vector<float> gradient(1750, std::numeric_limits<float>::max());
  sgd_recipe recipe;
  recipe.rates = {1};
  recipe.clip = 1e-5;
  spot_check_sgd training({0, std::vector<float>(gradient.size()), {}}, recipe);
  training.update(1, gradient, checks::gradient_norm(gradient), 0);
  CHECK(checks::gradient_norm(training.state().weights) == Approx(recipe.clip).epsilon(1e-6));
}

TEST_CASE("what is final, kept and taken back are the states after those steps", "[spot_check]") {
  sgd_recipe recipe;
  recipe.rates.assign(6, 0.1);
  recipe.clip = 1;
  recipe.momentum = 0.9;
  std::vector<sgd_state> told;
  spot_check_sgd training({0, std::vector<float>(5, 0.5F), {}}, recipe);
  training.finalised = [&](const sgd_state& state) { told.push_back(state); };
  for (std::uint64_t step = 1; step <= 6; ++step) {
    std::vector<float> gradient = gradient_of(step);
    training.update(step, gradient, checks::gradient_norm(gradient), 0);
    if (step == 2 || step == 4) training.keep();
  }
  CHECK_THROWS_AS(training.finalise(3), exception);
  training.finalise(2);
  REQUIRE(told.size() == 1);
  CHECK(told[0] == trained(recipe, 2).state());
  training.roll_back();
  CHECK(training.state() == told[0]);
  CHECK_THROWS_AS(training.finalise(4), exception);  // was taken back, too
}

TEST_CASE("gradients of other steps and sizes are refused", "[spot_check]") {
  sgd_recipe recipe;
  recipe.rates.assign(3, 0.1);
  recipe.clip = 1;
  spot_check_sgd training = trained(recipe, 1);
  std::vector<float> gradient = gradient_of(2), less(4);
  CHECK_THROWS_AS(training.update(1, gradient, checks::gradient_norm(gradient), 0), exception);
  CHECK_THROWS_AS(training.update(3, gradient, checks::gradient_norm(gradient), 0), exception);
  CHECK_THROWS_AS(training.update(2, less, checks::gradient_norm(less), 0), exception);
  training.update(2, gradient, checks::gradient_norm(gradient), 0);
  training.update(3, gradient, checks::gradient_norm(gradient), 0);
  CHECK_THROWS_AS(training.update(4, gradient, checks::gradient_norm(gradient), 0), exception);
  CHECK_THROWS_AS(spot_check_sgd({4, std::vector<float>(5), {}}, recipe), exception);
  CHECK_THROWS_AS(spot_check_sgd({0, std::vector<float>(5), std::vector<float>(4)}, recipe),
                  exception);
  recipe.clip = 0;
  CHECK_THROWS_AS(spot_check_sgd({0, std::vector<float>(5), {}}, recipe), exception);
}
