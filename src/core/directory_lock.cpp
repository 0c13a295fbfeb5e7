// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include <potl/core/directory_lock.hpp>

namespace potl {
namespace {

// What is locked here. A process that is forked has these files open too, and would hold the locks
// until it ends, be it an orphan: there, something else is opened in their place.
class held_files {
 public:
  /// bad_alloc: the system has no room to tell of forks.
  static held_files& all() {
    static held_files& out = *new held_files;  // forks may come after the end of what is static
    return out;
  }
  /// Opens a directory that is to be locked. No process is forked before it is listed.
  file_handle open(const std::string& path) {
    const std::lock_guard lock(mutex_);
    file_handle out(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (out) files_.insert(out.get());
    return out;
  }
  void erase(int file) noexcept {
    const std::lock_guard lock(mutex_);
    files_.erase(file);
  }

 private:
  held_files() {
    const auto before = [] { all().mutex_.lock(); };
    const auto in_parent = [] { all().mutex_.unlock(); };
    const auto in_child = [] {
      const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      for (const int file : all().files_) ::dup3(nothing, file, O_CLOEXEC);
      ::close(nothing);
      all().files_.clear();  // a number may be another file's by the time this process forks
      all().mutex_.unlock();
    };
    if (::pthread_atfork(before, in_parent, in_child) != 0) throw std::bad_alloc();
  }

  std::mutex mutex_;
  std::set<int> files_;
};

}  // namespace

result<directory_lock> directory_lock::take(const std::string& path, std::string elsewhere,
                                            std::string remedy) {
  file_handle file = held_files::all().open(path);
  if (!file) {
    const errc code = errno == ENOENT ? errc::missing : errc::io;
    return error{code, "cannot open " + path + ": " + std::strerror(errno), ""};
  }
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return directory_lock(std::move(file));
  const int why = errno;
  held_files::all().erase(file.get());
  if (why == EWOULDBLOCK) return error{errc::usage, std::move(elsewhere), std::move(remedy)};
  return error{errc::unsupported, path + " cannot be locked: " + std::strerror(why),
               "use a folder on a local disk"};
}

void directory_lock::release() noexcept {
  if (held_) {
    held_files::all().erase(held_.get());
    ::flock(held_.get(), LOCK_UN);  // also where a program is being started with the file open
  }
  const file_handle closed = std::move(held_);
}

}  // namespace potl
