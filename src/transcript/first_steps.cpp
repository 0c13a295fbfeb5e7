// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/first_steps.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <potl/crypto/hasher.hpp>
#include <potl/encoding/json.hpp>

namespace potl::transcript {

bool pins_first_steps(std::string_view arithmetic) {
  return arithmetic != "stock" && arithmetic != "log64";
}

digest end_of_step(const digest& state, double loss) {
  if (std::isnan(loss)) loss = std::numeric_limits<double>::quiet_NaN();
  const auto bits = std::bit_cast<std::uint64_t>(loss);
  std::vector<std::uint8_t> number;
  for (int shift = 56; shift >= 0; shift -= 8) {
    number.push_back(static_cast<std::uint8_t>(bits >> shift));
  }
  constexpr std::string_view domain("potl.step.v1\0", 13);
  return sha256_of(as_bytes_view(domain), state, number);
}

result<std::vector<digest>> first_steps_of(const job& agreed) {
  std::vector<digest> out;
  if (!pins_first_steps(agreed.arithmetic)) return out;
  const json_value document = agreed.document();
  const json_cursor pins = document.at("task").at(first_steps_name);
  if (pins.get() == nullptr) return out;
  const error malformed{errc::malformed, "job: task.first_steps has no digests of the first steps",
                        "make the job again"};
  const result<std::size_t> count = pins.size();
  if (!count || *count == 0 || *count > std::min(max_first_steps, agreed.steps)) return malformed;
  for (std::size_t step = 0; step < *count; ++step) {
    const result<digest> end = pins.at(step).digest();
    if (!end) return malformed;
    out.push_back(*end);
  }
  return out;
}

}  // namespace potl::transcript
