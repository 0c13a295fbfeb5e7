// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <span>

#include <potl/core/detail/utf8.hpp>
#include <potl/core/file.hpp>

#include "core/file_system.hpp"

namespace potl {
namespace {

using bytes = std::vector<std::uint8_t>;

// O_NONBLOCK: opening a FIFO must not wait for a writer; it has no effect on regular files.
constexpr int read_flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;

error changed(const std::string& path) {
  return {errc::io, path + " changed while it was read", "read it when nobody writes to it"};
}

result<bytes> room_for(std::uint64_t size, const std::string& path) {
  bytes out;
  try {
    out.resize(static_cast<std::size_t>(size));
  } catch (const std::bad_alloc&) {
    return error{errc::io, "not enough memory to read " + path, ""};
  }
  return out;
}

result<file_handle> open_handle(const std::string& directory, std::string_view name) {
  const std::string path = directory + "/" + std::string(name);
  file_handle place = detail::open_file(AT_FDCWD, directory.c_str(), O_RDONLY | O_DIRECTORY);
  if (!place) {
    // Nobody withholds or forges an entry of a directory that is not there.
    error why = detail::system_error_of(errno, "open the directory", directory);
    why.code = errc::io;
    return why;
  }
  for (;;) {
    const std::size_t slash = name.find('/');
    const std::string component(name.substr(0, slash));
    if (const status safe = safe_entry_name(component); !safe) return safe.why();
    const bool last = slash == std::string_view::npos;
    place = detail::open_file(place.get(), component.c_str(),
                              O_NOFOLLOW | (last ? read_flags : O_RDONLY | O_DIRECTORY));
    if (!place) return detail::system_error_of(errno, "open", path);
    if (last) return place;
    name.remove_prefix(slash + 1);
  }
}

}  // namespace

result<file_pieces::stamp> file_pieces::look() const {
  struct stat about {};
  if (::fstat(file_.get(), &about) != 0) return detail::system_error_of(errno, "read", path_);
  if (!S_ISREG(about.st_mode)) return error{errc::malformed, path_ + " is not a regular file", ""};
  return stamp{static_cast<std::uint64_t>(about.st_size), about.st_ctim.tv_sec,
               about.st_ctim.tv_nsec};
}

result<file_pieces> file_pieces::of(file_handle file, std::string path) {
  file_pieces out(std::move(file), std::move(path));
  const result<stamp> about = out.look();
  if (!about) return about.why();
  out.opened_ = *about;
  out.size_ = about->size;
  return out;
}

result<file_pieces> file_pieces::open(const std::string& path, links policy) {
  const int flags = read_flags | (policy == links::refuse ? O_NOFOLLOW : 0);
  file_handle file = detail::open_file(AT_FDCWD, path.c_str(), flags);
  if (!file) return detail::system_error_of(errno, "open", path);
  return of(std::move(file), path);
}

result<file_pieces> file_pieces::open_entry(const std::string& directory, std::string_view name) {
  result<file_handle> file = open_handle(directory, name);
  if (!file) return file.why();
  return of(std::move(*file), directory + "/" + std::string(name));
}

status file_pieces::read(std::uint64_t offset, std::span<std::uint8_t> into) const {
  std::size_t have = 0;
  while (have != into.size()) {
    const std::size_t part = std::min<std::size_t>(into.size() - have, std::size_t{1} << 30);
    const ssize_t count =
        ::pread(file_.get(), into.data() + have, part, static_cast<off_t>(offset + have));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return detail::system_error_of(errno, "read", path_);
    if (count == 0) return changed(path_);
    have += static_cast<std::size_t>(count);
  }
  detail::observe_read(path_, into.size());
  return unit{};
}

result<bytes> file_pieces::read_all(std::uint64_t max_bytes, bytes_view start) const {
  if (size_ > max_bytes) {
    return error{errc::limit,
                 path_ + " has " + std::to_string(size_) + " bytes where at most " +
                     std::to_string(max_bytes) + " are accepted",
                 ""};
  }
  result<bytes> out = room_for(size_, path_);
  if (!out) return out;
  std::copy(start.begin(), start.end(), out->begin());
  const std::span<std::uint8_t> rest = std::span(*out).subspan(start.size());
  if (const status filled = read(start.size(), rest); !filled) return filled.why();
  std::uint8_t beyond = 0;
  ssize_t more = 0;
  do {
    more = ::pread(file_.get(), &beyond, 1, static_cast<off_t>(size_));
  } while (more < 0 && errno == EINTR);
  if (more < 0) return detail::system_error_of(errno, "read", path_);
  if (more > 0) return changed(path_);
  return out;
}

status file_pieces::unchanged() const {
  const result<stamp> now = look();
  if (!now) return now.why();
  if (!(*now == opened_)) return changed(path_);
  return unit{};
}

result<bytes> read_file(const std::string& path, std::uint64_t max_bytes, links policy) {
  const result<file_pieces> file = file_pieces::open(path, policy);
  if (!file) return file.why();
  return file->read_all(max_bytes);
}

result<bytes> read_entry(const std::string& directory, std::string_view name,
                         std::uint64_t max_bytes) {
  const result<file_pieces> file = file_pieces::open_entry(directory, name);
  if (!file) return file.why();
  return file->read_all(max_bytes);
}

result<bytes> read_entry_part(const std::string& directory, std::string_view name,
                              std::uint64_t offset, std::uint64_t size) {
  const result<file_pieces> file = file_pieces::open_entry(directory, name);
  if (!file) return file.why();
  if (offset > file->size() || size > file->size() - offset) {
    return error{errc::missing, file->path() + " ends before byte " + std::to_string(offset + size),
                 ""};
  }
  result<bytes> out = room_for(size, file->path());
  if (!out) return out;
  if (const status filled = file->read(offset, *out); !filled) return filled.why();
  return out;
}

status safe_entry_name(std::string_view name) {
  const auto refused = [](const char* why) { return error{errc::malformed, why, ""}; };
  if (name.empty() || name.size() > 255) return refused("a file name has 1 to 255 bytes");
  if (name == "." || name == "..") return refused("a file name that means a directory");
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '/' || c == '\\') return refused("a file name with a path separator");
    if (byte < 0x20 || byte == 0x7F) return refused("a file name with a control character");
  }
  if (!is_utf8(name)) return refused("a file name that is not UTF-8");
  return unit{};
}

result<mapped_file> mapped_file::open(const std::string& path) {
  const file_handle file = detail::open_file(AT_FDCWD, path.c_str(), read_flags);
  if (!file) return detail::system_error_of(errno, "open", path);
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) return detail::system_error_of(errno, "read", path);
  if (!S_ISREG(about.st_mode)) return error{errc::malformed, path + " is not a regular file", ""};
  const auto size = static_cast<std::size_t>(about.st_size);
  if (size == 0) return mapped_file(bytes_view{});
  void* place = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (place == MAP_FAILED) return detail::system_error_of(errno, "map", path);
  return mapped_file(bytes_view(static_cast<const std::uint8_t*>(place), size));
}

mapped_file::~mapped_file() {
  if (!bytes_.empty()) ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace potl
