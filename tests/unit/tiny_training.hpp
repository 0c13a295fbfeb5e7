// SPDX-License-Identifier: Apache-2.0
// A linear regression that is spot-checked through real frames, and workers that cheat in it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <potl/checks/spot_check.hpp>
#include <potl/checks/spot_check_sgd.hpp>
#include <potl/crypto/hasher.hpp>

namespace potl::test {

/// Mean squared error of w . x on eight samples that follow from the step.
class tiny_gradients : public checks::gradient_source {
 public:
  static constexpr std::size_t inputs = 6;
  explicit tiny_gradients(std::uint64_t steps) : steps_(steps) {}

  std::vector<checks::spot_check_tensor> tensors() override {
    return {{"first", inputs / 2}, {"second", inputs / 2}};
  }
  std::uint64_t weights_bytes() override { return inputs * sizeof(float); }
  std::uint64_t steps() override { return steps_; }

  double gradient(std::uint64_t step, bytes_view weights, std::uint64_t /*way*/,
                  std::span<float> out) override {
    float w[inputs];
    std::memcpy(w, weights.data(), sizeof w);
    return of(step, 8, w, out);
  }

 protected:
  double of(std::uint64_t step, std::size_t samples, const float* w, std::span<float> out) const {
    double loss = 0;
    std::fill(out.begin(), out.end(), 0.0F);
    for (std::size_t i = 0; i < samples; ++i) {
      float x[inputs], error = -1;
      for (std::size_t k = 0; k < inputs; ++k) {
        x[k] = std::sin(static_cast<float>(97 * step + 31 * i + 7 * k));
        error += w[k] * x[k];
      }
      for (std::size_t k = 0; k < inputs; ++k) {
        out[k] += 2 * error * x[k] / static_cast<float>(samples);
      }
      loss += static_cast<double>(error) * error / static_cast<double>(samples);
    }
    return loss;
  }

 private:
  std::uint64_t steps_;
};

/// A worker that may change what it computed before it reports it.
class tampering final : public checks::gradient_source {
 public:
  using change = std::function<void(std::uint64_t step, std::span<float> gradient)>;
  tampering(checks::gradient_source& honest, change what)
      : honest_(honest), what_(std::move(what)) {}

  std::vector<checks::spot_check_tensor> tensors() override { return honest_.tensors(); }
  std::uint64_t weights_bytes() override { return honest_.weights_bytes(); }
  std::uint64_t steps() override { return honest_.steps(); }
  double gradient(std::uint64_t step, bytes_view weights, std::uint64_t way,
                  std::span<float> out) override {
    const double loss = honest_.gradient(step, weights, way, out);
    if (what_) what_(step, out);
    return loss;
  }

 private:
  checks::gradient_source& honest_;
  change what_;
};

inline checks::spot_check_sgd tiny_training(std::uint64_t steps) {
  checks::sgd_recipe recipe;
  recipe.rates.assign(steps, 0.02);
  recipe.clip = 1;
  recipe.momentum = 0.5;
  return {checks::sgd_state{0, std::vector<float>(tiny_gradients::inputs, 0.5F), {}}, recipe};
}

inline checks::spot_check_options tiny_options(std::uint64_t steps, double probability) {
  checks::spot_check_options out;
  out.probabilities.assign(steps, probability);
  out.clip = 1;
  out.segment = 10;
  out.background = false;
  out.timeout = 20;
  return out;
}

/// A worker in a thread of its own at the other end of a socket.
class serving {
 public:
  serving(checks::spot_check_socket socket, bytes_view key, checks::gradient_source& source)
      : thread_([this, end = std::make_shared<checks::spot_check_socket>(std::move(socket)),
                 secret = std::vector<std::uint8_t>(key.begin(), key.end()), &source]() mutable {
          served_ = checks::serve(
              std::move(*end), secret,
              [&](const std::string&) -> checks::gradient_source& { return source; }, 20);
        }) {}
  ~serving() {
    if (thread_.joinable()) thread_.join();
  }
  checks::spot_check_served wait() {
    thread_.join();
    return served_;
  }

 private:
  checks::spot_check_served served_;
  std::thread thread_;
};

/// What both sides of a session have.
inline const digest key = sha256_of(as_bytes_view("a secret of both sides"));
inline const std::string job = "{}";

using bytes = std::vector<std::uint8_t>;

inline checks::spot_check_socket::time_point soon(double seconds = 20) {
  return std::chrono::steady_clock::now() +
         std::chrono::milliseconds(static_cast<int>(1000 * seconds));
}

}  // namespace potl::test
