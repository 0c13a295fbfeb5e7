// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include <potl/encoding/json.hpp>
#include <potl/transcript/first_steps.hpp>

#include "run_fixture.hpp"

using namespace potl_test;

namespace {

const std::string pin(64, 'a');

// The small job in an arithmetic, of a task that pins this.
job pinning(json_value pins, std::string_view arithmetic = "ord32") {
  json_value document = small_job().document();
  document.set("arithmetic", arithmetic);
  document.set("task", json_value::of({{first_steps_name, std::move(pins)}}));
  return parse_job(as_bytes_view(canonical_json(document))).value();
}

}  // namespace

TEST_CASE("where a step ends has the digest that older jobs pin", "[first_steps]") {
  CHECK(end_of_step({}, 0.5).hex() ==
        "6712707409f1a372ad92ef0031ec25a69dfa022601a43bed2c46e6d34d2ac7b7");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(end_of_step({}, nan) == end_of_step({}, -nan));
  CHECK(end_of_step({}, 0.0) != end_of_step({}, -0.0));
}

TEST_CASE("an exact job pins up to two ends of steps", "[first_steps]") {
  CHECK(first_steps_of(small_job()).value().empty());
  CHECK(first_steps_of(pinning(json_value::array{pin})).value().size() == 1);
  const auto both = first_steps_of(pinning(json_value::array{std::string(64, '0'), pin})).value();
  CHECK(both.at(1).hex() == pin);
  for (const char* arithmetic : {"stock", "log64"}) {
    CHECK(first_steps_of(pinning(3, arithmetic)).value().empty());
  }
}

TEST_CASE("what are no digests of first steps is malformed", "[first_steps]") {
  const std::vector<json_value> others{3,
                                       pin,
                                       json_value::array{},
                                       json_value::array{pin, 1},
                                       json_value::array{pin, pin, pin},
                                       json_value::array{std::string(63, 'a') + "A"}};
  for (const json_value& one : others) {
    CHECK(first_steps_of(pinning(one)).why().code == errc::malformed);
  }
}

TEST_CASE("a job as long as jobs may be pins its first steps, too", "[first_steps]") {
  json_value document = pinning(json_value::array{pin}).document();
  const json_value::array long_texts(80, std::string(128 << 10, 'x'));  // 10 MiB
  document.set("environment", json_value::of({{"texts", long_texts}}));
  const job agreed = parse_job(as_bytes_view(canonical_json(document))).value();
  CHECK(first_steps_of(agreed).value().size() == 1);
}
