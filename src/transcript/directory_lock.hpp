// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <potl/core/file.hpp>

namespace potl::transcript {

/// Holds a run directory for one recorder, until the handle or the process goes: a crash leaves no
/// lock behind. usage when another recorder holds it. Where the file system has no locks there is
/// none.
result<file_handle> lock_directory(const std::string& path);

}  // namespace potl::transcript
