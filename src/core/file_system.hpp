// SPDX-License-Identifier: Apache-2.0
// What the file functions share: errors from errno, writing all of a buffer.
#pragma once

#include <string>

#include <potl/core/file.hpp>

namespace potl::detail {

/// The error for a system call that failed with `code` (errno) while doing `what` to `path`.
error system_error_of(int code, const std::string& what, const std::string& path);

/// Opens, retrying when a signal interrupts. An invalid handle with errno set on failure.
file_handle open_file(int directory, const char* path, int flags, unsigned mode = 0);

/// Writes every byte or fails.
status write_all(int descriptor, bytes_view bytes, const std::string& path);

/// The directory part of a path, "." when there is none.
std::string parent_of(const std::string& path);

/// Called after each file that was read. Does nothing, but in a build with test hooks:
/// set_read_observer (rule_switch.cpp).
void observe_read(const std::string& path, std::uint64_t bytes);

}  // namespace potl::detail
