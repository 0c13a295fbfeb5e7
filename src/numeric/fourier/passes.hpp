// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "roots.hpp"

namespace potl::numeric::fourier_detail {

/// Transforms of one length, of several lines at once.
class passes {
 public:
  /// Whether the length has no prime factor above 13.
  static bool suit(std::int64_t length);

  explicit passes(std::int64_t length);

  /// Forward: x and other are [length][lanes]; the result is in x, what was in `other` is lost.
  void run(std::int64_t lanes, numbers& x, numbers& other) const;

 private:
  std::int64_t length_;
  std::vector<std::int64_t> factors_;
  numbers roots_;
};

}  // namespace potl::numeric::fourier_detail
