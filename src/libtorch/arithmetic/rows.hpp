// SPDX-License-Identifier: Apache-2.0
// Sums of rows with the same target, on a device.
#pragma once

#include <ATen/core/Tensor.h>

namespace potl::libtorch::dispatch {

/// out[index[k]] += rows[k] for ascending k; all on one device. Indices out of range are refused.
void add_rows_there(const at::Tensor& index, const at::Tensor& rows, const at::Tensor& out);

}  // namespace potl::libtorch::dispatch
