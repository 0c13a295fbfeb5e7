// SPDX-License-Identifier: Apache-2.0
// Compiled together with src/numeric/fp_environment.cpp under flags that break arithmetic
// (cmake/fp_checks.cmake): prints what fails on two threads. Exit status 3 when something does.
#include <cstdio>
#include <thread>
#include <vector>

#include <potl/numeric/detail/fp_environment.hpp>

namespace {

/// Two threads, without the library: it is compiled with sound flags.
class two_threads final : public potl::numeric::executor {
 public:
  std::size_t concurrency() const noexcept override { return 2; }
  void run(std::size_t tasks, potl::numeric::task_body body) const override {
    std::vector<std::thread> threads;
    for (std::size_t task = 0; task < tasks; ++task) threads.emplace_back([=] { body(task); });
    for (std::thread& thread : threads) thread.join();
  }
};

}  // namespace

int main() {
  bool sound = true;
  for (const potl::fp_check& check : potl::fp_environment(two_threads())) {
    if (check.ok) continue;
    sound = false;
    std::printf("%s: %s\n", std::string(check.name).c_str(), check.cause.c_str());
  }
  return sound ? 0 : 3;
}
