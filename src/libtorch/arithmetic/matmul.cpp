// SPDX-License-Identifier: Apache-2.0
#include "registrar.hpp"

namespace potl::libtorch::dispatch {

void register_matmul(registrar&) {}

}  // namespace potl::libtorch::dispatch
