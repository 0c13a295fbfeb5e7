// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <potl/numeric/detail/fp_environment.hpp>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace {

std::vector<std::string> failing() {
  std::vector<std::string> names;
  for (const potl::fp_check& check : potl::fp_environment()) {
    REQUIRE(check.ok == check.cause.empty());
    if (!check.ok) names.emplace_back(check.name);
  }
  return names;
}

}  // namespace

TEST_CASE("the arithmetic of this process is IEEE arithmetic") {
  REQUIRE(failing() == std::vector<std::string>{});
}

#if defined(__SSE2__)

namespace {

/// Sets bits of the control register while it lives.
class with_control {
 public:
  explicit with_control(unsigned set, unsigned clear = 0) : before_(_mm_getcsr()) {
    _mm_setcsr((before_ | set) & ~clear);
  }
  ~with_control() { _mm_setcsr(before_); }
  with_control(const with_control&) = delete;
  with_control& operator=(const with_control&) = delete;

 private:
  unsigned before_;
};

std::vector<std::string> failing_with(unsigned set) {
  std::vector<potl::fp_check> checks;
  {
    const with_control changed(set);
    checks = potl::fp_environment();
  }
  std::vector<std::string> names;
  for (const potl::fp_check& check : checks) {
    if (!check.ok) names.emplace_back(check.name);
  }
  return names;
}

}  // namespace

TEST_CASE("flush-to-zero is seen") {
  REQUIRE(failing_with(0x8000) == std::vector<std::string>{"underflow"});
}

TEST_CASE("denormals-are-zero is seen") {
  REQUIRE(failing_with(0x0040) == std::vector<std::string>{"subnormal_inputs"});
}

TEST_CASE("every other rounding direction is seen") {
  for (const unsigned direction : {0x2000U, 0x4000U, 0x6000U}) {
    const auto names = failing_with(direction);
    REQUIRE_FALSE(names.empty());
    REQUIRE(names.front() == "rounding");
  }
}

#if defined(__GNUC__)

TEST_CASE("less precision and other rounding directions of the x87 unit are seen") {
  std::uint16_t before = 0;
  __asm__ volatile("fnstcw %0" : "=m"(before));
  for (const unsigned changed :
       {before & ~0x0300U, (before & ~0x0300U) | 0x0200U, before | 0x0400U, before | 0x0800U}) {
    const auto word = static_cast<std::uint16_t>(changed);
    __asm__ volatile("fldcw %0" ::"m"(word));
    const auto checks = potl::fp_environment();
    __asm__ volatile("fldcw %0" ::"m"(before));
    std::vector<std::string> names;
    for (const potl::fp_check& check : checks) {
      if (!check.ok) names.emplace_back(check.name);
    }
    REQUIRE(names == std::vector<std::string>{"extended"});
  }
}

#endif

TEST_CASE("unmasked exceptions are seen without raising one") {
  std::vector<potl::fp_check> checks;
  {
    const with_control changed(0, 0x0200);  // division by zero
    checks = potl::fp_environment();
  }
  REQUIRE(checks.back().name == "traps");
  REQUIRE_FALSE(checks.back().ok);
}

namespace {

/// The one check that fails on the threads of a pool that was made in such an environment, while
/// the calling thread is sound again.
potl::fp_check only_failure_of_workers(unsigned set) {
  std::unique_ptr<potl::numeric::executor> pool;
  {
    const with_control changed(set);
    pool = potl::numeric::make_thread_pool(4);
  }
  REQUIRE(failing().empty());
  potl::fp_check found;
  for (const potl::fp_check& check : potl::fp_environment(*pool)) {
    if (check.ok || !found.cause.empty()) continue;
    found = check;
  }
  return found;
}

}  // namespace

TEST_CASE("a broken environment of worker threads is seen on each, with its cause") {
  const struct {
    unsigned set;
    std::string name, cause;
  } cases[] = {{0x8000, "underflow", "flush-to-zero is set"},
               {0x0040, "subnormal_inputs", "denormals-are-zero is set"},
               {0x6000, "rounding", "a rounding direction is set"}};
  for (const auto& one : cases) {
    const potl::fp_check check = only_failure_of_workers(one.set);
    INFO(check.cause);
    CHECK(check.name == one.name);
    CHECK(check.cause.find(one.cause) != std::string::npos);
    CHECK(check.cause.find("on 3 of 4 threads of the executor") != std::string::npos);
  }
}

#endif

TEST_CASE("sound worker threads pass") {
  const auto pool = potl::numeric::make_thread_pool(4);
  for (const auto& check : potl::fp_environment(*pool)) CHECK(check.ok);
  for (const auto& check : potl::fp_environment(potl::numeric::inline_executor())) CHECK(check.ok);
}
