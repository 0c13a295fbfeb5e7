// SPDX-License-Identifier: Apache-2.0
// Any bytes: no crash. The tensors of an accepted file cover its data exactly; written again they
// give a file with the same content, and writing that gives the same bytes.
#include <algorithm>
#include <cstdlib>
#include <string>

#include <potl/encoding/detail/safetensors.hpp>

#include "fuzz.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::string rewritten(const potl::safetensors_view& view) {
  std::vector<potl::safetensors_writer::tensor> tensors;
  for (const potl::safetensors_tensor& tensor : view.tensors)
    tensors.push_back({tensor.name, tensor.type, tensor.dims});
  std::string out;
  auto writer = potl::safetensors_writer::create(std::move(tensors), view.metadata,
                                                 [&](potl::bytes_view part) -> potl::status {
                                                   out.append(part.begin(), part.end());
                                                   return potl::unit{};
                                                 })
                    .value();
  for (const auto& tensor : writer.order())
    require(writer.write(view.find(tensor.name)->data).has_value());
  require(writer.finish().has_value());
  return out;
}

}  // namespace

POTL_FUZZ_TARGET(safetensors_fuzz) {
  const potl::result<potl::safetensors_view> view = potl::parse_safetensors({data, size});
  if (!view) return 0;
  std::size_t covered = 0;
  for (const potl::safetensors_tensor& tensor : view->tensors) {
    covered += tensor.data.size();
    require(tensor.data.empty() || (tensor.data.data() >= data + 8 &&
                                    tensor.data.data() + tensor.data.size() <= data + size));
  }
  require(covered <= size);

  const std::string file = rewritten(*view);
  const potl::result<potl::safetensors_view> again =
      potl::parse_safetensors(potl::as_bytes_view(file));
  require(again.has_value());
  require(again->metadata == view->metadata && again->tensors.size() == view->tensors.size());
  for (std::size_t i = 0; i < view->tensors.size(); ++i) {
    const potl::safetensors_tensor& a = view->tensors[i];
    const potl::safetensors_tensor& b = again->tensors[i];
    require(a.name == b.name && a.type == b.type && a.dims == b.dims);
    require(std::equal(a.data.begin(), a.data.end(), b.data.begin(), b.data.end()));
  }
  require(rewritten(*again) == file);
  return 0;
}
