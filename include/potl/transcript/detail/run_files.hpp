// SPDX-License-Identifier: Apache-2.0
// How the files of a run are called (docs/format/transcript.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace potl::transcript {

inline constexpr std::string_view log_name = "transcript.log";
inline constexpr std::string_view job_name = "job.json";
inline constexpr std::string_view telemetry_name = "telemetry.log";
inline constexpr std::string_view commitment_name = "commitment";
inline constexpr std::string_view key_name = "key.pem";
inline constexpr std::string_view checkpoint_folder = "checkpoints";
inline constexpr std::string_view rounding_folder = "rounding";

/// "checkpoints/step-7.safetensors", or "checkpoints/step-7.b2.safetensors" after the second
/// resume.
std::string checkpoint_entry(std::uint64_t step, std::uint64_t branch);

/// "rounding/branch-0.log", or "rounding/branch-2.log" after the second resume.
std::string rounding_entry(std::uint64_t branch);

}  // namespace potl::transcript
