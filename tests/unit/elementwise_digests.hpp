// SPDX-License-Identifier: Apache-2.0
// Digests of the results at every 64th block of 2^16 floats. Whoever changes a function's bits runs
// `potl_unit_tests "[digests]"`, which prints the new ones.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <potl/numeric/elementwise.hpp>

namespace potl::test {

using numeric::unary;

inline const std::vector<std::pair<unary, std::uint64_t>> elementwise_digests{
    {unary::exp, 0xb7f898c49ae71ad6U},      {unary::exp2, 0x882f5b4858bf4805U},
    {unary::expm1, 0xf935c46ac65ab4e1U},    {unary::log, 0xa58dce5f081de794U},
    {unary::log2, 0x51fff0e71f0b6b83U},     {unary::log10, 0x2e6875ce7b79419bU},
    {unary::log1p, 0x8b51656db702e278U},    {unary::rsqrt, 0x9d2a5b0c5204a118U},
    {unary::sin, 0x151a454378b375b9U},      {unary::cos, 0x129b62e79f4a0267U},
    {unary::tan, 0x77961f0f3a045affU},      {unary::sinh, 0x18094a6b4daa70adU},
    {unary::cosh, 0x76e5f71789418180U},     {unary::tanh, 0xfd38b8b06d7804c0U},
    {unary::sigmoid, 0x5a41bca4df4b667dU},  {unary::log_sigmoid, 0xd0d8e7d474c40fe9U},
    {unary::softplus, 0x84ab1032826e2e72U}, {unary::erf, 0x0bfa9a5064a143ddU},
    {unary::erfc, 0x7446090361783a6cU},     {unary::erfinv, 0x32a8eb7047511c15U},
    {unary::gelu, 0x90799c589aeb0ee4U},     {unary::gelu_tanh, 0x09c2099ae9964e59U},
    {unary::silu, 0x917689a44bb9f912U},     {unary::mish, 0x4eac6c77d3bb9e72U},
};

}  // namespace potl::test
