// SPDX-License-Identifier: Apache-2.0
// Randomness as a function of the job under LibTorch: initial weights, the generator that random
// operators draw from, and dropout.
//
// Claims: `initialize` and `dropout` give the same bits on every machine
// (numeric/detail/random.hpp). LibTorch's own random operators (torch::dropout, normal_, ...) draw
// from a generator that is seeded for every step, so that they are deterministic on one machine;
// their bits may differ between instruction sets. Use potl::libtorch::dropout where that matters.
// All threads have that generator in common: in a scope of it, other threads wait for theirs.
// Cannot see: a thread that draws from it without a scope.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <torch/nn/module.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <potl/crypto/detail/prf.hpp>
#include <potl/libtorch/detail/module_state.hpp>
#include <potl/numeric/detail/random.hpp>

namespace potl::libtorch {

namespace detail {

/// Leaves InferenceMode while it lives: what is built or restored in it could not be trained.
class out_of_inference {
 public:
  out_of_inference() {
    if (c10::InferenceMode::is_enabled()) off_.emplace(false);
  }
  out_of_inference(const out_of_inference&) = delete;
  out_of_inference& operator=(const out_of_inference&) = delete;

 private:
  std::optional<c10::InferenceMode> off_;
};

}  // namespace detail

/// Saves LibTorch's CPU generator and restores it at the end of its life, in the same thread. Other
/// threads that want a scope wait until then. Leaves InferenceMode. Nests.
class generator_scope {
 public:
  generator_scope() : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    saved_ = generator_.get_state();
  }
  generator_scope(const generator_scope&) = delete;
  generator_scope& operator=(const generator_scope&) = delete;
  ~generator_scope() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(saved_);
  }

 private:
  static std::recursive_mutex& turn() {
    static std::recursive_mutex one;
    return one;
  }
  std::lock_guard<std::recursive_mutex> held_{turn()};
  detail::out_of_inference mode_;
  at::Generator generator_;
  at::Tensor saved_;
};

/// Sets LibTorch's CPU generator, all 19,968 bits of it (set_current_seed takes 32), from a derived
/// key, as the Python package does.
inline void seed_generator(const digest& key) {
  // Seed, left and seeded, next, 624 words of 32 bits, and what normal_ keeps.
  constexpr std::size_t words = 632, first = 3, filled = 312;
  std::vector<std::int64_t> values(filled);
  fill_integers(values, to_random_key(key), 0, INT64_MIN, INT64_MAX);
  std::vector<std::uint64_t> state(words, 0);
  state[1] = 1 | std::uint64_t{1} << 32;  // one draw left before the next twist; seeded
  for (std::size_t i = 0; i < filled; ++i) {
    const auto both = static_cast<std::uint64_t>(values[i]);
    state[first + 2 * i] = both & 0xffffffff;
    state[first + 2 * i + 1] = both >> 32;
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  if (generator.get_state().nbytes() != words * sizeof(std::uint64_t)) {
    throw exception({errc::unsupported, "this LibTorch keeps its generator in an unknown form",
                     "use a LibTorch version that this potl supports"});
  }
  const at::Tensor bytes = at::from_blob(
      state.data(), {static_cast<std::int64_t>(words * sizeof(std::uint64_t))}, at::kByte);
  generator.set_state(bytes.clone());
}

namespace detail {

inline void fill_into(const at::Tensor& out, const auto& fill) {
  const at::NoGradGuard no_grad;
  const bool wide = out.scalar_type() == at::kDouble;
  at::Tensor values = at::empty(out.sizes(), wide ? at::kDouble : at::kFloat);
  const auto count = static_cast<std::size_t>(values.numel());
  if (wide) {
    fill(std::span<double>(values.mutable_data_ptr<double>(), count));
  } else {
    fill(std::span<float>(values.mutable_data_ptr<float>(), count));
  }
  out.copy_(values);
}

inline double bound_of(const at::Tensor& weight) {
  const std::int64_t fan_in = weight.numel() / weight.size(0);
  return 1.0 / std::sqrt(static_cast<double>(fan_in));
}

// The weight that a bias belongs to: the same name with "weight" for "bias".
inline const at::Tensor* weight_of(const module_tensors& all, std::string bias) {
  const std::size_t at = bias.rfind("bias");
  if (at == std::string::npos) return nullptr;
  const auto found = all.parameters.find(bias.replace(at, 4, "weight"));
  return found == all.parameters.end() ? nullptr : &found->second;
}

}  // namespace detail

/// Sets every parameter as a function of (seed, place in the module, shape), and every buffer of a
/// batch norm to what it is before the first batch. W0 is then the same on every machine.
///
/// A parameter with two or more dims is uniform in +-1/sqrt(fan_in), where fan_in is its number of
/// elements over its first dim: Kaiming's uniform with a = sqrt(5), LibTorch's own default for
/// linear and convolution layers. A bias beside such a weight gets the same bounds. Another
/// "weight" with one dim is 1 and another bias 0 (norms). Throws potl::exception (unsupported) for
/// a parameter that fits none of this: give the task its own `initialize`.
inline void initialize(torch::nn::Module& model, std::uint64_t seed) {
  const module_tensors all = tensors_of(model);
  const at::NoGradGuard no_grad;
  std::uint64_t number = 0;
  for (const auto& [name, tensor] : all.parameters) {
    const random_key key = to_random_key(derive_key(seed, "libtorch.init", {number++}));
    const auto uniform = [&key, &tensor = tensor](double bound) {
      detail::fill_into(tensor, [&](auto out) { fill_uniform(out, key, 0, -bound, bound); });
    };
    const std::string last = name.substr(name.rfind('.') + 1);
    const at::Tensor* weight = detail::weight_of(all, name);
    if (tensor.numel() == 0) continue;
    if (tensor.dim() >= 2) {
      uniform(detail::bound_of(tensor));
    } else if (weight != nullptr && weight->dim() >= 2 && weight->numel() > 0) {
      uniform(detail::bound_of(*weight));
    } else if (last == "weight" || last == "bias") {
      tensor.fill_(last == "weight" ? 1.0 : 0.0);
    } else {
      detail::refuse("model/parameters/" + name, "a parameter without a default initialiser",
                     "set task::initialize, and draw from potl/numeric/detail/random.hpp");
    }
  }
  for (const auto& [name, tensor] : all.buffers) {
    const std::string last = name.substr(name.rfind('.') + 1);
    if (last == "running_mean" || last == "num_batches_tracked") tensor.zero_();
    if (last == "running_var") tensor.fill_(1.0);
  }
}

/// Dropout whose mask has the same bits on every machine. Draws a key from LibTorch's generator,
/// which a workload seeds for every step and micro-batch.
inline at::Tensor dropout(const at::Tensor& input, double probability, bool training) {
  if (!(probability >= 0 && probability < 1)) {
    throw exception({errc::usage, "dropout: a probability outside [0, 1)", ""});
  }
  if (!training || probability == 0 || input.numel() == 0) return input;
  const at::Tensor drawn = at::empty({2}, at::kLong).random_();
  const auto* words = drawn.const_data_ptr<std::int64_t>();
  const random_key key{static_cast<std::uint64_t>(words[0]), static_cast<std::uint64_t>(words[1])};
  at::Tensor mask = at::empty(input.sizes(), input.options().requires_grad(false));
  detail::fill_into(mask, [&](auto out) { fill_bernoulli(out, key, 0, 1 - probability); });
  return input * mask.div_(1 - probability);
}

}  // namespace potl::libtorch
