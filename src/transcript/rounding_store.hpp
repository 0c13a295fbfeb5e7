// SPDX-License-Identifier: Apache-2.0
// Where a writer keeps rounding logs: rounding/branch-N.log holds those of the steps that were
// recorded after resume N, one after the other. Each record says how long its log is, so the place
// of a log follows from the records before it.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include <potl/core/file.hpp>

namespace potl::transcript {

/// Appending and syncing may be done by different threads.
class rounding_store {
 public:
  rounding_store(std::string directory, std::uint64_t branch)
      : directory_(std::move(directory)), branch_(branch) {}

  /// The first one makes the file.
  status append(bytes_view log);
  /// Waits until everything appended is on the disk; nothing to do, nothing done.
  status sync_data();

 private:
  status open();

  std::string directory_;
  std::uint64_t branch_ = 0;
  std::mutex mutex_;  // of what follows
  std::optional<append_file> file_;
  bool unsynced_ = false;
  std::mutex sync_mutex_;  // taken before the other one
  std::optional<append_file> file_to_sync_;
};

}  // namespace potl::transcript
