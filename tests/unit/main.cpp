// SPDX-License-Identifier: Apache-2.0
#include "catch_session.hpp"

int main(int count, char** words) { return run_catch(count, words); }
