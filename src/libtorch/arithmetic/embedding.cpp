// SPDX-License-Identifier: Apache-2.0
// Gradients of embeddings and bags of embeddings: rows added in ascending order of their position.
#include <tuple>
#include <vector>

#include <ATen/ops/_unique.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <potl/numeric/detail/accumulation.hpp>

#include "device.hpp"
#include "fallback.hpp"
#include "real.hpp"
#include "registrar.hpp"
#include "rows.hpp"

#include <ATen/ops/_embedding_bag_backward_ops.h>
#include <ATen/ops/_embedding_bag_forward_only_ops.h>
#include <ATen/ops/_embedding_bag_ops.h>

namespace potl::libtorch::dispatch {
namespace {

using numeric::accumulation;

constexpr const char* of_bags = "embedding_bag";

enum bag_mode : std::int64_t { bag_sum = 0, bag_mean = 1, bag_max = 2 };

/// out[index[k]] += rows[k]: zeros of `count` rows at first; the result has the type of `rows`.
at::Tensor sum_rows(const char* name, const at::Tensor& rows, const at::Tensor& index,
                    std::int64_t count) {
  const c10::ScalarType type = compute_type(name, rows.scalar_type());
  const at::Tensor from = row_major(on_devices(name), rows, type);
  const at::Tensor where = row_major(on_devices(name), index, at::kLong);
  const at::Tensor out = at::zeros({count, from.size(1)}, from.options());
  if (is_on_device(from)) {
    add_rows_there(where, from, out);
    return rounded_to(out, rows.scalar_type());
  }
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    numeric::accumulate_rows(accumulation::add, {1, count, where.numel(), from.size(1)},
                             values<std::int64_t>(where), from.const_data_ptr<Real>(),
                             out.mutable_data_ptr<Real>(), executor());
  });
  return rounded_to(out, rows.scalar_type());
}

/// Positions of the indices that are not `padding`; undefined when none is.
at::Tensor without(const at::Tensor& index, std::int64_t padding) {
  if (padding < 0) return {};
  const at::Tensor kept = at::nonzero(index != padding).reshape(-1);
  return kept.numel() == index.numel() ? at::Tensor() : kept;
}

/// Each row divided by how often its index occurs.
at::Tensor by_frequency(const at::Tensor& rows, const at::Tensor& index, std::int64_t count) {
  const at::Tensor times = at::bincount(index, {}, count).index_select(0, index);
  return rows / times.to(rows.scalar_type()).unsqueeze(1);
}

at::Tensor embedding_dense_backward(const at::Tensor& gradient, const at::Tensor& indices,
                                    std::int64_t count, std::int64_t padding,
                                    bool scale_by_frequency) {
  const char* name = "embedding_dense_backward";
  require_one_device(name, gradient, indices);
  at::Tensor index = row_major(on_devices(name), indices, at::kLong).reshape(-1);
  at::Tensor rows = gradient.reshape({index.numel(), gradient.size(-1)});
  if (const at::Tensor kept = without(index, padding); kept.defined()) {
    index = index.index_select(0, kept);
    rows = rows.index_select(0, kept);
  }
  if (scale_by_frequency) rows = by_frequency(rows, index, count);
  return sum_rows(name, rows, index, count);
}

at::Tensor& embedding_renorm_(at::Tensor& self, const at::Tensor& indices, double max_norm,
                              double norm_type) {
  const at::Tensor used = std::get<0>(at::_unique(indices.reshape(-1).to(at::kLong)));
  const at::Tensor rows = self.index_select(0, used);
  const at::Tensor norms =
      at::linalg_vector_norm(rows, norm_type, at::OptionalIntArrayRef(1), /*keepdim=*/true);
  const at::Tensor scaled = rows * (max_norm / (norms + 1e-7));
  return self.index_copy_(0, used, at::where(norms > max_norm, scaled, rows));
}

/// The bag of every index, and the number of indices of every bag without the padding.
struct bags {
  at::Tensor of_index;
  at::Tensor size;
};

/// On a device, which is asked once whether the offsets fit.
bags bags_there(const at::Tensor& indices, const at::Tensor& offsets, bool has_last_offset,
                std::int64_t padding) {
  const std::int64_t count = offsets.numel() - (has_last_offset ? 1 : 0), total = indices.numel();
  TORCH_CHECK(count >= 0 && (count > 0 || total == 0), "embedding_bag: indices without a bag");
  if (count == 0) return {at::zeros({0}, offsets.options()), at::zeros({0}, offsets.options())};
  const at::Tensor last = offsets[-1];
  const at::Tensor fits = (offsets[0] == 0) & (offsets.diff() >= 0).all() &
                          (has_last_offset ? last == total : last <= total);
  TORCH_CHECK(fits.item<bool>(),
              "embedding_bag: offsets must ascend from 0 up to the number of indices");
  // The last of the bags that begin here or before: those that begin at one place are empty.
  const at::Tensor bag =
      at::searchsorted(offsets.narrow(0, 0, count), at::arange(total, offsets.options()),
                       /*out_int32=*/false, /*right=*/true) -
      1;
  const at::Tensor kept = without(indices, padding);
  return {bag, at::bincount(kept.defined() ? bag.index_select(0, kept) : bag, {}, count)};
}

bags bags_of(const at::Tensor& indices, const at::Tensor& offsets, bool has_last_offset,
             std::int64_t padding) {
  const at::Tensor first = row_major(on_devices(of_bags), offsets, at::kLong);
  if (is_on_device(first)) return bags_there(indices, first, has_last_offset, padding);
  const std::int64_t count = first.numel() - (has_last_offset ? 1 : 0);
  TORCH_CHECK(count >= 0, "embedding_bag: include_last_offset needs at least one offset");
  const std::int64_t total = indices.numel();
  const auto* start = first.const_data_ptr<std::int64_t>();
  const at::Tensor index = row_major(on_devices(of_bags), indices, at::kLong);
  bags out{make({total}, at::kLong), at::zeros({count}, at::TensorOptions(at::kLong))};
  auto* bag = out.of_index.mutable_data_ptr<std::int64_t>();
  auto* size = out.size.mutable_data_ptr<std::int64_t>();
  const auto* value = index.const_data_ptr<std::int64_t>();
  TORCH_CHECK(count == 0 || start[0] == 0, "embedding_bag: offsets[0] has to be 0");
  for (std::int64_t b = 0; b < count; ++b) {
    const std::int64_t end = b + 1 < first.numel() ? start[b + 1] : total;
    TORCH_CHECK(start[b] <= end && end <= total,
                "embedding_bag: offsets must ascend up to the number of indices");
    for (std::int64_t k = start[b]; k < end; ++k) {
      bag[k] = b;
      if (value[k] != padding) ++size[b];
    }
  }
  TORCH_CHECK(total == 0 || count > 0, "embedding_bag: indices without a bag");
  if (count > 0 && has_last_offset) {
    TORCH_CHECK(start[count] == total,
                "embedding_bag: the last offset has to be the number of indices");
  }
  return out;
}

/// 1 for bags without indices, else their size, as a column of numbers.
at::Tensor divisors(const at::Tensor& sizes, c10::ScalarType type) {
  return sizes.clamp_min(1).to(type).unsqueeze(1);
}

using bag_result = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

bag_result embedding_bag(keys_t keys, const at::Tensor& weight, const at::Tensor& indices,
                         const at::Tensor& offsets, bool scale_by_frequency, std::int64_t mode,
                         bool sparse, const std::optional<at::Tensor>& sample_weights,
                         bool has_last_offset, std::int64_t padding) {
  require_one_device(of_bags, weight, indices, offsets, sample_weights);
  if (mode == bag_max) {  // selects; no arithmetic
    require_plain("embedding_bag of mode max", weight);
    return at::_ops::_embedding_bag::redispatch(keys & below, weight, indices, offsets,
                                                scale_by_frequency, mode, sparse, sample_weights,
                                                has_last_offset, padding);
  }
  const at::Tensor index = row_major(on_devices(of_bags), indices, at::kLong);
  const bags grouped = bags_of(index, offsets, has_last_offset, padding);
  at::Tensor rows = weight.index_select(0, index);
  if (sample_weights.has_value() && sample_weights->defined()) {
    TORCH_CHECK(mode == bag_sum, "embedding_bag: per_sample_weights is for mode='sum'");
    rows = rows * sample_weights->unsqueeze(1);
  }
  at::Tensor bag = grouped.of_index;
  if (const at::Tensor kept = without(index, padding); kept.defined()) {
    rows = rows.index_select(0, kept);
    bag = bag.index_select(0, kept);
  }
  at::Tensor out = sum_rows(of_bags, rows, bag, grouped.size.numel());
  if (mode == bag_mean) out = out / divisors(grouped.size, out.scalar_type());
  const c10::ScalarType type = indices.scalar_type();
  return {out, grouped.of_index.to(type), grouped.size.to(type),
          at::zeros({grouped.size.numel()}, indices.options())};
}

bag_result embedding_bag_forward_only(keys_t keys, const at::Tensor& weight,
                                      const at::Tensor& indices, const at::Tensor& offsets,
                                      bool scale_by_frequency, std::int64_t mode, bool sparse,
                                      const std::optional<at::Tensor>& sample_weights,
                                      bool has_last_offset, std::int64_t padding) {
  if (mode == bag_max) {
    require_plain("embedding_bag of mode max", weight);
    return at::_ops::_embedding_bag_forward_only::redispatch(
        keys & below, weight, indices, offsets, scale_by_frequency, mode, sparse, sample_weights,
        has_last_offset, padding);
  }
  return embedding_bag(keys, weight, indices, offsets, scale_by_frequency, mode, sparse,
                       sample_weights, has_last_offset, padding);
}

/// Gradient of the maximum: every element of it goes to the row that was chosen for its column.
at::Tensor maximum_backward(const at::Tensor& gradient, const at::Tensor& bag_sizes,
                            const at::Tensor& chosen, std::int64_t count) {
  const char* name = "embedding_bag of mode max";
  const c10::ScalarType type = compute_type(name, gradient.scalar_type());
  const at::Tensor filled = at::nonzero(bag_sizes > 0).reshape(-1);
  const at::Tensor from = row_major(name, gradient.index_select(0, filled), type);
  const at::Tensor where = row_major(name, chosen.index_select(0, filled), at::kLong);
  const at::Tensor out = at::zeros({count, from.size(1)}, at::TensorOptions(type));
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    numeric::accumulate_elements(accumulation::add, {1, count, from.size(0), from.size(1)},
                                 where.const_data_ptr<std::int64_t>(), from.const_data_ptr<Real>(),
                                 out.mutable_data_ptr<Real>(), executor());
  });
  return rounded_to(out, gradient.scalar_type());
}

at::Tensor embedding_bag_dense_backward(const at::Tensor& gradient, const at::Tensor& indices,
                                        const at::Tensor& bag_of_index, const at::Tensor& bag_sizes,
                                        const at::Tensor& chosen, std::int64_t count,
                                        bool scale_by_frequency, std::int64_t mode,
                                        const std::optional<at::Tensor>& sample_weights,
                                        std::int64_t padding) {
  if (mode == bag_max) return maximum_backward(gradient, bag_sizes, chosen, count);
  require_one_device(of_bags, gradient, indices, bag_of_index, bag_sizes, sample_weights);
  at::Tensor index = row_major(on_devices(of_bags), indices, at::kLong);
  at::Tensor bag = row_major(on_devices(of_bags), bag_of_index, at::kLong);
  at::Tensor factors = value_or_undefined(sample_weights);
  if (const at::Tensor kept = without(index, padding); kept.defined()) {
    index = index.index_select(0, kept);
    bag = bag.index_select(0, kept);
    if (factors.defined()) factors = factors.index_select(0, kept);
  }
  const at::Tensor shares =
      mode == bag_mean ? gradient / divisors(bag_sizes, gradient.scalar_type()) : gradient;
  at::Tensor rows = shares.index_select(0, bag);
  if (factors.defined()) rows = rows * factors.unsqueeze(1);
  if (scale_by_frequency) rows = by_frequency(rows, index, count);
  return sum_rows(of_bags, rows, index, count);
}

at::Tensor embedding_bag_backward(c10::DispatchKeySet keys, const at::Tensor& gradient,
                                  const at::Tensor& indices, const at::Tensor& offsets,
                                  const at::Tensor& bag_of_index, const at::Tensor& bag_sizes,
                                  const at::Tensor& chosen, std::int64_t count,
                                  bool scale_by_frequency, std::int64_t mode, bool sparse,
                                  const std::optional<at::Tensor>& sample_weights,
                                  std::int64_t padding) {
  require_one_device(of_bags, gradient, indices, offsets);
  if (sparse && lets_through()) {
    return at::_ops::_embedding_bag_backward::redispatch(
        keys & below, gradient, indices, offsets, bag_of_index, bag_sizes, chosen, count,
        scale_by_frequency, mode, sparse, sample_weights, padding);
  }
  if (sparse) refuse("the sparse gradient of embedding_bag", "use sparse=False");
  // For some modes torch's forward pass leaves the bags to the backward pass.
  const bool is_last = offsets.numel() == bag_sizes.numel() + 1;
  const at::Tensor bag = bag_of_index.numel() == indices.numel()
                             ? bag_of_index
                             : bags_of(indices, offsets, is_last, padding).of_index;
  return embedding_bag_dense_backward(gradient, indices, bag, bag_sizes, chosen, count,
                                      scale_by_frequency, mode, sample_weights, padding);
}

at::Tensor sample_weights_backward(const at::Tensor& gradient, const at::Tensor& weight,
                                   const at::Tensor& indices, const at::Tensor& offsets,
                                   const at::Tensor& bag_of_index, std::int64_t mode,
                                   std::int64_t padding) {
  TORCH_CHECK(mode == bag_sum, "embedding_bag: per_sample_weights is for mode='sum'");
  require_one_device(of_bags, gradient, weight, indices, offsets, bag_of_index);
  const at::Tensor index = row_major(on_devices(of_bags), indices, at::kLong);
  const bool is_last = offsets.numel() == gradient.size(0) + 1;
  const at::Tensor bag = bag_of_index.numel() == index.numel()
                             ? bag_of_index
                             : bags_of(index, offsets, is_last, padding).of_index;
  const at::Tensor products = gradient.index_select(0, bag) * weight.index_select(0, index);
  const at::Tensor out = products.sum(1);
  return padding < 0 ? out : out.masked_fill(index == padding, 0);
}

}  // namespace

void register_embedding(registrar& r) {
  r.kernel<embedding_dense_backward>(
      "embedding_dense_backward",
      "rows added in ascending order of their position; by frequency: divided first");
  r.kernel<embedding_renorm_>("embedding_renorm_",
                              "rows longer than max_norm times (max_norm / (norm + 1e-7))");
  r.composed({"embedding_renorm"}, "embedding_renorm_ of a copy");
  r.kernel<embedding_bag>(
      "_embedding_bag",
      "rows added in ascending order; the mean divides the sum; the maximum selects");
  r.kernel<embedding_bag_forward_only>("_embedding_bag_forward_only", "as _embedding_bag");
  r.kernel<embedding_bag_backward>("_embedding_bag_backward",
                                   "rows added in ascending order of their position");
  r.kernel<embedding_bag_dense_backward>("_embedding_bag_dense_backward",
                                         "rows added in ascending order of their position");
  r.kernel<sample_weights_backward>("_embedding_bag_per_sample_weights_backward",
                                    "the sum over each row of gradient times weight");
}

}  // namespace potl::libtorch::dispatch
