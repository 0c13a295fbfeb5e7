// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include <potl/checks/telemetry_sampler.hpp>
#include <potl/core/detail/home_process.hpp>
#include <potl/core/file.hpp>
#include <potl/encoding/json.hpp>

#include "checks/telemetry/telemetry_gauge.hpp"

namespace potl::checks {
namespace {

constexpr std::uint64_t samples_per_doubling = 50'000;

double now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  // Milliseconds are enough and keep lines short.
  return std::round(std::chrono::duration<double>(since).count() * 1000) / 1000;
}

json_value rounded(const std::optional<double>& value, double unit) {
  return value ? json_value(std::round(*value / unit) * unit) : json_value();
}

std::string header_line(const telemetry_header& header, double interval) {
  return canonical_json(json_value::of({{"kind", "header"},
                                        {"version", 1},
                                        {"t", now()},
                                        {"source", header.source},
                                        {"mig", header.mig},
                                        {"interval", interval}})) +
         "\n";
}

std::string sample_line(const telemetry_sample& one) {
  return canonical_json(json_value::of({{"kind", "sample"},
                                        {"t", one.t},
                                        {"util", rounded(one.utilisation, 1.0 / 1024)},
                                        {"memory", rounded(one.memory, 1)},
                                        {"power", rounded(one.power, 1.0 / 1024)},
                                        {"energy", rounded(one.energy, 1.0 / 1024)}})) +
         "\n";
}

std::string steps_line(const telemetry_steps& one) {
  return canonical_json(json_value::of({{"kind", "step"},
                                        {"t", one.t},
                                        {"epoch", one.epoch},
                                        {"first", one.first},
                                        {"last", one.last}})) +
         "\n";
}

// Where the last whole line ends. Looked for from the end on: the file may have any size.
result<std::uint64_t> end_of_lines(const std::string& path) {
  const auto file = file_pieces::open(path);
  if (!file) return file.why();
  std::array<std::uint8_t, telemetry_max_line> room{};
  for (std::uint64_t end = file->size(); end > 0;) {
    const auto piece = std::span(room).first(std::min<std::uint64_t>(end, room.size()));
    end -= piece.size();
    const status read = file->read(end, piece);
    if (!read) return read.why();
    const auto newline = std::find(piece.rbegin(), piece.rend(), std::uint8_t{'\n'});
    if (newline != piece.rend()) return end + static_cast<std::uint64_t>(piece.rend() - newline);
  }
  return 0;
}

// What a crash left of the last line goes; a file that is not there is made.
result<append_file> open_log(const std::string& path) {
  const auto end = end_of_lines(path);
  if (!end) {
    return end.why().code == errc::missing ? append_file::create(path)
                                           : result<append_file>(end.why());
  }
  auto file = append_file::open(path);
  if (!file) return file;
  const status cut = file->truncate(end.value());
  if (!cut) return cut.why();
  return file;
}

}  // namespace

struct telemetry_sampler::body {
  body(std::string where, double seconds) : path(std::move(where)), interval(seconds) {}

  potl::detail::home_process home;
  std::string path;
  double interval;
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<telemetry_steps> pending;
  bool running = false, ending = false;
  std::optional<append_file> file;
  std::optional<error> failure;
  std::unique_ptr<gauge> source;
  std::thread thread;

  void append(const std::string& text) {
    if (failure || text.empty()) return;
    const status written = file->append(as_bytes_view(text));
    if (!written) failure = written.why();
  }

  void write_pending() {
    std::vector<telemetry_steps> ready;
    {
      const std::lock_guard lock(mutex);
      ready.swap(pending);
    }
    std::string text;
    for (telemetry_steps& one : ready) {
      one.t = now();
      text += steps_line(one);
    }
    append(text);
  }

  void sample() {
    telemetry_sample one = source->read();
    one.t = now();
    append(sample_line(one));
    write_pending();
  }

  void run() {
    double pause = interval;
    for (std::uint64_t count = 1;; ++count) {
      sample();
      std::unique_lock lock(mutex);
      if (wake.wait_for(lock, std::chrono::duration<double>(pause), [&] { return ending; })) break;
      if (count % samples_per_doubling == 0) pause *= 2;
    }
    sample();
  }
};

telemetry_sampler::telemetry_sampler(std::string path, double interval_seconds)
    : body_(std::make_unique<body>(std::move(path), interval_seconds)) {}

telemetry_sampler::~telemetry_sampler() {
  static_cast<void>(stop());
  if (!body_->home.is_here()) static_cast<void>(body_.release());
}

status telemetry_sampler::start() {
  if (body_->running) return error{errc::usage, "the sampler is already running", ""};
  if (!(body_->interval > 0)) {
    return error{errc::usage, "the interval between samples must be positive", ""};
  }
  auto file = open_log(body_->path);
  if (!file) return file.why();
  body_->file.emplace(std::move(file).value());
  body_->source = make_nvml_gauge();
  if (!body_->source) body_->source = make_process_gauge();
  body_->append(header_line(body_->source->describe(), body_->interval));
  body_->ending = false;
  body_->running = true;
  body_->home = potl::detail::home_process();
  body_->thread = std::thread([this] { body_->run(); });
  return unit{};
}

void telemetry_sampler::mark_step(std::uint64_t step, std::uint64_t epoch) {
  if (!body_->home.is_here()) return;
  const std::lock_guard lock(body_->mutex);
  if (!body_->running) return;
  auto& pending = body_->pending;
  if (!pending.empty() && pending.back().epoch == epoch && pending.back().last + 1 == step) {
    pending.back().last = step;
  } else {
    pending.push_back({0, epoch, step, step});
  }
}

status telemetry_sampler::stop() {
  if (!body_->home.is_here()) return unit{};
  {
    const std::lock_guard lock(body_->mutex);
    if (!body_->running) return unit{};
    body_->ending = true;
  }
  body_->wake.notify_all();
  body_->thread.join();
  body_->running = false;
  status synced = body_->failure ? status(*body_->failure) : body_->file->sync_data();
  body_->file.reset();
  return synced;
}

}  // namespace potl::checks
