// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>

#include "device.hpp"

namespace potl::libtorch::dispatch {

void add_rows_there(const at::Tensor& index, const at::Tensor& rows, const at::Tensor& out) {
  if (index.numel() == 0 || out.numel() == 0) return;
  const std::int64_t targets = out.size(0);
  // A stable order keeps the rows of a target ascending.
  const auto [sorted, order] = at::sort(index, /*stable=*/true, 0, /*descending=*/false);
  TORCH_CHECK_INDEX(
      sorted[0].item<std::int64_t>() >= 0 && sorted[-1].item<std::int64_t>() < targets,
      "an index is out of range: there are ", targets, " rows");
  const at::Tensor starts =
      at::searchsorted(sorted, at::arange(targets + 1, sorted.options())).contiguous();
  const device_call there(rows);
  there->add_rows(targets, rows.numel() / index.numel(), starts.const_data_ptr<std::int64_t>(),
                  order.contiguous().const_data_ptr<std::int64_t>(), rows.const_data_ptr<float>(),
                  out.mutable_data_ptr<float>(), there.queue());
}

}  // namespace potl::libtorch::dispatch
