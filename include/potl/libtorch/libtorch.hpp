// SPDX-License-Identifier: Apache-2.0
// Recording and verifying training with LibTorch; docs/guide/libtorch.md is the guide. This folder
// alone includes LibTorch, and the library itself never links it.
#pragma once

#include <potl/libtorch/data.hpp>
#include <potl/libtorch/job.hpp>
#include <potl/libtorch/module_state.hpp>
#include <potl/libtorch/optimizer_state.hpp>
#include <potl/libtorch/random.hpp>
#include <potl/libtorch/recorder.hpp>
#include <potl/libtorch/task.hpp>
#include <potl/libtorch/tensor.hpp>
#include <potl/libtorch/workload.hpp>
