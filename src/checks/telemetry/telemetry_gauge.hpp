// SPDX-License-Identifier: Apache-2.0
// Where telemetry samples come from.
#pragma once

#include <memory>
#include <string>

#include <potl/checks/detail/telemetry_log.hpp>

namespace potl::checks {

class gauge {
 public:
  virtual ~gauge() = default;
  virtual telemetry_header describe() const = 0;
  /// Everything but the time.
  virtual telemetry_sample read() = 0;
};

/// Null when there is no NVML or no device.
std::unique_ptr<gauge> make_nvml_gauge();
/// This process: /proc/self.
std::unique_ptr<gauge> make_process_gauge();

}  // namespace potl::checks
