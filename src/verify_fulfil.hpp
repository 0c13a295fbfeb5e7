// SPDX-License-Identifier: Apache-2.0
// Requests of checks fulfilled by a C++ workload.
#pragma once

#include <potl/verify.hpp>

namespace potl::detail {

checks::segment_measurement fulfil(const transcript::evidence& run, const checks::run_view& view,
                                   workload_handle& work, const checks::segment_request& request);
checks::loss_measurement fulfil(const transcript::evidence& run, workload_handle& work,
                                const checks::loss_request& request);
checks::subset_loss_measurement fulfil(const transcript::evidence& run, workload_handle& work,
                                       const checks::subset_loss_request& request);

}  // namespace potl::detail
