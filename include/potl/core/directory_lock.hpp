// SPDX-License-Identifier: Apache-2.0
// A directory in which one program at a time works: a recorder in its run, a guard in its folder.
//
// Claims: of all who ask on this machine one holds it, until its handle goes and that of every
// process forked meanwhile. A crash leaves no lock behind.
// Cannot detect: who does not ask, and programs on machines that share the disk without its locks.
#pragma once

#include <string>

#include <potl/core/error.hpp>
#include <potl/core/file.hpp>
#include <potl/core/result.hpp>

namespace potl {

/// Holds a directory, which must exist. usage, in the words of `elsewhere` and `remedy`: another
/// has it. missing, io: it cannot be opened. unsupported: its file system has no locks.
result<file_handle> lock_directory(const std::string& path, std::string elsewhere,
                                   std::string remedy);

/// Lets go of it, also where a process that was forked meanwhile still has the handle.
void unlock_directory(file_handle held) noexcept;

}  // namespace potl
