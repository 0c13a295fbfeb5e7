// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/extra_task_audit.hpp>

#include <algorithm>
#include <utility>

#include "checks/extra_task/extra_task_errors.hpp"
#include "checks/text.hpp"

namespace potl::checks {
namespace {

constexpr std::uint64_t most_windows = std::uint64_t{1} << 26;

// A 64-bit mixing step (splitmix64's finaliser): nobody is assumed to construct collisions here.
std::uint64_t mix(std::uint64_t state, std::uint64_t value) noexcept {
  std::uint64_t x = state * 0x9E3779B97F4A7C15u + value + 1;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

struct window_hash {
  std::uint64_t hash = 0;
  std::uint32_t sample = 0;
};

struct grid {
  std::uint64_t height = 0, width = 0, channels = 0;
};

template <class Value>
result<region_counts> search_in(std::span<const Value> values, const grid& shape,
                                const region_search& search) {
  const std::uint64_t size = shape.height * shape.width * shape.channels;
  if (size == 0 || values.empty() || values.size() % size != 0) {
    return wrong("the data are not whole samples", "a sample has " + text(size) + " values");
  }
  if (search.rows == 0 || search.columns == 0 || search.stride == 0 || search.least < 2 ||
      search.dropped_bits > 62 || search.rows > shape.height || search.columns > shape.width) {
    return wrong("a window does not fit", "it has at least one value, and at most a whole sample");
  }
  const std::uint64_t samples = values.size() / size;
  const std::uint64_t down = (shape.height - search.rows) / search.stride + 1;
  const std::uint64_t along = (shape.width - search.columns) / search.stride + 1;
  region_counts out;
  out.windows = down * along;
  if (samples > most_windows / out.windows) {
    return error{errc::limit, "extra_task: more than 2^26 windows", "take a larger stride"};
  }
  std::vector<window_hash> hashes;
  hashes.reserve(static_cast<std::size_t>(samples * out.windows));
  for (std::uint64_t sample = 0; sample < samples; ++sample) {
    const auto one = values.subspan(sample * size, size);
    for (std::uint64_t window = 0; window < out.windows; ++window) {
      const std::uint64_t top = window / along * search.stride;
      const std::uint64_t left = window % along * search.stride;
      std::uint64_t hash = search.anywhere ? 0 : window + 1;
      bool flat = true;
      const Value corner = one[(top * shape.width + left) * shape.channels];
      for (std::uint64_t y = top; y < top + search.rows; ++y) {
        const std::uint64_t line = (y * shape.width + left) * shape.channels;
        for (std::uint64_t i = line; i < line + search.columns * shape.channels; ++i) {
          hash = mix(hash, static_cast<std::uint64_t>(one[i]) >> search.dropped_bits);
          flat = flat && one[i] == corner;
        }
      }
      if (!flat) hashes.push_back({hash, static_cast<std::uint32_t>(sample)});
    }
  }
  std::sort(hashes.begin(), hashes.end(), [](const window_hash& a, const window_hash& b) {
    return std::pair(a.hash, a.sample) < std::pair(b.hash, b.sample);
  });
  out.shared.assign(samples, 0);
  for (std::size_t from = 0; from < hashes.size();) {
    std::size_t to = from;
    std::uint64_t different = 0;
    for (; to < hashes.size() && hashes[to].hash == hashes[from].hash; ++to) {
      different += to == from || hashes[to].sample != hashes[to - 1].sample;
    }
    for (std::size_t i = from; i < to && different >= search.least; ++i) {
      ++out.shared[hashes[i].sample];
    }
    from = to;
  }
  return out;
}

}  // namespace

result<region_counts> shared_regions(std::span<const std::uint8_t> images, const extra_image& shape,
                                     const region_search& search) {
  if (shape.height > 1 << 14 || shape.width > 1 << 14 || shape.channels > 1 << 10) {
    return wrong("an image is too large", "");
  }
  return search_in(images, {shape.height, shape.width, shape.channels}, search);
}

result<region_counts> shared_regions(std::span<const std::int64_t> texts, std::uint64_t length,
                                     const region_search& search) {
  if (length > 1 << 20) return wrong("a text is too long", "");
  region_search line = search;
  line.rows = 1;
  return search_in(texts, {1, length, 1}, line);
}

}  // namespace potl::checks
