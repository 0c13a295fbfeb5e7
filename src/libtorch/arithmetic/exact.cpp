// SPDX-License-Identifier: Apache-2.0
// Operators whose stock kernels give the same bits everywhere: they move bits, compare, select, or
// do one IEEE operation per element. tests/python/arithmetic/test_special_values.py has them on
// hostile values in the places where torch's kernels could tell elements apart.
//
// Not here, although they look like it: `maximum` and its relatives (the sign of a zero depends on
// the lane), softshrink (so there) and gradients of hardtanh and its relatives (NaN), `add` with
// alpha (fused on some processors), `remainder` (another fmod per instruction set), `sort` without
// stable=True.
#include "registrar.hpp"

#include <ATen/ops/abs_ops.h>
#include <ATen/ops/conj_physical_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/sgn_ops.h>
#include <ATen/ops/sign_ops.h>

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

void register_copies(registrar& r) {
  r.exact({"copy_",
           "clone",
           "_to_copy",
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
          "copies; conversions between types round once");
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
  r.exact_real<at::_ops::conj_physical_, at::_ops::conj_physical_out>("copies");
}

void register_indexing(registrar& r) {
  r.exact({"index.Tensor", "index.Tensor_out", "_unsafe_index.Tensor", "index_select",
           "index_select.out", "gather", "gather.out", "take", "take.out", "masked_select",
           "masked_select.out", "embedding", "where.self", "where.self_out", "nonzero",
           "nonzero.out", "nonzero_static", "nonzero_static.out"},
          "gathers");
  r.exact({"masked_fill_.Scalar", "masked_fill_.Tensor", "masked_fill.Scalar", "masked_fill.Tensor",
           "masked_scatter_", "masked_scatter", "index_fill_.int_Scalar", "index_fill_.int_Tensor",
           "index_fill.int_Scalar", "index_fill.int_Tensor", "index_copy", "index_copy_",
           "index_copy.out", "scatter.src", "scatter.src_out", "scatter_.src", "scatter.value",
           "scatter.value_out", "scatter_.value"},
          "scatters without adding; of several values for one place the last stays");
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
  r.exact({"max.dim",
           "max.dim_max",
           "min.dim",
           "min.dim_min",
           "argmax",
           "argmax.out",
           "argmin",
           "argmin.out",
           "cummax",
           "cummax.out",
           "cummin",
           "cummin.out",
           "_cummax_helper",
           "_cummin_helper",
           "topk",
           "topk.values",
           "kthvalue",
           "kthvalue.values",
           "median",
           "median.dim",
           "median.dim_values",
           "nanmedian",
           "nanmedian.dim",
           "nanmedian.dim_values",
           "mode",
           "mode.values",
           "unique_consecutive",
           "unique_dim",
           "unique_dim_consecutive",
           "_unique",
           "_unique2"},
          "selects among the operand's values");
}

void register_elements(registrar& r) {
  r.exact_forms({"neg", "floor", "ceil", "trunc", "frac", "round", "nan_to_num", "nextafter",
                 "heaviside", "hardtanh", "hardshrink", "threshold", "relu"},
                "one IEEE operation, or a selection");
  r.exact({"clamp",
           "clamp_",
           "clamp.out",
           "clamp_min",
           "clamp_min_",
           "clamp_min.out",
           "clamp_max",
           "clamp_max_",
           "clamp_max.out",
           "frexp.Tensor",
           "frexp.Tensor_out",
           "threshold_backward",
           "threshold_backward.grad_input",
           "leaky_relu",
           "leaky_relu_",
           "leaky_relu.out",
           "leaky_relu_backward",
           "leaky_relu_backward.grad_input",
           "_prelu_kernel",
           "_prelu_kernel_backward"},
          "one IEEE operation, or a selection");
  r.exact_real<at::_ops::mul_Tensor, at::_ops::mul__Tensor, at::_ops::mul_out, at::_ops::div_Tensor,
               at::_ops::div__Tensor, at::_ops::div_out, at::_ops::reciprocal,
               at::_ops::reciprocal_, at::_ops::reciprocal_out, at::_ops::abs_out, at::_ops::sgn,
               at::_ops::sgn_, at::_ops::sgn_out, at::_ops::sign, at::_ops::sign_,
               at::_ops::sign_out>("one IEEE operation");
  r.composed({"abs",
              "abs_",
              "add.Scalar",
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
  r.exact({"random_", "random_.from", "random_.to", "randint", "randint.generator", "randint.out",
           "randint.generator_out", "randint.low", "randint.low_generator", "randint.low_out",
           "randint.low_generator_out", "randint_like", "randint_like.Tensor",
           "randint_like.low_dtype"},
          "integers of torch's generator");
}

}  // namespace

void register_exact(registrar& r) {
  register_views(r);
  register_copies(r);
  register_indexing(r);
  register_comparisons(r);
  register_elements(r);
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
