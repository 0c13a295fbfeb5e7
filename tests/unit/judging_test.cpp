// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>
#include <limits>

#include "checks/judging.hpp"

using namespace potl;
using namespace potl::checks;

TEST_CASE("what a request came to is a finding, and whose fault decides which") {
  REQUIRE_FALSE(finding_of(measured::ok, "replay", "a", ""));
  for (const measured status : {measured::withheld, measured::tampered, measured::prover_error}) {
    const auto found = finding_of(status, "replay", "a", "why");
    REQUIRE(found.has_value());
    REQUIRE(found->result == outcome::reject);
    REQUIRE(found->reason.find("why") != std::string::npos);
    REQUIRE_FALSE(looked_at(status));
  }
  for (const measured status : {measured::verifier_error, measured::unrepeatable}) {
    const auto own = finding_of(status, "replay", "a", "why");
    REQUIRE(own.has_value());
    REQUIRE(own->result == outcome::inconclusive);
    REQUIRE(*own->detail<std::string>("trouble") == "why");
    REQUIRE((own->detail<bool>("unrepeatable") != nullptr) == (status == measured::unrepeatable));
    REQUIRE_FALSE(looked_at(status));
  }
  REQUIRE(looked_at(measured::ok));
  const auto missing = finding_of_missing("replay", "a");
  REQUIRE(missing.result == outcome::inconclusive);
  REQUIRE(missing.detail<std::string>("trouble") != nullptr);  // reports group what shares one
}

TEST_CASE("noise that is no number stays no number") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  REQUIRE(noisier(1, 2) == 2);
  REQUIRE(noisier(2, 1) == 2);
  REQUIRE(std::isnan(noisier(nan, 1)));
  REQUIRE(std::isnan(noisier(1, nan)));
  REQUIRE(std::isnan(noisier(1, std::numeric_limits<double>::infinity())));
}
