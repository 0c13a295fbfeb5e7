// SPDX-License-Identifier: Apache-2.0
// Sums and their relatives over any dimensions: the tree of numeric/reduction.hpp over the reduced
// elements in row-major order, whatever the layout in memory.
#include <potl/numeric/reduction.hpp>

#include <algorithm>
#include <bitset>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_logcumsumexp_ops.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/histc_ops.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/real.h>
#include <ATen/ops/sort_ops.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>

#include <potl/numeric/detail/normalization.hpp>

#include "device.hpp"
#include "operand.hpp"
#include "real.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;
using optional_dims = c10::OptionalArrayRef<std::int64_t>;
using optional_type = std::optional<c10::ScalarType>;
using numeric::reduction;
using numeric::reduction_shape;

/// An operand brought into the order [outer][count][inner].
struct arranged {
  Tensor values;
  reduction_shape shape;
  std::vector<std::int64_t> sizes;  ///< of the result
};

arranged arrange(operator_name name, const Tensor& x, optional_dims dims, bool keepdim,
                 c10::ScalarType wide, bool none_is_all = true) {
  const std::int64_t rank = x.dim();
  std::bitset<64> reduced =
      at::dim_list_to_bitset(dims.value_or(c10::IntArrayRef()), static_cast<std::size_t>(rank));
  if (!dims.has_value() || (none_is_all && dims->empty())) reduced.set();
  arranged out;
  std::vector<std::int64_t> kept, gone;
  for (std::int64_t i = 0; i < rank; ++i) {
    const bool goes = reduced[static_cast<std::size_t>(i)];
    (goes ? gone : kept).push_back(i);
    if (!goes || keepdim) out.sizes.push_back(goes ? 1 : x.size(i));
  }
  const auto volume = [&](const std::vector<std::int64_t>& which) {
    std::int64_t all = 1;
    for (const std::int64_t i : which) all *= x.size(i);
    return all;
  };
  out.shape.count = volume(gone);
  const bool adjacent =
      !gone.empty() && gone.back() - gone.front() + 1 == static_cast<std::int64_t>(gone.size());
  if (adjacent || gone.empty()) {
    // Dimensions behind the reduced ones stay where they are.
    out.values = row_major(name, x, wide);
    std::vector<std::int64_t> after;
    for (const std::int64_t i : kept) {
      if (!gone.empty() && i > gone.back()) after.push_back(i);
    }
    out.shape.inner = volume(after);
  } else {
    std::vector<std::int64_t> order = kept;
    order.insert(order.end(), gone.begin(), gone.end());
    out.values = row_major(name, x.permute(order), wide);
  }
  out.shape.outer = 1;
  for (const std::int64_t i : kept) {
    if (!adjacent || i < gone.front()) out.shape.outer *= x.size(i);
  }
  return out;
}

/// Those that other devices have, too.
bool is_anywhere(reduction kind) {
  return kind == reduction::sum || kind == reduction::mean || kind == reduction::norm ||
         kind == reduction::sum_of_squares || kind == reduction::product ||
         kind == reduction::maximum;
}

Tensor reduced(reduction kind, const arranged& in, c10::ScalarType wide) {
  const Tensor y = make_beside(in.values, in.sizes, wide);
  if (is_on_device(in.values)) {
    const device_call there(in.values);
    there->reduce(kind, in.shape, in.values.const_data_ptr<float>(), y.mutable_data_ptr<float>(),
                  there.queue());
    return y;
  }
  with_real(wide, [&](auto zero) {
    using Real = decltype(zero);
    numeric::reduce(kind, in.shape, in.values.const_data_ptr<Real>(), y.mutable_data_ptr<Real>(),
                    executor());
  });
  return y;
}

/// The order in memory of the dimensions of a transposed operand, or of one with channels last, if
/// it leaves those to reduce in theirs: the results do not care for that of the others, and the
/// operand needs no copy. Else empty.
std::vector<std::int64_t> order_of(const Tensor& x, optional_dims dims) {
  if (!dims.has_value() || dims->empty() || is_on_device(x)) return {};
  if (x.is_contiguous() || !x.is_non_overlapping_and_dense()) return {};
  std::vector<std::int64_t> order(static_cast<std::size_t>(x.dim()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return x.stride(a) > x.stride(b); });
  const auto reduced = at::dim_list_to_bitset(*dims, order.size());
  std::int64_t last = -1;
  for (const std::int64_t dim : order) {
    if (!reduced[static_cast<std::size_t>(dim)]) continue;
    if (dim < last) return {};
    last = dim;
  }
  return order;
}

/// Of fewer elements beside each other, a copy that brings those of a channel together and its sum
/// take less, up to a third.
constexpr std::int64_t least_in_a_row = 32;

/// The sizes of a row-major operand of which the first and the last dimensions are summed, and
/// those in between stay; none otherwise.
std::optional<numeric::channel_shape> channels_of(const Tensor& x, optional_dims dims) {
  if (!dims.has_value() || dims->empty() || is_on_device(x)) return {};
  if (x.layout() != c10::kStrided || !x.is_contiguous() || x.numel() == 0) return {};
  const auto reduced = at::dim_list_to_bitset(*dims, static_cast<std::size_t>(x.dim()));
  const auto goes = [&](std::int64_t dim) { return reduced[static_cast<std::size_t>(dim)]; };
  std::int64_t first = 0, last = x.dim();
  while (first < last && goes(first)) ++first;
  while (first < last && goes(last - 1)) --last;
  if (first == 0 || first == last || last == x.dim()) return {};
  for (std::int64_t dim = first; dim < last; ++dim) {
    if (goes(dim)) return {};
  }
  const numeric::channel_shape out{product(x.sizes(), 0, first), product(x.sizes(), first, last),
                                   product(x.sizes(), last, x.dim())};
  if (out.size < least_in_a_row) return {};
  return out;
}

Tensor reduce_to(const char* name, reduction kind, const Tensor& x, optional_dims dims,
                 bool keepdim, c10::ScalarType type) {
  if (const std::vector<std::int64_t> order = order_of(x, dims); !order.empty()) {
    const auto reduced = at::dim_list_to_bitset(*dims, order.size());
    std::vector<std::int64_t> back(order.size()), over, gone;
    for (std::size_t at = 0; at < order.size(); ++at) {
      const std::int64_t dim = order[at];
      back[static_cast<std::size_t>(dim)] = static_cast<std::int64_t>(at);
      if (!reduced[static_cast<std::size_t>(dim)]) continue;
      over.push_back(static_cast<std::int64_t>(at));
      gone.push_back(dim);
    }
    const Tensor in_order = x.permute(order);
    if (in_order.is_contiguous()) {
      const Tensor y = reduce_to(name, kind, in_order, over, true, type).permute(back);
      return (keepdim ? y : y.squeeze(gone)).contiguous();
    }
  }
  const c10::ScalarType wide = compute_type(name, type);
  if (is_on_device(x)) {
    // Those that are others of changed signs.
    const auto of = [&](reduction other, const Tensor& changed) {
      return reduce_to(name, other, changed, dims, keepdim, type);
    };
    if (kind == reduction::minimum) {
      const Tensor least = of(reduction::maximum, x.neg()).neg();
      return at::where(least.isnan(), Scalar(std::numeric_limits<double>::quiet_NaN()), least);
    }
    if (kind == reduction::sum_of_magnitudes) return of(reduction::sum, x.abs());
    if (kind == reduction::largest_magnitude) return of(reduction::maximum, x.abs());
  }
  if (const auto shape = channels_of(x, dims); shape && kind == reduction::sum) {
    const Tensor from = row_major(name, x, wide);
    std::vector<std::int64_t> sizes;
    const auto reduced = at::dim_list_to_bitset(*dims, static_cast<std::size_t>(x.dim()));
    for (std::int64_t i = 0; i < x.dim(); ++i) {
      const bool goes = reduced[static_cast<std::size_t>(i)];
      if (!goes || keepdim) sizes.push_back(goes ? 1 : x.size(i));
    }
    const Tensor y = make(sizes, wide);
    with_real(wide, [&](auto zero) {
      using Real = decltype(zero);
      numeric::sum_channels(*shape, from.const_data_ptr<Real>(), y.mutable_data_ptr<Real>(),
                            executor());
    });
    return rounded_to(y, type);
  }
  const operator_name anywhere{name, is_anywhere(kind)};
  return rounded_to(reduced(kind, arrange(anywhere, x, dims, keepdim, wide), wide), type);
}

/// A sum or mean of complex numbers: that of either part.
Tensor reduce_parts(const char* name, reduction kind, const Tensor& x, optional_dims dims,
                    bool keepdim, c10::ScalarType type) {
  std::vector<std::int64_t> over;
  const bool all = !dims.has_value() || dims->empty();
  for (std::int64_t i = 0; all && i < x.dim(); ++i) over.push_back(i);
  for (std::size_t i = 0; !all && i < dims->size(); ++i) {
    over.push_back(at::maybe_wrap_dim((*dims)[i], x.dim()));
  }
  const Tensor parts = at::view_as_real(x.to(type).resolve_conj());
  if (x.dim() == 0) return at::view_as_complex(parts.clone());
  return at::view_as_complex(
      reduce_to(name, kind, parts, over, keepdim, c10::toRealValueType(type)));
}

Tensor sum_dims(const Tensor& x, optional_dims dims, bool keepdim, optional_type dtype) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  if (c10::isComplexType(type)) {
    return reduce_parts("sum", reduction::sum, x, dims, keepdim, type);
  }
  return reduce_to("sum", reduction::sum, x, dims, keepdim, type);
}
Tensor sum_all(const Tensor& x, optional_type dtype) { return sum_dims(x, {}, false, dtype); }

Tensor mean_dims(const Tensor& x, optional_dims dims, bool keepdim, optional_type dtype) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  TORCH_CHECK(c10::isFloatingType(type) || c10::isComplexType(type),
              "mean(): could not infer output dtype. Input dtype must be either a floating point "
              "or complex dtype. Got: ",
              type);
  if (c10::isComplexType(type)) {
    return reduce_parts("mean", reduction::mean, x, dims, keepdim, type);
  }
  return reduce_to("mean", reduction::mean, x, dims, keepdim, type);
}
Tensor mean_all(const Tensor& x, optional_type dtype) { return mean_dims(x, {}, false, dtype); }

Tensor nansum(const Tensor& x, optional_dims dims, bool keepdim, optional_type dtype) {
  if (is_integral(x)) return x.sum(dims, keepdim, dtype);
  return at::where(x.isnan(), at::Scalar(0), x).sum(dims, keepdim, dtype);
}

/// The first half times the second one, until one number is left; an odd one waits at the end.
Tensor complex_product(const Tensor& x, std::int64_t dim, bool keepdim, c10::ScalarType type) {
  Tensor left = x.to(at::kComplexDouble);
  if (left.size(dim) == 0) left = at::cat({left, at::ones_like(left.sum(dim, true))}, dim);
  while (left.size(dim) > 1) {
    const std::int64_t half = left.size(dim) / 2, rest = left.size(dim) - 2 * half;
    const Tensor products = left.narrow(dim, 0, half) * left.narrow(dim, half, half);
    left = at::cat({products, left.narrow(dim, 2 * half, rest)}, dim);
  }
  return (keepdim ? left : left.squeeze(dim)).to(type);
}
Tensor prod_all(const Tensor& x, optional_type dtype) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  if (c10::isComplexType(type)) return complex_product(x.reshape(-1), 0, false, type);
  return reduce_to("prod", reduction::product, x, {}, false, type);
}
Tensor prod_dim(const Tensor& x, std::int64_t dim, bool keepdim, optional_type dtype) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  if (c10::isComplexType(type)) {
    return complex_product(x.dim() == 0 ? x.reshape(1) : x, dim, keepdim && x.dim() > 0, type);
  }
  return reduce_to("prod", reduction::product, x, c10::IntArrayRef(dim), keepdim, type);
}

void require_elements(const char* name, const Tensor& x, optional_dims dims) {
  if (x.numel() != 0) return;
  TORCH_CHECK(dims.has_value() && !dims->empty(), name,
              "(): Expected reduction dim to be specified for input.numel() == 0.");
  for (const std::int64_t dim : *dims) {
    TORCH_CHECK(x.size(dim) != 0, name, "(): Expected reduction dim ", dim,
                " to have non-zero size.");
  }
}
Tensor largest(const Tensor& x, c10::IntArrayRef dims, bool keepdim) {
  require_elements("amax", x, dims);
  return reduce_to("amax", reduction::maximum, x, dims, keepdim, x.scalar_type());
}
Tensor smallest(const Tensor& x, c10::IntArrayRef dims, bool keepdim) {
  require_elements("amin", x, dims);
  return reduce_to("amin", reduction::minimum, x, dims, keepdim, x.scalar_type());
}
constexpr auto amax = but_integers<at::_ops::amax, largest>;
constexpr auto amin = but_integers<at::_ops::amin, smallest>;
Tensor max_all(keys_t keys, const Tensor& x) { return amax(keys, x, {}, false); }
Tensor min_all(keys_t keys, const Tensor& x) { return amin(keys, x, {}, false); }
std::tuple<Tensor, Tensor> aminmax(keys_t keys, const Tensor& x, std::optional<std::int64_t> dim,
                                   bool keepdim) {
  const auto dims = dim ? c10::IntArrayRef(*dim) : c10::IntArrayRef();
  return {amin(keys, x, dims, keepdim), amax(keys, x, dims, keepdim)};
}

std::tuple<Tensor, Tensor> moments(const char* name, const Tensor& x, optional_dims dims,
                                   const std::optional<Scalar>& correction, bool keepdim, bool root,
                                   bool with_mean) {
  if (x.is_complex()) {
    const auto of = [&](const Tensor& part) {
      return moments(name, part, dims, correction, keepdim, false, with_mean);
    };
    const auto [spread, mean] = of(at::real(x));
    const auto [beside, mean_beside] = of(at::imag(x));
    const Tensor both = spread + beside;
    return {root ? both.sqrt() : both, with_mean ? at::complex(mean, mean_beside) : Tensor()};
  }
  const c10::ScalarType wide = compute_type(name, x.scalar_type());
  TORCH_CHECK(!is_integral(x), name, "(): expected a floating point tensor");
  const arranged in = arrange(on_devices(name), x, dims, keepdim, wide);
  const Tensor mean = with_mean || is_on_device(x) ? make_beside(x, in.sizes, wide) : Tensor();
  Tensor spread = make_beside(x, in.sizes, wide);
  const double freedom = correction ? correction->toDouble() : 1.0;
  if (is_on_device(x)) {
    const device_call there(x);
    there->variance(in.shape, in.values.const_data_ptr<float>(), freedom,
                    mean.mutable_data_ptr<float>(), spread.mutable_data_ptr<float>(),
                    there.queue());
    if (root) spread.sqrt_();
    return {rounded_to(spread, x.scalar_type()),
            with_mean ? rounded_to(mean, x.scalar_type()) : Tensor()};
  }
  with_real(wide, [&](auto zero) {
    using Real = decltype(zero);
    numeric::variance(in.shape, in.values.const_data_ptr<Real>(), freedom,
                      with_mean ? mean.mutable_data_ptr<Real>() : nullptr,
                      spread.mutable_data_ptr<Real>(), executor());
  });
  if (root) spread.sqrt_();
  return {rounded_to(spread, x.scalar_type()),
          with_mean ? rounded_to(mean, x.scalar_type()) : Tensor()};
}

template <bool Root>
Tensor variance(const Tensor& x, optional_dims dims, const std::optional<Scalar>& correction,
                bool keepdim) {
  return std::get<0>(moments(Root ? "std" : "var", x, dims, correction, keepdim, Root, false));
}
template <bool Root>
std::tuple<Tensor, Tensor> variance_mean(const Tensor& x, optional_dims dims,
                                         const std::optional<Scalar>& correction, bool keepdim) {
  return moments(Root ? "std_mean" : "var_mean", x, dims, correction, keepdim, Root, true);
}

template <class Cumulate>
Tensor cumulative(const char* name, bool is_product, const Tensor& x, std::int64_t dim,
                  optional_type dtype, const Cumulate& cumulate) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  const c10::ScalarType wide = compute_type(name, type);
  if (x.dim() == 0) return x.to(type, /*non_blocking=*/false, /*copy=*/true);
  const std::int64_t axis = at::maybe_wrap_dim(dim, x.dim());
  const Tensor from = row_major(on_devices(name), x, wide);
  const Tensor y = make_beside(x, x.sizes(), wide);
  const reduction_shape shape = {
      c10::multiply_integers(x.sizes().slice(0, static_cast<std::size_t>(axis))), x.size(axis),
      c10::multiply_integers(x.sizes().slice(static_cast<std::size_t>(axis) + 1))};
  if (is_on_device(x)) {
    const device_call there(x);
    there->cumulate(is_product, shape, from.const_data_ptr<float>(), y.mutable_data_ptr<float>(),
                    there.queue());
    return rounded_to(y, type);
  }
  with_real(wide, [&](auto zero) {
    using Real = decltype(zero);
    cumulate(shape, from.const_data_ptr<Real>(), y.mutable_data_ptr<Real>());
  });
  return rounded_to(y, type);
}
Tensor cumsum(const Tensor& x, std::int64_t dim, optional_type dtype) {
  if (x.is_complex() && x.dim() > 0 && dtype.value_or(x.scalar_type()) == x.scalar_type()) {
    const Tensor parts = at::view_as_real(x.resolve_conj());
    return at::view_as_complex(cumsum(parts, at::maybe_wrap_dim(dim, x.dim()), {}));
  }
  return cumulative("cumsum", false, x, dim, dtype, [](const auto& shape, auto from, auto to) {
    numeric::cumulative_sum(shape, from, to, executor());
  });
}
/// One logaddexp after the other.
Tensor logcumsumexp(const Tensor& x, std::int64_t dim) {
  dim = at::maybe_wrap_dim(dim, x.dim());
  if (x.dim() == 0 || x.numel() == 0) return x.clone();
  const Tensor wide = x.to(compute_type("logcumsumexp", x.scalar_type()));
  std::vector<Tensor> sums;
  for (const Tensor& next : wide.unbind(dim)) {
    sums.push_back(sums.empty() ? next : at::logaddexp(sums.back(), next));
  }
  return rounded_to(at::stack(sums, dim), x.scalar_type());
}

/// y[i - s] y[i] for s = 1, 2, 4, ...: products of 2, 4, 8, ... neighbours, fewer at the beginning.
Tensor complex_cumprod(const Tensor& x, std::int64_t dim, c10::ScalarType type) {
  Tensor y = (x.dim() == 0 ? x.reshape(1) : x).to(at::kComplexDouble);
  const std::int64_t size = y.size(dim);
  for (std::int64_t step = 1; step < size; step *= 2) {
    const Tensor products = y.narrow(dim, 0, size - step) * y.narrow(dim, step, size - step);
    y = at::cat({y.narrow(dim, 0, step), products}, dim);
  }
  return y.reshape(x.sizes()).to(type);
}
Tensor cumprod(const Tensor& x, std::int64_t dim, optional_type dtype) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  if (c10::isComplexType(type)) return complex_cumprod(x, dim, type);
  return cumulative("cumprod", true, x, dim, dtype, [](const auto& shape, auto from, auto to) {
    numeric::cumulative_product(shape, from, to, executor());
  });
}

Tensor norm_of(const Tensor& x, double order, optional_dims dims, bool keepdim,
               optional_type dtype) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  TORCH_CHECK(c10::isFloatingType(type) || c10::isComplexType(type),
              "linalg.vector_norm: Expected a floating point or complex tensor as input. Got ",
              type);
  if (c10::isComplexType(type)) {
    return norm_of(x.abs(), order, dims, keepdim, c10::toRealValueType(type));
  }
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto reduce = [&](reduction kind) {
    return reduce_to("linalg_vector_norm", kind, x, dims, keepdim, type);
  };
  if (order == 2) return reduce(reduction::norm);
  if (order == 1) return reduce(reduction::sum_of_magnitudes);
  if (order == infinity) return reduce(reduction::largest_magnitude);
  // Powers and their sum would overflow in float16.
  const Tensor size = x.to(type).to(compute_type("linalg_vector_norm", type)).abs();
  if (order == -infinity) {
    return reduce_to("linalg_vector_norm", reduction::minimum, size, dims, keepdim, type);
  }
  if (order == 0) return size.ne(0).sum(dims, keepdim, type);
  return rounded_to(size.pow(order).sum(dims, keepdim).pow(1.0 / order), type);
}
Tensor vector_norm(const Tensor& x, const Scalar& order, optional_dims dims, bool keepdim,
                   optional_type dtype) {
  return norm_of(x, order.toDouble(), dims, keepdim, dtype);
}
double order_of(const std::optional<Scalar>& p) { return p ? p->toDouble() : 2.0; }
Tensor norm_all(const Tensor& x, const Scalar& p) {
  return norm_of(x, p.toDouble(), {}, false, {});
}
Tensor norm_all_typed(const Tensor& x, const std::optional<Scalar>& p, c10::ScalarType dtype) {
  return norm_of(x, order_of(p), {}, false, dtype);
}
Tensor norm_dims(const Tensor& x, const std::optional<Scalar>& p, c10::IntArrayRef dims,
                 bool keepdim) {
  return norm_of(x, order_of(p), dims, keepdim, {});
}
Tensor norm_dims_typed(const Tensor& x, const std::optional<Scalar>& p, c10::IntArrayRef dims,
                       bool keepdim, c10::ScalarType dtype) {
  return norm_of(x, order_of(p), dims, keepdim, dtype);
}

Tensor trace(const Tensor& x) {
  TORCH_CHECK(x.dim() == 2, "trace: expected a matrix");
  return x.diagonal().sum();
}

/// Without stable=True torch orders equal values as the instruction set likes it.
std::tuple<Tensor, Tensor> sort(keys_t keys, const Tensor& x, std::optional<bool>, std::int64_t dim,
                                bool descending) {
  return at::_ops::sort_stable::redispatch(keys & below, x, true, dim, descending);
}

Tensor histc(const Tensor& x, std::int64_t bins, const Scalar& min, const Scalar& max) {
  TORCH_CHECK(bins > 0, "torch.histc(): bins must be > 0, but got ", bins);
  const Tensor all = x.to(compute_type("histc", x.scalar_type())).reshape(-1);
  auto low = min.toDouble(), high = max.toDouble();
  if (low == high && all.numel() > 0) {
    low = all.min().item<double>();
    high = all.max().item<double>();
  }
  if (low == high) low -= 1, high += 1;
  TORCH_CHECK(std::isfinite(low) && std::isfinite(high) && low < high, "torch.histc(): range of [",
              low, ", ", high, "] is not finite, or empty");
  const Tensor inside = all.masked_select((all >= low) & (all <= high));
  const Tensor bin = ((inside - low) * bins / (high - low)).to(at::kLong).clamp_max(bins - 1);
  return at::bincount(bin, {}, bins).to(x.scalar_type());
}
}  // namespace

void register_reductions(registrar& r) {
  const char* tree =
      "added in the order of docs/reference/reduction.md, by the number of terms alone";
  namespace ops = at::_ops;
  r.kernel<but_integers<ops::sum, sum_all>>("sum", tree);
  r.kernel<but_integers<ops::sum_dim_IntList, sum_dims>>("sum.dim_IntList", tree,
                                                         {"sum.IntList_out"});
  r.kernel<mean_all>("mean", tree);
  r.kernel<mean_dims>("mean.dim", tree, {"mean.out"});
  r.kernel<nansum>("nansum", tree, {"nansum.out"});
  r.kernel<but_integers<ops::prod, prod_all>>("prod", tree);
  r.kernel<but_integers<ops::prod_dim_int, prod_dim>>("prod.dim_int", tree, {"prod.int_out"});
  r.kernel<trace>("trace", tree);
  r.kernel<but_integers<ops::histc, histc>>(
      "histc", "counts by the bin (x - min) bins / (max - min), left to right", {"histc.out"});
  r.kernel<vector_norm>("linalg_vector_norm", tree, {"linalg_vector_norm.out"});
  r.kernel<norm_all>("norm.Scalar", tree);
  r.kernel<norm_all_typed>("norm.ScalarOpt_dtype", tree);
  r.kernel<norm_dims>("norm.ScalarOpt_dim", tree);
  r.kernel<norm_dims_typed>("norm.ScalarOpt_dim_dtype", tree);
  const char* spread = "mean, then the tree of squared differences";
  r.kernel<variance<false>>("var.correction", spread, {"var.correction_out"});
  r.kernel<variance<true>>("std.correction", spread, {"std.correction_out"});
  r.kernel<variance_mean<false>>("var_mean.correction", spread);
  r.kernel<variance_mean<true>>("std_mean.correction", spread);
  r.kernel<but_integers<ops::cumsum, cumsum>>("cumsum", "one sum after the other",
                                              {"cumsum_", "cumsum.out"});
  r.kernel<but_integers<ops::_logcumsumexp, logcumsumexp>>(
      "_logcumsumexp", "one logaddexp after the other", {"_logcumsumexp.out"});
  r.composed({"logcumsumexp", "logcumsumexp.out"}, "_logcumsumexp");
  r.kernel<but_integers<ops::cumprod, cumprod>>("cumprod", "one product after the other",
                                                {"cumprod_", "cumprod.out"});
  const char* selection = "a selection; +0 is larger than -0";
  r.kernel<amax>("amax", selection, {"amax.out"});
  r.kernel<amin>("amin", selection, {"amin.out"});
  r.kernel<max_all>("max", selection, {"max.unary_out"});
  r.kernel<min_all>("min", selection, {"min.unary_out"});
  r.kernel<aminmax>("aminmax", selection);
  r.kernel<sort>("sort.stable", "stable=True", {"sort.values_stable"});
  r.composed({"sort", "sort.values", "sum.out", "mean.dtype_out"}, "the form with dimensions");
}

}  // namespace potl::libtorch::dispatch
