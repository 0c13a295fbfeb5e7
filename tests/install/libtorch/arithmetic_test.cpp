// SPDX-License-Identifier: Apache-2.0
// The guard of the LibTorch adapter, installed. One behaviour a test; prints what failed and exits
// 1.
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <string>

#include <potl/libtorch/arithmetic.hpp>
#include <potl/libtorch/libtorch.hpp>

namespace {

using potl::libtorch::deterministic_guard;
using potl::libtorch::not_reproducible;
using potl::libtorch::stock_guard;
using potl::numeric::arithmetic;

int failures = 0;

void expect(bool condition, const char* what, int line) {
  if (condition) return;
  std::printf("line %d: not so: %s\n", line, what);
  ++failures;
}
#define EXPECT(condition) expect(static_cast<bool>(condition), #condition, __LINE__)

at::Tensor values(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).mul(0.37).sin().reshape(sizes);
}

bool refuses(const at::Tensor& x, std::string* message = nullptr) {
  try {
    static_cast<void>(at::fft_fft(x));
  } catch (const not_reproducible& error) {
    if (message != nullptr) *message = error.message() + " / " + error.remedy();
    return true;
  }
  return false;
}

void a_product_is_the_chain_of_its_mode() {
  const at::Tensor a = values({3, 700});
  const at::Tensor b = values({700, 5});
  at::Tensor got;
  {
    const deterministic_guard guard(arithmetic::ord32);
    got = at::mm(a, b);
  }
  const auto left = a.accessor<float, 2>();
  const auto right = b.accessor<float, 2>();
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) {
      float first = 0;
      float second = 0;
      for (std::int64_t k = 0; k < 512; ++k) first = std::fma(left[i][k], right[k][j], first);
      for (std::int64_t k = 512; k < 700; ++k) second = std::fma(left[i][k], right[k][j], second);
      EXPECT(got[i][j].item<float>() == first + second);
    }
  }
}

void the_guard_ends_with_its_scope_and_nests() {
  const at::Tensor x = values({8});
  EXPECT(!refuses(x));
  {
    const deterministic_guard outer;
    EXPECT(refuses(x));
    { const deterministic_guard inner; }
    EXPECT(refuses(x));
    {
      const stock_guard loader;
      EXPECT(!refuses(x));
      const deterministic_guard own(arithmetic::cr32);
      EXPECT(refuses(x));
    }
    EXPECT(refuses(x));
  }
  EXPECT(!refuses(x));
}

void a_refusal_names_operator_and_remedy() {
  const deterministic_guard guard;
  std::string message;
  EXPECT(refuses(values({8}), &message));
  EXPECT(message.find("aten::_fft") != std::string::npos);
  EXPECT(message.find("multiply by the matrix of cosines and sines") != std::string::npos);
}

void another_mode_inside_is_misuse() {
  const deterministic_guard guard(arithmetic::xint16);
  try {
    const deterministic_guard other(arithmetic::cr32);
    EXPECT(false);
  } catch (const potl::exception& error) {
    EXPECT(error.details().code == potl::errc::usage);
  }
}

void the_table_is_there() {
  std::size_t kernels = 0;
  for (const auto& entry : potl::libtorch::operators()) kernels += entry.runs == "kernel";
  EXPECT(kernels > 200);
}

}  // namespace

int main() {
  a_product_is_the_chain_of_its_mode();
  the_guard_ends_with_its_scope_and_nests();
  a_refusal_names_operator_and_remedy();
  another_mode_inside_is_misuse();
  the_table_is_there();
  return failures == 0 ? 0 : 1;
}
