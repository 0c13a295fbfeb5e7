// SPDX-License-Identifier: Apache-2.0
// Memory of the host, copied to the device and back.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <vector>

namespace potl::test {

inline void require(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

template <class T>
class device_memory {
 public:
  explicit device_memory(const std::vector<T>& from) : size_(from.size()) {
    require(cudaMalloc(&at_, (size_ + 1) * sizeof(T)));
    require(cudaMemcpy(at_, from.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~device_memory() { cudaFree(at_); }
  device_memory(const device_memory&) = delete;
  device_memory& operator=(const device_memory&) = delete;
  T* data() const { return static_cast<T*>(at_); }
  /// After everything that is queued.
  std::vector<T> read() const {
    std::vector<T> out(size_);
    require(cudaDeviceSynchronize());
    require(cudaMemcpy(out.data(), at_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }

 private:
  std::size_t size_;
  void* at_ = nullptr;
};

}  // namespace potl::test
