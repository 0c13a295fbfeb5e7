// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "numeric_levels.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/special.hpp>

using namespace potl::numeric;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

/// Values of 40 digits, rounded, and how many ulp off docs/reference/elementwise.md allows.
struct known {
  special function;
  double x, value;
  int ulps;
};
const std::vector<known> table{
    {special::acos, 0x1.3333333333333p-2, 0x1.441f5ecbeef59p+0, 3},
    {special::acos, -0x1.6666666666666p-1, 0x1.2c501446cd5f1p+1, 3},
    {special::acos, 0x1.fffffe0000000p-1, 0x1.6a09e6861f3abp-12, 3},
    {special::acos, -0x1.fffffffffffffp-1, 0x1.921fb52442d18p+1, 3},
    {special::asin, 0x1.3333333333333p-2, 0x1.380159e14f6ffp-2, 3},
    {special::asin, -0x1.6666666666666p-1, -0x1.8d00e692afd95p-1, 3},
    {special::asin, 0x1.0000000000000p-1, 0x1.0c152382d7366p-1, 3},
    {special::asin, 0x0.0000000000001p-1022, 0x0.0000000000001p-1022, 3},
    {special::atan, 0x1.3333333333333p-2, 0x1.2a73a661eaf06p-2, 3},
    {special::atan, 0x1.0000000000000p+0, 0x1.921fb54442d18p-1, 3},
    {special::atan, 0x0.0000000000001p-1022, 0x0.0000000000001p-1022, 3},
    {special::atan, 0x1.4000000000000p+1, 0x1.30b6d796a4da8p+0, 3},
    {special::acosh, 0x1.0000000000001p+0, 0x1.6a09e667f3bccp-26, 3},
    {special::acosh, 0x1.8000000000000p+0, 0x1.ecc2caec5160ap-1, 3},
    {special::acosh, 0x1.7d78400000000p+26, 0x1.31d23d3ad26e5p+4, 3},
    {special::acosh, 0x1.7e43c8800759cp+996, 0x1.59bbfd8b83e44p+9, 3},
    {special::asinh, 0x1.3333333333333p-2, 0x1.2ec4ea565fcc1p-2, 3},
    {special::asinh, -0x1.12e0be826d695p-30, -0x1.12e0be826d695p-30, 3},
    {special::asinh, 0x1.7d78400000000p+26, 0x1.31d23d3ad26e5p+4, 3},
    {special::asinh, -0x1.7e43c8800759cp+996, -0x1.59bbfd8b83e44p+9, 3},
    {special::atanh, 0x1.3333333333333p-2, 0x1.3cf2b50617c95p-2, 3},
    {special::atanh, -0x1.6666666666666p-1, -0x1.bc0ed0947fbe8p-1, 3},
    {special::atanh, 0x1.fffffffffffffp-1, 0x1.2b708872320e2p+4, 3},
    {special::atanh, 0x1.12e0be826d695p-30, 0x1.12e0be826d695p-30, 3},
    {special::sinc, 0x1.3333333333333p-2, 0x1.b77f60bebee61p-1, 3},
    {special::sinc, -0x1.0000000000000p-1, 0x1.45f306dc9c883p-1, 3},
    {special::sinc, 0x1.12e0be826d695p-30, 0x1.0000000000000p+0, 3},
    {special::sinc, 1.5, -0x1.b2995e7b7b604p-3, 3},
    {special::i0, 712, 0x1.1935f1e2c1b45p+1021, 16},
    {special::sinc, 0x1.c6bf526340004p+49, 0x1.6efc7f00bd257p-52, 3},
    {special::lgamma, 0x0.0000000000001p-1022, 0x1.74385446d71c3p+9, 5},
    {special::lgamma, 0x1.3333333333333p-2, 0x1.188637a6c4196p+0, 5},
    {special::lgamma, 0x1.fffffffffffffp-1, 0x1.2788cfc6fb61ap-54, 5},
    {special::lgamma, 0x1.0000020000000p+0, -0x1.2788cc7cc6988p-24, 5},
    {special::lgamma, 0x1.fffffffffffffp+0, -0x1.b0ee6072093cdp-54, 5},
    {special::lgamma, 0x1.4000000000000p+1, 0x1.2383e809a67e8p-2, 5},
    {special::lgamma, 0x1.e000000000000p+2, 0x1.e233060e41f7fp+2, 5},
    {special::lgamma, 0x1.dcd6500000000p+29, 0x1.25e649c8e03cep+34, 5},
    {special::digamma, 0x1.12e0be826d695p-30, -0x1.dcd650049e233p+29, 3},
    {special::digamma, 0x1.3333333333333p-2, -0x1.c052b6b5e6118p+1, 3},
    {special::digamma, 0x1.0000000000000p+0, -0x1.2788cfc6fb619p-1, 3},
    {special::digamma, 0x1.762d860000000p+0, -0x1.9d8e3ce338b8cp-27, 3},
    {special::digamma, 0x1.762d86356be3fp+0, -0x1.aa2d9b3ce29e0p-54, 3},
    {special::digamma, 0x1.0000000000000p+1, 0x1.b0ee6072093cep-2, 3},
    {special::digamma, 0x1.3000000000000p+3, 0x1.194f79882a636p+1, 3},
    {special::digamma, 0x1.dcd6500000000p+29, 0x1.4b927f329d9f7p+4, 3},
    {special::trigamma, 0x1.12e0be826d695p-30, 0x1.bc16d674ec7ffp+59, 4},
    {special::trigamma, 0x1.3333333333333p-2, 0x1.87da06bfa42ddp+3, 4},
    {special::trigamma, 0x1.8000000000000p+0, 0x1.de9e64df22ef3p-1, 4},
    {special::trigamma, 0x1.3000000000000p+3, 0x1.c6a517beb619ep-4, 4},
    {special::trigamma, 0x1.7e43c8800759cp+996, 0x1.56e1fc2f8f359p-997, 4},
    {special::trigamma, -0x1.3333333333333p-2, 0x1.be3ec0bef688ap+3, 4},
    {special::trigamma, -0x1.8000000000000p+0, 0x1.2c22c9dc2b128p+3, 4},
    {special::trigamma, -0x1.4800000000000p+3, 0x1.3a570cc84b70ap+4, 4},
    {special::entr, 0x0.0000000000001p-1022, 0x0.00000000002e8p-1022, 3},
    {special::entr, 0x1.3333333333333p-2, 0x1.71dc4627d2ef4p-2, 3},
    {special::entr, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-54, 3},
    {special::entr, 0x1.0000000000000p+1, -0x1.62e42fefa39efp+0, 3},
    {special::ndtri, 0x1.56e1fc2f8f359p-997, -0x1.286074064c26ep+5, 8},
    {special::ndtri, 0x1.12e0be826d695p-30, -0x1.7fdc11f44b5a7p+2, 8},
    {special::ndtri, 0x1.3333333333333p-2, -0x1.0c7e39582c5fbp-1, 8},
    {special::ndtri, 0x1.0000000002000p-1, 0x1.40d931ff62706p-39, 8},
    {special::i0, 0x0.0000000000001p-1022, 0x1.0000000000000p+0, 16},
    {special::i0, 0x1.3333333333333p-2, 0x1.05cae00ad35d9p+0, 16},
    {special::i0, 0x1.d800000000000p+4, 0x1.bd4e73c0c028cp+38, 16},
    {special::i0, 0x1.5e00000000000p+9, 0x1.c8cdeeadb5df0p+1003, 16},
    {special::i0e, 0x0.0000000000001p-1022, 0x1.0000000000000p+0, 16},
    {special::i0e, 0x1.3333333333333p-2, 0x1.83e19b927c0bcp-1, 16},
    {special::i0e, 0x1.d800000000000p+4, 0x1.2e28006aeeb6dp-4, 16},
    {special::i0e, 0x1.e800000000000p+4, 0x1.291e6d9468dd8p-4, 16},
    {special::i1, 0x1.56e1fc2f8f359p-997, 0x1.56e1fc2f8f359p-998, 16},
    {special::i1, 0x1.3333333333333p-2, 0x1.36ab428e8f8a0p-3, 16},
    {special::i1, 0x1.d800000000000p+4, 0x1.b5b1505aa11bfp+38, 16},
    {special::i1, 0x1.e800000000000p+4, 0x1.24a705c3cc78bp+40, 16},
    {special::i1e, 0x1.56e1fc2f8f359p-997, 0x1.56e1fc2f8f359p-998, 16},
    {special::i1e, 0x1.3333333333333p-2, 0x1.cc4c69bc09af5p-4, 16},
    {special::i1e, 0x1.d800000000000p+4, 0x1.28fd71290c53ap-4, 16},
    {special::i1e, -0x1.e800000000000p+4, -0x1.2434edc24540dp-4, 16},
};

constexpr special all[] = {special::acos,    special::asin,     special::atan, special::acosh,
                           special::asinh,   special::atanh,    special::sinc, special::lgamma,
                           special::digamma, special::trigamma, special::entr, special::ndtri,
                           special::i0,      special::i0e,      special::i1,   special::i1e};

}  // namespace

TEST_CASE("special functions are near the values of many digits", "[special]") {
  for (const known& one : table) {
    INFO(to_string(one.function) << " " << one.x);
    const double ulp = std::abs(std::nextafter(one.value, 2 * one.value) - one.value);
    CHECK(std::abs(evaluate(one.function, one.x) - one.value) <= one.ulps * ulp);
  }
  CHECK(evaluate(special_pair::atan2, 1, -1) == Approx(3 * std::acos(-1.0) / 4).epsilon(1e-15));
  CHECK(evaluate(special_pair::atan2, -1e-300, -1e300) == -std::acos(-1.0));
  CHECK(evaluate(special_pair::atan2, 1e308, 1.5e308) ==
        Approx(0x1.2d0ead6066395p-1).epsilon(1e-15));
  CHECK(evaluate(special_pair::xlog1py, 2, 1e-20) == 2e-20);
}

TEST_CASE("special functions at their poles and ends", "[special]") {
  for (const double x : {0.0, -0.0, -1.0, -1e17, inf, -inf}) {
    CHECK(evaluate(special::lgamma, x) == inf);
  }
  CHECK(evaluate(special::digamma, 0.0) == -inf);
  CHECK(evaluate(special::digamma, -0.0) == inf);
  CHECK(std::isnan(evaluate(special::digamma, -3)));
  CHECK(evaluate(special::trigamma, -3) == inf);
  CHECK(evaluate(special::trigamma, inf) == 0);
  CHECK(std::isnan(evaluate(special::acos, 1.0000001)));
  CHECK(std::isnan(evaluate(special::acosh, 0.9999999)));
  CHECK(evaluate(special::atanh, -1) == -inf);
  CHECK(evaluate(special::sinc, 0) == 1);
  CHECK(std::abs(evaluate(special::sinc, 1e15)) == 0);
  CHECK(evaluate(special::entr, 0) == 0);
  CHECK(evaluate(special::entr, -1) == -inf);
  CHECK(evaluate(special::ndtri, 0) == -inf);
  CHECK(evaluate(special::i0, 800) == inf);
  CHECK(evaluate(special::i1, -800) == -inf);
  CHECK(evaluate(special::i0e, inf) == 0);
  CHECK(std::signbit(evaluate(special::i1e, -0.0)));
  CHECK(std::signbit(evaluate(special_pair::atan2, -0.0, 1)));
  CHECK(evaluate(special_pair::xlog1py, 0, -1) == 0);
  CHECK(std::isnan(evaluate(special_pair::xlog1py, 0, std::nan(""))));
}

TEST_CASE("odd functions are odd, and recurrences hold between all pieces", "[special]") {
  for (double x = 0.01; x < 60; x = x * 1.01 + 0.003) {
    CAPTURE(x);
    for (const special odd : {special::asinh, special::atan, special::i1, special::i1e}) {
      REQUIRE(evaluate(odd, -x) == -evaluate(odd, x));
    }
    const auto of = [](special function, double at) { return evaluate(function, at); };
    REQUIRE(std::abs(of(special::lgamma, x + 1) - of(special::lgamma, x) - std::log(x)) <=
            1e-15 * (8 + 8 * std::abs(of(special::lgamma, x + 1))));
    REQUIRE(of(special::digamma, x + 1) - of(special::digamma, x) == Approx(1 / x).epsilon(1e-12));
    REQUIRE(of(special::trigamma, x) - of(special::trigamma, x + 1) ==
            Approx(1 / (x * x)).epsilon(1e-11));
    // The angle and its functions.
    REQUIRE(std::tan(of(special::atan, x)) == Approx(x).epsilon(1e-12));
    REQUIRE(std::sinh(of(special::asinh, x)) == Approx(x).epsilon(1e-13));
  }
  // Reflection: lgamma(x) + lgamma(1 - x) = log(pi / |sin(pi x)|).
  for (double x = -9.93; x < 0; x += 0.125) {
    const double pi = std::acos(-1.0),
                 sum = evaluate(special::lgamma, x) + evaluate(special::lgamma, 1 - x);
    CHECK(sum == Approx(std::log(pi / std::abs(std::sin(pi * x)))).margin(1e-12));
  }
}

TEST_CASE("special functions of every operand have the same bits at each level, on any threads",
          "[special]") {
  const std::unique_ptr<const executor> pool = make_thread_pool(3);
  for (const special function : all) {
    INFO(to_string(function));
    std::vector<double> x = potl::test::hostile<double>(3000, 11);
    std::vector<float> single(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) single[i] = static_cast<float>(i) / 64;
    std::vector<double> wanted;
    for (const double one : x) wanted.push_back(evaluate(function, one));
    for (const double value : wanted) REQUIRE_FALSE((std::isnan(value) && std::signbit(value)));
    potl::test::at_each_level([&](isa) {
      std::vector<double> y(x.size());
      apply(function, x, y, *pool);
      REQUIRE(potl::test::same_bits(y, wanted));
      std::vector<float> rounded(x.size());
      apply(function, single, rounded, inline_executor());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto once = static_cast<float>(evaluate(function, static_cast<double>(single[i])));
        REQUIRE(potl::test::bits(rounded[i]) == potl::test::bits(once));
      }
    });
  }
}

TEST_CASE("a span of one element stands for it everywhere; others are refused", "[special]") {
  const std::vector<double> x{1, 2, 3}, one{2}, two{1, 2};
  std::vector<double> y(3), none;
  apply(special_pair::atan2, x, one, y, inline_executor());
  for (std::size_t i = 0; i < 3; ++i) CHECK(y[i] == evaluate(special_pair::atan2, x[i], 2));
  apply(special_pair::xlog1py, one, x, y, inline_executor());
  for (std::size_t i = 0; i < 3; ++i) CHECK(y[i] == evaluate(special_pair::xlog1py, 2, x[i]));
  CHECK_THROWS_AS(apply(special::atan, two, y, inline_executor()), potl::exception);
  CHECK_THROWS_AS(apply(special_pair::atan2, x, two, y, inline_executor()), potl::exception);
  apply(special::atan, none, none, inline_executor());
}
