// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <potl/core/directory_lock.hpp>

namespace potl {

result<file_handle> lock_directory(const std::string& path, std::string elsewhere,
                                   std::string remedy) {
  file_handle out(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!out) {
    const errc code = errno == ENOENT ? errc::missing : errc::io;
    return error{code, "cannot open " + path + ": " + std::strerror(errno), ""};
  }
  if (::flock(out.get(), LOCK_EX | LOCK_NB) == 0) return out;
  if (errno == EWOULDBLOCK) return error{errc::usage, std::move(elsewhere), std::move(remedy)};
  return error{errc::unsupported, path + " cannot be locked: " + std::strerror(errno),
               "use a folder on a local disk"};
}

void unlock_directory(file_handle held) noexcept { ::flock(held.get(), LOCK_UN); }

}  // namespace potl
