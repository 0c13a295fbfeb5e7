// SPDX-License-Identifier: Apache-2.0
// What both programs agree on. Needs no LibTorch; task.cpp does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <potl/checks/spot_check.hpp>

namespace example {

constexpr double clip = 1.0, momentum = 0.9;

/// The canonical text of the job: seed, data, initial weights, batches and learning rates. Both
/// sides could make it; the trusted one does.
std::string make_job(const std::string& data);

struct opened {
  std::unique_ptr<potl::checks::gradient_source> gradients;
  std::vector<float> weights;  ///< the job's initial ones, in the order of the gradients
};

/// The task under a job. Throws when the task, the data or the job is not the agreed one.
opened open_task(const std::string& data, const std::string& job);

}  // namespace example
