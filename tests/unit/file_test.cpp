// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "allocation_counter.hpp"
#include "catch.hpp"
#include "shared_vectors.hpp"

#include <potl/core/detail/utf8.hpp>
#include <potl/core/file.hpp>

using potl::errc;
namespace fs = std::filesystem;

namespace {

class temporary_directory {
 public:
  temporary_directory() {
    std::string pattern = (fs::temp_directory_path() / "potl-file-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~temporary_directory() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void put(const std::string& path, const std::string& text) {
  REQUIRE(potl::write_file_atomically(path, potl::as_bytes_view(text)).has_value());
}

std::string text_of(const potl::result<std::vector<std::uint8_t>>& bytes) {
  return {bytes.value().begin(), bytes.value().end()};
}

std::size_t entries_in(const std::string& directory) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("a regular file is read whole, up to the limit and no further") {
  const temporary_directory folder;
  put(folder / "a", "hello");
  REQUIRE(text_of(potl::read_file(folder / "a", 5)) == "hello");
  REQUIRE(potl::read_file(folder / "a", 4).why().code == errc::limit);
  put(folder / "empty", "");
  REQUIRE(potl::read_file(folder / "empty", 0).value().empty());
  REQUIRE(potl::read_file(folder / "gone", 5).why().code == errc::missing);
  const potl::error gone = potl::read_entry(folder / "gone", "a", 5).why();
  REQUIRE(gone.code == errc::io);
  REQUIRE(gone.message.find("cannot open the directory " + (folder / "gone")) == 0);
}

TEST_CASE("a file that claims an enormous size is refused before memory is taken") {
  const temporary_directory folder;
  put(folder / "sparse", "");
  fs::resize_file(folder / "sparse", std::uint64_t{1} << 40);
  const potl_test::allocation_counter counter;
  REQUIRE(potl::read_file(folder / "sparse", 1 << 20).why().code == errc::limit);
  REQUIRE(counter.peak() < 4096);
}

TEST_CASE("pipes, devices and directories are refused without waiting") {
  const temporary_directory folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  REQUIRE(potl::read_file(folder / "pipe", 100).why().code == errc::malformed);
  REQUIRE(potl::read_file("/dev/zero", 100).why().code == errc::malformed);
  REQUIRE(potl::read_file(folder.path(), 100).why().code == errc::malformed);
  REQUIRE(potl::mapped_file::open(folder / "pipe").why().code == errc::malformed);
}

TEST_CASE("a symbolic link is followed only when the caller says so") {
  const temporary_directory folder;
  put(folder / "a", "x");
  fs::create_symlink(folder / "a", folder / "link");
  REQUIRE(potl::read_file(folder / "link", 10).why().code == errc::malformed);
  REQUIRE(text_of(potl::read_file(folder / "link", 10, potl::links::follow)) == "x");
}

TEST_CASE("a read error is an error and not an end of file") {
  // Address 0 of the own memory cannot be read, although the file is regular and has size 0.
  REQUIRE(potl::read_file("/proc/self/mem", 100).why().code == errc::io);
}

TEST_CASE("a file that is longer than it said is refused") {
  // Files of /proc are regular with size 0 and content.
  REQUIRE(potl::read_file("/proc/self/status", 100000).why().code == errc::io);
}

TEST_CASE("entries of a hostile directory cannot lead out of it") {
  const temporary_directory folder;
  fs::create_directories(folder / "run/checkpoints");
  put(folder / "secret", "s");
  put(folder / "run/checkpoints/a", "x");
  REQUIRE(text_of(potl::read_entry(folder / "run", "checkpoints/a", 10)) == "x");
  for (const char* name : {"../secret", "checkpoints/../../secret", "/etc/passwd", "",
                           "checkpoints/", "checkpoints//a", "./checkpoints/a"}) {
    INFO(name);
    REQUIRE(potl::read_entry(folder / "run", name, 10).why().code == errc::malformed);
  }
  fs::create_symlink(folder / "secret", folder / "run/file");
  fs::create_directory_symlink(folder.path(), folder / "run/directory");
  REQUIRE(potl::read_entry(folder / "run", "file", 10).why().code == errc::malformed);
  REQUIRE(potl::read_entry(folder / "run", "directory/secret", 10).why().code == errc::malformed);
}

TEST_CASE("only names that mean an entry are safe") {
  for (const char* name : {"job.json", "step-7.safetensors", "...", "\xC3\xA9", "a b"}) {
    INFO(name);
    REQUIRE(potl::safe_entry_name(name));
  }
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("a\\b"),
        std::string("a\0b", 3), std::string("a\nb"), std::string("\x7F"), std::string("\xFF"),
        std::string(256, 'a')}) {
    INFO(name);
    REQUIRE_FALSE(potl::safe_entry_name(name));
  }
}

TEST_CASE("a mapped file shows its bytes") {
  const temporary_directory folder;
  put(folder / "a", "mapped");
  const potl::mapped_file file = potl::mapped_file::open(folder / "a").value();
  REQUIRE(std::string(file.bytes().begin(), file.bytes().end()) == "mapped");
  put(folder / "empty", "");
  REQUIRE(potl::mapped_file::open(folder / "empty").value().bytes().empty());
}

TEST_CASE("appends add up, and a torn tail can be dropped") {
  const temporary_directory folder;
  {
    auto log = potl::append_file::create(folder / "log").value();
    REQUIRE(log.append(potl::as_bytes_view("one")));
    REQUIRE(log.append(potl::as_bytes_view("two")));
    REQUIRE(log.sync_data());
  }
  REQUIRE(potl::append_file::create(folder / "log").why().code == errc::io);
  auto log = potl::append_file::open(folder / "log").value();
  REQUIRE(log.size() == 6);
  REQUIRE_FALSE(log.truncate(7));
  REQUIRE(log.truncate(4));
  REQUIRE(log.append(potl::as_bytes_view("!")));
  REQUIRE(log.size() == 5);
  REQUIRE(text_of(potl::read_file(folder / "log", 10)) == "onet!");
  REQUIRE(potl::append_file::open(folder / "gone").why().code == errc::missing);
}

TEST_CASE("a full device is an error that names the remedy") {
  auto log = potl::append_file::open("/dev/full").value();
  const potl::status written = log.append(potl::as_bytes_view("x"));
  REQUIRE(written.why().code == errc::io);
  REQUIRE(written.why().remedy.find("free space") != std::string::npos);
}

TEST_CASE("a full disk harms nothing that was written before") {
  const temporary_directory folder;
  if (::mount("potl", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    WARN("skipped: mounting a small tmpfs needs root");
    return;
  }
  {
    const std::string large(200 * 1024, 'x');
    put(folder / "kept", "kept");
    auto log = potl::append_file::create(folder / "log").value();
    REQUIRE(log.append(potl::as_bytes_view(large)));
    REQUIRE(log.append(potl::as_bytes_view(large)).why().code == errc::io);
    CHECK(log.size() == large.size());
    CHECK(fs::file_size(folder / "log") == large.size());

    const potl::status replaced =
        potl::write_file_atomically(folder / "kept", potl::as_bytes_view(large));
    CHECK(replaced.why().code == errc::io);
    CHECK(text_of(potl::read_file(folder / "kept", 10)) == "kept");
    {
      auto file = potl::atomic_file::create(folder / "kept").value();
      CHECK_FALSE(file.write(potl::as_bytes_view(large)));
      CHECK(file.commit().why().code == errc::io);
    }
    CHECK(text_of(potl::read_file(folder / "kept", 10)) == "kept");
    CHECK(entries_in(folder.path()) == 2);
    CHECK(log.append(potl::as_bytes_view("small")));
  }
  REQUIRE(::umount(folder.path().c_str()) == 0);
}

TEST_CASE("a directory in a file's place or below it is the caller's mistake") {
  const temporary_directory folder;
  const std::string file = folder / "file";
  put(file, "x");
  for (const std::string& path : {file, file + "/below", file + "/far/below"}) {
    const potl::status made = potl::create_directory(path);
    REQUIRE(made.why().code == errc::usage);
    REQUIRE(made.why().message == file + " is not a directory");
  }
}

TEST_CASE("an atomic file appears complete or not at all") {
  const temporary_directory folder;
  put(folder / "a", "old");
  {
    auto file = potl::atomic_file::create(folder / "a").value();
    REQUIRE(file.write(potl::as_bytes_view("new")));
    REQUIRE(text_of(potl::read_file(folder / "a", 10)) == "old");
  }
  REQUIRE(text_of(potl::read_file(folder / "a", 10)) == "old");
  REQUIRE(entries_in(folder.path()) == 1);
  auto file = potl::atomic_file::create(folder / "a").value();
  REQUIRE(file.write(potl::as_bytes_view("new")));
  REQUIRE(file.commit());
  REQUIRE_FALSE(file.commit());
  REQUIRE(text_of(potl::read_file(folder / "a", 10)) == "new");
  REQUIRE(entries_in(folder.path()) == 1);
  REQUIRE(potl::write_file_atomically(folder / "gone/a", {}).why().code == errc::missing);
}
