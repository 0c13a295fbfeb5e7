// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/transposition.hpp>

#include <algorithm>

#include <potl/core/error.hpp>

#include "numeric/ranges.hpp"

namespace potl::numeric {
namespace {

/// A line of a cache has as many elements.
constexpr std::size_t line = 16;

void turn(const std::uint32_t* x, std::size_t height, std::size_t width, std::uint32_t* out,
          std::size_t down, std::size_t across) {
  if (down == line && across == line) {
    std::uint32_t turned[line][line];
    for (std::size_t r = 0; r < line; ++r)
      for (std::size_t c = 0; c < line; ++c) turned[c][r] = x[r * width + c];
    for (std::size_t c = 0; c < line; ++c) std::copy_n(turned[c], line, out + c * height);
    return;
  }
  for (std::size_t c = 0; c < across; ++c)
    for (std::size_t r = 0; r < down; ++r) out[c * height + r] = x[r * width + c];
}

}  // namespace

void transpose(std::size_t batch, std::size_t height, std::size_t width,
               std::span<const std::uint32_t> x, std::span<std::uint32_t> out,
               const executor& workers) {
  if (x.size() != out.size() || x.size() != batch * height * width)
    throw exception({errc::usage, "operands have other lengths than the shape", ""});
  const std::size_t strips = (height + line - 1) / line;
  for_ranges(workers, static_cast<std::int64_t>(batch * strips),
             static_cast<std::int64_t>(line * width), [&](std::int64_t begin, std::int64_t end) {
               for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end);
                    ++i) {
                 const std::size_t first = i / strips * height * width, r = i % strips * line;
                 for (std::size_t c = 0; c < width; c += line)
                   turn(x.data() + first + r * width + c, height, width,
                        out.data() + first + c * height + r, std::min(line, height - r),
                        std::min(line, width - c));
               }
             });
}

}  // namespace potl::numeric
