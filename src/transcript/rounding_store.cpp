// SPDX-License-Identifier: Apache-2.0
#include "transcript/rounding_store.hpp"

#include <filesystem>

#include "transcript/log.hpp"

namespace potl::transcript {

status rounding_store::open() {
  const std::string folder = directory_ + "/" + std::string(rounding_folder);
  std::error_code failed;
  std::filesystem::create_directory(folder, failed);
  if (failed) return error{errc::io, "cannot create " + folder + ": " + failed.message(), ""};
  const std::string path = directory_ + "/" + rounding_entry(branch_);
  result<append_file> file = append_file::create(path);
  if (!file) {
    // Left by a power cut that took the first records of this branch: no record names it.
    file = append_file::open(path);
    if (!file) return file.why();
    if (status empty = file->truncate(0); !empty) return empty;
  }
  result<append_file> second = append_file::open(path);
  if (!second) return second.why();
  if (status synced = sync_directory(folder); !synced) return synced;
  if (status synced = sync_directory(directory_); !synced) return synced;
  file_.emplace(std::move(*file));
  file_to_sync_.emplace(std::move(*second));
  return unit{};
}

status rounding_store::append(bytes_view log) {
  const std::lock_guard lock(mutex_);
  if (!file_) {
    if (status opened = open(); !opened) return opened;
  }
  unsynced_ = true;
  return file_->append(log);
}

status rounding_store::sync_data() {
  const std::lock_guard turn(sync_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (!unsynced_) return unit{};
    unsynced_ = false;
  }
  return file_to_sync_->sync_data();
}

}  // namespace potl::transcript
