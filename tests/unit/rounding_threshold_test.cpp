// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <potl/numeric/detail/rounding.hpp>
#include <potl/numeric/detail/rounding_threshold.hpp>

using namespace potl::numeric;

TEST_CASE("the searched threshold logs every value that the other side rounds differently") {
  std::mt19937_64 random(5);
  std::vector<double> trainer, auditor;
  for (int i = 0; i < 200000; ++i) {
    const double x = std::uniform_real_distribution<>(1, 2)(random);
    trainer.push_back(x);
    auditor.push_back(x + std::uniform_real_distribution<>(-0.05, 0.05)(random) * 0x1p-17);
  }
  const threshold found = search_threshold(trainer, auditor, 26);
  CHECK(found.mismatches > 1000);
  CHECK(found.uncovered == 0);
  CHECK(found.tau > 0.44);
  CHECK(found.tau < 0.46);
  CHECK(found.logged == Approx(2 * (0.5 - found.tau)).epsilon(0.05));
  // Nothing to cover: nothing has to be logged.
  CHECK(search_threshold(trainer, trainer, 26).tau > 0.4999);
  // What differs by half a step is beyond the search.
  for (double& x : auditor) x += 0x1p-18;
  const threshold lost = search_threshold(trainer, auditor, 26);
  CHECK(lost.tau == 0.25);
  CHECK(lost.uncovered > 0);
}
