// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Runs the tests of this program that the words name, and gives its exit status.
int run_catch(int count, char** words);
