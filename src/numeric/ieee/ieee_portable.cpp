// SPDX-License-Identifier: Apache-2.0
// One element at a time, in standard C++: the definition that the other forms must match.
#include "body.hpp"

namespace potl::numeric::ieee {

const both_kernels& portable_kernels() noexcept {
  using elementwise::single;
  static constexpr both_kernels all{kernels_of<single<float>>, kernels_of<single<double>>};
  return all;
}

}  // namespace potl::numeric::ieee
