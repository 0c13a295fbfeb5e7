// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>

#include <potl/core/file.hpp>

#include "core/file_system.hpp"

namespace potl {
namespace {

constexpr unsigned new_file_mode = 0644;

}  // namespace

result<append_file> append_file::open_with(const std::string& path, int flags) {
  file_handle file = detail::open_file(
      AT_FDCWD, path.c_str(), flags | O_WRONLY | O_APPEND | O_NOFOLLOW | O_NOCTTY, new_file_mode);
  if (!file) return detail::system_error_of(errno, "open", path);
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) return detail::system_error_of(errno, "open", path);
  return append_file(std::move(file), path, static_cast<std::uint64_t>(about.st_size));
}

result<append_file> append_file::create(const std::string& path) {
  return open_with(path, O_CREAT | O_EXCL);
}

result<append_file> append_file::open(const std::string& path) { return open_with(path, 0); }

status append_file::append(bytes_view bytes) {
  if (broken_) return error{errc::io, path_ + " failed earlier and takes nothing more", ""};
  status written = detail::write_all(file_.get(), bytes, path_);
  if (written) {
    size_ += bytes.size();
    return written;
  }
  // Part of the bytes may be there already. If they cannot be taken back, nothing may follow them.
  struct stat about {};
  const bool regular = ::fstat(file_.get(), &about) == 0 && S_ISREG(about.st_mode);
  if (regular && ::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) broken_ = true;
  return written;
}

status append_file::sync_data() {
  if (broken_) return error{errc::io, path_ + " failed earlier and cannot be synced", ""};
  int outcome = 0;
  do {
    outcome = ::fdatasync(file_.get());
  } while (outcome != 0 && errno == EINTR);
  if (outcome == 0) return unit{};
  broken_ = true;
  return detail::system_error_of(errno, "sync", path_);
}

status append_file::truncate(std::uint64_t size) {
  if (size > size_) return error{errc::usage, "truncating " + path_ + " cannot make it longer", ""};
  if (::ftruncate(file_.get(), static_cast<off_t>(size)) != 0)
    return detail::system_error_of(errno, "truncate", path_);
  size_ = size;
  return unit{};
}

result<atomic_file> atomic_file::create(const std::string& path, access who) {
  const std::size_t slash = path.find_last_of('/');
  const std::string name = path.substr(slash == std::string::npos ? 0 : slash + 1);
  if (const status safe = safe_entry_name(name); !safe) return safe.why();
  // The random part keeps two writers, and what a crash left behind, apart.
  std::random_device random;
  std::string temporary = detail::parent_of(path) + "/.";
  temporary.append(name, 0, 200).append(".").append(std::to_string(random()));
  temporary.append(std::to_string(random())).append(".tmp");
  file_handle file =
      detail::open_file(AT_FDCWD, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW,
                        who == access::owner ? 0600 : new_file_mode);
  if (!file) return detail::system_error_of(errno, "create a file beside", path);
  return atomic_file(std::move(file), path, std::move(temporary));
}

atomic_file::~atomic_file() {
  if (file_) ::unlink(temporary_.c_str());
}

status atomic_file::write(bytes_view bytes) {
  if (!file_) return error{errc::usage, path_ + " is committed already", ""};
  status written = detail::write_all(file_.get(), bytes, path_);
  if (!written) broken_ = true;
  return written;
}

status atomic_file::commit() {
  if (!file_) return error{errc::usage, path_ + " is committed already", ""};
  if (broken_) return error{errc::io, path_ + " was not written completely", ""};
  if (::fsync(file_.get()) != 0) return detail::system_error_of(errno, "sync", path_);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0)
    return detail::system_error_of(errno, "replace", path_);
  file_ = file_handle();
  return sync_directory(detail::parent_of(path_));
}

status write_file_atomically(const std::string& path, bytes_view bytes, access who) {
  result<atomic_file> file = atomic_file::create(path, who);
  if (!file) return file.why();
  if (status written = file->write(bytes); !written) return written;
  return file->commit();
}

namespace {

// Nobody else's input, as what is read may be: the caller has named it.
error not_a_directory(const std::string& path) {
  return {errc::usage, path + " is not a directory", "choose another name"};
}

}  // namespace

status create_directory(const std::string& path) {
  // From the top: a name is durable when the directory that holds it was synced after it came.
  for (std::size_t end = path.find_first_not_of('/'); end != std::string::npos;) {
    end = path.find('/', end);
    const std::string part = path.substr(0, end);
    if (end != std::string::npos) end = path.find_first_not_of('/', end);
    const bool made = ::mkdir(part.c_str(), 0777) == 0;
    if (!made && errno != EEXIST) {
      const int why = errno;
      struct stat about {};
      if (::stat(part.c_str(), &about) != 0) {
        return why == ENOTDIR ? not_a_directory(detail::parent_of(part))
                              : detail::system_error_of(why, "create", part);
      }
    }
    // The last one may have been made just now by somebody who did not sync.
    if (!made && end != std::string::npos) continue;
    const status synced = sync_directory(detail::parent_of(part));
    if (made && !synced) return synced;
  }
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return detail::system_error_of(errno, "create", path);
  if (!S_ISDIR(about.st_mode)) return not_a_directory(path);
  return unit{};
}

status sync_directory(const std::string& path) {
  const file_handle directory = detail::open_file(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY);
  if (!directory) return detail::system_error_of(errno, "open", path);
  if (::fsync(directory.get()) != 0) return detail::system_error_of(errno, "sync", path);
  return unit{};
}

}  // namespace potl
