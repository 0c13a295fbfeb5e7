// SPDX-License-Identifier: Apache-2.0
// What every refusal of the extra task begins with.
#pragma once

#include <string>
#include <utility>

#include <potl/core/error.hpp>

namespace potl::checks {

inline error wrong(std::string message, std::string remedy) {
  return {errc::usage, "extra_task: " + std::move(message), std::move(remedy)};
}

}  // namespace potl::checks
