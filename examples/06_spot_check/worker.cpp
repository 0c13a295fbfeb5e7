// SPDX-License-Identifier: Apache-2.0
// The untrusted side: computes gradients for whoever has the key.
//
//   worker DATA ADDRESS KEY
//
// DATA as for guard, ADDRESS "unix:/path" or "tcp://host:port", KEY a file with the shared secret.
// Exit status: 0 the guard ended the training, 2 usage, 3 errors.
#include <chrono>
#include <cstdio>
#include <exception>
#include <utility>

#include <potl/checks/spot_check.hpp>
#include <potl/checks/spot_check_door.hpp>
#include <potl/core/file.hpp>

#include "task.hpp"

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: %s DATA ADDRESS KEY\n", words[0]);
    return 2;
  }
  try {
    const auto key = potl::read_file(words[3], 1 << 16).value();
    example::opened task;
    const auto make = [&](const std::string& job) -> potl::checks::gradient_source& {
      task = example::open_task(words[1], job);
      return *task.gradients;
    };
    potl::checks::spot_check_door door(words[2], key);
    std::printf("listening at %s\n", door.address().c_str());
    std::fflush(stdout);
    while (true) {
      auto socket = door.next(std::chrono::steady_clock::now() + std::chrono::hours(1));
      if (!socket) continue;  // nobody came
      const auto served = potl::checks::serve(std::move(socket).value(), key, make);
      std::printf("%llu gradients. %s\n", static_cast<unsigned long long>(served.steps),
                  served.reason.c_str());
      if (served.stopped) return 0;  // a connection that was lost may come back
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
