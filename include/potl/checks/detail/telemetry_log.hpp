// SPDX-License-Identifier: Apache-2.0
// telemetry.log: what a sampler saw while a run was recorded. docs/reference/telemetry.md has the
// format.
//
// Claims: parsing accepts JSON lines of the three kinds and nothing else, in bounded memory (at
// most twice the text) and linear time. Assumes nothing: the text is the prover's. Cannot detect:
// invented readings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl::checks {

inline constexpr std::size_t telemetry_max_bytes = std::size_t{64} << 20;
inline constexpr std::size_t telemetry_max_line = 4096;

struct telemetry_sample {
  double t = 0;                       ///< seconds since 1970
  std::optional<double> utilisation;  ///< 0 to 1
  std::optional<double> memory;       ///< bytes
  std::optional<double> power;        ///< watts
  std::optional<double> energy;       ///< joules since some fixed moment
  bool begins = false;                ///< the sampler was not there just before
};

/// Consecutive steps of one epoch that ended before t.
struct telemetry_steps {
  double t = 0;
  std::uint64_t epoch = 0, first = 0, last = 0;
};

/// One line for each start of the sampler.
struct telemetry_header {
  double t = 0;
  std::string source;  ///< "nvml" or "process"
  bool mig = false;    ///< the device is a slice, whose utilisation cannot be read
};

struct telemetry_log {
  std::vector<telemetry_header> headers;
  std::vector<telemetry_sample> samples;
  std::vector<telemetry_steps> steps;
};

/// malformed: names the line; limit: too long.
result<telemetry_log> parse_telemetry(bytes_view text);

/// Takes out of the times, and of the energy counter, what passed while the sampler was not there:
/// a run that waited to be resumed, a machine that slept, a clock that was set. The samples behind
/// such a gap begin.
void close_gaps(std::vector<telemetry_sample>& samples);

}  // namespace potl::checks
