// SPDX-License-Identifier: Apache-2.0
// Debian 12 ships Catch2 2, newer systems Catch2 3: the tests use what both have.
#pragma once
#if POTL_CATCH_VERSION >= 3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
