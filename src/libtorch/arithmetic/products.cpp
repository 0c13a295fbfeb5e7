// SPDX-License-Identifier: Apache-2.0
#include "products.hpp"

#include <string>

#include <potl/numeric/gemm.hpp>

#include "operand.hpp"

namespace potl::libtorch::dispatch {
namespace {

/// The last two dimensions.
template <class Real>
numeric::matrix<const Real> matrix_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<Real>(), tensor.size(-2), tensor.size(-1), tensor.stride(-2),
          tensor.stride(-1)};
}

template <class Real>
numeric::matrix<Real> result_of(const at::Tensor& tensor) {
  return numeric::row_major(tensor.mutable_data_ptr<Real>(), tensor.size(-2), tensor.size(-1));
}

void multiply(numeric::arithmetic mode, const at::Tensor& a, const at::Tensor& b,
              const at::Tensor& c) {
  const auto left = matrix_of<float>(a);
  const auto right = matrix_of<float>(b);
  const auto result = result_of<float>(c);
  if (a.dim() == 2) {
    numeric::gemm(mode, left, right, result, executor());
    return;
  }
  const numeric::gemm_batch batch = {a.size(0), a.stride(0), b.stride(0), c.stride(0)};
  numeric::gemm(mode, batch, left, right, result, executor());
}

void multiply_double(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  if (a.dim() == 2) {
    numeric::gemm_ord64(matrix_of<double>(a), matrix_of<double>(b), result_of<double>(c),
                        executor());
    return;
  }
  for (std::int64_t i = 0; i < a.size(0); ++i) multiply_double(a[i], b[i], c[i]);
}

}  // namespace

numeric::arithmetic product_mode(const char* name, c10::ScalarType type) {
  const numeric::arithmetic chosen = mode();
  if (type == c10::ScalarType::BFloat16) return numeric::arithmetic::xint16;
  if (chosen == numeric::arithmetic::log64 && type != c10::ScalarType::Double) {
    refuse(std::string(name) + " in log64 outside of a recorded step",
           "log64 needs a rounding log: record or replay a job with arithmetic='log64'");
  }
  return chosen;
}

at::Tensor wide_product(const char* name, const at::Tensor& a, const at::Tensor& b) {
  require_plain(name, a);
  require_plain(name, b);
  const c10::ScalarType type = a.scalar_type();
  const c10::ScalarType wide = compute_type(name, type);
  std::vector<std::int64_t> sizes = a.sizes().vec();
  sizes.back() = b.size(-1);
  const at::Tensor c = make(sizes, wide);
  if (wide == c10::ScalarType::Double) {
    multiply_double(a, b, c);
    return c;
  }
  const bool narrow = type != wide;
  multiply(product_mode(name, type), narrow ? a.to(wide) : a, narrow ? b.to(wide) : b, c);
  return c;
}

at::Tensor product(const char* name, const at::Tensor& a, const at::Tensor& b) {
  return rounded_to(wide_product(name, a, b), a.scalar_type());
}

}  // namespace potl::libtorch::dispatch
