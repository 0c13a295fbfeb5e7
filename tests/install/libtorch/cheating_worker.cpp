// SPDX-License-Identifier: Apache-2.0
// examples/06_spot_check/worker.cpp with a worker that turns the sign of its gradients from a step
// on: cheating_worker DATA ADDRESS KEY STEP. Answers one session.
#include <chrono>
#include <cstdlib>

#include <potl/checks/spot_check.hpp>
#include <potl/checks/spot_check_door.hpp>
#include <potl/core/file.hpp>

#include "task.hpp"

namespace {

namespace checks = potl::checks;

class flipping final : public checks::gradient_source {
 public:
  flipping(checks::gradient_source& honest, std::uint64_t from) : honest_(honest), from_(from) {}
  std::vector<checks::spot_check_tensor> tensors() override { return honest_.tensors(); }
  std::uint64_t weights_bytes() override { return honest_.weights_bytes(); }
  std::uint64_t steps() override { return honest_.steps(); }
  double gradient(std::uint64_t step, potl::bytes_view weights, std::uint64_t way,
                  std::span<float> out) override {
    const double loss = honest_.gradient(step, weights, way, out);
    for (float& one : out) one = step < from_ ? one : -one;
    return loss;
  }

 private:
  checks::gradient_source& honest_;
  std::uint64_t from_;
};

}  // namespace

int main(int count, char** words) {
  if (count != 5) return 2;
  const auto key = potl::read_file(words[3], 1 << 16).value();
  checks::spot_check_door door(words[2], key);
  auto socket = door.next(std::chrono::steady_clock::now() + std::chrono::minutes(2)).value();
  example::opened task;
  std::unique_ptr<flipping> cheat;
  const auto served = checks::serve(
      std::move(socket), key, [&](const std::string& job) -> checks::gradient_source& {
        task = example::open_task(words[1], job);
        cheat = std::make_unique<flipping>(*task.gradients, std::strtoull(words[4], nullptr, 10));
        return *cheat;
      });
  return served.stopped ? 0 : 3;
}
