// SPDX-License-Identifier: Apache-2.0
// Operators whose stock kernels give the same bits everywhere: they move bits, compare, select, or
// do one IEEE operation per element. tests/python/arithmetic/test_special_values.py has them on
// hostile values in the places where torch's kernels could tell elements apart.
//
// Not here, although they look like it: `maximum` and its relatives (the sign of a zero depends on
// the lane), softshrink (so there) and gradients of hardtanh and its relatives (NaN), `add` with
// alpha (fused on some processors), `remainder` (another fmod per instruction set), `neg` (the
// zeros of complex numbers), `sort` without stable=True.
#include "registrar.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_copy_ops.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/WrapDimMinimal.h>

#include "turning.hpp"

namespace potl::libtorch::dispatch {
namespace {

void register_views(registrar& r) {
  r.exact({"alias",
           "as_strided",
           "as_strided_",
           "detach",
           "detach_",
           "diagonal",
           "expand",
           "permute",
           "select.int",
           "slice.Tensor",
           "slice_inverse",
           "split.Tensor",
           "split_with_sizes",
           "squeeze",
           "squeeze.dim",
           "squeeze.dims",
           "squeeze_",
           "squeeze_.dim",
           "squeeze_.dims",
           "t",
           "t_",
           "transpose.int",
           "transpose_",
           "unbind.int",
           "unfold",
           "unsafe_split.Tensor",
           "unsafe_split_with_sizes",
           "unsqueeze",
           "unsqueeze_",
           "view",
           "view.dtype",
           "view_as_real",
           "view_as_complex",
           "_conj",
           "_neg_view",
           "_reshape_alias",
           "_unsafe_view",
           "lift",
           "lift_fresh",
           "_fw_primal",
           "_make_dual"},
          "a view");
  r.exact({"resize_",
           "resize_as_",
           "_resize_output_",
           "set_",
           "set_.source_Storage",
           "set_.source_Storage_storage_offset",
           "set_.source_Tensor",
           "is_set_to",
           "is_same_size",
           "is_pinned",
           "_pin_memory",
           "_has_same_storage_numel",
           "_local_scalar_dense",
           "_assert_async",
           "_assert_async.msg",
           "_assert_scalar",
           "_assert_tensor_metadata",
           "_functional_assert_async.msg",
           "_functional_assert_scalar",
           "sym_constrain_range",
           "sym_constrain_range_for_size",
           "_version",
           "_lazy_clone",
           "record_stream"},
          "book-keeping");
}

at::Tensor clone(keys_t keys, const at::Tensor& x, std::optional<at::MemoryFormat> format) {
  const at::Tensor out = turned(x, format);
  return out.defined() ? out : at::_ops::clone::redispatch(keys & below, x, format);
}

void register_copies(registrar& r) {
  const char* copies = "copies; conversions between types round once";
  r.stock<passed_on<at::_ops::copy_>::call>("copy_", copies);
  r.stock<clone>("clone", copies);
  r.exact({"_to_copy",
           "fill_.Scalar",
           "fill_.Tensor",
           "fill.Scalar",
           "fill.Tensor",
           "zero_",
           "cat",
           "cat.out",
           "stack",
           "stack.out",
           "_stack",
           "_stack.out",
           "_chunk_cat",
           "_chunk_cat.out",
           "repeat",
           "roll",
           "rot90",
           "flip",
           "constant_pad_nd",
           "block_diag",
           "narrow_copy",
           "narrow_copy.out",
           "split_with_sizes_copy.out",
           "split_copy.Tensor_out",
           "unbind_copy.int_out",
           "slice_backward",
           "diagonal_backward",
           "_reshape_copy",
           "_pack_padded_sequence",
           "channel_shuffle",
           "native_channel_shuffle",
           "pixel_shuffle",
           "pixel_unshuffle"},
          copies);
  r.exact({"empty.memory_format",
           "empty_strided",
           "empty_like",
           "empty_permuted",
           "new_empty",
           "new_empty_strided",
           "new_full",
           "new_ones",
           "new_zeros",
           "full",
           "full.out",
           "full_like",
           "ones",
           "ones.out",
           "ones_like",
           "zeros",
           "zeros.out",
           "zeros_like",
           "scalar_tensor",
           "eye",
           "eye.m",
           "eye.out",
           "eye.m_out",
           "_efficientzerotensor",
           "_new_zeros_with_same_feature_meta",
           "tril_indices",
           "triu_indices"},
          "memory, filled with one value");
  r.exact_forms({"tril", "triu"}, "copies");
}

void require_one_value_each(const at::Tensor& self, std::int64_t dim, const at::Tensor& index) {
  if (!is_elsewhere(index) || index.numel() < 2 || index.dim() == 0) return;
  dim = c10::maybe_wrap_dim(dim, self.dim());
  at::Tensor place = at::zeros({1}, index.options());
  for (std::int64_t axis = 0; axis < index.dim(); ++axis) {
    std::vector<std::int64_t> along(static_cast<std::size_t>(index.dim()), 1);
    along[static_cast<std::size_t>(axis)] = -1;
    const at::Tensor at =
        axis == dim ? index : at::arange(index.size(axis), index.options()).view(along);
    place = place * self.size(axis) + at;
  }
  require_distinct(place.reshape(-1));
}
at::Tensor scatter(keys_t keys, const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                   const at::Tensor& source) {
  require_one_value_each(self, dim, index);
  return at::_ops::scatter_src::redispatch(keys & below, self, dim, index, source);
}
at::Tensor& scatter_in(keys_t keys, at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                       const at::Tensor& source) {
  require_one_value_each(self, dim, index);
  return at::_ops::scatter__src::redispatch(keys & below, self, dim, index, source);
}
/// Positions, ascending, of the last index of each place; undefined where no place comes twice, or
/// an index is none, which torch says.
at::Tensor last_of_each(const at::Tensor& index, std::int64_t places) {
  const at::Tensor plain = index.contiguous();
  const std::span<const std::int64_t> all(plain.const_data_ptr<std::int64_t>(),
                                          static_cast<std::size_t>(plain.numel()));
  std::vector<bool> seen(static_cast<std::size_t>(places));
  std::vector<std::int64_t> kept;
  for (std::size_t k = all.size(); k-- > 0;) {
    if (all[k] < 0 || all[k] >= places) return {};
    if (seen[static_cast<std::size_t>(all[k])]) continue;
    seen[static_cast<std::size_t>(all[k])] = true;
    kept.push_back(static_cast<std::int64_t>(k));
  }
  if (kept.size() == all.size()) return {};
  const at::Tensor out = at::empty({static_cast<std::int64_t>(kept.size())}, index.options());
  std::copy(kept.rbegin(), kept.rend(), out.mutable_data_ptr<std::int64_t>());
  return out;
}

/// What index_copy has to copy. torch's threads write at once, so that of several values for one
/// place any might stay: the last alone is given to them.
struct last_values {
  last_values(const at::Tensor& self, std::int64_t dim, const at::Tensor& given,
              const at::Tensor& from)
      : index(given), source(from) {
    require_distinct(given.reshape(-1));
    if (!given.is_cpu() || given.scalar_type() != at::kLong || given.dim() != 1 ||
        self.dim() != from.dim() || self.dim() == 0) {
      return;
    }
    dim = c10::maybe_wrap_dim(dim, self.dim());
    if (from.size(dim) != given.numel()) return;
    const at::Tensor kept = last_of_each(given, self.size(dim));
    if (!kept.defined()) return;
    index = given.index_select(0, kept);
    source = from.index_select(dim, kept);
  }
  at::Tensor index, source;
};

at::Tensor index_copy(keys_t keys, const at::Tensor& self, std::int64_t dim,
                      const at::Tensor& index, const at::Tensor& source) {
  const last_values of(self, dim, index, source);
  return at::_ops::index_copy::redispatch(keys & below, self, dim, of.index, of.source);
}
at::Tensor& index_copy_in(keys_t keys, at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                          const at::Tensor& source) {
  const last_values of(self, dim, index, source);
  return at::_ops::index_copy_::redispatch(keys & below, self, dim, of.index, of.source);
}
at::Tensor& index_copy_to(keys_t keys, const at::Tensor& self, std::int64_t dim,
                          const at::Tensor& index, const at::Tensor& source, at::Tensor& out) {
  const last_values of(self, dim, index, source);
  return at::_ops::index_copy_out::redispatch(keys & below, self, dim, of.index, of.source, out);
}

void register_indexing(registrar& r) {
  r.exact({"index.Tensor", "index.Tensor_out", "_unsafe_index.Tensor", "index_select",
           "index_select.out", "gather", "gather.out", "take", "take.out", "masked_select",
           "masked_select.out", "embedding", "nonzero", "nonzero.out", "nonzero_static",
           "nonzero_static.out"},
          "gathers");
  r.exact({"masked_fill_.Scalar", "masked_fill_.Tensor", "masked_fill.Scalar", "masked_fill.Tensor",
           "masked_scatter_", "masked_scatter", "index_fill_.int_Scalar", "index_fill_.int_Tensor",
           "index_fill.int_Scalar", "index_fill.int_Tensor", "scatter.value", "scatter.value_out",
           "scatter_.value"},
          "scatters without adding; of several values for one place the last stays");
  const char* last = "scatters without adding; of several values for one place the last stays";
  r.exact_on_cpu({"scatter.src_out"}, last);
  r.stock<index_copy>("index_copy", last);
  r.stock<index_copy_in>("index_copy_", last);
  r.stock<index_copy_to>("index_copy.out", last);
  r.stock<scatter>("scatter.src", last);
  r.stock<scatter_in>("scatter_.src", last);
}

void register_comparisons(registrar& r) {
  for (const char* name : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    for (const char* form :
         {".Scalar", ".Scalar_out", ".Tensor", ".Tensor_out", "_.Scalar", "_.Tensor"}) {
      r.exact({(std::string(name) + form).c_str()}, "a comparison");
    }
  }
  r.exact_forms({"logical_and", "logical_or", "logical_xor", "logical_not", "isposinf", "isneginf"},
                "a comparison");
  r.exact({"isnan",
           "isinf",
           "equal",
           "any",
           "any.all_out",
           "any.dim",
           "any.dims",
           "any.dims_out",
           "any.out",
           "all",
           "all.all_out",
           "all.dim",
           "all.dims",
           "all.dims_out",
           "all.out",
           "_is_all_true",
           "_is_any_true",
           "count_nonzero",
           "count_nonzero.dim_IntList",
           "isin.Tensor_Tensor",
           "isin.Tensor_Tensor_out",
           "isin.Tensor_Scalar",
           "isin.Tensor_Scalar_out",
           "isin.Scalar_Tensor",
           "isin.Scalar_Tensor_out",
           "searchsorted.Scalar",
           "searchsorted.Scalar_out",
           "searchsorted.Tensor",
           "searchsorted.Tensor_out",
           "bucketize.Scalar",
           "bucketize.Tensor",
           "bucketize.Tensor_out"},
          "comparisons");
  r.exact({"max.dim", "max.dim_max", "min.dim", "min.dim_min", "argmax", "argmax.out", "argmin",
           "argmin.out", "cummax", "cummax.out", "cummin", "cummin.out", "_cummax_helper",
           "_cummin_helper", "unique_consecutive", "unique_dim", "unique_dim_consecutive",
           "_unique", "_unique2"},
          "selects among the operand's values");
  r.exact_on_cpu({"topk", "topk.values", "kthvalue", "kthvalue.values", "median", "median.dim",
                  "median.dim_values", "nanmedian", "nanmedian.dim", "nanmedian.dim_values", "mode",
                  "mode.values"},
                 "selects among the operand's values");
}

// torch's kernels for CUDA take a minimum of -0 and +0 for +0: there these have forms that the
// CPU's kernels agree with.

using optional_scalar = std::optional<at::Scalar>;

bool is_clamped_there(const at::Tensor& x) { return is_elsewhere(x) && !is_integral(x); }
at::Tensor clamp_there(const at::Tensor& x, const optional_scalar& low,
                       const optional_scalar& high) {
  TORCH_CHECK(low || high, "torch.clamp: At least one of 'min' or 'max' must not be None");
  at::Tensor out = x;
  if (low) out = at::where(out < *low, *low, out);
  if (high) out = at::where(out > *high, *high, out);
  return out.is_same(x) ? x.clone() : out;
}
at::Tensor clamp(keys_t keys, const at::Tensor& x, const optional_scalar& low,
                 const optional_scalar& high) {
  if (is_clamped_there(x)) return clamp_there(x, low, high);
  return at::_ops::clamp::redispatch(keys & below, x, low, high);
}
at::Tensor& clamp_in(keys_t keys, at::Tensor& x, const optional_scalar& low,
                     const optional_scalar& high) {
  if (is_clamped_there(x)) return x.copy_(clamp_there(x, low, high));
  return at::_ops::clamp_::redispatch(keys & below, x, low, high);
}
at::Tensor& clamp_out(keys_t keys, const at::Tensor& x, const optional_scalar& low,
                      const optional_scalar& high, at::Tensor& out) {
  if (is_clamped_there(x)) return write_out(clamp_there(x, low, high), out);
  return at::_ops::clamp_out::redispatch(keys & below, x, low, high, out);
}
template <class Stock, bool IsLow>
at::Tensor clamp_one(keys_t keys, const at::Tensor& x, const at::Scalar& bound) {
  if (is_clamped_there(x)) {
    return clamp_there(x, IsLow ? optional_scalar(bound) : std::nullopt,
                       IsLow ? std::nullopt : optional_scalar(bound));
  }
  return Stock::redispatch(keys & below, x, bound);
}
template <class Stock, bool IsLow>
at::Tensor& clamp_one_in(keys_t keys, at::Tensor& x, const at::Scalar& bound) {
  if (is_clamped_there(x)) {
    return x.copy_(clamp_there(x, IsLow ? optional_scalar(bound) : std::nullopt,
                               IsLow ? std::nullopt : optional_scalar(bound)));
  }
  return Stock::redispatch(keys & below, x, bound);
}
template <class Stock, bool IsLow>
at::Tensor& clamp_one_out(keys_t keys, const at::Tensor& x, const at::Scalar& bound,
                          at::Tensor& out) {
  if (is_clamped_there(x)) {
    return write_out(clamp_there(x, IsLow ? optional_scalar(bound) : std::nullopt,
                                 IsLow ? std::nullopt : optional_scalar(bound)),
                     out);
  }
  return Stock::redispatch(keys & below, x, bound, out);
}

void register_bounded(registrar& r) {
  namespace ops = at::_ops;
  const char* selection = "one IEEE operation, or a selection";
  r.stock<clamp>("clamp", selection);
  r.stock<clamp_in>("clamp_", selection);
  r.stock<clamp_out>("clamp.out", selection);
  r.stock<clamp_one<ops::clamp_min, true>>("clamp_min", selection);
  r.stock<clamp_one_in<ops::clamp_min_, true>>("clamp_min_", selection);
  r.stock<clamp_one_out<ops::clamp_min_out, true>>("clamp_min.out", selection);
  r.stock<clamp_one<ops::clamp_max, false>>("clamp_max", selection);
  r.stock<clamp_one_in<ops::clamp_max_, false>>("clamp_max_", selection);
  r.stock<clamp_one_out<ops::clamp_max_out, false>>("clamp_max.out", selection);
}

void register_elements(registrar& r) {
  r.exact_forms({"floor", "ceil", "trunc", "frac", "round", "nan_to_num", "nextafter", "heaviside",
                 "hardtanh", "hardshrink", "threshold", "relu"},
                "one IEEE operation, or a selection");
  r.exact(
      {"frexp.Tensor", "frexp.Tensor_out", "threshold_backward", "threshold_backward.grad_input",
       "leaky_relu", "leaky_relu_", "leaky_relu.out", "leaky_relu_backward",
       "leaky_relu_backward.grad_input", "_prelu_kernel", "_prelu_kernel_backward"},
      "one IEEE operation, or a selection");
  r.exact_forms({"sign"}, "one IEEE operation");
  r.composed({"add.Scalar",
              "add_.Scalar",
              "sub.Scalar",
              "sub_.Scalar",
              "mul.Scalar",
              "mul_.Scalar",
              "div.Scalar",
              "div_.Scalar",
              "div.Scalar_mode",
              "div_.Scalar_mode",
              "floor_divide.Scalar",
              "floor_divide_.Scalar",
              "remainder.Scalar",
              "remainder.Scalar_out",
              "remainder_.Scalar",
              "fmod.Scalar",
              "fmod.Scalar_out",
              "fmod_.Scalar",
              "rsub.Scalar",
              "deg2rad",
              "deg2rad_",
              "deg2rad.out",
              "rad2deg",
              "rad2deg_",
              "rad2deg.out"},
             "the operator of two tensors");
}

void register_integers(registrar& r) {
  for (const char* name :
       {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"}) {
    for (const char* form :
         {".Scalar", ".Scalar_out", ".Scalar_Tensor", ".Tensor", ".Tensor_out", ".Tensor_Scalar",
          ".Tensor_Scalar_out", "_.Scalar", "_.Tensor", "_.Tensor_Scalar"}) {
      r.exact_if_known(std::string(name) + form, "integers");
    }
  }
  r.exact_forms({"bitwise_not", "gcd", "lcm"}, "integers");
  r.exact_on_cpu({"random_", "random_.from", "random_.to", "randint", "randint.generator",
                  "randint.out", "randint.generator_out", "randint.low", "randint.low_generator",
                  "randint.low_out", "randint.low_generator_out", "randint_like",
                  "randint_like.Tensor", "randint_like.low_dtype"},
                 "integers of torch's generator");
}

}  // namespace

void register_exact(registrar& r) {
  register_views(r);
  register_copies(r);
  register_indexing(r);
  register_comparisons(r);
  register_elements(r);
  register_bounded(r);
  register_integers(r);
  r.composed({"masked_scatter_backward"}, "masked_select and cat");
  r.composed({"allclose",
              "addr",
              "addr_",
              "addr.out",
              "dist",
              "binary_cross_entropy_with_logits",
              "celu",
              "celu_",
              "arange",
              "arange.start",
              "arange.start_step",
              "arange.out",
              "linspace",
              "linspace.Tensor_Tensor",
              "linspace.Tensor_Scalar",
              "linspace.Scalar_Tensor",
              "linspace.Tensor_Tensor_out",
              "linspace.Tensor_Scalar_out",
              "linspace.Scalar_Tensor_out",
              "bartlett_window",
              "bartlett_window.periodic",
              "blackman_window",
              "blackman_window.periodic",
              "hamming_window",
              "hamming_window.periodic",
              "hamming_window.periodic_alpha",
              "hamming_window.periodic_alpha_beta",
              "hann_window",
              "hann_window.periodic",
              "fft_fftfreq",
              "fft_fftfreq.out",
              "fft_rfftfreq",
              "fft_rfftfreq.out"},
             "other operators");
  const char* dense =
      "use dense tensors: sparse=False in an embedding, to_dense() before the block";
  r.refused(
      {"_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors", "_to_sparse",
       "_to_sparse.sparse_dim", "_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr",
       "_to_sparse_bsc", "_to_dense", "_coalesce", "is_coalesced", "_values", "_indices", "_nnz"},
      dense);
  r.refused({"to_mkldnn"}, "leave tensors in torch's own layout");
}

}  // namespace potl::libtorch::dispatch
