// SPDX-License-Identifier: Apache-2.0
// The bits of a CUDA device against those of the CPU. Exit status 77 where there is no device.
#include <cstdio>

#include <potl/cuda/digest.hpp>

#include "catch_session.hpp"

int main(int count, char** words) {
  if (!potl::cuda::has_device()) {
    std::puts("skipped: this machine has no CUDA device, or no driver for it");
    return 77;
  }
  return run_catch(count, words);
}
