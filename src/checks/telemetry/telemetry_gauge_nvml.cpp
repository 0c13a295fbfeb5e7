// SPDX-License-Identifier: Apache-2.0
// NVML through dlopen: the declarations below are the part of its stable C interface that is used.
#include <dlfcn.h>

#include "checks/telemetry/telemetry_gauge.hpp"

namespace potl::checks {
namespace {

extern "C" {
struct nvml_utilization {
  unsigned gpu, memory;  // percent
};
struct nvml_memory {
  unsigned long long total, free, used;  // bytes
};
using nvml_device = void*;
using nvml_plain = int (*)();
using nvml_handle = int (*)(unsigned, nvml_device*);
using nvml_read_utilization = int (*)(nvml_device, nvml_utilization*);
using nvml_read_memory = int (*)(nvml_device, nvml_memory*);
using nvml_read_power = int (*)(nvml_device, unsigned*);
using nvml_read_energy = int (*)(nvml_device, unsigned long long*);
using nvml_read_mig = int (*)(nvml_device, unsigned*, unsigned*);
}

class nvml_gauge : public gauge {
 public:
  nvml_gauge() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    const auto init = symbol<nvml_plain>("nvmlInit_v2");
    const auto handle = symbol<nvml_handle>("nvmlDeviceGetHandleByIndex_v2");
    utilization_ = symbol<nvml_read_utilization>("nvmlDeviceGetUtilizationRates");
    memory_ = symbol<nvml_read_memory>("nvmlDeviceGetMemoryInfo");
    power_ = symbol<nvml_read_power>("nvmlDeviceGetPowerUsage");
    energy_ = symbol<nvml_read_energy>("nvmlDeviceGetTotalEnergyConsumption");
    if (init == nullptr || handle == nullptr || init() != 0) return;
    initialised_ = true;
    ready_ = handle(0, &device_) == 0;
  }
  ~nvml_gauge() override {
    const auto end = initialised_ ? symbol<nvml_plain>("nvmlShutdown") : nullptr;
    if (end != nullptr) end();
    if (library_ != nullptr) dlclose(library_);
  }
  nvml_gauge(const nvml_gauge&) = delete;
  nvml_gauge& operator=(const nvml_gauge&) = delete;

  bool ready() const { return ready_; }

  telemetry_header describe() const override {
    unsigned current = 0, pending = 0;
    const auto mode = symbol<nvml_read_mig>("nvmlDeviceGetMigMode");
    const bool mig = mode != nullptr && mode(device_, &current, &pending) == 0 && current != 0;
    return {0, "nvml", mig};
  }

  telemetry_sample read() override {
    telemetry_sample out;
    nvml_utilization busy{};
    nvml_memory memory{};
    unsigned milliwatts = 0;
    unsigned long long millijoules = 0;
    if (utilization_ != nullptr && utilization_(device_, &busy) == 0 && busy.gpu <= 100) {
      out.utilisation = busy.gpu / 100.0;
    }
    if (memory_ != nullptr && memory_(device_, &memory) == 0) {
      out.memory = static_cast<double>(memory.used);
    }
    if (power_ != nullptr && power_(device_, &milliwatts) == 0) out.power = milliwatts * 1e-3;
    if (energy_ != nullptr && energy_(device_, &millijoules) == 0) {
      out.energy = static_cast<double>(millijoules) * 1e-3;
    }
    return out;
  }

 private:
  template <class Function>
  Function symbol(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }

  void* library_ = nullptr;
  bool initialised_ = false, ready_ = false;
  nvml_device device_ = nullptr;
  nvml_read_utilization utilization_ = nullptr;
  nvml_read_memory memory_ = nullptr;
  nvml_read_power power_ = nullptr;
  nvml_read_energy energy_ = nullptr;
};

}  // namespace

std::unique_ptr<gauge> make_nvml_gauge() {
  auto out = std::make_unique<nvml_gauge>();
  if (!out->ready()) return nullptr;
  return out;
}

}  // namespace potl::checks
