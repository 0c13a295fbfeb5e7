// SPDX-License-Identifier: Apache-2.0
#include "../elementwise/lanes.hpp"

#include "body.hpp"

namespace potl::numeric::projections {

const both_kernels& portable_kernels() noexcept {
  static constexpr both_kernels all{kernels_of<single<float>>, kernels_of<single<double>>};
  return all;
}

}  // namespace potl::numeric::projections
