// SPDX-License-Identifier: Apache-2.0
// Random operators from potl's counter-based generator (numeric/detail/random.hpp).
#include <potl/crypto/detail/prf.hpp>
#include <potl/numeric/detail/random.hpp>

#include <atomic>
#include <bit>
#include <cmath>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/cauchy_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exponential_ops.h>
#include <ATen/ops/geometric_ops.h>
#include <ATen/ops/log_normal_ops.h>
#include <ATen/ops/native_dropout_backward_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/random.h>
#include <ATen/ops/randperm_ops.h>
#include <ATen/ops/uniform_ops.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>

#include "device.hpp"
#include "operand.hpp"
#include "random.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;

std::atomic<std::uint64_t> drawn{0};

/// fill(part, first) for row-major float or double values, which are then rounded and copied where
/// the target is something else. `wide` is what potl's Python form takes for this type.
template <class Fill>
Tensor& filled(Tensor& target, const Fill& fill) {
  require_plain(on_devices("random values"), target);
  const c10::ScalarType type = target.scalar_type();
  const bool twice = type == c10::ScalarType::Double || type == c10::ScalarType::Long ||
                     type == c10::ScalarType::Int;
  const c10::ScalarType wide = twice ? c10::ScalarType::Double : c10::ScalarType::Float;
  const bool direct = type == wide && target.is_contiguous() && !is_on_device(target);
  const Tensor values = direct ? target : make(target.sizes(), wide);
  with_real(wide, [&](auto zero) { in_parts(mutable_values<decltype(zero)>(values), fill); });
  return direct ? target : target.copy_(values);
}

/// Whether a device can draw straight into the tensor; other numbers are drawn on the CPU.
bool can_fill_there(const Tensor& target) {
  return is_on_device(target) && target.layout() == c10::kStrided && target.is_contiguous() &&
         target.scalar_type() == c10::ScalarType::Float;
}

template <class Fill>
Tensor doubles(c10::IntArrayRef sizes, const Fill& fill) {
  const Tensor values = make(sizes, c10::ScalarType::Double);
  in_parts(mutable_values<double>(values), fill);
  return values;
}

// NOLINTBEGIN(performance-unnecessary-value-param): torch's signatures
Tensor& uniform(Tensor& self, double low, double high, optional_generator generator) {
  TORCH_CHECK(low <= high, "uniform_ expects to return a [from, to) range, but found from=", low,
              " > to=", high);
  if (self.numel() == 0) return self;
  if (self.is_complex()) {
    Tensor parts = at::view_as_real(self);
    uniform(parts, low, high, std::move(generator));
    return self;
  }
  const random_key key = subkey(generator);
  if (can_fill_there(self)) {
    const device_call there(self);
    there->fill_uniform(self.mutable_data_ptr<float>(), static_cast<std::size_t>(self.numel()), key,
                        low, high, there.queue());
    return self;
  }
  return filled(self,
                [&](auto out, std::uint64_t first) { fill_uniform(out, key, first, low, high); });
}

Tensor& normal(Tensor& self, double mean, double deviation, optional_generator generator) {
  TORCH_CHECK(deviation >= 0, "normal_ expects std >= 0.0, but found std ", deviation);
  if (self.numel() == 0) return self;
  if (self.is_complex()) {
    Tensor parts = at::view_as_real(self);
    normal(parts, 0.0, deviation / std::sqrt(2.0), std::move(generator));
    return self.add_(mean);
  }
  const random_key key = subkey(generator);
  return filled(
      self, [&](auto out, std::uint64_t first) { fill_normal(out, key, first, mean, deviation); });
}

Tensor& exponential(Tensor& self, double rate, optional_generator generator) {
  TORCH_CHECK(rate > 0, "exponential_ expects lambda > 0.0, but found lambda=", rate);
  if (self.numel() == 0) return self;
  const random_key key = subkey(generator);
  if (std::isinf(rate)) return self.zero_();
  return filled(self,
                [&](auto out, std::uint64_t first) { fill_exponential(out, key, first, rate); });
}

Tensor& cauchy(Tensor& self, double median, double sigma, optional_generator generator) {
  TORCH_CHECK(sigma > 0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  if (self.numel() == 0) return self;
  const random_key key = subkey(generator);
  std::vector<std::int64_t> both = self.sizes().vec();
  both.insert(both.begin(), 2);
  const Tensor pair =
      doubles(both, [&](auto out, std::uint64_t first) { fill_normal(out, key, first, 0.0, 1.0); });
  // The ratio of two normals: no tangent.
  return self.copy_((pair[0] / pair[1]).mul_(sigma).add_(median));
}

Tensor& geometric(Tensor& self, double p, optional_generator generator) {
  TORCH_CHECK(p > 0 && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  if (self.numel() == 0) return self;
  const random_key key = subkey(generator);
  const double rate = -exact_log(1 - p);
  Tensor values = doubles(self.sizes(), [&](auto out, std::uint64_t first) {
    fill_exponential(out, key, first, rate);
  });
  return self.copy_(values.ceil_().clamp_min_(1.0));
}

Tensor& log_normal(Tensor& self, double mean, double deviation, optional_generator generator) {
  TORCH_CHECK(deviation > 0, "log_normal_ expects std > 0.0, but found std=", deviation);
  if (self.numel() == 0) return self;
  const random_key key = subkey(generator);
  Tensor values = doubles(self.sizes(), [&](auto out, std::uint64_t first) {
    fill_normal(out, key, first, mean, deviation);
  });
  return self.copy_(values.exp_());
}

Tensor& bernoulli(Tensor& self, double p, optional_generator generator) {
  TORCH_CHECK(p >= 0 && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  if (self.numel() == 0) return self;
  const random_key key = subkey(generator);
  if (can_fill_there(self)) {
    const device_call there(self);
    there->fill_bernoulli(self.mutable_data_ptr<float>(), static_cast<std::size_t>(self.numel()),
                          key, p, there.queue());
    return self;
  }
  if (!is_on_device(self) && self.is_contiguous() &&
      (self.scalar_type() == c10::ScalarType::Byte ||
       self.scalar_type() == c10::ScalarType::Bool)) {
    auto* bytes = static_cast<std::uint8_t*>(self.mutable_data_ptr());
    in_parts(std::span(bytes, static_cast<std::size_t>(self.numel())),
             [&](auto out, std::uint64_t first) { fill_bernoulli(out, key, first, p); });
    return self;
  }
  return filled(self, [&](auto out, std::uint64_t first) { fill_bernoulli(out, key, first, p); });
}

Tensor& bernoulli_tensor(Tensor& self, const Tensor& p, optional_generator generator) {
  if (self.numel() == 0) return self;
  const Tensor wide = p.to(c10::ScalarType::Double);
  TORCH_CHECK(((wide >= 0) & (wide <= 1)).all().item<bool>(),
              "Expected p_in >= 0 && p_in <= 1 to be true");
  const random_key key = subkey(generator);
  const Tensor values = doubles(self.sizes(), [&](auto out, std::uint64_t first) {
    fill_uniform(out, key, first, 0.0, 1.0);
  });
  return self.copy_(values.to(wide.device()) < wide);
}
Tensor& bernoulli_out(const Tensor& p, optional_generator generator, Tensor& out) {
  out.resize_(p.sizes());
  return bernoulli_tensor(out, p, std::move(generator));
}

Tensor normal_tensors(const Tensor& mean, const Tensor& deviation, optional_generator generator) {
  TORCH_CHECK((deviation >= 0).all().item<bool>(), "normal expects all elements of std >= 0.0");
  Tensor out =
      make_beside(mean, at::infer_size(mean.sizes(), deviation.sizes()), mean.scalar_type());
  return normal(out, 0.0, 1.0, std::move(generator)).mul_(deviation).add_(mean);
}
Tensor normal_mean(const Tensor& mean, double deviation, optional_generator generator) {
  TORCH_CHECK(deviation >= 0, "normal expects std >= 0.0, but found std ", deviation);
  Tensor out = make_beside(mean, mean.sizes(), mean.scalar_type());
  return normal(out, 0.0, 1.0, std::move(generator)).mul_(deviation).add_(mean);
}
Tensor normal_deviation(double mean, const Tensor& deviation, optional_generator generator) {
  TORCH_CHECK((deviation >= 0).all().item<bool>(), "normal expects all elements of std >= 0.0");
  Tensor out = make_beside(deviation, deviation.sizes(), deviation.scalar_type());
  return normal(out, 0.0, 1.0, std::move(generator)).mul_(deviation).add_(mean);
}
Tensor& permutation(std::int64_t count, optional_generator generator, Tensor& out) {
  TORCH_CHECK(count >= 0, "n must be non-negative, got ", count);
  out.resize_({count});
  if (count == 0) return out;
  const Tensor values = make({count}, c10::ScalarType::Long);
  fill_permutation(subkey(generator), mutable_values<std::int64_t>(values));
  return out.copy_(values);
}

// On a device torch calls these for what it composes on the CPU of a random mask, a quotient and a
// product: so do they, and what they keep for the gradient is the factors.
std::tuple<Tensor, Tensor> dropout(keys_t keys, const Tensor& x, double p,
                                   std::optional<bool> training) {
  if (lets_through() || !is_on_device(x) || x.device().is_cpu()) {
    return at::_ops::native_dropout::redispatch(keys & below, x, p, training);
  }
  if (!training.value_or(true) || p == 0) return {x.clone(), at::ones_like(x)};
  const Tensor factors =
      p == 1 ? at::zeros_like(x) : at::empty_like(x).bernoulli_(1 - p).div_(1 - p);
  return {x * factors, factors};
}
Tensor dropout_backward(keys_t keys, const Tensor& dy, const Tensor& kept, double scale) {
  if (kept.scalar_type() != at::kBool) return dy * kept;
  return at::_ops::native_dropout_backward::redispatch(keys & below, dy, kept, scale);
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace

random_key subkey(const optional_generator& generator) {
  static_cast<void>(mode());  // refuses other threads: draws would come in an order of chance
  ++drawn;
  Tensor words = make({2}, c10::ScalarType::Long);
  words.random_(generator);
  const auto* word = words.const_data_ptr<std::int64_t>();
  return {static_cast<std::uint64_t>(word[0]), static_cast<std::uint64_t>(word[1])};
}
std::uint64_t random_draws() noexcept { return drawn.load(); }

void register_random(registrar& r) {
  namespace op = at::_ops;
  const char* note = "potl's counter-based generator";
  r.kernel<drawing<op::uniform_, uniform>::call>("uniform_", note);
  r.kernel<drawing<op::normal_, normal>::call>("normal_", note);
  r.kernel<drawing<op::exponential_, exponential>::call>("exponential_", note);
  r.kernel<drawing<op::cauchy_, cauchy>::call>("cauchy_", note);
  r.kernel<drawing<op::geometric_, geometric>::call>("geometric_", note);
  r.kernel<drawing<op::log_normal_, log_normal>::call>("log_normal_", note);
  r.kernel<drawing<op::bernoulli__float, bernoulli>::call>("bernoulli_.float", note);
  r.kernel<drawing<op::bernoulli__Tensor, bernoulli_tensor>::call>("bernoulli_.Tensor", note);
  r.kernel<drawing<op::bernoulli_out, bernoulli_out>::call>("bernoulli.out", note);
  r.kernel<drawing<op::normal_Tensor_Tensor, normal_tensors>::call>("normal.Tensor_Tensor", note,
                                                                    {"normal.Tensor_Tensor_out"});
  r.kernel<drawing<op::normal_Tensor_float, normal_mean>::call>("normal.Tensor_float", note,
                                                                {"normal.Tensor_float_out"});
  r.kernel<drawing<op::normal_float_Tensor, normal_deviation>::call>("normal.float_Tensor", note,
                                                                     {"normal.float_Tensor_out"});
  r.kernel<drawing<op::randperm_generator_out, permutation>::call>("randperm.generator_out", note);
  const char* dropped = "bernoulli_ and products";
  r.kernel<dropout>("native_dropout", dropped);
  r.kernel<dropout_backward>("native_dropout_backward", dropped);
  r.composed(
      {"bernoulli", "normal.float_float", "normal.float_float_out", "normal_functional", "rand",
       "rand.generator", "rand.out", "rand_like", "rand_like.generator", "randn", "randn.generator",
       "randn_like", "randn_like.generator", "randperm", "randperm.generator", "randperm.out"},
      "the operator in place");
}

}  // namespace potl::libtorch::dispatch
