// SPDX-License-Identifier: Apache-2.0
// Random numbers on a CUDA device, with the bits of numeric/detail/random.hpp.
//
// Claims: element i is fill_bernoulli()'s or fill_uniform()'s of the same key, from the same
// generator (core/detail/rng.hpp). Cannot: normal and exponential ones, which are drawn on the CPU.
// Cost: a block of Philox for each element.
#pragma once

#include <cstddef>

#include <potl/core/detail/rng.hpp>
#include <potl/cuda/queue.hpp>

namespace potl::cuda {

/// Memory of the device, queued on `stream`. Throw potl::exception (usage for parameters out of
/// range, io for an error of the device).
void fill_bernoulli(float* out, std::size_t count, random_key key, double probability,
                    queue stream);
void fill_uniform(float* out, std::size_t count, random_key key, double low, double high,
                  queue stream);

}  // namespace potl::cuda
