// SPDX-License-Identifier: Apache-2.0
// Strangers at a worker's door: they cost a bounded time and room, and keep nobody out.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <potl/checks/detail/spot_check_link.hpp>
#include <potl/checks/spot_check_door.hpp>

#include "catch.hpp"
#include "tiny_training.hpp"

using namespace potl;
using namespace potl::checks;
using namespace potl::test;

namespace {

constexpr double handshake = 0.3;

spot_check_socket stranger_at(const spot_check_door& door) {
  return spot_check_socket::connect(door.address(), soon()).value();
}

/// The first frame of a session, without the job.
bytes hello(const std::string& session, bytes_view secret = key, std::string body = {}) {
  const digest id = sha256_of(as_bytes_view(job)), name = sha256_of(as_bytes_view(session));
  spot_check_chain chain(spot_check_session_key(secret, id, name), id, name,
                         spot_check_side::trusted);
  return chain.seal({spot_check_kind::hello, 0, std::move(body), job.size()});
}

/// Whether the other side hung up: it says nothing by itself.
bool is_dropped(spot_check_socket& who) {
  bytes one(1);
  const status read = who.read(one, soon());
  return !read && read.why().message.find("closed") != std::string::npos;
}

}  // namespace

TEST_CASE("who has the key comes in while strangers say nothing", "[spot_check]") {
  // Nobody's time is over within this test: they are not waited for one after the other.
  spot_check_door door("tcp://127.0.0.1:0", key, 3600);
  std::vector<spot_check_socket> strangers;
  for (std::size_t i = 0; i < 40; ++i) strangers.push_back(stranger_at(door));
  spot_check_socket real = stranger_at(door);
  const bytes first = hello("a session");
  REQUIRE(real.write(first, soon()));
  auto came = door.next(soon());
  REQUIRE(came);
  bytes again(first.size());
  REQUIRE(came->read(again, soon()));
  CHECK(again == first);
  // What comes later is read where the first frame ended.
  REQUIRE(real.write(as_bytes_view(job), soon()));
  bytes text(job.size());
  REQUIRE(came->read(text, soon()));
  CHECK(text == bytes(job.begin(), job.end()));
}

TEST_CASE("a whole training goes through a door that strangers stand at", "[spot_check]") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("potl-door-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  for (const std::string& address :
       {"unix:" + (folder / "a.sock").string(), std::string("tcp://127.0.0.1:0")}) {
    constexpr std::uint64_t steps = 20;
    test::tiny_gradients honest(steps), own(steps);
    spot_check_sgd training = test::tiny_training(steps);
    spot_check_door door(address, key, 3600);
    spot_check_socket stranger = stranger_at(door);
    std::thread worker([&] {
      auto came = door.next(soon());
      if (came)
        serve(std::move(came).value(), key,
              [&](const std::string&) -> gradient_source& { return honest; });
    });
    const auto found =
        guard(stranger_at(door), key, job, training, own, test::tiny_options(steps, 1.0));
    worker.join();
    CHECK(found.end == spot_check_end::finished);  // with shared memory, over a Unix socket
    CHECK(training.step() == steps);
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("an open file that came with the first frame is handed on", "[spot_check]") {
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("potl-door-file-" + std::to_string(::getpid()) + ".sock"))
                               .string();
  spot_check_door door("unix:" + path, key, 3600);
  spot_check_socket real = stranger_at(door);
  real.pass(0);
  const bytes first = hello("a session");
  REQUIRE(real.write(first, soon()));
  auto came = door.next(soon());
  REQUIRE(came);
  bytes again(first.size());
  file_handle passed;
  REQUIRE(came->read(again, soon(), &passed));
  CHECK(passed);
}

TEST_CASE("a stranger is dropped in time, also one that sends a byte now and then",
          "[spot_check]") {
  spot_check_door door("tcp://127.0.0.1:0", key, handshake);
  spot_check_socket silent = stranger_at(door), dripping = stranger_at(door);
  std::atomic<std::size_t> sent = 0;
  std::thread drips([&] {
    for (const std::uint8_t one : hello("a session")) {
      if (!dripping.write({&one, 1}, soon())) break;
      ++sent;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  CHECK(door.next(soon(3 * handshake)).why().code == errc::io);
  CHECK(is_dropped(silent));
  drips.join();
  CHECK(sent < spot_check_header_bytes);
}

TEST_CASE("who waits longest gives way where too many wait", "[spot_check]") {
  spot_check_door door("tcp://127.0.0.1:0", key, 3600);
  std::vector<spot_check_socket> strangers;
  for (std::size_t i = 0; i < spot_check_door::most_waiting + 3; ++i) {
    strangers.push_back(stranger_at(door));
    static_cast<void>(door.next(soon(0)));
  }
  for (std::size_t i = 0; i < 3; ++i) CHECK(is_dropped(strangers[i]));
  bytes one(1);
  const status silence = strangers[3].read(one, soon(0));
  CHECK(silence.why().message.find("silent") != std::string::npos);
  REQUIRE(strangers.back().write(hello("a session"), soon()));
  CHECK(door.next(soon()));
}

TEST_CASE("who has sent all does not give way, though many come before it is heard",
          "[spot_check]") {
  spot_check_door door("tcp://127.0.0.1:0", key, 3600);
  spot_check_socket real = stranger_at(door);
  REQUIRE_FALSE(door.next(soon(0.01)));  // let in, and silent so far
  REQUIRE(real.write(hello("a session"), soon()));
  std::vector<spot_check_socket> strangers;
  for (std::size_t i = 0; i < spot_check_door::most_waiting; ++i)
    strangers.push_back(stranger_at(door));
  CHECK(door.next(soon()));
}

TEST_CASE("whoever sends something else than a sealed first frame is dropped at once",
          "[spot_check]") {
  spot_check_door door("tcp://127.0.0.1:0", key, 3600);
  bytes long_body = hello("a session");
  long_body[15] = 0x80;
  bytes step = hello("a session");
  step[8] = 3;
  bytes turned = hello("a session", key, "a body");
  turned.back() ^= 1;
  for (const bytes& sent : {bytes(400, 'G'), long_body, step, turned,
                            hello("a session", sha256_of(as_bytes_view("another secret")))}) {
    spot_check_socket stranger = stranger_at(door);
    REQUIRE(stranger.write(sent, soon()));
    CHECK_FALSE(door.next(soon(0.1)));
    CHECK(is_dropped(stranger));
  }
}

TEST_CASE("a first frame that was recorded lets nobody in a second time", "[spot_check]") {
  spot_check_door door("tcp://127.0.0.1:0", key, 3600);
  const bytes recorded = hello("session 1");
  spot_check_socket real = stranger_at(door);
  REQUIRE(real.write(recorded, soon()));
  REQUIRE(door.next(soon()));
  spot_check_socket stranger = stranger_at(door);
  REQUIRE(stranger.write(recorded, soon()));
  CHECK_FALSE(door.next(soon(0.1)));
  CHECK(is_dropped(stranger));
  spot_check_socket again = stranger_at(door);
  REQUIRE(again.write(hello("session 2"), soon()));
  CHECK(door.next(soon()));
}

TEST_CASE("a first frame that came while a session was served is read, however long that took",
          "[spot_check]") {
  spot_check_door door("tcp://127.0.0.1:0", key, 0);  // whose time is over once it has come
  spot_check_socket real = stranger_at(door);
  REQUIRE(real.write(hello("a session"), soon()));
  CHECK(door.next(soon()));
}

TEST_CASE("no more open files are taken from a peer than the one that is asked for",
          "[spot_check]") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  spot_check_socket socket(ends[0]);
  const int files[2] = {::dup(ends[1]), ::dup(ends[1])};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof files)]{};
  char byte = 'x';
  iovec where{&byte, 1};
  msghdr message{};
  message.msg_iov = &where;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof files);
  std::memcpy(CMSG_DATA(header), files, sizeof files);
  const auto open_files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  REQUIRE(::sendmsg(ends[1], &message, 0) == 1);
  const auto before = open_files();
  bytes one(1);
  {
    file_handle passed;
    REQUIRE(socket.read(one, soon(), &passed));
    CHECK(passed);
    CHECK(open_files() == before + 1);
  }
  CHECK(open_files() == before);
  for (const int file : {files[0], files[1], ends[1]}) ::close(file);
}
