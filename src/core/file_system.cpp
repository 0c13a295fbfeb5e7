// SPDX-License-Identifier: Apache-2.0
#include "core/file_system.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace potl {

file_handle::~file_handle() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

namespace detail {

error system_error_of(int code, const std::string& what, const std::string& path) {
  errc kind = errc::io;
  std::string remedy;
  switch (code) {
    case ENOENT: kind = errc::missing; break;
    case ENOTDIR: kind = errc::malformed; break;
    case ELOOP:
      kind = errc::malformed;
      remedy = "symbolic links are not followed here";
      break;
    case ENOSPC:
    case EDQUOT: remedy = "free space on that disk or choose another directory"; break;
    case EACCES:
    case EPERM:
    case EROFS: remedy = "check who owns the file and its permissions"; break;
    case EEXIST: remedy = "remove it or choose another name"; break;
    case EMFILE:
    case ENFILE: remedy = "raise the limit on open files (ulimit -n)"; break;
    default: break;
  }
  return {kind, "cannot " + what + " " + path + ": " + std::generic_category().message(code),
          remedy};
}

file_handle open_file(int directory, const char* path, int flags, unsigned mode) {
  int descriptor = -1;
  do {
    descriptor = ::openat(directory, path, flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return file_handle(descriptor);
}

status write_all(int descriptor, bytes_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const std::size_t part = std::min<std::size_t>(bytes.size(), std::size_t{1} << 30);
    const ssize_t written = ::write(descriptor, bytes.data(), part);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error_of(errno, "write to", path);
    if (written == 0) return error{errc::io, "nothing could be written to " + path, ""};
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return unit{};
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace detail
}  // namespace potl
