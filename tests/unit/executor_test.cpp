// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/arithmetic.hpp>
#include <potl/numeric/detail/executor.hpp>
#include <potl/numeric/detail/isa.hpp>

#include "catch.hpp"

using namespace potl::numeric;

TEST_CASE("every task runs exactly once, whatever the number of threads", "[executor]") {
  for (const std::size_t threads : {1U, 2U, 3U, 8U}) {
    const auto pool = make_thread_pool(threads);
    CHECK(pool->concurrency() == threads);
    for (const std::size_t tasks : {0U, 1U, 2U, 7U, 1000U}) {
      std::vector<std::atomic<int>> runs(tasks);
      pool->run(tasks, [&](std::size_t task) { ++runs[task]; });
      for (const auto& count : runs) CHECK(count == 1);
    }
  }
}

TEST_CASE("an exception of a task reaches the caller and the pool goes on", "[executor]") {
  const auto pool = make_thread_pool(3);
  CHECK_THROWS_AS(pool->run(50,
                            [](std::size_t task) {
                              if (task == 17) throw std::runtime_error("17");
                            }),
                  std::runtime_error);
  std::atomic<int> runs{0};
  pool->run(10, [&](std::size_t) { ++runs; });
  CHECK(runs == 10);
}

TEST_CASE("a task may use the pool, and several threads may", "[executor]") {
  const auto pool = make_thread_pool(2);
  std::atomic<int> runs{0};
  const auto nested = [&](std::size_t) { pool->run(5, [&](std::size_t) { ++runs; }); };
  std::thread other([&] { pool->run(8, nested); });
  pool->run(8, nested);
  other.join();
  CHECK(runs == 80);
}

TEST_CASE("a pool needs a thread", "[executor]") {
  CHECK_THROWS_AS(make_thread_pool(0), potl::exception);
}

TEST_CASE("levels and modes have names that are read back", "[isa]") {
  for (const isa level : {isa::portable, isa::neon, isa::avx2, isa::avx512, isa::vnni, isa::amx})
    CHECK(isa_from(to_string(level)) == level);
  CHECK_FALSE(isa_from("avx1024"));
  for (const auto mode : {arithmetic::ord32, arithmetic::cr32, arithmetic::log64,
                          arithmetic::xint24, arithmetic::xint16})
    CHECK(arithmetic_from(to_string(mode)) == mode);
  CHECK_FALSE(arithmetic_from("fp64"));
}

TEST_CASE("a cap lowers the level and never raises it above the processor's", "[isa]") {
  const isa before = active_isa();
  CHECK(cap_isa(isa::portable) == isa::portable);
  CHECK(active_isa() == isa::portable);
  CHECK(cap_isa(isa::amx) == processor_isa());
  CHECK((cap_isa(isa::neon) == isa::neon) == (processor_isa() == isa::neon));
  cap_isa(before);
}
