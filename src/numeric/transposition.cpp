// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/transposition.hpp>

#include <algorithm>
#include <array>
#include <cstring>

#include <potl/core/error.hpp>

#include "numeric/convolution/tile.hpp"
#include "numeric/ranges.hpp"

namespace potl::numeric {
namespace {

typedef std::uint16_t vector_of_16 __attribute__((vector_size(16)));
typedef std::uint32_t vector_of_32 __attribute__((vector_size(16)));
typedef std::uint64_t vector_of_64 __attribute__((vector_size(16)));

/// The elements of a and b in turn: of their first and of their second halves.
vector_of_16 first_halves(vector_of_16 a, vector_of_16 b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
vector_of_16 second_halves(vector_of_16 a, vector_of_16 b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
vector_of_32 first_halves(vector_of_32 a, vector_of_32 b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
vector_of_32 second_halves(vector_of_32 a, vector_of_32 b) {
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
vector_of_64 first_halves(vector_of_64 a, vector_of_64 b) {
  return __builtin_shufflevector(a, b, 0, 2);
}
vector_of_64 second_halves(vector_of_64 a, vector_of_64 b) {
  return __builtin_shufflevector(a, b, 1, 3);
}

/// Turns matrices of `side` rows. Taking rows of both halves in turn moves the first bit of an
/// element's index, row before column, to its end; when all bits of the row have moved, the column
/// comes before the row.
template <class Element, class Vector>
struct turning {
  static constexpr std::size_t side = sizeof(Vector) / sizeof(Element);
  /// A line of a cache has as many elements.
  static constexpr std::size_t line = 64 / sizeof(Element);

  static void turn_small(const Element* x, std::size_t width, Element* out, std::size_t height) {
    std::array<Vector, side> rows, next;
    for (std::size_t r = 0; r < side; ++r) std::memcpy(&rows[r], x + r * width, sizeof(Vector));
    for (std::size_t bits = side; bits > 1; bits /= 2) {
      for (std::size_t r = 0; r < side / 2; ++r) {
        next[2 * r] = first_halves(rows[r], rows[r + side / 2]);
        next[2 * r + 1] = second_halves(rows[r], rows[r + side / 2]);
      }
      rows = next;
    }
    for (std::size_t c = 0; c < side; ++c) std::memcpy(out + c * height, &rows[c], sizeof(Vector));
  }

  static void turn(const Element* x, std::size_t height, std::size_t width, Element* out,
                   std::size_t down, std::size_t across) {
    if (down < side || across < side) {
      for (std::size_t c = 0; c < across; ++c)
        for (std::size_t r = 0; r < down; ++r) out[c * height + r] = x[r * width + c];
      return;
    }
    // Down first: lines of out are written as wholes, while those of x stay in the cache. The last
    // blocks begin earlier where a whole one does not fit.
    for (std::size_t c = 0; c < across; c += side)
      for (std::size_t r = 0; r < down; r += side) {
        const std::size_t row = std::min(r, down - side), column = std::min(c, across - side);
        turn_small(x + row * width + column, width, out + column * height + row, height);
      }
  }
};

/// Rows of elements of 4 bytes by the kernels of convolutions, which move them as they are; false
/// where these have no wider vectors, or gather the few elements of a row.
bool turn_wide(const std::uint32_t* x, std::size_t height, std::size_t width, std::uint32_t* out,
               std::size_t down) {
  const conv::kernels& with = conv::active_kernels();
  if (with.single.lanes < 8 || width < 4) return false;
  const auto across = static_cast<std::int64_t>(width);
  with.transpose(reinterpret_cast<const float*>(x), across, static_cast<std::int64_t>(down), across,
                 reinterpret_cast<float*>(out), static_cast<std::int64_t>(height));
  return true;
}

template <class Element, class Vector>
void transpose_all(std::size_t batch, std::size_t height, std::size_t width,
                   std::span<const Element> x, std::span<Element> out, const executor& workers) {
  using how = turning<Element, Vector>;
  if (x.size() != out.size() || x.size() != batch * height * width)
    throw exception({errc::usage, "operands have other lengths than the shape", ""});
  constexpr std::size_t line = how::line;
  const std::size_t strips = (height + line - 1) / line;
  for_ranges(workers, static_cast<std::int64_t>(batch * strips),
             static_cast<std::int64_t>(line * width), [&](std::int64_t begin, std::int64_t end) {
               for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end);
                    ++i) {
                 const std::size_t first = i / strips * height * width, r = i % strips * line;
                 const std::size_t down = std::min(line, height - r);
                 if constexpr (sizeof(Element) == 4) {
                   if (turn_wide(x.data() + first + r * width, height, width,
                                 out.data() + first + r, down))
                     continue;
                 }
                 for (std::size_t c = 0; c < width; c += line)
                   how::turn(x.data() + first + r * width + c, height, width,
                             out.data() + first + c * height + r, down, std::min(line, width - c));
               }
             });
}

}  // namespace

void transpose(std::size_t batch, std::size_t height, std::size_t width,
               std::span<const std::uint16_t> x, std::span<std::uint16_t> out,
               const executor& workers) {
  transpose_all<std::uint16_t, vector_of_16>(batch, height, width, x, out, workers);
}
void transpose(std::size_t batch, std::size_t height, std::size_t width,
               std::span<const std::uint32_t> x, std::span<std::uint32_t> out,
               const executor& workers) {
  transpose_all<std::uint32_t, vector_of_32>(batch, height, width, x, out, workers);
}
void transpose(std::size_t batch, std::size_t height, std::size_t width,
               std::span<const std::uint64_t> x, std::span<std::uint64_t> out,
               const executor& workers) {
  transpose_all<std::uint64_t, vector_of_64>(batch, height, width, x, out, workers);
}

}  // namespace potl::numeric
