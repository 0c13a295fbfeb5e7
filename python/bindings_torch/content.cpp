// SPDX-License-Identifier: Apache-2.0
#include "content.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/python_variable.h>

#include "libtorch/arithmetic/device.hpp"

namespace potl_torch {
namespace {

struct dimension {
  std::int64_t size;
  std::int64_t stride;  // bytes
};

template <std::size_t Item>
void gather(const std::uint8_t* from, std::int64_t stride, std::int64_t count, std::uint8_t* to) {
  for (std::int64_t i = 0; i < count; ++i, from += stride, to += Item) std::memcpy(to, from, Item);
}

/// `rows` whole rows. Where rows lie side by side, a line of the cache holds elements of several.
template <std::size_t Item>
void gather_rows(const std::uint8_t* from, std::int64_t rows, std::int64_t step, dimension row,
                 std::uint8_t* to) {
  constexpr std::int64_t side = 64 / Item;
  const std::int64_t pitch = row.size * static_cast<std::int64_t>(Item);
  for (std::int64_t top = 0; top < rows; top += side) {
    const std::int64_t bottom = std::min(top + side, rows);
    for (std::int64_t left = 0; left < row.size; left += side) {
      const std::int64_t count = std::min(side, row.size - left);
      for (std::int64_t i = top; i < bottom; ++i) {
        gather<Item>(from + i * step + left * row.stride, row.stride, count,
                     to + i * pitch + left * static_cast<std::int64_t>(Item));
      }
    }
  }
}

/// A tensor's elements, by the order of their indices.
class elements {
 public:
  explicit elements(const at::Tensor& tensor)
      : data_(static_cast<const std::uint8_t*>(tensor.const_data_ptr())),
        item_(static_cast<std::size_t>(tensor.element_size())) {
    for (std::int64_t i = 0; i < tensor.dim(); ++i) {
      const std::int64_t size = tensor.size(i);
      const std::int64_t stride = tensor.stride(i) * static_cast<std::int64_t>(item_);
      if (size == 1) continue;
      if (!dims_.empty() && dims_.back().stride == stride * size) {  // one dimension, cut in two
        dims_.back() = {dims_.back().size * size, stride};
      } else {
        dims_.push_back({size, stride});
      }
    }
    if (dims_.empty()) dims_.push_back({1, static_cast<std::int64_t>(item_)});
  }

  void read(std::uint64_t offset, std::span<std::uint8_t> out) const {
    switch (item_) {
      case 1: return read_items<1>(offset, out);
      case 2: return read_items<2>(offset, out);
      case 4: return read_items<4>(offset, out);
      case 8: return read_items<8>(offset, out);
      default: return read_items<16>(offset, out);
    }
  }

 private:
  template <std::size_t Item>
  void read_items(std::uint64_t offset, std::span<std::uint8_t> out) const {
    const dimension row = dims_.back();
    auto index = static_cast<std::int64_t>(offset / Item);
    auto left = static_cast<std::int64_t>(out.size() / Item);
    std::uint8_t* to = out.data();
    while (left > 0) {
      const std::uint8_t* from = data_;
      std::int64_t rest = index;
      for (auto dim = dims_.rbegin(); dim != dims_.rend(); ++dim) {
        from += rest % dim->size * dim->stride;
        rest /= dim->size;
      }
      const std::int64_t column = index % row.size;
      std::int64_t count = std::min(row.size - column, left);
      if (row.stride == static_cast<std::int64_t>(Item)) {
        std::memcpy(to, from, static_cast<std::size_t>(count) * Item);
      } else if (column != 0 || left < row.size || dims_.size() == 1) {
        gather<Item>(from, row.stride, count, to);
      } else {
        const dimension& above = dims_[dims_.size() - 2];
        const std::int64_t at = index / row.size % above.size;
        const std::int64_t rows = std::min(above.size - at, left / row.size);
        gather_rows<Item>(from, rows, above.stride, row, to);
        count *= rows;
      }
      index += count;
      left -= count;
      to += static_cast<std::size_t>(count) * Item;
    }
  }

  const std::uint8_t* data_;
  std::size_t item_;
  std::vector<dimension> dims_;
};

}  // namespace

potl::digest content_root(PyObject* tensor, const potl::content_runner& run) {
  at::Tensor plain = THPVariable_Unpack(tensor);
  if (plain.is_conj() || plain.is_neg()) plain = plain.detach().resolve_conj().resolve_neg();
  if (!plain.is_cpu()) plain = plain.detach().cpu();
  if (plain.is_contiguous()) {
    return potl::content_root(
        {static_cast<const std::uint8_t*>(plain.const_data_ptr()), plain.nbytes()}, run);
  }
  const elements all(plain);
  return potl::content_root(
      plain.nbytes(),
      [&](std::uint64_t offset, std::span<std::uint8_t> out) { all.read(offset, out); }, run);
}

std::vector<potl::digest> content_roots_there(
    const std::string& device, const std::vector<std::pair<std::uintptr_t, std::size_t>>& places) {
  std::vector<potl::cuda::device_bytes> tensors;
  for (const auto& [address, size] : places) {
    tensors.push_back({reinterpret_cast<const void*>(address), size});  // NOLINT: Python's number
  }
  const auto count = static_cast<std::int64_t>(places.size());
  const at::Tensor roots = at::empty({count, static_cast<std::int64_t>(potl::digest::size)},
                                     at::TensorOptions(at::kByte).device(c10::Device(device)));
  {
    const potl::libtorch::dispatch::device_call there(roots);
    there->content_roots(tensors, static_cast<potl::digest*>(roots.mutable_data_ptr()),
                         there.queue());
  }
  std::vector<potl::digest> out(places.size());
  const at::Tensor here = roots.cpu();
  if (!out.empty()) std::memcpy(out.data(), here.const_data_ptr(), here.nbytes());
  return out;
}

}  // namespace potl_torch
