// SPDX-License-Identifier: Apache-2.0
// What marks a function that kernels for CUDA call, too.
#pragma once

#if defined(__CUDACC__)
#define POTL_ANYWHERE __host__ __device__
#else
#define POTL_ANYWHERE
#endif
