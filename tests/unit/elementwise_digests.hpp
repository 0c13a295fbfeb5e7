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
    {unary::exp, 0},      {unary::exp2, 0},      {unary::expm1, 0},   {unary::log, 0},
    {unary::log2, 0},     {unary::log10, 0},     {unary::log1p, 0},   {unary::rsqrt, 0},
    {unary::sin, 0},      {unary::cos, 0},       {unary::tan, 0},     {unary::sinh, 0},
    {unary::cosh, 0},     {unary::tanh, 0},      {unary::sigmoid, 0}, {unary::log_sigmoid, 0},
    {unary::softplus, 0}, {unary::erf, 0},       {unary::erfc, 0},    {unary::erfinv, 0},
    {unary::gelu, 0},     {unary::gelu_tanh, 0}, {unary::silu, 0},    {unary::mish, 0},
};

}  // namespace potl::test
