// SPDX-License-Identifier: Apache-2.0
// Catch2 itself, which takes as long to compile as forty tests: the test programs share it.
#define CATCH_CONFIG_RUNNER
#include "catch_session.hpp"

#include "catch.hpp"

int run_catch(int count, char** words) { return Catch::Session().run(count, words); }
