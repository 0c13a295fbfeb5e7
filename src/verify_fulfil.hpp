// SPDX-License-Identifier: Apache-2.0
// Requests of checks fulfilled by a C++ workload.
#pragma once

#include <functional>
#include <optional>

#include <potl/verify.hpp>

namespace potl::detail {

class fulfiller {
 public:
  /// `work` holds its own initial state, which is kept for control experiments.
  fulfiller(const transcript::evidence& run, workload_handle& work);

  checks::segment_measurement fulfil(const checks::run_view& view,
                                     const checks::segment_request& request);
  checks::loss_measurement fulfil(const checks::loss_request& request);
  checks::subset_loss_measurement fulfil(const checks::subset_loss_request& request);

 private:
  template <class Measurement, class Body>
  Measurement guarded(const Measurement& start, Body body);
  bool passes(const std::function<void()>& control);

  const transcript::evidence& run_;
  workload_handle& work_;
  std::optional<transcript::state> initial_;     ///< absent: the workload could not give it
  std::optional<transcript::state_value> form_;  ///< of the agreed initial state's model
};

}  // namespace potl::detail
