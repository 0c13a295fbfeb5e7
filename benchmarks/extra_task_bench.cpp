// SPDX-License-Identifier: Apache-2.0
// Generating extra samples of CIFAR's shape on one core, in both layouts.
#include <cstdint>
#include <vector>

#include <potl/checks/extra_task_samples.hpp>

#include "bench.hpp"

namespace {

constexpr std::uint64_t samples = 4000;

// Samples per second: the median of several fills of the whole set.
potl::bench::outcome measure(const char* name, const char* layout) {
  potl::checks::extra_task_options options;
  options.layout = layout;
  const potl::digest key{};
  const auto made = potl::checks::extra_samples::make(key, potl::checks::extra_image{32, 32, 3},
                                                      samples, 10, options);
  std::vector<std::uint8_t> out(samples * made->elements());
  const auto fill = [&] { made->fill(potl::checks::extra_set::extra, 0, 0, out); };
  fill();
  std::vector<double> seconds;
  for (int round = 0; round < 9; ++round) seconds.push_back(potl::bench::seconds_of(fill));
  potl::bench::outcome result;
  result.name = name;
  result.value = static_cast<double>(samples) / potl::bench::median(seconds);
  result.unit = "samples/s";
  result.at_least = 20000;
  return result;
}

}  // namespace

int main() {
  potl::bench::report("extra_task", {measure("extra_task.generate.cifar", "jittered"),
                                     measure("extra_task.generate.cifar_paper", "paper")});
}
