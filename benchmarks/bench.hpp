// SPDX-License-Identifier: Apache-2.0
// What the C++ benchmarks share: interleaved measurement of a candidate and its baseline in one
// process, a table, and build/bench/<stem>.json.
//
// Both sides run in turn, so that a slow phase of the machine hits both. The ratio is the median of
// the rounds' ratios; low and high bound that median with 95 % confidence (order statistics), so
// they say how well it is known, not how far single rounds scatter.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace potl::bench {

struct outcome {
  std::string name;
  double value = 0;  ///< units of work per second of the candidate
  std::string unit;
  std::string baseline;
  double ratio = 0;  ///< candidate's speed / baseline's speed
  double low = 0;
  double high = 0;
  double at_least = 0;  ///< what is asked for; of the value where there is no ratio
  double at_most = 0;   ///< of the value, where there is no ratio
};

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

inline double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Runs both `rounds` times in turn, after one warm-up each. `amount`: units of work in one run.
inline outcome compare(std::string name, double amount, std::string unit, std::string baseline_name,
                       double at_least, int rounds, const std::function<void()>& baseline,
                       const std::function<void()>& candidate) {
  baseline();
  candidate();
  std::vector<double> ratios, times;
  for (int round = 0; round < rounds; ++round) {
    const double base = seconds_of(baseline);
    const double own = seconds_of(candidate);
    ratios.push_back(base / own);
    times.push_back(own);
  }
  std::sort(ratios.begin(), ratios.end());
  const double half_width = 0.98 * std::sqrt(static_cast<double>(rounds));
  const double last = static_cast<double>(rounds - 1);
  const auto at = [&](double rank) {
    return ratios[static_cast<std::size_t>(std::clamp(rank, 0.0, last))];
  };
  return {std::move(name),
          amount / median(times),
          std::move(unit),
          std::move(baseline_name),
          median(ratios),
          at(std::floor(last / 2 - half_width)),
          at(std::ceil(last / 2 + half_width)),
          at_least};
}

inline nlohmann::json machine() {
  std::string processor = "unknown";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) {
      processor = line.substr(line.find(':') + 2);
      break;
    }
  }
  return {{"processor", processor}, {"cores", std::thread::hardware_concurrency()}};
}

/// Prints the table and writes <directory>/<stem>.json, directory = $POTL_BENCH_DIR or build/bench.
inline void report(const std::string& stem, const std::vector<outcome>& outcomes) {
  const nlohmann::json where = machine();
  std::printf("%s, %s cores\n", where["processor"].get<std::string>().c_str(),
              where["cores"].dump().c_str());
  std::printf("%-26s %14s %-9s %7s  %-17s %8s  %s\n", "name", "value", "unit", "ratio",
              "[interval]", "at least", "baseline");
  nlohmann::json results = nlohmann::json::array();
  for (const outcome& one : outcomes) {
    if (one.ratio == 0) {
      const bool least = one.at_least > 0;
      const double asked = least ? one.at_least : one.at_most;
      std::printf("%-26s %14.4g %-9s at %s %g  %s\n", one.name.c_str(), one.value, one.unit.c_str(),
                  least ? "least" : "most", asked, one.baseline.c_str());
      results.push_back({{"name", one.name},
                         {"value", one.value},
                         {"unit", one.unit},
                         {"baseline", one.baseline},
                         {least ? "at_least" : "at_most", asked}});
      continue;
    }
    std::printf("%-26s %14.4g %-9s %7.3f  [%.3f, %.3f]    %8.2f  %s\n", one.name.c_str(), one.value,
                one.unit.c_str(), one.ratio, one.low, one.high, one.at_least, one.baseline.c_str());
    results.push_back({{"name", one.name},
                       {"value", one.value},
                       {"unit", one.unit},
                       {"baseline", one.baseline},
                       {"ratio", one.ratio},
                       {"low", one.low},
                       {"high", one.high},
                       {"at_least", one.at_least}});
  }
  const char* chosen = std::getenv("POTL_BENCH_DIR");
  const std::filesystem::path directory = chosen == nullptr ? "build/bench" : chosen;
  std::filesystem::create_directories(directory);
  std::ofstream(directory / (stem + ".json"))
      << nlohmann::json({{"machine", where}, {"results", results}}).dump(2) << "\n";
}

}  // namespace potl::bench
