// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/telemetry_log.hpp>

#include <algorithm>
#include <utility>

#include <potl/encoding/json.hpp>

namespace potl::checks {
namespace {

constexpr double last_moment = 1e11;  // seconds; the year 5138

class line_reader {
 public:
  explicit line_reader(const json_value& line) : line_(line) {}

  bool number(const char* name, double& to) const {
    const auto read = line_.root().number(name);
    if (!read) return false;
    to = read.value();
    return true;
  }
  // Null and absent are the same: not measured.
  bool optional(const char* name, double low, double high, std::optional<double>& to) const {
    const json_value* value = line_.find(name);
    if (value == nullptr || value->type() == json_value::kind::null) return true;
    double read = 0;
    if (!number(name, read) || !(read >= low) || !(read <= high)) return false;
    to = read;
    return true;
  }
  bool count(const char* name, std::uint64_t& to) const {
    const auto read = line_.root().count(name);
    if (!read) return false;
    to = read.value();
    return true;
  }
  bool time(double& to) const { return number("t", to) && to >= 0 && to <= last_moment; }

  bool header(telemetry_header& to) const {
    std::uint64_t version = 0;
    const auto source = line_.root().string("source");
    if (!count("version", version) || version != 1 || !source || !time(to.t)) return false;
    if (source.value() != "nvml" && source.value() != "process") return false;
    to.source = source.value();
    if (line_.find("mig") != nullptr) {
      const auto mig = line_.root().boolean("mig");
      if (!mig) return false;
      to.mig = mig.value();
    }
    return true;
  }
  bool sample(telemetry_sample& to) const {
    return time(to.t) && optional("util", 0, 1, to.utilisation) &&
           optional("memory", 0, 1e18, to.memory) && optional("power", 0, 1e9, to.power) &&
           optional("energy", 0, 1e18, to.energy);
  }
  bool steps(telemetry_steps& to) const {
    return time(to.t) && count("epoch", to.epoch) && count("first", to.first) &&
           count("last", to.last) && to.first >= 1 && to.first <= to.last;
  }

 private:
  const json_value& line_;
};

// starts: a header was read, and no sample after it.
bool read_line(const json_value& line, telemetry_log& to, bool& starts) {
  const auto kind = line.root().string("kind");
  if (!kind) return false;
  const line_reader reader(line);
  if (kind.value() == "sample") {
    to.samples.emplace_back().begins = std::exchange(starts, false);
    return reader.sample(to.samples.back());
  }
  if (kind.value() == "step") return reader.steps(to.steps.emplace_back());
  starts = true;
  return kind.value() == "header" && reader.header(to.headers.emplace_back());
}

}  // namespace

result<telemetry_log> parse_telemetry(bytes_view text) {
  if (text.size() > telemetry_max_bytes) {
    return error{errc::limit, "telemetry.log is larger than 64 MiB", ""};
  }
  json_limits limits;
  limits.max_bytes = telemetry_max_line;
  limits.max_depth = 4;
  limits.max_nodes = 64;
  telemetry_log out;
  bool starts = false;
  std::size_t at = 0;
  for (std::size_t number = 1; at < text.size(); ++number) {
    const auto begin = text.begin() + static_cast<std::ptrdiff_t>(at);
    const auto newline = std::find(begin, text.end(), std::uint8_t{'\n'});
    const auto length = static_cast<std::size_t>(newline - begin);
    const auto where = "line " + std::to_string(number) + " of telemetry.log ";
    if (newline == text.end()) return error{errc::malformed, where + "has no end", ""};
    if (length > telemetry_max_line) return error{errc::limit, where + "is too long", ""};
    const auto line = parse_json(text.subspan(at, length), limits);
    if (!line) return error{line.why().code, where + "is not JSON: " + line.why().message, ""};
    if (!read_line(line.value(), out, starts)) {
      return error{errc::malformed, where + "is not a header, sample or step", ""};
    }
    at += length + 1;
  }
  return out;
}

}  // namespace potl::checks
