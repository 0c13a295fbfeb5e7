// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/detail/kept_tensor.hpp>

#include <cstring>

#include <potl/crypto/detail/tensor_digest.hpp>

namespace potl::transcript {
namespace {

// A write that torch does not count shows at the first steps of nearly every training.
constexpr std::size_t whole_looks = 3;

}  // namespace

bool kept_tensor::differs(bytes_view now, std::size_t part) const {
  const std::size_t first = size_ / parts * part;
  const std::size_t last = part + 1 == parts ? size_ : first + size_ / parts;
  return std::memcmp(copy_.get() + first, now.data() + first, last - first) != 0;
}

kept_tensor::finding kept_tensor::look(bytes_view now, bool whole) {
  if (last_ != finding::same) return last_;
  if (looks_ == 0) {
    // Not from snapshot_memory, whose blocks go around with the steps.
    copy_ = std::make_unique_for_overwrite<std::uint8_t[]>(now.size());
    size_ = now.size();
    if (size_ != 0) std::memcpy(copy_.get(), now.data(), size_);
  } else {
    last_ = compare(now, whole);
  }
  ++looks_;
  return last_;
}

kept_tensor::finding kept_tensor::compare(bytes_view now, bool whole) const {
  if (now.size() != size_) return finding::changed;
  const bool early = looks_ < whole_looks;
  const bool same = whole || early ? size_ == 0 || std::memcmp(copy_.get(), now.data(), size_) == 0
                                   : !differs(now, looks_ % parts);
  if (same) return finding::same;
  std::size_t different = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    if (differs(now, part)) ++different;
  }
  return early || different == parts ? finding::changed : finding::torn;
}

const digest& kept_tensor::root() const {
  std::call_once(hashed_, [&] { root_ = content_root(bytes()); });
  return root_;
}

}  // namespace potl::transcript
