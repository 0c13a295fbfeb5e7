// SPDX-License-Identifier: Apache-2.0
// Files that somebody else may have written, and files that must survive a crash.
//
// Reading: regular files only (a FIFO would block, a device would never end), no symbolic link
// inside a run directory, the size checked before memory is taken, and a read error reported as an
// error, never as an end of file. Everything is read into memory and parsed from there: what was
// hashed is then what was parsed, while a mapping changes under the reader's hands and kills the
// process (SIGBUS) when the file is truncated. mapped_file is for files that belong to the caller.
// Writing: what sync_data() or commit() confirmed is on the disk; an error leaves what was there
// before untouched.
// Assumes a POSIX system whose file system honours fsync.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl {

/// What to do when the last component of a path is a symbolic link.
enum class links { refuse, follow };

/// The whole regular file. limit: larger than max_bytes; missing: not there; malformed: not a
/// regular file, or a link; io: anything the system refused, and files that change while being
/// read.
result<std::vector<std::uint8_t>> read_file(const std::string& path, std::uint64_t max_bytes,
                                            links policy = links::refuse);

/// The same for a file inside a directory that somebody else filled. Every component of `name`
/// ("checkpoints/step-7.safetensors") must be a safe entry name, and none may be a link.
/// io when the directory itself cannot be opened: missing speaks of its entries alone.
result<std::vector<std::uint8_t>> read_entry(const std::string& directory, std::string_view name,
                                             std::uint64_t max_bytes);

/// `size` bytes of such a file from `offset` on. missing: it is shorter; the caller bounds `size`.
result<std::vector<std::uint8_t>> read_entry_part(const std::string& directory,
                                                  std::string_view name, std::uint64_t offset,
                                                  std::uint64_t size);

/// Succeeds for a name that can only mean an entry of the directory it is looked up in: UTF-8, 1 to
/// 255 bytes, no separator, no control character, neither "." nor "..".
status safe_entry_name(std::string_view name);

/// An open file descriptor, closed at the end of its life.
class file_handle {
 public:
  file_handle() noexcept = default;
  explicit file_handle(int descriptor) noexcept : descriptor_(descriptor) {}
  file_handle(file_handle&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  file_handle& operator=(file_handle&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~file_handle();

  int get() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// A regular file that is read in pieces: what its first bytes say can be judged before memory is
/// taken for the others. All pieces come from the file that was opened, whatever its name means
/// later.
class file_pieces {
 public:
  /// Errors as those of read_file and read_entry.
  static result<file_pieces> open(const std::string& path, links policy = links::refuse);
  static result<file_pieces> open_entry(const std::string& directory, std::string_view name);

  std::uint64_t size() const noexcept { return size_; }
  const std::string& path() const noexcept { return path_; }

  /// Fills `into` from `offset` on. io: the system refused, or the file ends before, now.
  status read(std::uint64_t offset, std::span<std::uint8_t> into) const;
  /// All of it; `start`, which was read of its beginning, is not read again. limit: larger than
  /// max_bytes; io as read(), and when it grew.
  result<std::vector<std::uint8_t>> read_all(std::uint64_t max_bytes, bytes_view start = {}) const;
  /// io when somebody wrote to it, or changed its size, since it was opened.
  status unchanged() const;

 private:
  struct stamp {
    std::uint64_t size = 0;
    std::int64_t seconds = 0, nanoseconds = 0;  ///< of the last change, which no call can set
    bool operator==(const stamp&) const = default;
  };
  file_pieces(file_handle file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}
  static result<file_pieces> of(file_handle file, std::string path);
  result<stamp> look() const;

  file_handle file_;
  std::string path_;
  stamp opened_;
  std::uint64_t size_ = 0;
};

/// A file of the caller's own, mapped read-only. Truncating it elsewhere while it is mapped raises
/// SIGBUS: never use it for what another party can write.
class mapped_file {
 public:
  static result<mapped_file> open(const std::string& path);
  mapped_file(mapped_file&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  mapped_file& operator=(mapped_file&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~mapped_file();

  bytes_view bytes() const noexcept { return bytes_; }

 private:
  explicit mapped_file(bytes_view bytes) noexcept : bytes_(bytes) {}
  bytes_view bytes_;
};

/// A log that only grows. A failed append is taken back, so that the file holds whole appends; a
/// failed sync cannot be repaired (the system may have dropped the data), so it fails for good.
class append_file {
 public:
  /// A new file; io when the path is taken.
  static result<append_file> create(const std::string& path);
  /// An existing file, to go on at its end.
  static result<append_file> open(const std::string& path);

  status append(bytes_view bytes);
  /// Waits until everything appended is on the disk.
  status sync_data();
  /// Drops what follows the first `size` bytes, e.g. a record that a crash cut short.
  status truncate(std::uint64_t size);
  std::uint64_t size() const noexcept { return size_; }

 private:
  append_file(file_handle file, std::string path, std::uint64_t size)
      : file_(std::move(file)), path_(std::move(path)), size_(size) {}
  static result<append_file> open_with(const std::string& path, int flags);

  file_handle file_;
  std::string path_;
  std::uint64_t size_ = 0;
  bool broken_ = false;
};

/// Who may read a new file.
enum class access { everybody, owner };

/// A file that appears at its path complete or not at all: written beside it, synced, renamed.
/// Without commit() nothing happens to the path.
class atomic_file {
 public:
  static result<atomic_file> create(const std::string& path, access who = access::everybody);
  atomic_file(atomic_file&&) noexcept = default;
  atomic_file& operator=(atomic_file&&) = delete;
  ~atomic_file();

  status write(bytes_view bytes);
  status commit();

 private:
  atomic_file(file_handle file, std::string path, std::string temporary)
      : file_(std::move(file)), path_(std::move(path)), temporary_(std::move(temporary)) {}

  file_handle file_;
  std::string path_;
  std::string temporary_;
  bool broken_ = false;
};

/// Puts `bytes` at `path`, replacing what was there, in one step.
status write_file_atomically(const std::string& path, bytes_view bytes,
                             access who = access::everybody);

/// Makes a directory, and those above it that are missing, whose names survive a power cut. Fine
/// when it is there already. usage when a part of the path is something else.
status create_directory(const std::string& path);

/// Makes creations, renames and removals inside a directory durable.
status sync_directory(const std::string& path);

#ifdef POTL_TEST_HOOKS
/// Is told the path of each file after it, or a piece of so many bytes, was read, so that a test
/// can change it then.
void set_read_observer(std::function<void(const std::string&, std::uint64_t)> told);
#endif

}  // namespace potl
