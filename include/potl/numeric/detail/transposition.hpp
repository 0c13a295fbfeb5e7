// SPDX-License-Identifier: Apache-2.0
// Elements in another order: matrices turned, as between channels first and channels last.
//
// Claims: moves bits. Cost: one pass, in tiles that touch each line of a cache once.
// x and out do not overlap, and have batch height width elements (else potl::exception, usage).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

/// out is [batch][width][height], x is [batch][height][width].
void transpose(std::size_t batch, std::size_t height, std::size_t width,
               std::span<const std::uint16_t> x, std::span<std::uint16_t> out,
               const executor& workers);
void transpose(std::size_t batch, std::size_t height, std::size_t width,
               std::span<const std::uint32_t> x, std::span<std::uint32_t> out,
               const executor& workers);
void transpose(std::size_t batch, std::size_t height, std::size_t width,
               std::span<const std::uint64_t> x, std::span<std::uint64_t> out,
               const executor& workers);

}  // namespace potl::numeric
