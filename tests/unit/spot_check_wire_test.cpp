// SPDX-License-Identifier: Apache-2.0
// What a worker, or who stands between, may send: everything ends in time, with a reason, and with
// the state as it was.
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <potl/checks/detail/spot_check_link.hpp>

#include "catch.hpp"
#include "tiny_training.hpp"

using namespace potl;
using namespace potl::checks;
using namespace potl::test;

namespace {

constexpr std::uint64_t steps = 40, bad_step = 14;

/// A frame as it came.
struct frame {
  bytes head = bytes(spot_check_header_bytes), body, payload;  // with its code
  spot_check_header header;

  bytes all() const {
    bytes out = head;
    out.insert(out.end(), body.begin(), body.end());
    out.insert(out.end(), payload.begin(), payload.end());
    return out;
  }
};

bool read(spot_check_socket& from, frame& out) {
  if (!from.read(out.head, soon())) return false;
  out.header = parse_spot_check_header(out.head).value();
  out.body.resize(out.header.body_bytes);
  const std::uint64_t tensors = out.header.frame.payload_bytes;
  out.payload.resize(tensors == 0 ? 0 : tensors + sizeof(one_time_code::value));
  return from.read(out.body, soon()) && from.read(out.payload, soon());
}

/// Stands between both sides and hands over frames, but for what `change` does with the report of
/// one step: it writes to the trusted side itself and returns whether to go on.
class between {
 public:
  using change = std::function<bool(const frame& report, spot_check_socket& trusted)>;

  between(spot_check_socket trusted, spot_check_socket worker, change what)
      : trusted_(std::move(trusted)),
        worker_(std::move(worker)),
        what_(std::move(what)),
        thread_([this] { pass(); }) {}
  ~between() { thread_.join(); }

 private:
  void pass() {
    frame asked, answered;
    while (read(trusted_, asked) && worker_.write(asked.all(), soon()) && read(worker_, answered)) {
      if (answered.header.frame.step == bad_step &&
          answered.header.frame.kind == spot_check_kind::report) {
        if (!what_(answered, trusted_)) break;
      } else if (!trusted_.write(answered.all(), soon())) {
        break;
      }
      previous = answered.all();
    }
    trusted_.shut();
    worker_.shut();
  }

 public:
  bytes previous;

 private:
  spot_check_socket trusted_, worker_;
  change what_;
  std::thread thread_;
};

struct outcome_of_session {
  spot_check_result found;
  std::uint64_t step;
  double seconds;
};

outcome_of_session with(between::change what, double timeout = 20, bytes worker_key = {}) {
  tiny_gradients honest(steps), own(steps);
  spot_check_sgd training = test::tiny_training(steps);
  auto [left, middle] = spot_check_socket::pair();
  auto [other, right] = spot_check_socket::pair();
  const bytes_view secret = worker_key.empty() ? bytes_view(key) : bytes_view(worker_key);
  test::serving serving(std::move(right), secret, honest);
  const between passing(std::move(middle), std::move(other), std::move(what));
  spot_check_options options = test::tiny_options(steps, 1.0);
  options.timeout = timeout;
  const auto began = std::chrono::steady_clock::now();
  outcome_of_session out;
  out.found = guard(std::move(left), key, job, training, own, options);
  out.step = training.step();
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return out;
}

/// Sends `what` and closes.
between::change sends(std::function<bytes(const frame&)> what) {
  return [=](const frame& report, spot_check_socket& trusted) {
    static_cast<void>(trusted.write(what(report), soon()));
    return false;
  };
}

bytes with_bytes(bytes all, std::size_t at, std::vector<std::uint8_t> what) {
  std::copy(what.begin(), what.end(), all.begin() + static_cast<std::ptrdiff_t>(at));
  return all;
}

}  // namespace

TEST_CASE("frames that were tampered with end the session and accuse nobody", "[spot_check]") {
  struct one {
    std::string name, reason;
    spot_check_end end;
    std::function<bytes(const frame&)> what;
  };
  const std::vector<one> all{
      {"cut off", "closed", spot_check_end::lost,
       [](const frame& f) {
         bytes out = f.all();
         out.erase(out.end() - 5, out.end());
         return out;
       }},
      {"only half a header", "closed", spot_check_end::lost,
       [](const frame& f) { return bytes(f.head.begin(), f.head.begin() + 99); }},
      {"garbage", "not a frame", spot_check_end::refused,
       [](const frame&) { return bytes(5000, 0x5a); }},
      {"2^63 bytes of tensors", "not sealed", spot_check_end::refused,
       [](const frame& f) {
         return with_bytes(f.all(), 32, {0, 0, 0, 0, 0, 0, 0, 0x80});
       }},
      {"a body of 2^31 bytes", "allowed are", spot_check_end::refused,
       [](const frame& f) {
         return with_bytes(f.all(), 12, {0, 0, 0, 0x80});
       }},
      {"another step", "not sealed", spot_check_end::refused,
       [](const frame& f) { return with_bytes(f.all(), 24, {15}); }},
      {"a turned bit of the gradient", "not sealed for their frame", spot_check_end::refused,
       [](const frame& f) {
         bytes out = f.all();
         out[out.size() - 17] ^= 1;
         return out;
       }},
      {"a turned bit of its code", "not sealed for their frame", spot_check_end::refused,
       [](const frame& f) {
         bytes out = f.all();
         out.back() ^= 1;
         return out;
       }},
      {"without the code of the gradient", "closed", spot_check_end::lost,
       [](const frame& f) {
         bytes out = f.all();
         out.erase(out.end() - 16, out.end());
         return out;
       }},
      {"a turned bit of the loss", "not sealed", spot_check_end::refused,
       [](const frame& f) { return with_bytes(f.all(), spot_check_header_bytes + 9, {'7'}); }},
  };
  for (const one& bad : all) {
    INFO(bad.name);
    const auto done = with(sends(bad.what));
    CHECK(done.found.end == bad.end);
    CHECK(done.found.reason.find(bad.reason) != std::string::npos);
    CAPTURE(done.found.reason);
    CHECK(done.found.step == bad_step);
    CHECK(done.step == bad_step - 1);
    CHECK(judge_spot_check(done.found, {0.999, 2, 0, 8})[0].result == outcome::inconclusive);
  }
}

TEST_CASE("an earlier report does not pass for a later one", "[spot_check]") {
  tiny_gradients honest(steps), own(steps);
  spot_check_sgd training = test::tiny_training(steps);
  auto [left, middle] = spot_check_socket::pair();
  auto [other, right] = spot_check_socket::pair();
  test::serving serving(std::move(right), key, honest);
  between* self = nullptr;
  between passing(std::move(middle), std::move(other), [&](const frame&, spot_check_socket& to) {
    static_cast<void>(to.write(self->previous, soon()));
    return false;
  });
  self = &passing;
  const auto found =
      guard(std::move(left), key, job, training, own, test::tiny_options(steps, 1.0));
  CHECK(found.end == spot_check_end::refused);
  CHECK(found.reason.find("frame 27 came where frame 29 was expected") != std::string::npos);
  CHECK(training.step() == bad_step - 1);
}

TEST_CASE("reports sealed with another key, an old session's too, are refused", "[spot_check]") {
  const digest other = sha256_of(as_bytes_view("another secret"));
  const auto done = with({}, 20, bytes(other.bytes.begin(), other.bytes.end()));
  CHECK(done.found.end == spot_check_end::lost);  // the worker does not believe the first frame
  CHECK(done.step == 0);

  const digest name = sha256_of(as_bytes_view("session 1"));
  const digest next = sha256_of(as_bytes_view("session 2"));
  const digest id = sha256_of(as_bytes_view(job));
  CHECK(spot_check_session_key(key, id, name) != spot_check_session_key(key, id, next));
  CHECK(spot_check_session_key(key, id, name) != spot_check_session_key(key, name, id));
  // Who stole the key of an earlier session and seals a report of the present one with it.
  const auto forged = with(sends([&](const frame& f) {
    spot_check_chain chain(spot_check_session_key(key, id, next), id, f.header.session,
                           spot_check_side::trusted);
    bytes out = chain.seal(f.header.frame);
    out[8] = 4;
    out[9] = 1;
    return out;
  }));
  CHECK(forged.found.end == spot_check_end::refused);
  CHECK(forged.found.reason.find("not sealed with the key of this session") != std::string::npos);
}

TEST_CASE("a worker that is silent or sends a byte now and then costs its time only",
          "[spot_check]") {
  SECTION("silent") {
    const auto done = with(
        [](const frame&, spot_check_socket&) {
          std::this_thread::sleep_for(std::chrono::seconds(2));
          return false;
        },
        0.5);
    CHECK(done.found.end == spot_check_end::lost);
    CHECK(done.found.reason.find("silent or too slow") != std::string::npos);
    CHECK(done.step == bad_step - 1);
  }
  SECTION("slow") {
    const auto done = with(
        [](const frame& report, spot_check_socket& trusted) {
          const bytes all = report.all();
          for (std::size_t i = 0; i < 40; ++i) {
            const bytes one{all[i]};
            if (!trusted.write(one, soon())) break;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
          }
          return false;
        },
        0.5);
    CHECK(done.found.end == spot_check_end::lost);
    CHECK(done.found.reason.find("silent or too slow") != std::string::npos);
    CHECK(done.step == bad_step - 1);
    CHECK(done.seconds < 15);
  }
}

TEST_CASE("a report without a gradient says why, or ends the session", "[spot_check]") {
  for (const bool says_why : {false, true}) {
    tiny_gradients own(steps);
    spot_check_sgd training = test::tiny_training(steps);
    auto [left, right] = spot_check_socket::pair();
    std::thread worker([&, end = std::move(right)]() mutable {
      spot_check_frame hello;
      bytes text;
      digest id;
      auto link =
          spot_check_link::accepted(std::move(end), key, 20, 1 << 20, hello, text, id).value();
      bytes weights(own.weights_bytes());
      static_cast<void>(link.send(spot_check_kind::ready, hello.step));
      static_cast<void>(link.receive({spot_check_kind::step, 1, weights.size()}, weights));
      static_cast<void>(link.send(spot_check_kind::report, 1,
                                  says_why ? R"({"reason":"no memory"})" : R"({"loss":"0"})"));
      static_cast<void>(link.receive({spot_check_kind::stop, 0, 0}, {}));
    });
    const auto found =
        guard(std::move(left), key, job, training, own, test::tiny_options(steps, 1.0));
    worker.join();
    CHECK(found.end == spot_check_end::refused);
    CHECK(found.reason.find(says_why ? "no memory" : "without a gradient") != std::string::npos);
    CHECK(found.entries.empty());
    CHECK(training.step() == 0);
  }
}

TEST_CASE("a worker does the named job's steps, and sends nothing that it did not compute",
          "[spot_check]") {
  class failing final : public tiny_gradients {
   public:
    failing() : tiny_gradients(40) {}
    double gradient(std::uint64_t step, bytes_view weights, std::uint64_t way,
                    std::span<float> out) override {
      if (step == 2) throw std::runtime_error("no memory");
      return tiny_gradients::gradient(step, weights, way, out);
    }
  };
  const auto trusted = [](spot_check_socket socket, const digest& named) {
    const digest session = sha256_of(as_bytes_view("a session"));
    return spot_check_link(
        std::move(socket),
        {spot_check_session_key(key, named, session), named, session, spot_check_side::trusted},
        20);
  };
  const bytes_view text = as_bytes_view(job);
  for (const std::uint64_t step :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, steps + 1}) {
    failing worker;
    auto [left, right] = spot_check_socket::pair();
    test::serving serving(std::move(right), key, worker);
    spot_check_link link = trusted(std::move(left), sha256_of(text));
    REQUIRE(link.send(spot_check_kind::hello, 0, "", {&text, 1}));
    REQUIRE(link.receive({spot_check_kind::ready, 0, 0}, {}));
    const bytes weights(worker.weights_bytes());
    const bytes_view part = weights;
    REQUIRE(link.send(spot_check_kind::step, step, "", {&part, 1}));
    bytes gradient(tiny_gradients::inputs * sizeof(float));
    const auto report = link.receive(
        [&](const spot_check_header& header) {
          return spot_check_expected{spot_check_kind::report, step, header.frame.payload_bytes};
        },
        gradient);
    REQUIRE(report);
    CHECK((report->payload_bytes > 0) == (step == 1));
  }
  tiny_gradients worker(steps);
  auto [left, right] = spot_check_socket::pair();
  test::serving serving(std::move(right), key, worker);
  spot_check_link link = trusted(std::move(left), sha256_of(as_bytes_view("another job")));
  static_cast<void>(link.send(spot_check_kind::hello, 0, "", {&text, 1}));
  CHECK(serving.wait().reason.find("another than its frames name") != std::string::npos);
}

TEST_CASE("no bit of long tensors can be changed on their way", "[spot_check]") {
  const digest session = sha256_of(as_bytes_view("a session")), id = sha256_of(as_bytes_view(job));
  const auto side = [&](spot_check_side which) {
    return spot_check_chain(spot_check_session_key(key, id, session), id, session, which);
  };
  const bytes tensors(600 * 1024, 7);
  for (const std::size_t at : {std::size_t{0}, std::size_t{300 * 1024}, tensors.size() - 1}) {
    for (const bool turned : {true, false}) {
      auto [left, middle] = spot_check_socket::pair();
      auto [other, right] = spot_check_socket::pair();
      std::thread between([&, from = std::move(middle), to = std::move(other)]() mutable {
        bytes all(spot_check_header_bytes + tensors.size() + sizeof(one_time_code::value));
        if (!from.read(all, soon())) return;
        all[spot_check_header_bytes + at] ^= turned ? 1 : 0;
        static_cast<void>(to.write(all, soon()));
      });
      std::thread sending([&, from = std::move(left)]() mutable {
        spot_check_link link(std::move(from), side(spot_check_side::trusted), 20);
        const bytes_view part = tensors;
        static_cast<void>(link.send(spot_check_kind::step, 1, "", {&part, 1}));
      });
      spot_check_link link(std::move(right), side(spot_check_side::worker), 20);
      bytes got(tensors.size());
      const auto came = link.receive({spot_check_kind::step, 1, got.size()}, got);
      sending.join();
      between.join();
      CHECK(came.has_value() != turned);
      CHECK((got != tensors) == turned);
    }
  }
}

TEST_CASE("a job longer than a worker reads is refused before it is read", "[spot_check]") {
  auto [left, right] = spot_check_socket::pair();
  const digest session = sha256_of(as_bytes_view("a session")), id = sha256_of(as_bytes_view(job));
  spot_check_link link(
      std::move(left),
      {spot_check_session_key(key, id, session), id, session, spot_check_side::trusted}, 20);
  const bytes_view text = as_bytes_view(job);
  REQUIRE(link.send(spot_check_kind::hello, 0, "", {&text, 1}));
  spot_check_frame hello;
  bytes payload;
  digest named;
  const auto accepted =
      spot_check_link::accepted(std::move(right), key, 20, text.size() - 1, hello, payload, named);
  REQUIRE_FALSE(accepted);
  CHECK(accepted.why().code == errc::limit);
  CHECK(payload.empty());
}

TEST_CASE("a peer that does not speak the protocol does not end a worker", "[spot_check]") {
  tiny_gradients honest(steps);
  auto [left, right] = spot_check_socket::pair();
  test::serving serving(std::move(right), key, honest);
  const std::string text(400, 'G');
  REQUIRE(left.write(as_bytes_view(text), soon()));
  const spot_check_served done = serving.wait();
  CHECK_FALSE(done.stopped);
  CHECK(done.reason.find("not a frame") != std::string::npos);
}

TEST_CASE("addresses are Unix sockets and TCP ports", "[spot_check]") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("potl-wire-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  for (const std::string& address :
       {"unix:" + (folder / "a.sock").string(), std::string("tcp://127.0.0.1:0"),
        std::string("tcp://[::1]:0")}) {
    INFO(address);
    std::optional<spot_check_listener> listening;
    try {
      listening.emplace(address);
    } catch (const exception& thrown) {
      if (address.find("::1") == std::string::npos) throw;
      WARN("no IPv6 here: " << thrown.what());
      continue;
    }
    if (address.starts_with("unix:")) {
      struct stat found {};
      REQUIRE(::stat((folder / "a.sock").c_str(), &found) == 0);
      CHECK((found.st_mode & 0777) == 0600);
    }
    auto there = spot_check_socket::connect(listening->address(), soon()).value();
    auto here = listening->accept(soon()).value();
    const bytes sent(100000, 7);
    bool written = false;  // Catch2's macros are for one thread at a time
    std::thread writing([&] { written = static_cast<bool>(there.write(sent, soon())); });
    bytes got(sent.size());
    const bool read_all = static_cast<bool>(here.read(got, soon()));
    writing.join();
    CHECK((written && read_all));
    CHECK(got == sent);
  }
  CHECK_FALSE(std::filesystem::exists(folder / "a.sock"));
  CHECK_THROWS_AS(spot_check_listener("unix:" + (folder / "no" / "b.sock").string()), exception);
  // A file that is no socket is somebody's.
  const std::filesystem::path plain = folder / "plain";
  std::ofstream(plain) << "a user's";
  CHECK_THROWS_AS(spot_check_listener("unix:" + plain.string()), exception);
  CHECK(std::filesystem::file_size(plain) == 8);
  std::filesystem::remove_all(folder);

  CHECK(spot_check_socket::connect("http://a", soon()).why().code == errc::usage);
  CHECK(spot_check_socket::connect("tcp://127.0.0.1", soon()).why().code == errc::usage);
  CHECK(spot_check_socket::connect("unix:" + std::string(200, 'a'), soon()).why().code ==
        errc::usage);
  const auto nobody = spot_check_socket::connect("unix:/nonexistent/c.sock", soon(0.3));
  CHECK(nobody.why().code == errc::io);
  CHECK(nobody.why().remedy.find("start the worker") != std::string::npos);
  spot_check_listener lonely("tcp://127.0.0.1:0");
  CHECK(lonely.accept(soon(0.2)).why().code == errc::io);
}
