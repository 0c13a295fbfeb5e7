// SPDX-License-Identifier: Apache-2.0
// What needs potl::libtorch_arithmetic, in one program: most of what each part takes to compile are
// the same templates of LibTorch.
//
//   exact_programs arithmetic_test|gradients_test
//   exact_programs rehearsal RUN [NAME=VALUE]...
#include "arithmetic_test.cpp"
#include "gradients_test.cpp"
#include "rehearsal.cpp"

int main(int count, char** words) {
  const std::string part = count > 1 ? words[1] : "";
  if (part == "arithmetic_test") return arithmetic_test::run();
  if (part == "gradients_test") return gradients_test::run();
  if (part == "rehearsal" && count > 2) return rehearsal::run(count - 1, words + 1);
  return 2;
}
