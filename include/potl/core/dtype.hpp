// SPDX-License-Identifier: Apache-2.0
// Element types of tensors, by the names that the safetensors format gives them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace potl {

enum class dtype : std::uint8_t {
  boolean,
  u8,
  i8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  f16,
  bf16,
  f32,
  f64,
  f8_e4m3,
  f8_e5m2,
  c64,
};

/// Names and size of an element type.
struct dtype_info {
  dtype type;
  std::string_view name;        ///< upper case, as in a safetensors header
  std::string_view torch_name;  ///< as in torch: "float32" for torch.float32
  std::size_t size;             ///< bytes of one element
  bool floating;                ///< real or complex floating point: can hold NaN and infinity
};

// clang-format off
inline constexpr std::array dtypes{
    dtype_info{dtype::boolean, "BOOL", "bool", 1, false},
    dtype_info{dtype::u8, "U8", "uint8", 1, false},
    dtype_info{dtype::i8, "I8", "int8", 1, false},
    dtype_info{dtype::i16, "I16", "int16", 2, false},
    dtype_info{dtype::u16, "U16", "uint16", 2, false},
    dtype_info{dtype::i32, "I32", "int32", 4, false},
    dtype_info{dtype::u32, "U32", "uint32", 4, false},
    dtype_info{dtype::i64, "I64", "int64", 8, false},
    dtype_info{dtype::u64, "U64", "uint64", 8, false},
    dtype_info{dtype::f16, "F16", "float16", 2, true},
    dtype_info{dtype::bf16, "BF16", "bfloat16", 2, true},
    dtype_info{dtype::f32, "F32", "float32", 4, true},
    dtype_info{dtype::f64, "F64", "float64", 8, true},
    dtype_info{dtype::f8_e4m3, "F8_E4M3", "float8_e4m3fn", 1, true},
    dtype_info{dtype::f8_e5m2, "F8_E5M2", "float8_e5m2", 1, true},
    dtype_info{dtype::c64, "C64", "complex64", 8, true},
};
// clang-format on

/// Name, element size and kind of `type`. Precondition: a named enumerator.
constexpr const dtype_info& info(dtype type) noexcept {
  return dtypes[static_cast<std::size_t>(type)];
}

/// The type called `name` in a safetensors header (case matters), or nothing.
constexpr std::optional<dtype> dtype_from_name(std::string_view name) noexcept {
  for (const dtype_info& candidate : dtypes) {
    if (candidate.name == name) return candidate.type;
  }
  return std::nullopt;
}

/// The type that torch calls `name`, or nothing.
constexpr std::optional<dtype> dtype_from_torch_name(std::string_view name) noexcept {
  for (const dtype_info& candidate : dtypes) {
    if (candidate.torch_name == name) return candidate.type;
  }
  return std::nullopt;
}

}  // namespace potl
