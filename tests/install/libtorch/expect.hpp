// SPDX-License-Identifier: Apache-2.0
// Prints what is not so; a test program ends with status(), which is then 1.
#pragma once

#include <cstdio>
#include <string>

inline int failures = 0;

inline void expect(bool condition, const std::string& what, int line) {
  if (condition) return;
  std::printf("line %d: not so: %s\n", line, what.c_str());
  ++failures;
}
#define EXPECT(condition) expect(static_cast<bool>(condition), #condition, __LINE__)

inline int status() { return failures == 0 ? 0 : 1; }
