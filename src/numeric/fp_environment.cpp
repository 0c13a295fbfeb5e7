// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/fp_environment.hpp>

#include <atomic>
#include <bit>
#include <cfloat>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <thread>
#include <utility>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace potl {
namespace {

/// The value, hidden from the optimizer: what is computed from it is computed at run time.
template <typename Real>
Real hidden(Real value) {
  volatile Real there = value;
  return there;
}

std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }
std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

[[maybe_unused]] std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

/// " (MXCSR is 0x..., NAME is set)" where there is such a register and `mask` is set in it.
std::string control(std::uint32_t mask, const char* name) {
#if defined(__SSE2__)
  const std::uint32_t now = _mm_getcsr();
  if ((now & mask) != 0) return " (MXCSR is " + hex(now) + ": " + name + " is set)";
#else
  static_cast<void>(mask);
  static_cast<void>(name);
#endif
  return "";
}

constexpr std::uint32_t mxcsr_denormals_are_zero = 0x0040;
constexpr std::uint32_t mxcsr_exception_masks = 0x1f80;
constexpr std::uint32_t mxcsr_rounding = 0x6000;
constexpr std::uint32_t mxcsr_flush_to_zero = 0x8000;

constexpr double half_ulp_of_one = 0x1p-53;

std::string rounding() {
  const double one = hidden(1.0);
  const double half = hidden(half_ulp_of_one);
  const float float_one = hidden(1.0F);
  const float float_half = hidden(0x1p-24F);
  const bool ties_to_even =
      bits(one + half) == bits(1.0) && bits(one + 3 * half) == bits(1.0 + 4 * half_ulp_of_one) &&
      bits(-one - half) == bits(-1.0) && bits(float_one + float_half) == bits(1.0F) &&
      bits(-float_one - float_half) == bits(-1.0F);
  if (ties_to_even) return "";
  return "results are not rounded to the nearest value" +
         control(mxcsr_rounding, "a rounding direction");
}

std::string underflow() {
  const double small = hidden(std::numeric_limits<double>::min()) * hidden(0.5);
  const float float_small = hidden(std::numeric_limits<float>::min()) * hidden(0.5F);
  if (bits(small) == 0x0008000000000000U && bits(float_small) == 0x00400000U) return "";
  return "results below the smallest normal number become zero" +
         control(mxcsr_flush_to_zero, "flush-to-zero") +
         "; a library linked with -ffast-math does this when it is loaded";
}

std::string subnormal_inputs() {
  const double large = hidden(0x1p-1074) * hidden(0x1p1023);
  const float float_large = hidden(0x1p-149F) * hidden(0x1p127F);
  if (bits(large) == bits(0x1p-51) && bits(float_large) == bits(0x1p-22F)) return "";
  return "operands below the smallest normal number count as zero" +
         control(mxcsr_denormals_are_zero, "denormals-are-zero") +
         "; a library linked with -ffast-math does this when it is loaded";
}

std::string contraction() {
  const double x = hidden(1.0 + 0x1p-30);
  const double product = hidden(x * x);
  // The product has lost 2^-60; a fused operation would bring it back.
  // Operands are read anew: a product that is used twice stays a product.
  const double rest = hidden(x) * hidden(x) - product;
  const float y = hidden(1.0F + 0x1p-13F);
  const float float_product = hidden(y * y);
  const float float_rest = hidden(y) * hidden(y) - float_product;
  if (bits(rest) == 0 && bits(float_rest) == 0) return "";
  return "a*b+c is computed with one rounding: potl was compiled without -ffp-contract=off";
}

std::string association() {
  const double large = hidden(0x1p54);
  const double one = hidden(1.0);
  if (bits((one + large) - large) == 0 && bits((one - large) + large) == 0) return "";
  return "sums are reordered: potl was compiled with -ffast-math or -fassociative-math";
}

std::string precision() {
  const double huge = hidden(std::numeric_limits<double>::max());
  const double overflowed = hidden(huge * hidden(2.0)) * 0.5;
  const double in_one_expression = (huge * hidden(2.0)) * 0.5;
  if (FLT_EVAL_METHOD == 0 && bits(overflowed) == bits(in_one_expression)) return "";
  return "intermediate results are wider than their type, as on the x87 unit (FLT_EVAL_METHOD is " +
         std::to_string(FLT_EVAL_METHOD) + ")";
}

/// Where long double is the x87 unit's: code elsewhere in the process may use it.
std::string extended() {
#if LDBL_MANT_DIG == 64
  const long double one = hidden(1.0L);
  const long double small = hidden(0x1p-63L);
  const long double half = hidden(0x1p-64L);
  // The last bit, in units; each operation is one of its own.
  const auto last = [](long double value) {
    return static_cast<double>(hidden(hidden(value) - 1) * 0x1p63L);
  };
  const bool exact = bits(last(one + small)) == bits(1.0) && bits(last(one + half)) == 0 &&
                     bits(last(one + hidden(3 * half))) == bits(2.0);
  if (exact) return "";
#if defined(__GNUC__)
  std::uint16_t word = 0;
  __asm__ volatile("fnstcw %0" : "=m"(word));
  return "the x87 unit does not round to nearest with 64 bits (its control word is " + hex(word) +
         ")";
#else
  return "long double does not round to nearest with 64 bits";
#endif
#else
  return "";
#endif
}

std::string division() {
  const bool exact = bits(hidden(1.0) / hidden(3.0)) == 0x3fd5555555555555U &&
                     bits(hidden(1.0F) / hidden(3.0F)) == 0x3eaaaaabU &&
                     bits(std::sqrt(hidden(2.0))) == 0x3ff6a09e667f3bcdU &&
                     bits(std::sqrt(hidden(2.0F))) == 0x3fb504f3U;
  if (exact) return "";
  return "quotients or square roots are approximations: potl was compiled with -ffast-math or "
         "-mrecip, or does not round to nearest";
}

std::string nan() {
  const double invalid = hidden(std::numeric_limits<double>::quiet_NaN());
  const double one = hidden(1.0);
  const double zero = hidden(0.0);
  const double made = zero / zero;
  const bool unordered = !(invalid == invalid) && invalid != invalid && !(invalid <= one) &&
                         !(invalid > one) && made != made && !(made <= one);
  if (unordered && std::isnan(invalid) && !std::isfinite(one / zero)) return "";
  return "comparisons treat NaN like a number: potl was compiled with -ffast-math or "
         "-ffinite-math-only";
}

std::string traps() {
#if defined(__SSE2__)
  const std::uint32_t now = _mm_getcsr();
  if ((now & mxcsr_exception_masks) != mxcsr_exception_masks) {
    return "floating-point exceptions end the process (MXCSR is " + hex(now) + ")";
  }
#endif
  return "";
}

}  // namespace

std::vector<fp_check> fp_environment() {
  std::vector<fp_check> checks;
  const auto add = [&](std::string_view name, std::string_view meaning, std::string cause) {
    checks.push_back({name, meaning, cause.empty(), std::move(cause)});
  };
  // First, because what follows divides by zero.
  std::string trapping = traps();
  const bool safe = trapping.empty();
  add("rounding", "results are rounded to nearest, ties to even", rounding());
  add("underflow", "results below the normal range are kept", underflow());
  add("subnormal_inputs", "operands below the normal range are used as they are",
      subnormal_inputs());
  add("contraction", "a*b+c is rounded twice", contraction());
  add("association", "sums are computed in the written order", association());
  add("precision", "intermediate results have the precision of their type",
      safe ? precision() : "not tested: exceptions are not masked");
  add("extended", "the x87 unit rounds to nearest with its full precision", extended());
  add("division", "quotients and square roots are correctly rounded", division());
  add("nan", "NaN compares unequal to everything, infinities are infinite",
      safe ? nan() : "not tested: exceptions are not masked");
  add("traps", "floating-point exceptions are masked", std::move(trapping));
  return checks;
}

std::uint64_t fp_control() noexcept {
#if defined(__SSE2__)
  constexpr std::uint32_t flags = 0x3f;  // what has happened, not how numbers are computed
  std::uint16_t x87 = 0;
  asm volatile("fnstcw %0" : "=m"(x87));
  return std::uint64_t{_mm_getcsr() & ~flags} << 16 | x87;
#elif defined(__aarch64__)
  std::uint64_t now = 0;
  asm volatile("mrs %0, fpcr" : "=r"(now));
  return now;
#else
  return 0;
#endif
}

std::vector<fp_check> fp_environment(const numeric::executor& workers) {
  const std::size_t threads = workers.concurrency();
  std::vector<std::vector<fp_check>> seen(threads);
  std::atomic<std::size_t> begun{0};
  const auto latest = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  workers.run(threads, [&](std::size_t task) {
    // A thread that waits here takes no second task.
    ++begun;
    while (begun < threads && std::chrono::steady_clock::now() < latest) std::this_thread::yield();
    seen[task] = fp_environment();
  });
  std::vector<fp_check> all = std::move(seen[0]);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::size_t failing = all[i].ok ? 0 : 1;
    for (std::size_t task = 1; task < threads; ++task) {
      if (seen[task][i].ok) continue;
      ++failing;
      if (all[i].ok) all[i] = seen[task][i];
    }
    if (failing == 0 || threads == 1) continue;
    all[i].cause += "; on " + std::to_string(failing) + " of " + std::to_string(threads) +
                    " threads of the executor";
  }
  return all;
}

}  // namespace potl
