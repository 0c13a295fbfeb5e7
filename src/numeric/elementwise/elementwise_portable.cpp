// SPDX-License-Identifier: Apache-2.0
// One element at a time, in standard C++: the definition that the other forms must match.
#include "body.hpp"

namespace potl::numeric {
namespace elementwise {

const both_kernels& portable_kernels() noexcept {
  static constexpr both_kernels all{kernels_of<single<float>>, kernels_of<single<double>>};
  return all;
}

}  // namespace elementwise
}  // namespace potl::numeric
