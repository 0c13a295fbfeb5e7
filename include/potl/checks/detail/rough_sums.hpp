// SPDX-License-Identifier: Apache-2.0
// What any_workload::roughen moves, and how far. The adapters of torch share it: Python's
// (potl/_arithmetic/_rough.py) and LibTorch's (libtorch/detail/rough_sums.hpp).
#pragma once

#include <cstdint>
#include <string_view>

namespace potl::checks {

/// In units of roundoff of the typical element of a row: an older processor's chain over 2,048
/// terms is about 8 of them away from a sum in blocks. Every other seed has the rougher one: what
/// lies behind more layers takes more to turn.
constexpr double roughness(std::uint64_t seed) noexcept { return seed % 2 == 0 ? 8 : 32; }

/// Sums of terms of both signs, as torch spells them without "aten::". Sums of squares and of
/// probabilities have no small results that their terms do not have, and would turn negative.
inline constexpr std::string_view rough_sums[] = {
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "mv",
    "addmv",
    "dot",
    "sum",
    "mean",
    "convolution",
    "convolution_backward",
    "native_batch_norm",
    "native_batch_norm_backward",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    "batch_norm_backward",
    "cudnn_batch_norm",
    "cudnn_batch_norm_backward",
    "native_layer_norm",
    "native_layer_norm_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "_fused_rms_norm",
    "_fused_rms_norm_backward",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "embedding_dense_backward",
    "index_add",
    "scatter_add",
    "_fft_c2c",
    "_fft_c2r",
    "_fft_r2c",
    "mkldnn_rnn_layer",
    "mkldnn_rnn_layer_backward",
    "_cudnn_rnn",
    "_cudnn_rnn_backward",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_cudnn_attention_backward",
};

}  // namespace potl::checks
