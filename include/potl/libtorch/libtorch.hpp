// SPDX-License-Identifier: Apache-2.0
// Recording and verifying training with LibTorch; docs/guide/libtorch.md is the guide. This folder
// alone includes LibTorch, and the library itself never links it.
#pragma once

#include <potl/libtorch/arithmetic.hpp>
#include <potl/libtorch/detail/step_arithmetic.hpp>
#include <potl/libtorch/detail/step_rounding.hpp>
#include <potl/libtorch/gradients.hpp>
#include <potl/libtorch/job.hpp>
#include <potl/libtorch/random.hpp>
#include <potl/libtorch/recorder.hpp>
#include <potl/libtorch/task.hpp>
#include <potl/libtorch/trace.hpp>
#include <potl/libtorch/workload.hpp>
