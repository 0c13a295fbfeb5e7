// SPDX-License-Identifier: Apache-2.0
// Quantiles. Versions of torch differ about the rank that a number q has among n, and about which
// of equal numbers is the one of a rank, which gets its gradient. In a block the rank is q (n - 1),
// rounded to the type of the numbers, and the order that of a stable sort, as in torch 2.13.
#include <ATen/TensorOperators.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/library.h>

#include "mode.hpp"
#include "operand.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;
using optional_dim = std::optional<std::int64_t>;

/// The places of ranks between two numbers, from the lower one.
Tensor weights_of(const Tensor& ranks, c10::string_view interpolation) {
  if (interpolation == "linear") return ranks - ranks.detach().floor();
  if (interpolation == "midpoint") return at::full_like(ranks, 0.5);
  return {};
}
Tensor whole_ranks(const Tensor& ranks, c10::string_view interpolation) {
  if (interpolation == "higher") return ranks.ceil();
  return interpolation == "nearest" ? ranks.round() : ranks.floor();
}

/// Of sorted rows [..., n], NaN last: [..., the number of q].
Tensor at_ranks(const Tensor& sorted, const Tensor& q, c10::string_view interpolation,
                bool skips_nan) {
  const Tensor is_nan = sorted.detach().isnan();
  const std::int64_t last = sorted.size(-1) - 1;
  Tensor ranks;
  if (skips_nan) {
    const Tensor lasts = is_nan.logical_not().sum(-1, /*keepdim=*/true) - 1;
    ranks = q * lasts.clamp_min(0).to(q.scalar_type());
  } else {
    ranks =
        at::where(is_nan.any(-1, /*keepdim=*/true), at::scalar_tensor(last, q.options()), q * last);
  }
  const Tensor lower = sorted.gather(-1, whole_ranks(ranks, interpolation).to(at::kLong));
  const Tensor weights = weights_of(ranks, interpolation);
  if (!weights.defined()) return lower;
  return lower.lerp(sorted.gather(-1, ranks.ceil().to(at::kLong)), weights);
}

template <bool SkipsNan>
Tensor quantile(const Tensor& x, const Tensor& q, optional_dim dim, bool keepdim,
                c10::string_view interpolation) {
  TORCH_CHECK(x.numel() > 0, "quantile() input tensor must be non-empty");
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble,
              "quantile() input tensor must be either float or double dtype");
  TORCH_CHECK(q.dim() <= 1 && q.scalar_type() == x.scalar_type(),
              "quantile() q must be a scalar or 1D tensor, and of the input's dtype");
  TORCH_CHECK(!q.device().is_cpu() || at::isTensorSubclassLike(q) ||
                  ((q >= 0) & (q <= 1)).all().item<bool>(),
              "quantile() q values must be in the range [0, 1]");
  TORCH_CHECK(interpolation == "linear" || interpolation == "lower" || interpolation == "higher" ||
                  interpolation == "midpoint" || interpolation == "nearest",
              "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, "
              "but got ",
              interpolation);
  if (dim) dim = c10::maybe_wrap_dim(*dim, x.dim());
  const Tensor rows = dim && x.dim() > 0 ? x.movedim(*dim, -1) : x.reshape(-1);
  const Tensor sorted = std::get<0>(at::sort(rows, std::optional<bool>(true), -1));
  Tensor out = at_ranks(sorted, q.reshape(-1), interpolation, SkipsNan).movedim(-1, 0);
  if (keepdim && !dim) {
    for (std::int64_t i = 0; i < x.dim(); ++i) out = out.unsqueeze(-1);
  } else if (keepdim && x.dim() > 0) {
    out = out.unsqueeze(*dim + 1);
  }
  return q.dim() == 0 ? out.squeeze(0) : out;
}

template <bool SkipsNan>
Tensor quantile_at(const Tensor& x, double q, optional_dim dim, bool keepdim,
                   c10::string_view interpolation) {
  return quantile<SkipsNan>(x, at::scalar_tensor(q, x.options()), dim, keepdim, interpolation);
}

template <auto Function, class Q>
Tensor& into(const Tensor& x, Q q, optional_dim dim, bool keepdim, c10::string_view interpolation,
             Tensor& out) {
  const at::NoGradGuard alone;
  return write_out(Function(x, q, dim, keepdim, interpolation), out);
}

template <bool SkipsNan>
void register_of(::torch::Library& library, const std::string& name) {
  const auto put = [&](const char* form, auto function) {
    library.impl((name + form).c_str(), function);
  };
  put("", TORCH_FN(quantile<SkipsNan>));
  put(".scalar", TORCH_FN(quantile_at<SkipsNan>));
  put(".out", TORCH_FN((into<quantile<SkipsNan>, const Tensor&>)));
  put(".scalar_out", TORCH_FN((into<quantile_at<SkipsNan>, double>)));
}

}  // namespace

void register_quantiles() {
  auto& library =
      *new ::torch::Library(::torch::Library::IMPL, "aten", key_above_autograd, __FILE__, __LINE__);
  register_of<false>(library, "quantile");
  register_of<true>(library, "nanquantile");
}

}  // namespace potl::libtorch::dispatch
