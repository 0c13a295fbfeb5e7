// SPDX-License-Identifier: Apache-2.0
// The launchers' device, simulated: kernels/*.cu, compiled as C++, then compute on this machine
// what a GPU would.
#pragma once

#include <cstdint>

#include <potl/cuda/queue.hpp>

#include "simulated_device.hpp"

namespace potl::cuda {

/// Blocks run when they are queued, one after the other.
class stream_device : public test::simulated_device {
 public:
  explicit stream_device(const queue&) : simulated_device(0) {}
};

}  // namespace potl::cuda
