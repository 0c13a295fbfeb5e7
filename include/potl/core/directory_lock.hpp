// SPDX-License-Identifier: Apache-2.0
// A directory in which one program at a time works: a recorder in its run, a guard in its folder.
//
// Claims: of all who ask on this machine one holds it, until it lets go or ends. A crash leaves no
// lock behind, and a process that is forked holds none.
// Cannot detect: who does not ask, and programs on machines that share the disk without its locks.
#pragma once

#include <string>
#include <utility>

#include <potl/core/error.hpp>
#include <potl/core/file.hpp>
#include <potl/core/result.hpp>

namespace potl {

class directory_lock {
 public:
  /// Holds nothing.
  directory_lock() = default;
  /// Holds a directory, which must exist. usage, in the words of `elsewhere` and `remedy`: another
  /// has it. missing, io: it cannot be opened. unsupported: its file system has no locks.
  static result<directory_lock> take(const std::string& path, std::string elsewhere,
                                     std::string remedy);
  directory_lock(directory_lock&&) noexcept = default;
  /// Lets go first of what it holds, as release() does.
  directory_lock& operator=(directory_lock&& other) noexcept {
    if (this == &other) return *this;
    release();
    held_ = std::move(other.held_);
    return *this;
  }
  ~directory_lock() { release(); }

  /// Lets go. In a process that was forked meanwhile, the lock of the one that took it stays.
  void release() noexcept;

 private:
  explicit directory_lock(file_handle held) noexcept : held_(std::move(held)) {}

  file_handle held_;
};

}  // namespace potl
