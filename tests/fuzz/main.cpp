// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

#include "fuzz.hpp"

namespace {

std::map<std::string_view, potl::fuzzing::target>& targets() {
  static std::map<std::string_view, potl::fuzzing::target> all;
  return all;
}

potl::fuzzing::target chosen = nullptr;

[[noreturn]] void refuse(std::string_view why) {
  std::cerr << why << ". Pass --target= and one of:\n";
  for (const auto& [name, run] : targets()) std::cerr << "  " << name << '\n';
  std::exit(2);
}

}  // namespace

potl::fuzzing::registered::registered(const char* name, target run) {
  if (!targets().emplace(name, run).second) refuse(std::string("two targets are called ") + name);
}

// libFuzzer ignores options with two dashes, and hands them to the processes that it starts.
extern "C" int LLVMFuzzerInitialize(const int* argc, char*** argv) {
  constexpr std::string_view option = "--target=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument((*argv)[i]);
    if (!argument.starts_with(option)) continue;
    const auto found = targets().find(argument.substr(option.size()));
    if (found == targets().end()) refuse("there is no such target");
    chosen = found->second;
  }
  if (chosen == nullptr) refuse("no target was named");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return chosen(data, size);
}
