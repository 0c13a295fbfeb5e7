// SPDX-License-Identifier: Apache-2.0
// Content roots of tensors where they are: in the memory of a CUDA device.
//
// Claims: content_root() of crypto/detail/tensor_digest.hpp, bit for bit, of many tensors at once.
// Cost: the bytes are read once; 64 bytes of the device's memory for every 16 KiB.
#pragma once

#include <cstddef>
#include <span>

#include <potl/core/digest.hpp>
#include <potl/cuda/queue.hpp>

namespace potl::cuda {

/// Whether this process can use a CUDA device.
bool has_device() noexcept;

/// Bytes in the memory of the current device, at any address.
struct device_bytes {
  const void* data = nullptr;
  std::size_t size = 0;
};

/// Queues on `stream` that roots[i] becomes the content root of tensors[i]. `roots` is memory of
/// the device, or of the host that the device can write (pinned). Throws potl::exception (io) for
/// an error of the device, std::bad_alloc without memory.
void content_roots(std::span<const device_bytes> tensors, digest* roots, queue stream);

}  // namespace potl::cuda
