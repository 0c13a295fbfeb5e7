// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <potl/core/detail/home_process.hpp>
#include <potl/core/directory_lock.hpp>

#include "run_fixture.hpp"

using namespace potl;

namespace {

// Whether `holds` in a process that is forked.
template <class Holds>
bool forked(const Holds& holds) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(holds() ? 0 : 1);
  }
  int ended = -1;
  return child > 0 && ::waitpid(child, &ended, 0) == child && ended == 0;
}

}  // namespace

TEST_CASE("a forked process is another one, and so is its own child") {
  const detail::home_process here;
  CHECK(here.is_here());
  CHECK(forked([&] {
    const detail::home_process there;
    return !here.is_here() && there.is_here() &&
           forked([&] { return !here.is_here() && !there.is_here(); });
  }));
  CHECK(here.is_here());
}

TEST_CASE("a forked process with the number of its parent is another one") {
  CHECK(forked([] {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return true;  // not everybody may
    return forked([] {
      const detail::home_process here;
      if (::unshare(CLONE_NEWPID) != 0) return true;
      const pid_t own = ::getpid();
      return forked([&] { return ::getpid() == own && !here.is_here(); });
    });
  }));
}

TEST_CASE("a lock that takes the place of another lets go of that one, in its own process alone") {
  const potl_test::temporary_directory first, second, third;
  const auto take = [](const potl_test::temporary_directory& one) {
    return directory_lock::take(one.file(""), "taken", "");
  };
  directory_lock held = take(first).value();
  CHECK(forked([&] {
    held = take(third).value();
    return !take(third) && !take(first);
  }));
  CHECK(!take(first));
  directory_lock other = take(second).value();
  held = std::move(other);
  CHECK(take(first));
  CHECK(!take(second));
}

TEST_CASE("the lock of a process that ends is not held by one that was forked from it") {
  const potl_test::temporary_directory folder;
  int wait[2], begun[2];
  REQUIRE((::pipe(wait) == 0 && ::pipe(begun) == 0));
  CHECK(forked([&] {
    const auto held = directory_lock::take(folder.file(""), "taken", "");
    const pid_t orphan = ::fork();
    char one = 0;
    if (orphan == 0) {
      ::close(wait[1]);
      ::_exit(::write(begun[1], &one, 1) == 1 && ::read(wait[0], &one, 1) == 0 ? 0 : 1);
    }
    if (!held || directory_lock::take(folder.file(""), "taken", "")) return false;
    const bool has_begun = ::read(begun[0], &one, 1) == 1;
    ::_exit(has_begun ? 0 : 1);  // without its destructors, as one that was killed
  }));
  CHECK(directory_lock::take(folder.file(""), "taken", ""));
  for (const int file : {wait[0], wait[1], begun[0], begun[1]}) ::close(file);
}

TEST_CASE("what a process opens where a lock was is its own, in those that it forks, too") {
  const potl_test::temporary_directory folder;
  const auto held = directory_lock::take(folder.file(""), "taken", "");
  const auto behind = [](int file) {
    std::error_code error;
    return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), error).string();
  };
  CHECK(forked([&] {
    std::map<int, std::string> opened;
    for (int file = 3; file < 256; ++file) {
      if (behind(file) != "/dev/null") continue;
      const int other = ::open(folder.file(std::to_string(file)).c_str(), O_CREAT | O_RDWR, 0600);
      if (::dup2(other, file) != file) return false;
      opened[file] = behind(file);
    }
    const auto is_kept = [&](const auto& one) { return behind(one.first) == one.second; };
    return !opened.empty() &&
           forked([&] { return std::all_of(opened.begin(), opened.end(), is_kept); });
  }));
}
