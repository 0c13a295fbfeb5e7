// SPDX-License-Identifier: Apache-2.0
// Tensors in memory that both sides map: what the other side writes there, and when, changes
// nothing that was believed, and a file that is not such memory is not used.
#include <potl/checks/detail/spot_check_memory.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include <potl/checks/detail/spot_check_judge.hpp>
#include <potl/checks/detail/spot_check_link.hpp>

#include "catch.hpp"
#include "tiny_training.hpp"

using namespace potl;
using namespace potl::checks;
using namespace potl::test;

namespace {

/// An honest worker, until it has reported: `weights` and `gradient` are where it has them.
struct remembering final : tiny_gradients {
  using tiny_gradients::tiny_gradients;
  std::span<std::uint8_t> weights;
  std::span<float> last;

  double gradient(std::uint64_t step, bytes_view given, std::uint64_t way,
                  std::span<float> out) override {
    weights = {const_cast<std::uint8_t*>(given.data()), given.size()};
    last = out;
    return tiny_gradients::gradient(step, given, way, out);
  }
};

spot_check_result guarded(gradient_source& worker, spot_check_sgd& training,
                          const spot_check_options& options) {
  tiny_gradients own(options.probabilities.size());
  auto [left, right] = spot_check_socket::pair();
  test::serving serving(std::move(right), key, worker);
  return guard(std::move(left), key, job, training, own, options);
}

}  // namespace

TEST_CASE("what a worker writes after its report changes nothing", "[spot_check]") {
  constexpr std::uint64_t steps = 20, false_step = 13;
  remembering honest(steps);
  spot_check_sgd training = test::tiny_training(steps), alone = test::tiny_training(steps);
  spot_check_options options = test::tiny_options(steps, 1.0);
  std::vector<float> correct(tiny_gradients::inputs);

  SECTION("other weights and another gradient than were used") {
    options.coin = [&](std::uint64_t, double) {
      std::fill(honest.weights.begin(), honest.weights.end(), std::uint8_t{7});
      std::fill(honest.last.begin(), honest.last.end(), 1e6F);
      return true;
    };
    const spot_check_result found = guarded(honest, training, options);
    CHECK(found.end == spot_check_end::finished);
    CHECK(found.checked == steps);
    for (std::uint64_t step = 1; step <= steps; ++step) {
      const double loss = honest.gradient(step, alone.weights().front(), 0, correct);
      alone.update(step, correct, gradient_norm(correct), loss);
    }
    CHECK(training.state() == alone.state());
  }
  SECTION("the true gradient in place of the false one") {
    test::tampering worker(honest, [&](std::uint64_t step, std::span<float> gradient) {
      correct.assign(gradient.begin(), gradient.end());
      if (step == false_step) gradient[2] += 0.5F;
    });
    options.coin = [&](std::uint64_t, double) {
      std::copy(correct.begin(), correct.end(), honest.last.begin());
      return true;
    };
    const spot_check_result found = guarded(worker, training, options);
    CHECK(found.end == spot_check_end::caught);
    CHECK(found.step == false_step);
  }
}

TEST_CASE("tensors of one machine do not pass the socket", "[spot_check]") {
  const digest session = sha256_of(as_bytes_view("a session")), id = sha256_of(as_bytes_view(job));
  const bytes weights(5 << 20, 7);  // a socket has less room
  const bytes_view text = as_bytes_view(job), part = weights;
  auto [left, right] = spot_check_socket::pair();
  CHECK(left.is_local());
  spot_check_link trusted(
      std::move(left),
      {spot_check_session_key(key, id, session), id, session, spot_check_side::trusted}, 20);
  spot_check_memory memory = spot_check_memory::make(weights.size(), 40).value();
  trusted.pass(memory);
  REQUIRE(trusted.send(spot_check_kind::hello, 0, "", {&text, 1}));

  spot_check_frame hello;
  bytes got;
  digest named;
  spot_check_link worker =
      spot_check_link::accepted(std::move(right), key, 20, 1 << 20, hello, got, named).value();
  spot_check_memory mapped = spot_check_memory::map(worker.passed(), weights.size(), 40).value();
  CHECK_FALSE(worker.passed());
  const std::span<std::uint8_t> there = mapped.weights(), answer = mapped.gradient();
  worker.share(std::move(mapped));
  REQUIRE(worker.send(spot_check_kind::ready, 0));
  REQUIRE(trusted.receive({spot_check_kind::ready, 0, 0}, {}));
  trusted.share(std::move(memory));

  REQUIRE(trusted.send(spot_check_kind::step, 1, "", {&part, 1}));  // nobody reads
  bytes gradient(40);
  REQUIRE(worker.receive({spot_check_kind::step, 1, weights.size()}, there));
  CHECK(std::equal(weights.begin(), weights.end(), there.begin()));
  std::fill(answer.begin(), answer.end(), std::uint8_t{9});
  const bytes_view own = answer;
  REQUIRE(worker.send(spot_check_kind::report, 1, "", {&own, 1}));
  REQUIRE(trusted.receive({spot_check_kind::report, 1, 40}, gradient));
  CHECK(gradient == bytes(40, 9));
  CHECK(std::equal(weights.begin(), weights.end(), there.begin()));
}

TEST_CASE("memory that could become smaller, or is of another size, is not used", "[spot_check]") {
  const spot_check_memory good = spot_check_memory::make(5000, 12).value();
  CHECK(good.weights().size() == 5000);
  CHECK(good.gradient().size() == 12);
  CHECK(::ftruncate(good.descriptor(), 0) != 0);
  CHECK(::ftruncate(good.descriptor(), 1 << 20) != 0);
  const auto again = [&](std::uint64_t weights, std::uint64_t gradient) {
    return spot_check_memory::map(file_handle(::dup(good.descriptor())), weights, gradient);
  };
  CHECK(again(5000, 12));
  CHECK(again(5000, 5000).why().message.find("another size") != std::string::npos);
  CHECK(again(500'000, 12).why().code == errc::mismatch);

  file_handle loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(loose.get(), 3 * 4096) == 0);
  const auto refused = spot_check_memory::map(std::move(loose), 5000, 12);
  CHECK(refused.why().message.find("smaller") != std::string::npos);
  CHECK(spot_check_memory::map(file_handle(), 5000, 12).why().code == errc::io);
  std::FILE* const plain = std::tmpfile();
  REQUIRE(::ftruncate(::fileno(plain), 3 * 4096) == 0);
  CHECK_FALSE(spot_check_memory::map(file_handle(::dup(::fileno(plain))), 5000, 12));
  std::fclose(plain);
}

TEST_CASE("a file comes to who takes it, and is dropped elsewhere", "[spot_check]") {
  const auto open_files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd"), end;
    return std::distance(all, end);
  };
  const spot_check_memory memory = spot_check_memory::make(10, 10).value();
  auto [left, right] = spot_check_socket::pair();
  const bytes sent(3, 1);
  bytes got(3);
  const auto before = open_files();
  for (const bool takes : {false, true, false}) {
    file_handle passed;
    left.pass(memory.descriptor());
    REQUIRE(left.write(sent, soon()));
    REQUIRE(right.read(got, soon(), takes ? &passed : nullptr));
    CHECK(static_cast<bool>(passed) == takes);
    CHECK(open_files() == before + (takes ? 1 : 0));
  }
  REQUIRE(left.write(sent, soon()));  // passed once
  file_handle again;
  REQUIRE(right.read(got, soon(), &again));
  CHECK_FALSE(again);
}

TEST_CASE("a worker that says it has memory which nobody passed is refused", "[spot_check]") {
  spot_check_listener listening("tcp://127.0.0.1:0");
  auto left = spot_check_socket::connect(listening.address(), soon()).value();
  CHECK_FALSE(left.is_local());
  std::thread worker([end = listening.accept(soon()).value()]() mutable {
    spot_check_frame hello;
    bytes text;
    digest id;
    auto link =
        spot_check_link::accepted(std::move(end), key, 20, 1 << 20, hello, text, id).value();
    static_cast<void>(link.send(spot_check_kind::ready, hello.step, R"({"memory":true})"));
  });
  tiny_gradients own(5);
  spot_check_sgd training = test::tiny_training(5);
  const auto found = guard(std::move(left), key, job, training, own, test::tiny_options(5, 1.0));
  worker.join();
  CHECK(found.end == spot_check_end::refused);
  CHECK(found.reason.find("nobody passed") != std::string::npos);
}
