// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <array>
#include <atomic>

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace potl::libtorch::dispatch {
namespace {

constexpr std::size_t kinds = static_cast<std::size_t>(c10::COMPILE_TIME_MAX_DEVICE_TYPES);

std::atomic<const device_kernels*>& kernels_of(c10::DeviceType type) noexcept {
  static std::array<std::atomic<const device_kernels*>, kinds> all{};
  return all[static_cast<std::size_t>(type)];
}

}  // namespace

void use_device(c10::DeviceType type, const device_kernels* kernels) noexcept {
  kernels_of(type) = kernels;
}

bool is_known(c10::DeviceType type) noexcept { return kernels_of(type) != nullptr; }

bool is_on_device(const at::Tensor& tensor) noexcept {
  return tensor.defined() && is_known(tensor.device().type());
}

device_call::device_call(const at::Tensor& on) : kernels_(kernels_of(on.device().type())) {
  TORCH_INTERNAL_ASSERT(kernels_ != nullptr);
  if (on.device().is_cpu()) return;  // simulated: there are no queues
  guard_.reset_device(on.device());
  const c10::impl::VirtualGuardImpl queues(on.device().type());
  stream_ = queues.getStream(on.device()).native_handle();
  memory_.emplace(c10::GetAllocator(on.device().type()));
}

}  // namespace potl::libtorch::dispatch
