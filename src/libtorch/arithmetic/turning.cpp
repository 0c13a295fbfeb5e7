// SPDX-License-Identifier: Apache-2.0
#include "turning.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include <potl/numeric/detail/transposition.hpp>

#include <ATen/ops/empty_like.h>

#include "mode.hpp"

namespace potl::libtorch::dispatch {
namespace {

/// Of dimensions that are neighbours on both sides nothing but their product matters. False, and
/// nothing done, for a copy that does not turn matrices.
bool turn(const at::Tensor& from, const at::Tensor& to) {
  struct dimension {
    std::int64_t size, from, to;
  };
  std::vector<dimension> all;
  for (std::int64_t dim = 0; dim < from.dim(); ++dim) {
    if (from.size(dim) > 1) all.push_back({from.size(dim), from.stride(dim), to.stride(dim)});
  }
  std::sort(all.begin(), all.end(),
            [](const dimension& a, const dimension& b) { return a.to > b.to; });
  std::vector<dimension> merged;
  for (const dimension& next : all) {
    if (!merged.empty() && merged.back().from == next.size * next.from &&
        merged.back().to == next.size * next.to) {
      merged.back() = {merged.back().size * next.size, next.from, next.to};
    } else {
      merged.push_back(next);
    }
  }
  if (merged.size() < 2 || merged.size() > 3) return false;
  const dimension &columns = merged[merged.size() - 2], &rows = merged.back();
  const std::int64_t size = rows.size * columns.size;
  if (rows.to != 1 || columns.from != 1 || rows.from != columns.size) return false;
  // torch is faster with the few channels of an image.
  if (from.itemsize() == 2 && std::min(rows.size, columns.size) < 8) return false;
  if (merged.size() == 3 && (merged[0].from != size || merged[0].to != size)) return false;
  const auto count = [](std::int64_t number) { return static_cast<std::size_t>(number); };
  const auto move = [&](auto element) {
    using Element = decltype(element);
    numeric::transpose(
        count(from.numel() / size), count(rows.size), count(columns.size),
        std::span(static_cast<const Element*>(from.const_data_ptr()), count(from.numel())),
        std::span(static_cast<Element*>(to.mutable_data_ptr()), count(from.numel())), executor());
  };
  switch (from.itemsize()) {
    case 2: move(std::uint16_t{}); return true;
    case 4: move(std::uint32_t{}); return true;
    case 8: move(std::uint64_t{}); return true;
    default: return false;
  }
}

bool is_worth_it(const at::Tensor& x) {
  constexpr std::int64_t least = 4096;  // takes longer than to look at it
  return x.numel() >= least && x.device().is_cpu() && x.layout() == c10::kStrided && !x.is_conj() &&
         !x.is_neg() && !x._is_zerotensor();
}

}  // namespace

at::Tensor turned(const at::Tensor& x, std::optional<at::MemoryFormat> format) {
  if (!is_worth_it(x)) return {};
  const at::Tensor out = at::empty_like(x, {}, format);
  return out.strides() != x.strides() && turn(x, out) ? out : at::Tensor();
}

void turn_into(const at::Tensor& to, const at::Tensor& x) {
  if (to.strides() == x.strides() || !is_worth_it(x) || !turn(x, to)) to.copy_(x);
}

at::Tensor in_format(const at::Tensor& x, at::MemoryFormat format) {
  if (x.is_contiguous(format)) return x;
  const at::Tensor out = turned(x, format);
  return out.defined() ? out : x.contiguous(format);
}

}  // namespace potl::libtorch::dispatch
