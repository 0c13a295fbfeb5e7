// SPDX-License-Identifier: Apache-2.0
// Sums and their relatives over any dimensions: the tree of numeric/reduction.hpp over the reduced
// elements in row-major order, whatever the layout in memory.
#include <potl/numeric/reduction.hpp>

#include <algorithm>
#include <bitset>
#include <limits>

#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/sort_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/where.h>

#include "operand.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;
using keys_t = c10::DispatchKeySet;
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

arranged arrange(const char* name, const Tensor& x, optional_dims dims, bool keepdim,
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
    if (!goes) out.sizes.push_back(x.size(i));
    if (goes && keepdim) out.sizes.push_back(1);
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

Tensor reduced(reduction kind, const arranged& in, c10::ScalarType wide) {
  const Tensor y = make(in.sizes, wide);
  if (wide == c10::ScalarType::Double) {
    numeric::reduce(kind, in.shape, in.values.const_data_ptr<double>(),
                    y.mutable_data_ptr<double>(), executor());
  } else {
    numeric::reduce(kind, in.shape, in.values.const_data_ptr<float>(), y.mutable_data_ptr<float>(),
                    executor());
  }
  return y;
}

Tensor reduce_to(const char* name, reduction kind, const Tensor& x, optional_dims dims,
                 bool keepdim, c10::ScalarType type) {
  const c10::ScalarType wide = compute_type(name, type);
  return rounded_to(reduced(kind, arrange(name, x, dims, keepdim, wide), wide), type);
}

/// An out= form with a type: that of `out`, which torch converts to no other.
optional_type type_of(optional_type asked, const Tensor& out) {
  TORCH_CHECK(!asked.has_value() || *asked == out.scalar_type(),
              "Expected out tensor to have dtype ", asked.value_or(out.scalar_type()), ", but got ",
              out.scalar_type(), " instead");
  return out.scalar_type();
}

Tensor sum_dims(keys_t keys, const Tensor& x, optional_dims dims, bool keepdim,
                optional_type dtype) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  if (c10::isIntegralType(type, /*includeBool=*/true)) {
    return at::_ops::sum_dim_IntList::redispatch(keys & below, x, dims, keepdim, dtype);
  }
  return reduce_to("sum", reduction::sum, x, dims, keepdim, type);
}
Tensor& sum_out(keys_t keys, const Tensor& x, optional_dims dims, bool keepdim, optional_type dtype,
                Tensor& out) {
  return write_out(sum_dims(keys, x, dims, keepdim, type_of(dtype, out)), out);
}
Tensor sum_all(keys_t keys, const Tensor& x, optional_type dtype) {
  return sum_dims(keys, x, {}, false, dtype);
}

Tensor mean_dims(const Tensor& x, optional_dims dims, bool keepdim, optional_type dtype) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  TORCH_CHECK(c10::isFloatingType(type) || c10::isComplexType(type),
              "mean(): could not infer output dtype. Input dtype must be either a floating point "
              "or complex dtype. Got: ",
              type);
  return reduce_to("mean", reduction::mean, x, dims, keepdim, type);
}
Tensor& mean_out(const Tensor& x, optional_dims dims, bool keepdim, optional_type dtype,
                 Tensor& out) {
  return write_out(mean_dims(x, dims, keepdim, type_of(dtype, out)), out);
}
Tensor mean_all(const Tensor& x, optional_type dtype) { return mean_dims(x, {}, false, dtype); }

Tensor nansum(const Tensor& x, optional_dims dims, bool keepdim, optional_type dtype) {
  if (is_integral(x)) return x.sum(dims, keepdim, dtype);
  return at::where(x.isnan(), at::Scalar(0), x).sum(dims, keepdim, dtype);
}

Tensor prod_all(keys_t keys, const Tensor& x, optional_type dtype) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  if (c10::isIntegralType(type, true)) return at::_ops::prod::redispatch(keys & below, x, dtype);
  return reduce_to("prod", reduction::product, x, {}, false, type);
}
Tensor prod_dim(keys_t keys, const Tensor& x, std::int64_t dim, bool keepdim, optional_type dtype) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  if (c10::isIntegralType(type, true)) {
    return at::_ops::prod_dim_int::redispatch(keys & below, x, dim, keepdim, dtype);
  }
  return reduce_to("prod", reduction::product, x, c10::IntArrayRef(dim), keepdim, type);
}
Tensor& prod_out(keys_t keys, const Tensor& x, std::int64_t dim, bool keepdim, optional_type dtype,
                 Tensor& out) {
  return write_out(prod_dim(keys, x, dim, keepdim, type_of(dtype, out)), out);
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
Tensor amax(keys_t keys, const Tensor& x, c10::IntArrayRef dims, bool keepdim) {
  if (is_integral(x)) return at::_ops::amax::redispatch(keys & below, x, dims, keepdim);
  require_elements("amax", x, dims);
  return reduce_to("amax", reduction::maximum, x, dims, keepdim, x.scalar_type());
}
Tensor& amax_out(keys_t keys, const Tensor& x, c10::IntArrayRef dims, bool keepdim, Tensor& out) {
  return write_out(amax(keys, x, dims, keepdim), out);
}
Tensor amin(keys_t keys, const Tensor& x, c10::IntArrayRef dims, bool keepdim) {
  if (is_integral(x)) return at::_ops::amin::redispatch(keys & below, x, dims, keepdim);
  require_elements("amin", x, dims);
  return reduce_to("amin", reduction::minimum, x, dims, keepdim, x.scalar_type());
}
Tensor& amin_out(keys_t keys, const Tensor& x, c10::IntArrayRef dims, bool keepdim, Tensor& out) {
  return write_out(amin(keys, x, dims, keepdim), out);
}
Tensor max_all(keys_t keys, const Tensor& x) { return amax(keys, x, {}, false); }
Tensor& max_all_out(keys_t keys, const Tensor& x, Tensor& out) {
  return write_out(max_all(keys, x), out);
}
Tensor min_all(keys_t keys, const Tensor& x) { return amin(keys, x, {}, false); }
Tensor& min_all_out(keys_t keys, const Tensor& x, Tensor& out) {
  return write_out(min_all(keys, x), out);
}
std::tuple<Tensor, Tensor> aminmax(keys_t keys, const Tensor& x, std::optional<std::int64_t> dim,
                                   bool keepdim) {
  const auto dims = dim ? c10::IntArrayRef(*dim) : c10::IntArrayRef();
  return {amin(keys, x, dims, keepdim), amax(keys, x, dims, keepdim)};
}

std::tuple<Tensor, Tensor> moments(const char* name, const Tensor& x, optional_dims dims,
                                   const std::optional<Scalar>& correction, bool keepdim, bool root,
                                   bool with_mean) {
  const c10::ScalarType wide = compute_type(name, x.scalar_type());
  TORCH_CHECK(!is_integral(x), name, "(): expected a floating point tensor");
  const arranged in = arrange(name, x, dims, keepdim, wide);
  const Tensor mean = with_mean ? make(in.sizes, wide) : Tensor();
  Tensor spread = make(in.sizes, wide);
  const double freedom = correction ? correction->toDouble() : 1.0;
  if (wide == c10::ScalarType::Double) {
    numeric::variance(in.shape, in.values.const_data_ptr<double>(), freedom,
                      with_mean ? mean.mutable_data_ptr<double>() : nullptr,
                      spread.mutable_data_ptr<double>(), executor());
  } else {
    numeric::variance(in.shape, in.values.const_data_ptr<float>(), freedom,
                      with_mean ? mean.mutable_data_ptr<float>() : nullptr,
                      spread.mutable_data_ptr<float>(), executor());
  }
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
Tensor& variance_out(const Tensor& x, optional_dims dims, const std::optional<Scalar>& correction,
                     bool keepdim, Tensor& out) {
  return write_out(variance<Root>(x, dims, correction, keepdim), out);
}
template <bool Root>
std::tuple<Tensor, Tensor> variance_mean(const Tensor& x, optional_dims dims,
                                         const std::optional<Scalar>& correction, bool keepdim) {
  return moments(Root ? "std_mean" : "var_mean", x, dims, correction, keepdim, Root, true);
}

using cumulate = void (*)(const reduction_shape&, const float*, float*, const numeric::executor&);
using cumulate_double = void (*)(const reduction_shape&, const double*, double*,
                                 const numeric::executor&);

Tensor cumulative(const char* name, const Tensor& x, std::int64_t dim, c10::ScalarType type,
                  cumulate single, cumulate_double twice) {
  const c10::ScalarType wide = compute_type(name, type);
  if (x.dim() == 0) return x.to(type, /*non_blocking=*/false, /*copy=*/true);
  const std::int64_t axis = at::maybe_wrap_dim(dim, x.dim());
  const Tensor from = row_major(name, x, wide);
  const Tensor y = make(x.sizes(), wide);
  const reduction_shape shape = {
      c10::multiply_integers(x.sizes().slice(0, static_cast<std::size_t>(axis))), x.size(axis),
      c10::multiply_integers(x.sizes().slice(static_cast<std::size_t>(axis) + 1))};
  if (wide == c10::ScalarType::Double) {
    twice(shape, from.const_data_ptr<double>(), y.mutable_data_ptr<double>(), executor());
  } else {
    single(shape, from.const_data_ptr<float>(), y.mutable_data_ptr<float>(), executor());
  }
  return rounded_to(y, type);
}
Tensor cumsum(keys_t keys, const Tensor& x, std::int64_t dim, optional_type dtype) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  if (c10::isIntegralType(type, true)) {
    return at::_ops::cumsum::redispatch(keys & below, x, dim, dtype);
  }
  return cumulative("cumsum", x, dim, type, numeric::cumulative_sum, numeric::cumulative_sum);
}
Tensor& cumsum_in(keys_t keys, Tensor& x, std::int64_t dim, optional_type dtype) {
  return x.copy_(cumsum(keys, x, dim, dtype));
}
Tensor& cumsum_out(keys_t keys, const Tensor& x, std::int64_t dim, optional_type dtype,
                   Tensor& out) {
  return write_out(cumsum(keys, x, dim, dtype ? dtype : out.scalar_type()), out);
}
Tensor cumprod(keys_t keys, const Tensor& x, std::int64_t dim, optional_type dtype) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  if (c10::isIntegralType(type, true)) {
    return at::_ops::cumprod::redispatch(keys & below, x, dim, dtype);
  }
  return cumulative("cumprod", x, dim, type, numeric::cumulative_product,
                    numeric::cumulative_product);
}
Tensor& cumprod_in(keys_t keys, Tensor& x, std::int64_t dim, optional_type dtype) {
  return x.copy_(cumprod(keys, x, dim, dtype));
}
Tensor& cumprod_out(keys_t keys, const Tensor& x, std::int64_t dim, optional_type dtype,
                    Tensor& out) {
  return write_out(cumprod(keys, x, dim, dtype ? dtype : out.scalar_type()), out);
}

Tensor norm_of(const Tensor& x, double order, optional_dims dims, bool keepdim,
               optional_type dtype) {
  const c10::ScalarType type = dtype.value_or(x.scalar_type());
  TORCH_CHECK(c10::isFloatingType(type) || c10::isComplexType(type),
              "linalg.vector_norm: Expected a floating point or complex tensor as input. Got ",
              type);
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
Tensor& vector_norm_out(const Tensor& x, const Scalar& order, optional_dims dims, bool keepdim,
                        optional_type dtype, Tensor& out) {
  return write_out(norm_of(x, order.toDouble(), dims, keepdim, dtype), out);
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
std::tuple<Tensor&, Tensor&> sort_out(keys_t keys, const Tensor& x, std::optional<bool>,
                                      std::int64_t dim, bool descending, Tensor& to, Tensor& at) {
  return at::_ops::sort_values_stable::redispatch(keys & below, x, true, dim, descending, to, at);
}

}  // namespace

void register_reductions(registrar& r) {
  const char* tree =
      "added in the order of docs/reference/reduction.md, by the number of terms alone";
  r.kernel("sum", TORCH_FN(sum_all), tree);
  r.kernel("sum.dim_IntList", TORCH_FN(sum_dims), tree);
  r.kernel("sum.IntList_out", TORCH_FN(sum_out), tree);
  r.kernel("mean", TORCH_FN(mean_all), tree);
  r.kernel("mean.dim", TORCH_FN(mean_dims), tree);
  r.kernel("mean.out", TORCH_FN(mean_out), tree);
  r.kernel("nansum", TORCH_FN(nansum), tree);
  r.derived("nansum", {"nansum.out"});
  r.kernel("prod", TORCH_FN(prod_all), tree);
  r.kernel("prod.dim_int", TORCH_FN(prod_dim), tree);
  r.kernel("prod.int_out", TORCH_FN(prod_out), tree);
  r.kernel("trace", TORCH_FN(trace), tree);
  r.kernel("linalg_vector_norm", TORCH_FN(vector_norm), tree);
  r.kernel("linalg_vector_norm.out", TORCH_FN(vector_norm_out), tree);
  r.kernel("norm.Scalar", TORCH_FN(norm_all), tree);
  r.kernel("norm.ScalarOpt_dtype", TORCH_FN(norm_all_typed), tree);
  r.kernel("norm.ScalarOpt_dim", TORCH_FN(norm_dims), tree);
  r.kernel("norm.ScalarOpt_dim_dtype", TORCH_FN(norm_dims_typed), tree);
  const char* spread = "mean, then the tree of squared differences";
  r.kernel("var.correction", TORCH_FN(variance<false>), spread);
  r.kernel("var.correction_out", TORCH_FN(variance_out<false>), spread);
  r.kernel("std.correction", TORCH_FN(variance<true>), spread);
  r.kernel("std.correction_out", TORCH_FN(variance_out<true>), spread);
  r.kernel("var_mean.correction", TORCH_FN(variance_mean<false>), spread);
  r.kernel("std_mean.correction", TORCH_FN(variance_mean<true>), spread);
  r.kernel("cumsum", TORCH_FN(cumsum), "one sum after the other");
  r.kernel("cumsum_", TORCH_FN(cumsum_in), "one sum after the other");
  r.kernel("cumsum.out", TORCH_FN(cumsum_out), "one sum after the other");
  r.kernel("cumprod", TORCH_FN(cumprod), "one product after the other");
  r.kernel("cumprod_", TORCH_FN(cumprod_in), "one product after the other");
  r.kernel("cumprod.out", TORCH_FN(cumprod_out), "one product after the other");
  const char* largest = "a selection; +0 is larger than -0";
  r.kernel("amax", TORCH_FN(amax), largest);
  r.kernel("amax.out", TORCH_FN(amax_out), largest);
  r.kernel("amin", TORCH_FN(amin), largest);
  r.kernel("amin.out", TORCH_FN(amin_out), largest);
  r.kernel("max", TORCH_FN(max_all), largest);
  r.kernel("max.unary_out", TORCH_FN(max_all_out), largest);
  r.kernel("min", TORCH_FN(min_all), largest);
  r.kernel("min.unary_out", TORCH_FN(min_all_out), largest);
  r.kernel("aminmax", TORCH_FN(aminmax), largest);
  r.kernel("sort.stable", TORCH_FN(sort), "stable=True");
  r.kernel("sort.values_stable", TORCH_FN(sort_out), "stable=True");
  r.composed({"sort", "sort.values", "sum.out", "mean.dtype_out"}, "the form with dimensions");
}

}  // namespace potl::libtorch::dispatch
