// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <potl/core/directory_lock.hpp>

namespace potl {

result<directory_lock> directory_lock::take(const std::string& path, std::string elsewhere,
                                            std::string remedy) {
  file_handle file(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file) {
    const errc code = errno == ENOENT ? errc::missing : errc::io;
    return error{code, "cannot open " + path + ": " + std::strerror(errno), ""};
  }
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return directory_lock(std::move(file));
  if (errno == EWOULDBLOCK) return error{errc::usage, std::move(elsewhere), std::move(remedy)};
  return error{errc::unsupported, path + " cannot be locked: " + std::strerror(errno),
               "use a folder on a local disk"};
}

void directory_lock::release() noexcept {
  if (held_ && home_.is_here()) ::flock(held_.get(), LOCK_UN);
  const file_handle closed = std::move(held_);
}

}  // namespace potl
