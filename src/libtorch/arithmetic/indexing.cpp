// SPDX-License-Identifier: Apache-2.0
// Values added (or multiplied, compared) into the places that an index names, in ascending order.
#include <string_view>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/all.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <c10/core/WrapDimMinimal.h>

#include <potl/numeric/detail/accumulation.hpp>

#include "device.hpp"
#include "real.hpp"
#include "registrar.hpp"
#include "rows.hpp"

#include <ATen/ops/_index_put_impl_ops.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/put_ops.h>
#include <ATen/ops/scatter_add_ops.h>

namespace potl::libtorch::dispatch {
namespace {

using numeric::accumulation;
using numeric::accumulation_shape;

/// Row-major int64 indices; those below 0 count from the end where `wrap` says so.
at::Tensor checked(operator_name name, const at::Tensor& index, std::int64_t rows, bool wrap) {
  TORCH_CHECK_INDEX(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt, name.text,
                    "(): indices must be int32 or int64");
  at::Tensor out = row_major(name, index, at::kLong);
  if (is_on_device(out)) {
    const bool fits = ((out < rows) & (out >= (wrap ? -rows : 0))).all().item<bool>();
    TORCH_CHECK_INDEX(fits, name.text, "(): an index is out of bounds for a dimension of size ",
                      rows);
    return wrap ? at::where(out < 0, out + rows, out) : out;
  }
  const auto* values = out.const_data_ptr<std::int64_t>();
  bool has_negative = false;
  for (std::int64_t k = 0; k < out.numel(); ++k) {
    has_negative |= values[k] < 0;
    TORCH_CHECK_INDEX(values[k] < rows && values[k] >= (wrap ? -rows : 0), name.text, "(): index ",
                      values[k], " is out of bounds for a dimension of size ", rows);
  }
  return has_negative ? out + (out < 0).to(at::kLong) * rows : out;
}

// Tensors without dimensions count as one element.
at::Tensor with_dims(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
}

/// Sums of complex numbers are those of their parts: a last dimension that no index covers.
at::Tensor parts_of(const at::Tensor& x) { return at::view_as_real(with_dims(x).resolve_conj()); }

/// work[o][index[k]][i] op= source[o][k][i]; work is row-major.
void accumulate_rows(accumulation op, const accumulation_shape& shape, const at::Tensor& index,
                     const at::Tensor& source, const at::Tensor& work) {
  if (is_on_device(work)) {
    const at::Tensor first = at::arange(shape.outer, index.options()).unsqueeze(1) * shape.rows;
    return add_rows_there((first + index.reshape({1, -1})).reshape(-1),
                          source.reshape({shape.outer * shape.count, shape.inner}),
                          work.view({shape.outer * shape.rows, shape.inner}));
  }
  with_real(work.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    numeric::accumulate_rows(op, shape, values<std::int64_t>(index), source.const_data_ptr<Real>(),
                             work.mutable_data_ptr<Real>(), executor());
  });
}

void accumulate_elements(accumulation op, const accumulation_shape& shape, const at::Tensor& index,
                         const at::Tensor& source, const at::Tensor& work) {
  if (is_on_device(work)) {
    const at::Tensor first = at::arange(shape.outer, index.options()).view({-1, 1, 1}) * shape.rows;
    const at::Tensor rows = first + index.reshape({shape.outer, shape.count, shape.inner});
    return add_rows_there(
        (rows * shape.inner + at::arange(shape.inner, index.options())).reshape(-1),
        source.reshape({-1, 1}), work.view({-1, 1}));
  }
  with_real(work.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    numeric::accumulate_elements(op, shape, index.const_data_ptr<std::int64_t>(),
                                 source.const_data_ptr<Real>(), work.mutable_data_ptr<Real>(),
                                 executor());
  });
}

accumulation_shape shape_of(const at::Tensor& target, std::int64_t dim, std::int64_t count) {
  return {product(target.sizes(), 0, dim), target.size(dim), count,
          product(target.sizes(), dim + 1, target.dim())};
}

void add_rows(const char* name, accumulation op, const at::Tensor& self, std::int64_t dim,
              const at::Tensor& index, const at::Tensor& source) {
  const at::Tensor target = with_dims(self);
  const at::Tensor from = with_dims(source);
  dim = c10::maybe_wrap_dim(dim, target.dim());
  TORCH_CHECK_INDEX(index.dim() <= 1, name, "(): the index must have one dimension");
  TORCH_CHECK(target.scalar_type() == from.scalar_type(), name,
              "(): self and source must have the same type");
  sizes expected(target.sizes());
  expected[static_cast<std::size_t>(dim)] = index.numel();
  TORCH_CHECK(from.sizes() == c10::IntArrayRef(expected), name, "(): source has shape ",
              from.sizes(), ", expected ", c10::IntArrayRef(expected));
  const operator_name known{name, op == accumulation::add};
  require_one_device(known, self, index, source);
  const at::Tensor where = checked(known, index, target.size(dim), /*wrap=*/false);
  const in_place result(known, target);
  accumulate_rows(op, shape_of(target, dim, where.numel()), where,
                  row_major(known, from, result.work().scalar_type()), result.work());
  result.finish();
}

at::Tensor& index_add_(keys_t keys, at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                       const at::Tensor& source, const at::Scalar& alpha) {
  if (is_integral(self)) {
    return at::_ops::index_add_::redispatch(keys & below, self, dim, index, source, alpha);
  }
  const at::Tensor from = alpha.equal(1) ? source : source * alpha;
  const bool both = self.is_complex() && from.is_complex();
  add_rows("index_add", accumulation::add, both ? parts_of(self) : self,
           both ? c10::maybe_wrap_dim(dim, self.dim()) : dim, index, both ? parts_of(from) : from);
  return self;
}

at::Tensor index_add(const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                     const at::Tensor& source, const at::Scalar& alpha) {
  at::Tensor out = self.clone(at::MemoryFormat::Contiguous);
  return out.index_add_(dim, index, source, alpha);
}

/// The index along `dim` where it is the same for all other dimensions (expanded over the features
/// of a graph's nodes, say); else undefined.
at::Tensor of_rows(const at::Tensor& index, std::int64_t dim) {
  at::Tensor out = index;
  for (std::int64_t axis = index.dim() - 1; axis >= 0; --axis) {
    if (axis == dim) continue;
    if (index.size(axis) > 1 && index.stride(axis) != 0) return {};
    out = out.select(axis, 0);
  }
  return out;
}

/// self[.., index[p], ..] op= source[p]; the index may be smaller than the other two.
void add_elements(const char* name, accumulation op, const at::Tensor& self, std::int64_t dim,
                  const at::Tensor& index, const at::Tensor& source) {
  if (index.numel() == 0) return;
  at::Tensor target = with_dims(self);
  at::Tensor from = with_dims(source);
  const at::Tensor places = with_dims(index);
  dim = c10::maybe_wrap_dim(dim, target.dim());
  TORCH_CHECK(target.dim() == places.dim() && from.dim() == places.dim(), name,
              "(): self, index and src must have the same number of dimensions");
  TORCH_CHECK(target.scalar_type() == from.scalar_type(), name,
              "(): self and src must have the same type");
  for (std::int64_t axis = 0; axis < places.dim(); ++axis) {
    const std::int64_t size = places.size(axis);
    TORCH_CHECK(size <= from.size(axis) && (axis == dim || size <= target.size(axis)), name,
                "(): index has shape ", places.sizes(), ", self ", target.sizes(), ", src ",
                from.sizes());
    from = from.narrow(axis, 0, size);
    if (axis != dim) target = target.narrow(axis, 0, size);
  }
  const operator_name known{name, op == accumulation::add};
  require_one_device(known, self, index, source);
  const at::Tensor by_row = of_rows(places, dim);
  const at::Tensor where = checked(known, by_row.defined() ? by_row : places, target.size(dim),
                                   /*wrap=*/false);
  const in_place result(known, target);
  const accumulation_shape shape = shape_of(target, dim, places.size(dim));
  const at::Tensor values = row_major(known, from, result.work().scalar_type());
  if (by_row.defined()) {
    accumulate_rows(op, shape, where, values, result.work());
  } else {
    accumulate_elements(op, shape, where, values, result.work());
  }
  result.finish();
}

at::Tensor& scatter_add_(keys_t keys, at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                         const at::Tensor& source) {
  if (is_integral(self)) {
    return at::_ops::scatter_add_::redispatch(keys & below, self, dim, index, source);
  }
  if (self.is_complex() && source.is_complex()) {
    const at::Tensor places = with_dims(index).unsqueeze(-1);
    add_elements("scatter_add", accumulation::add, parts_of(self),
                 c10::maybe_wrap_dim(dim, self.dim()), at::cat({places, places}, -1),
                 parts_of(source));
  } else {
    add_elements("scatter_add", accumulation::add, self, dim, index, source);
  }
  return self;
}

at::Tensor scatter_add(const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                       const at::Tensor& source) {
  at::Tensor out = self.clone(at::MemoryFormat::Contiguous);
  return out.scatter_add_(dim, index, source);
}

struct reduction_rule {
  accumulation op;
  double start;  ///< where self does not take part
  bool is_mean;
};

reduction_rule rule_of(const char* name, std::string_view reduce) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (reduce == "sum" || reduce == "add") return {accumulation::add, 0, false};
  if (reduce == "prod" || reduce == "multiply") return {accumulation::multiply, 1, false};
  if (reduce == "mean") return {accumulation::add, 0, true};
  if (reduce == "amax") return {accumulation::maximum, -infinity, false};
  if (reduce == "amin") return {accumulation::minimum, infinity, false};
  TORCH_CHECK(false, name, "(): unknown reduction ", reduce);
}

/// `add(target, source)` combines source into target by the rule's operation; `clear(target,
/// value)` sets the places that the index names.
template <class Add, class Clear>
at::Tensor reduced(const char* name, const reduction_rule& rule, const at::Tensor& self,
                   const at::Tensor& source, bool include_self, const Add& add,
                   const Clear& clear) {
  const operator_name known{name, rule.op == accumulation::add};
  const c10::ScalarType type = compute_type(known, self.scalar_type());
  at::Tensor out = row_major(known, self, type);
  if (out.is_same(self)) out = self.clone(at::MemoryFormat::Contiguous);
  if (!include_self) clear(out, rule.start);
  const at::Tensor from = source.to(type);
  add(rule.op, out, from);
  if (rule.is_mean) {
    at::Tensor count = at::ones_like(out);
    if (!include_self) clear(count, 0.0);
    add(accumulation::add, count, at::ones_like(from));
    out.div_(count);
  }
  return rounded_to(out, self.scalar_type());
}

at::Tensor scatter_reduced(const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                           const at::Tensor& source, std::string_view reduce, bool include_self) {
  const char* name = "scatter_reduce";
  TORCH_CHECK(self.scalar_type() == source.scalar_type(), name,
              "(): self and src must have the same type");
  if (is_integral(self)) refuse("scatter_reduce of integers", "convert them to float64");
  return reduced(
      name, rule_of(name, reduce), self, source, include_self,
      [&](accumulation op, const at::Tensor& target, const at::Tensor& from) {
        add_elements(name, op, target, dim, index, from);
      },
      [&](at::Tensor& target, double value) { target.scatter_(dim, index, value); });
}

at::Tensor scatter_with_reduction(const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                                  const at::Tensor& source, std::string_view reduce) {
  return scatter_reduced(self, dim, index, source, reduce, true);
}

at::Tensor scatter_value_with_reduction(const at::Tensor& self, std::int64_t dim,
                                        const at::Tensor& index, const at::Scalar& value,
                                        std::string_view reduce) {
  const at::Tensor source = at::scalar_tensor(value, self.options()).expand(index.sizes());
  return scatter_reduced(self, dim, index, source, reduce, true);
}

at::Tensor index_reduce(const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                        const at::Tensor& source, std::string_view reduce, bool include_self) {
  const char* name = "index_reduce";
  if (is_integral(self)) refuse("index_reduce of integers", "convert them to float64");
  return reduced(
      name, rule_of(name, reduce), self, source, include_self,
      [&](accumulation op, const at::Tensor& target, const at::Tensor& from) {
        add_rows(name, op, target, dim, index, from);
      },
      [&](at::Tensor& target, double value) { target.index_fill_(dim, index, value); });
}

/// How many leading dimensions the indices cover, up to the last one that is given.
std::int64_t covered_dims(const c10::List<std::optional<at::Tensor>>& indices) {
  std::int64_t dims = 0;
  std::int64_t out = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::optional<at::Tensor> one = indices.get(i);
    const bool is_given = one.has_value() && one->defined();
    const bool is_mask =
        is_given && (one->scalar_type() == at::kBool || one->scalar_type() == at::kByte);
    dims += is_mask ? one->dim() : 1;
    if (is_given) out = dims;
  }
  return out;
}

at::Tensor& index_put_impl_(keys_t keys, at::Tensor& self,
                            const c10::List<std::optional<at::Tensor>>& indices,
                            const at::Tensor& source, bool accumulate, bool unsafe) {
  // One value for all places: no order can matter. Sums of integers have none either.
  if (accumulate ? is_integral(self) : source.numel() == 1) {
    return at::_ops::_index_put_impl_::redispatch(keys & below, self, indices, source, accumulate,
                                                  unsafe);
  }
  TORCH_CHECK_INDEX(self.scalar_type() == source.scalar_type(),
                    "Index put requires the source and destination dtypes match, got ",
                    self.scalar_type(), " for the destination and ", source.scalar_type(),
                    " for the source.");
  require_one_device(on_devices("index_put"), self, source);
  if (accumulate && self.is_complex() && self.dim() > 0) {
    at::Tensor parts = parts_of(self);
    index_put_impl_(keys, parts, indices, at::view_as_real(source.resolve_conj()), true, unsafe);
    return self;
  }
  const std::int64_t covered = covered_dims(indices);
  TORCH_CHECK_INDEX(covered <= self.dim(), "too many indices for tensor of dimension ", self.dim());
  const std::int64_t rows = product(self.sizes(), 0, covered);
  const std::int64_t inner = product(self.sizes(), covered, self.dim());
  if (rows * inner == 0) return self;
  // torch's own indexing of the rows' numbers: all of its rules for broadcasts and masks.
  c10::List<std::optional<at::Tensor>> leading;
  std::int64_t dims = 0;
  for (std::size_t i = 0; i < indices.size() && dims < covered; ++i) {
    const std::optional<at::Tensor> one = indices.get(i);
    leading.push_back(one);
    const bool is_mask = one.has_value() && one->defined() &&
                         (one->scalar_type() == at::kBool || one->scalar_type() == at::kByte);
    dims += is_mask ? one->dim() : 1;
  }
  const at::Tensor numbers = at::arange(rows, at::TensorOptions(at::kLong).device(self.device()));
  const at::Tensor where =
      covered == 0
          ? numbers
          : at::index(numbers.view(self.sizes().slice(0, static_cast<std::size_t>(covered))),
                      leading)
                .contiguous();
  sizes full(covered == 0 ? c10::IntArrayRef{} : where.sizes());
  for (std::int64_t axis = covered; axis < self.dim(); ++axis) full.push_back(self.size(axis));
  const at::Tensor values = source.expand(full);
  if (!accumulate && is_elsewhere(self)) {
    // torch's own: index_copy_ may come back to this function there.
    require_distinct(where.reshape(-1));
    return at::_ops::_index_put_impl_::redispatch(keys & below, self, indices, source, false,
                                                  unsafe);
  }
  if (!accumulate) {
    const at::Tensor work = self.contiguous();
    work.view({rows, inner})
        .index_copy_(0, where.reshape(-1), values.reshape({where.numel(), inner}));
    if (!work.is_same(self)) self.copy_(work);
    return self;
  }
  const in_place result(on_devices("index_put"), self);
  accumulate_rows(accumulation::add, {1, rows, where.numel(), inner}, where,
                  row_major(on_devices("index_put"), values, result.work().scalar_type()),
                  result.work());
  result.finish();
  return self;
}

at::Tensor& put_(keys_t keys, at::Tensor& self, const at::Tensor& index, const at::Tensor& source,
                 bool accumulate) {
  if (accumulate && is_integral(self)) {
    return at::_ops::put_::redispatch(keys & below, self, index, source, accumulate);
  }
  TORCH_CHECK(index.numel() == source.numel() && self.scalar_type() == source.scalar_type(),
              "put_(): source and index must have as many elements, and source the type of self");
  if (index.numel() == 0) return self;
  if (accumulate && self.is_complex()) {
    const at::Tensor places = index.to(at::kLong) * 2;
    at::view_as_real(self).put_(at::stack({places, places + 1}, -1),
                                at::view_as_real(source.resolve_conj()), true);
    return self;
  }
  constexpr operator_name name = on_devices("put_");
  require_one_device(name, self, index, source);
  const at::Tensor where = checked(name, index, self.numel(), /*wrap=*/true).reshape(-1);
  if (!accumulate && is_elsewhere(self)) {
    require_distinct(where);
    return at::_ops::put_::redispatch(keys & below, self, index, source, false);
  }
  if (!accumulate) {
    const at::Tensor work = self.contiguous();
    work.view(-1).index_copy_(0, where, source.reshape(-1));
    if (!work.is_same(self)) self.copy_(work);
    return self;
  }
  const in_place result(name, self);
  accumulate_rows(accumulation::add, {1, self.numel(), where.numel(), 1}, where,
                  row_major(name, source, result.work().scalar_type()), result.work());
  result.finish();
  return self;
}

}  // namespace

void register_accumulation(registrar& r) {
  const char* ascending =
      "one rounded operation per value, in ascending order of the source's position";
  r.kernel<index_add_>("index_add_", ascending);
  r.kernel<index_add>("index_add", ascending, {"index_add.out"});
  r.kernel<scatter_add_>("scatter_add_", ascending);
  r.kernel<scatter_add>("scatter_add", ascending, {"scatter_add.out"});
  r.kernel<scatter_reduced>("scatter_reduce.two", ascending,
                            {"scatter_reduce.two_out", "scatter_reduce_.two"});
  r.kernel<scatter_with_reduction>("scatter.reduce", ascending,
                                   {"scatter.reduce_out", "scatter_.reduce"});
  r.kernel<scatter_value_with_reduction>("scatter.value_reduce", ascending,
                                         {"scatter.value_reduce_out", "scatter_.value_reduce"});
  r.kernel<index_reduce>("index_reduce", ascending, {"index_reduce.out", "index_reduce_"});
  r.kernel<index_put_impl_>(
      "_index_put_impl_",
      "accumulate: one rounded sum per value, in ascending order; else the last value stays");
  r.kernel<put_>(
      "put_",
      "accumulate: one rounded sum per value, in ascending order; else the last value stays");
  r.composed({"index_put", "index_put_", "_unsafe_index_put", "_index_put_impl", "put"},
             "_index_put_impl_ or put_ of a copy");
}

}  // namespace potl::libtorch::dispatch
