// SPDX-License-Identifier: Apache-2.0
// A thread that writes telemetry.log while a run is recorded.
//
// Claims: one sample per interval from NVML (loaded at run time, first device) or, without it, of
// this process (share of all processors, resident memory); step marks in the order of mark_step.
// Cost: a few system calls per sample (NVML: under a millisecond); mark_step is a lock and an
// addition. After every 50,000 samples the interval doubles, so the file stays below 64 MiB.
// Cannot do: say what a device that is shared with others did for this run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <potl/core/result.hpp>

namespace potl::checks {

class telemetry_sampler {
 public:
  /// Appends to `path`; a last line that a crash cut short is dropped at start.
  explicit telemetry_sampler(std::string path, double interval_seconds = 0.1);
  /// Stops, without reporting errors.
  ~telemetry_sampler();
  telemetry_sampler(const telemetry_sampler&) = delete;
  telemetry_sampler& operator=(const telemetry_sampler&) = delete;

  /// io when the file cannot be opened; usage when already started or the interval is not positive.
  status start();
  /// Step `step` (1-based) of `epoch` (0-based) is done. Does nothing unless started.
  void mark_step(std::uint64_t step, std::uint64_t epoch);
  /// Writes what is pending and ends the thread; io when something could not be written.
  status stop();

 private:
  struct body;
  std::unique_ptr<body> body_;
};

}  // namespace potl::checks
