// SPDX-License-Identifier: Apache-2.0
// Samples of distributions whose parameters are tensors (numeric/detail/sampling.hpp, which refuses
// wrong parameters): element after element in logical order.
#include <potl/numeric/detail/sampling.hpp>

#include <array>
#include <tuple>
#include <utility>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_sample_dirichlet_ops.h>
#include <ATen/ops/_standard_gamma_ops.h>
#include <ATen/ops/binomial_ops.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/multinomial_ops.h>
#include <ATen/ops/poisson_ops.h>
#include <ATen/ops/rrelu_with_noise_ops.h>
#include <ATen/ops/where.h>

#include "elements.hpp"
#include "numeric/ranges.hpp"
#include "random.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;

/// The parameters of samples: row-major, in double.
Tensor parameters(const char* name, const Tensor& x) {
  require_plain(name, x);
  TORCH_CHECK(at::isFloatingType(x.scalar_type()), name, ": expected floating-point numbers, got ",
              x.scalar_type());
  return x.to(at::kDouble).contiguous();
}
/// Of what has to be above 0 in the type that torch's kernels have forms for.
Tensor shapes_of(const char* name, const Tensor& x) {
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble, name,
              ": expected float32 or float64, got ", x.scalar_type());
  return parameters(name, x);
}

std::span<const double> part_of(const Tensor& parameters, std::size_t first, std::size_t count) {
  return values<double>(parameters).subspan(first, count);
}

// NOLINTBEGIN(performance-unnecessary-value-param): torch's signatures
Tensor gamma(const Tensor& self, optional_generator generator) {
  const Tensor shapes = shapes_of("_standard_gamma", self);
  const Tensor out = make(self.sizes(), self.scalar_type());
  if (out.numel() == 0) return out;
  const random_key key = subkey(generator);
  with_real(self.scalar_type(), [&](auto zero) {
    in_parts(mutable_values<decltype(zero)>(out), [&](auto part, std::size_t first) {
      fill_gamma(part, part_of(shapes, first, part.size()), key, first);
    });
  });
  return out;
}

Tensor dirichlet(const Tensor& self, optional_generator generator) {
  const Tensor shapes = shapes_of("_sample_dirichlet", self);
  const Tensor out = make(self.sizes(), self.scalar_type());
  if (out.numel() == 0) return out;
  const random_key key = subkey(generator);
  const std::int64_t columns = self.dim() == 0 ? 1 : self.size(-1);
  with_real(self.scalar_type(), [&](auto zero) {
    const auto shares = mutable_values<decltype(zero)>(out);
    numeric::for_ranges(executor(), out.numel() / columns, 100 * columns,
                        [&](std::int64_t begin, std::int64_t end) {
                          const auto first = static_cast<std::size_t>(begin * columns);
                          const auto count = static_cast<std::size_t>((end - begin) * columns);
                          fill_dirichlet(shares.subspan(first, count),
                                         part_of(shapes, first, count),
                                         static_cast<std::size_t>(columns), key, first);
                        });
  });
  return out;
}

Tensor poisson(const Tensor& self, optional_generator generator) {
  const Tensor rates = parameters("poisson", self), out = make(self.sizes(), at::kDouble);
  if (out.numel() == 0) return rounded_to(out, self.scalar_type());
  const random_key key = subkey(generator);
  in_parts(mutable_values<double>(out), [&](auto part, std::size_t first) {
    fill_poisson(part, part_of(rates, first, part.size()), key, first);
  });
  return rounded_to(out, self.scalar_type());
}

Tensor binomial(const Tensor& count, const Tensor& prob, optional_generator generator) {
  const auto sizes = at::infer_size(count.sizes(), prob.sizes());
  const Tensor trials = parameters("binomial", count.expand(sizes));
  const Tensor chances = parameters("binomial", prob.expand(sizes));
  const Tensor out = make(c10::IntArrayRef(sizes), at::kDouble);
  if (out.numel() == 0) return rounded_to(out, count.scalar_type());
  const random_key key = subkey(generator);
  in_parts(mutable_values<double>(out), [&](auto part, std::size_t first) {
    fill_binomial(part, part_of(trials, first, part.size()), part_of(chances, first, part.size()),
                  key, first);
  });
  return rounded_to(out, count.scalar_type());
}

Tensor multinomial(keys_t keys, const Tensor& weights, std::int64_t count, bool replacement,
                   optional_generator generator) {
  require_plain("multinomial", weights);
  // The places of the largest weights / exponential_(), which come back one by one.
  if (lets_through() || !replacement || count == 1) {
    return at::_ops::multinomial::redispatch(keys & below, weights, count, replacement,
                                             std::move(generator));
  }
  TORCH_CHECK(weights.dim() == 1 || weights.dim() == 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(count > 0, "cannot sample n_sample <= 0 samples");
  const Tensor wide = parameters("multinomial", weights);
  const std::int64_t rows = weights.dim() == 1 ? 1 : weights.size(0), columns = weights.size(-1);
  const Tensor out = make({rows, count}, at::kLong);
  if (rows != 0) {
    const random_key key = subkey(generator);
    numeric::for_ranges(
        executor(), rows, columns + 100 * count, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row) {
            const auto first = static_cast<std::size_t>(row * count);
            fill_categories(
                mutable_values<std::int64_t>(out).subspan(first, static_cast<std::size_t>(count)),
                part_of(wide, static_cast<std::size_t>(row * columns),
                        static_cast<std::size_t>(columns)),
                key, first);
          }
        });
  }
  return weights.dim() == 1 ? out.squeeze(0) : out;
}

/// gradient(first, second, ...) of each element of the operands, in parallel.
template <std::size_t Count, class Gradient>
Tensor gradients(const char* name, const Tensor (&operands)[Count], const Gradient& gradient) {
  return elements(name, operands, nullptr, [&](const auto& in, auto out) {
    in_parts(out, [&](auto part, std::size_t first) {
      using real = typename decltype(part)::value_type;
      for (std::size_t i = 0; i < part.size(); ++i) {
        std::array<double, Count> at;
        for (std::size_t k = 0; k < Count; ++k) at[k] = in[k][in[k].size() == 1 ? 0 : first + i];
        part[i] = static_cast<real>(std::apply(gradient, at));
      }
    });
  });
}
Tensor gamma_gradients(const Tensor& shape, const Tensor& x) {
  return gradients("_standard_gamma_grad", {shape, x}, numeric::gamma_gradient);
}
Tensor dirichlet_gradients(const Tensor& x, const Tensor& shape, const Tensor& total) {
  return gradients("_dirichlet_grad", {x, shape, total}, numeric::dirichlet_gradient);
}

Tensor rrelu(const Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper,
             bool training, optional_generator generator) {
  const double low = lower.toDouble(), high = upper.toDouble();
  if (!training) return at::leaky_relu(self, (low + high) / 2);
  TORCH_CHECK(noise.sizes() == self.sizes(), "noise tensor shape must match self tensor shape");
  noise.uniform_(low, high, std::move(generator));
  noise.copy_(at::where(self <= 0, noise, 1.0));
  return self * noise;
}
Tensor& rrelu_in_place(Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper,
                       bool training, optional_generator generator) {
  return self.copy_(rrelu(self, noise, lower, upper, training, std::move(generator)));
}
// NOLINTEND(performance-unnecessary-value-param)

}  // namespace

void register_sampling(registrar& r) {
  const char* note = "numeric/detail/sampling.hpp, from potl's counter-based generator";
  r.kernel<drawing<at::_ops::_standard_gamma, gamma>::call>("_standard_gamma", note);
  r.kernel<drawing<at::_ops::_sample_dirichlet, dirichlet>::call>("_sample_dirichlet", note);
  r.kernel<drawing<at::_ops::poisson, poisson>::call>("poisson", note);
  r.kernel<drawing<at::_ops::binomial, binomial>::call>("binomial", note);
  r.kernel<multinomial>("multinomial",
                        "one, or without replacement: the largest weights / exponential_(); else "
                        "numeric/detail/sampling.hpp",
                        {"multinomial.out"});
  const char* moved = "minus the slope of the distribution function over the density, in double";
  r.kernel<gamma_gradients>("_standard_gamma_grad", moved);
  r.kernel<dirichlet_gradients>("_dirichlet_grad", moved);
  const char* noise = "uniform_ and products";
  r.kernel<drawing<at::_ops::rrelu_with_noise, rrelu>::call>("rrelu_with_noise", noise);
  r.kernel<drawing<at::_ops::rrelu_with_noise_, rrelu_in_place>::call>("rrelu_with_noise_", noise);
  r.composed({"rrelu_with_noise_backward", "rrelu_with_noise_functional"}, "the operator in place");
}

}  // namespace potl::libtorch::dispatch
