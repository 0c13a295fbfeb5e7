// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>

#include "checks/extra_task/extra_task_content.hpp"

namespace potl::checks {
namespace {

bool is_paper(const extra_task_options& options) { return options.layout == "paper"; }

// How far a side may be shifted, and one more.
std::uint64_t shifts(std::uint64_t side, double jitter) {
  return 1 + millionths(jitter) * (side - 1) / 1'000'000;
}

// Fills rows x columns of an image whose lines are `line` bytes apart, a colour for each cell.
void fill_cells(const image_pattern& pattern, std::uint64_t rows, std::uint64_t columns,
                keyed_stream& stream, std::uint8_t* out, std::size_t line) {
  keyed_bytes bytes(stream);
  const std::size_t channels = pattern.shape.channels, cell = pattern.cell;
  for (std::size_t y = 0; y < rows; y += cell) {
    std::uint8_t* const top = out + y * line;
    for (std::size_t x = 0; x < columns; x += cell) {
      for (std::size_t c = 0; c < channels; ++c)
        top[x * channels + c] = pattern.levels.of(bytes.next());
      const std::size_t right = std::min<std::size_t>(x + cell, columns);
      for (std::size_t to = x + 1; to < right; ++to) {
        std::copy_n(top + x * channels, channels, top + to * channels);
      }
    }
    const std::size_t below = std::min<std::size_t>(y + cell, rows);
    for (std::size_t to = y + 1; to < below; ++to) {
      std::memcpy(out + to * line, top, columns * channels);
    }
  }
}

// Moves every value by the image's brightness and by one of four levels of noise.
void vary(const extra_task_options& options, keyed_stream& stream, std::span<std::uint8_t> out) {
  const auto noise = static_cast<int>(options.noise);
  const auto brightness = static_cast<int>(stream.below(2 * options.brightness + 1)) -
                          static_cast<int>(options.brightness);
  std::array<std::uint8_t, 4> moves{};
  const std::array steps{-noise, -(noise / 3), noise / 3, noise};
  for (std::size_t i = 0; i < 4; ++i) moves[i] = static_cast<std::uint8_t>(brightness + steps[i]);
  for (std::size_t from = 0; from < out.size(); from += 32) {
    std::uint64_t word = stream.next();
    const std::size_t to = std::min(from + 32, out.size());
    for (std::size_t i = from; i < to; ++i, word >>= 2) {
      out[i] = static_cast<std::uint8_t>(out[i] + moves[word & 3]);
    }
  }
}

}  // namespace

image_pattern make_image_pattern(const extra_image& shape, const extra_task_options& options,
                                 keyed_stream stream) {
  image_pattern out;
  out.shape = shape;
  if (!is_paper(options)) {
    out.cell = std::max<std::uint64_t>(1, std::min(shape.height, shape.width) / 16);
    out.levels.low = static_cast<unsigned>(options.noise + options.brightness);
    out.levels.width = 256 - 2 * out.levels.low;
  }
  out.bytes.resize(shape.height * shape.width * shape.channels);
  fill_cells(out, shape.height, shape.width, stream, out.bytes.data(),
             shape.width * shape.channels);
  return out;
}

void draw_image(const image_pattern& pattern, const extra_task_options& options,
                const extra_grade& grade, sample_streams& streams, std::span<std::uint8_t> out) {
  const extra_image& shape = pattern.shape;
  const std::uint64_t rows = extra_region(shape.height, grade.fixed);
  const std::uint64_t columns = extra_region(shape.width, grade.fixed);
  const std::size_t line = shape.width * shape.channels;
  if (is_paper(options)) {
    std::copy(pattern.bytes.begin(), pattern.bytes.end(), out.begin());
    fill_cells(pattern, rows, columns, streams.content, out.data(), line);
    return;
  }
  const std::size_t down = streams.content.below(shifts(shape.height, options.jitter));
  const std::size_t right =
      streams.content.below(shifts(shape.width, options.jitter)) * shape.channels;
  std::vector<std::uint8_t> region(rows * columns * shape.channels);
  fill_cells(pattern, rows, columns, streams.content, region.data(), columns * shape.channels);
  std::vector<std::uint8_t> canvas(line);
  for (std::size_t y = 0; y < shape.height; ++y) {
    std::memcpy(canvas.data(), &pattern.bytes[y * line], line);
    if (y < rows)
      std::memcpy(canvas.data(), &region[y * columns * shape.channels], columns * shape.channels);
    std::uint8_t* const to = &out[(y + down) % shape.height * line];
    std::memcpy(to + right, canvas.data(), line - right);
    std::memcpy(to, &canvas[0] + (line - right), right);
  }
  vary(options, streams.variation, out);
}

}  // namespace potl::checks
