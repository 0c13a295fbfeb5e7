// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "checks/telemetry/telemetry_gauge.hpp"

namespace potl::checks {
namespace {

class process_gauge : public gauge {
 public:
  telemetry_header describe() const override { return {0, "process", false}; }

  telemetry_sample read() override {
    telemetry_sample out;
    const double now = wall_seconds(), used = processor_seconds();
    if (started_ && now > wall_) {
      const double cores = std::max(1u, std::thread::hardware_concurrency());
      out.utilisation = std::clamp((used - used_) / (now - wall_) / cores, 0.0, 1.0);
    }
    started_ = true;
    wall_ = now;
    used_ = used;
    if (const double memory = resident_bytes(); memory > 0) out.memory = memory;
    return out;
  }

 private:
  static double wall_seconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
  }
  static double processor_seconds() {
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  static double resident_bytes() {
    std::ifstream file("/proc/self/statm");
    double size = 0, resident = 0;
    file >> size >> resident;
    return file ? resident * static_cast<double>(sysconf(_SC_PAGESIZE)) : 0;
  }

  bool started_ = false;
  double wall_ = 0, used_ = 0;
};

}  // namespace

std::unique_ptr<gauge> make_process_gauge() { return std::make_unique<process_gauge>(); }

}  // namespace potl::checks
