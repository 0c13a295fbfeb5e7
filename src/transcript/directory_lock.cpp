// SPDX-License-Identifier: Apache-2.0
#include "transcript/directory_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>

namespace potl::transcript {

result<file_handle> lock_directory(const std::string& path) {
  file_handle out(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!out) {
    const errc code = errno == ENOENT ? errc::missing : errc::io;
    return error{code, "cannot open " + path + ": " + std::strerror(errno), ""};
  }
  if (::flock(out.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return error{errc::usage, path + " is being recorded by another writer",
                 "wait for it, or end the process that holds it"};
  }
  return out;
}

}  // namespace potl::transcript
