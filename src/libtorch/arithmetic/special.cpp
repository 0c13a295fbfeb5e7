// SPDX-License-Identifier: Apache-2.0
// The functions of numeric/detail/special.hpp.
#include <potl/numeric/detail/special.hpp>

#include <string>

#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>

#include "elements.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;
using numeric::special;
using numeric::special_pair;

template <special Function>
Tensor one(destination to, const Tensor& x) {
  return elements(numeric::to_string(Function), {x}, to, [](const auto& in, auto out) {
    numeric::apply(Function, in[0], out, executor());
  });
}
template <special_pair Function>
Tensor two(destination to, const Tensor& x, const Tensor& y) {
  return elements(numeric::to_string(Function), {x, y}, to, [](const auto& in, auto out) {
    numeric::apply(Function, in[0], in[1], out, executor());
  });
}
Tensor xlog1py_scalar(const Tensor& x, const Scalar& y) {
  return two<special_pair::xlog1py>(nullptr, x, at::native::wrapped_scalar_tensor(y));
}
Tensor scalar_xlog1py(const Scalar& x, const Tensor& y) {
  return two<special_pair::xlog1py>(nullptr, at::native::wrapped_scalar_tensor(x), y);
}

Tensor polygamma(std::int64_t order, const Tensor& x) {
  TORCH_CHECK(order >= 0, "polygamma(n, x) does not support negative n.");
  if (order > 1) {
    refuse("polygamma of order " + std::to_string(order) + " is not reproducible",
           "use torch.digamma, or order 1, which is its derivative");
  }
  return order == 0 ? one<special::digamma>(nullptr, x) : one<special::trigamma>(nullptr, x);
}

}  // namespace

void register_special(registrar& r) {
  const char* angle = "an arctangent of a quotient, in double, rounded once";
  r.kernel<one<special::acos>>("acos", angle, {"acos_", "acos.out"});
  r.kernel<one<special::asin>>("asin", angle, {"asin_", "asin.out"});
  r.kernel<one<special::atan>>("atan", angle, {"atan_", "atan.out"});
  r.kernel<two<special_pair::atan2>>("atan2", angle, {"atan2_", "atan2.out"});
  const char* note = "a function of numeric/detail/special.hpp, in double, rounded once";
  r.kernel<one<special::acosh>>("acosh", note, {"acosh_", "acosh.out"});
  r.kernel<one<special::asinh>>("asinh", note, {"asinh_", "asinh.out"});
  r.kernel<one<special::atanh>>("atanh", note, {"atanh_", "atanh.out"});
  r.kernel<one<special::sinc>>("sinc", note, {"sinc_", "sinc.out"});
  r.kernel<one<special::lgamma>>("lgamma", note, {"lgamma_", "lgamma.out"});
  r.kernel<one<special::digamma>>("digamma", note, {"digamma_", "digamma.out"});
  r.kernel<polygamma>("polygamma", note, {"polygamma.out"});
  r.composed({"polygamma_", "mvlgamma", "mvlgamma_"}, "the operators of their definition");
  r.composed_on_cpu({"mvlgamma.out"}, "the operators of their definition");
  r.kernel<one<special::entr>>("special_entr", note, {"special_entr.out"});
  r.kernel<one<special::ndtri>>("special_ndtri", note, {"special_ndtri.out"});
  r.kernel<one<special::i0>>("i0", note, {"i0_", "i0.out"});
  r.kernel<one<special::i0e>>("special_i0e", note, {"special_i0e.out"});
  r.kernel<one<special::i1>>("special_i1", note, {"special_i1.out"});
  r.kernel<one<special::i1e>>("special_i1e", note, {"special_i1e.out"});
  r.kernel<two<special_pair::xlog1py>>("special_xlog1py", note, {"special_xlog1py.out"});
  r.kernel<xlog1py_scalar>("special_xlog1py.other_scalar", note);
  r.kernel<scalar_xlog1py>("special_xlog1py.self_scalar", note);
}

}  // namespace potl::libtorch::dispatch
