// SPDX-License-Identifier: Apache-2.0
// Data sets made of tensors: sample i is the tuple of row i of each. Their root is the one that the
// Python package computes for torch.utils.data.TensorDataset with the same tensors.
//
// Assumes tensors on the CPU with equal first dims. Cost of the root: one pass of SHA-256.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <potl/core/file.hpp>
#include <potl/crypto/merkle.hpp>
#include <potl/encoding/detail/safetensors.hpp>
#include <potl/libtorch/detail/module_state.hpp>
#include <potl/libtorch/detail/tensor.hpp>

namespace potl::libtorch {

/// Columns of a data set.
using tensors = std::vector<at::Tensor>;

namespace detail {

[[noreturn]] inline void refuse_column(const tensors& data, std::size_t index) {
  const std::string column = "column " + std::to_string(index) + " of the data set ";
  const at::Tensor& one = data[index];
  if (!one.defined() || one.dim() == 0) {
    throw exception({errc::usage, column + "has no rows", "sample i is row i of every column"});
  }
  if (!one.device().is_cpu()) {
    throw exception({errc::usage, column + "is on " + one.device().str(), "keep it on the CPU"});
  }
  throw exception({errc::usage,
                   column + "has " + std::to_string(one.size(0)) + " rows, and column 0 has " +
                       std::to_string(data[0].size(0)),
                   "sample i is row i of every column"});
}

}  // namespace detail

/// Samples of a data set, at least one; throws potl::exception (usage) unless every column has as
/// many.
inline std::uint64_t sample_count(const tensors& data) {
  if (data.empty() || !data[0].defined() || data[0].dim() == 0 || data[0].size(0) == 0) {
    throw exception({errc::usage, "the data set has no samples", "give it a tensor per column"});
  }
  for (std::size_t i = 0; i < data.size(); ++i) {
    const at::Tensor& column = data[i];
    if (!column.defined() || column.dim() == 0 || column.size(0) != data[0].size(0) ||
        !column.device().is_cpu()) {
      detail::refuse_column(data, i);
    }
  }
  return static_cast<std::uint64_t>(data[0].size(0));
}

namespace detail {

inline void append_number(std::vector<std::uint8_t>& out, std::uint64_t value) {
  for (unsigned i = 0; i < 8; ++i) out.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

inline std::vector<std::uint8_t> row_header(const at::Tensor& column) {
  const std::optional<dtype> type = dtype_of(column.scalar_type());
  if (!type) refuse("data", "an element type without a name", "use another");
  const std::string_view name = info(*type).torch_name;
  std::vector<std::uint8_t> out{'t'};
  append_number(out, name.size());
  out.insert(out.end(), name.begin(), name.end());
  append_number(out, static_cast<std::uint64_t>(column.dim() - 1));
  for (std::int64_t i = 1; i < column.dim(); ++i) {
    append_number(out, static_cast<std::uint64_t>(column.size(i)));
  }
  return out;
}

}  // namespace detail

/// Merkle root over the canonical bytes of every sample (docs/reference/task.md has them).
inline digest data_root(const tensors& data) {
  const std::uint64_t count = sample_count(data);
  std::vector<at::Tensor> columns;
  std::vector<std::vector<std::uint8_t>> headers;
  for (const at::Tensor& column : data) {
    columns.push_back(column.detach().contiguous());
    headers.push_back(detail::row_header(column));
  }
  merkle_frontier tree;
  std::vector<std::uint8_t> sample;
  for (std::uint64_t i = 0; i < count; ++i) {
    sample.assign(1, '(');
    detail::append_number(sample, columns.size());
    for (std::size_t j = 0; j < columns.size(); ++j) {
      const std::size_t row = columns[j].nbytes() / count;
      const auto* bytes = static_cast<const std::uint8_t*>(columns[j].const_data_ptr()) + i * row;
      sample.insert(sample.end(), headers[j].begin(), headers[j].end());
      sample.insert(sample.end(), bytes, bytes + row);
    }
    tree.append(leaf_hash(sample));
  }
  return tree.root();
}

/// The rows `ids` of every column.
inline tensors select_samples(const tensors& data, std::span<const std::int64_t> ids) {
  const at::Tensor which = at::empty({static_cast<std::int64_t>(ids.size())}, at::kLong);
  std::copy(ids.begin(), ids.end(), which.mutable_data_ptr<std::int64_t>());
  tensors out;
  for (const at::Tensor& column : data) out.push_back(column.index_select(0, which));
  return out;
}

/// The named tensors of a safetensors file. malformed, limit, io, or missing for a name.
inline result<tensors> read_tensors(const std::string& path, const std::vector<std::string>& names,
                                    std::uint64_t max_bytes = std::uint64_t{16} << 30) {
  const auto file = read_file(path, max_bytes, links::follow);
  if (!file) return file.why();
  const auto view = parse_safetensors(*file);
  if (!view) return view.why();
  tensors out;
  for (const std::string& name : names) {
    const safetensors_tensor* found = view->find(name);
    if (found == nullptr) return error{errc::missing, path + " has no tensor " + name, ""};
    std::vector<std::int64_t> dims;
    for (const std::uint64_t dim : found->dims) dims.push_back(static_cast<std::int64_t>(dim));
    at::Tensor tensor = at::empty(dims, scalar_type(found->type));
    if (!found->data.empty()) {
      std::memcpy(tensor.mutable_data_ptr(), found->data.data(), found->data.size());
    }
    out.push_back(std::move(tensor));
  }
  return out;
}

/// Writes parameters and buffers under their names: the delivered model, which a verification
/// compares with the last committed state. Atomic.
inline status save_model(torch::nn::Module& model, const std::string& path) {
  const module_tensors all = tensors_of(model);
  std::map<std::string, at::Tensor> named = all.parameters;
  named.insert(all.buffers.begin(), all.buffers.end());
  describer describe;
  std::map<std::string, bytes_view> bytes;
  std::vector<safetensors_writer::tensor> announced;
  for (const auto& [name, tensor] : named) {
    const transcript::state_value value = describe(tensor, name);
    const auto& one = std::get<transcript::state_tensor>(value.content);
    bytes.emplace(name, one.bytes);
    announced.push_back({name, one.type, one.dims});
  }
  auto file = atomic_file::create(path);
  if (!file) return file.why();
  auto writer = safetensors_writer::create(std::move(announced), {},
                                           [&](bytes_view part) { return file->write(part); });
  if (!writer) return writer.why();
  for (const safetensors_writer::tensor& one : writer->order()) {
    const status written = writer->write(bytes.at(one.name));
    if (!written) return written;
  }
  const status complete = writer->finish();
  return complete ? file->commit() : complete;
}

}  // namespace potl::libtorch
