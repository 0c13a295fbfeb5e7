// SPDX-License-Identifier: Apache-2.0
// Bodies of frames: {"reason": "..."} of who cannot or will not go on, {"loss": "<bits>"} of a
// report, {"pause": true} of a session that another one will follow, {"memory": true} of who has
// memory for tensors that both sides map, nothing otherwise.
#pragma once

#include <string>

#include <potl/core/result.hpp>

namespace potl::checks {

/// Nothing for an empty reason. Long ones are cut.
std::string reason_body(const std::string& reason);
/// "": none. malformed: the body is not a JSON object, or the reason no text.
result<std::string> read_reason(const std::string& body);

/// Of a session that pauses: the worker waits for the next one.
std::string pause_body();
bool is_pause(const std::string& body);

/// The trusted side passes memory with the frame; the worker has mapped it.
std::string memory_body();
bool is_memory(const std::string& body);

std::string loss_body(double loss);
/// malformed: the body says no loss.
result<double> read_loss(const std::string& body);

}  // namespace potl::checks
