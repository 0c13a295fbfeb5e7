// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>
#include <string>
#include <vector>

#include <potl/numeric/detail/squares.hpp>

using namespace potl;

namespace {

bytes_view bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

TEST_CASE("squares are not below zero, in no place and no part of a complex number") {
  std::vector<float> values(1001, 1.0f);
  values[3] = -0.0f;
  values[4] = std::nanf("");
  CHECK(numeric::why_no_squares(dtype::f32, bytes_of(values)) == nullptr);
  CHECK(numeric::why_no_squares(dtype::f32, {}) == nullptr);
  values[1000] = -1e-45f;
  CHECK(std::string(numeric::why_no_squares(dtype::f32, bytes_of(values))).find("negative") !=
        std::string::npos);
  CHECK(numeric::why_no_squares(dtype::c64, bytes_of({1, 0, 1, -1})) != nullptr);
}

TEST_CASE("a running variance is one of squares unless it extrapolates or begins below zero") {
  const std::vector<float> fine{0, 2}, wrong{1, -1};
  for (const double momentum : {0.0, 0.1, 1.0}) {
    CHECK(numeric::averages_squares(momentum, dtype::f32, bytes_of(fine)));
  }
  CHECK(numeric::averages_squares(std::nullopt, dtype::f32, bytes_of(fine)));
  for (const double momentum : {-0.1, 1.1, std::nan("")}) {
    CHECK_FALSE(numeric::averages_squares(momentum, dtype::f32, bytes_of(fine)));
  }
  CHECK_FALSE(numeric::averages_squares(0.1, dtype::f32, bytes_of(wrong)));
}
