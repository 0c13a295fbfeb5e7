// SPDX-License-Identifier: Apache-2.0
#include "products.hpp"

#include <potl/numeric/gemm.hpp>

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

#include "device.hpp"
#include "operand.hpp"
#include "passing.hpp"
#include "rounding.hpp"

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

void require_operands(const char* name, const at::Tensor& a, const at::Tensor& b) {
  require_one_device(name, a, b);
  require_plain(on_devices(name), a);
  require_plain(on_devices(name), b);
}

void multiply(const char* name, numeric::arithmetic mode, const at::Tensor& a, const at::Tensor& b,
              const at::Tensor& c) {
  const auto left = matrix_of<float>(a);
  const auto right = matrix_of<float>(b);
  const auto result = result_of<float>(c);
  numeric::gemm_batch batch = {1, 0, 0, 0};
  if (a.dim() == 3) batch = {a.size(0), a.stride(0), b.stride(0), c.stride(0)};
  if (is_on_device(a)) {
    const device_call there(a);
    if (mode != numeric::arithmetic::log64) {
      return there->gemm(mode, batch, left, right, result, there.queue());
    }
    const int bits = rounding_options().bits;
    return feed_there(name, c, there->gemm_log64(batch, left, right, result, bits, there.queue()));
  }
  if (mode == numeric::arithmetic::log64) {
    const auto ties =
        numeric::gemm_log64(batch, left, right, result, rounding_options(), executor());
    feed(name, c, ties, numeric::matrix_operands(batch, left, right));
  } else if (a.dim() == 2) {
    numeric::gemm(mode, left, right, result, executor());
  } else {
    numeric::gemm(mode, batch, left, right, result, executor());
  }
}

void multiply_double(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  if (a.dim() == 2) {
    numeric::gemm_ord64(matrix_of<double>(a), matrix_of<double>(b), result_of<double>(c),
                        executor());
    return;
  }
  for (std::int64_t i = 0; i < a.size(0); ++i) multiply_double(a[i], b[i], c[i]);
}

std::vector<std::int64_t> sizes_of(const at::Tensor& a, const at::Tensor& b) {
  std::vector<std::int64_t> sizes = a.sizes().vec();
  sizes.back() = b.size(-1);
  return sizes;
}

/// In float32, to which narrow operands are widened. A session of log64 may look at them later.
void multiply_wide(const char* name, const at::Tensor& a, const at::Tensor& b,
                   const at::Tensor& c) {
  const numeric::arithmetic mode = product_mode(a.scalar_type());
  if (mode == numeric::arithmetic::log64 || !is_widened(a)) {
    return multiply(name, mode, a.to(at::kFloat), b.to(at::kFloat), c);
  }
  multiply(name, mode, widened(passing_slot::left, a), widened(passing_slot::right, b), c);
}

/// Rows of a and b, of k complex numbers each, as rows of 2 k real ones: (re, im) times a column
/// (re, -im) is the real part of their product, times a column (im, re) the imaginary one.
at::Tensor complex_product(const char* name, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = at::view_as_real(a.resolve_conj().contiguous()).flatten(-2);
  const at::Tensor real = at::view_as_real(b.resolve_conj());
  const at::Tensor turned = at::stack({real.select(-1, 1).neg(), real.select(-1, 0)}, -1);
  const at::Tensor right = at::stack({real, turned}, -3).flatten(-2).flatten(-3, -2);
  return at::view_as_complex(product(name, left, right).unflatten(-1, {b.size(-1), 2}));
}

bool can_write_to(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  const c10::ScalarType type = a.scalar_type();
  if (type != c10::ScalarType::Float && type != c10::ScalarType::Double) return false;
  if (out.layout() != c10::kStrided || out.device() != a.device() || out.scalar_type() != type ||
      out.is_neg() || !out.is_contiguous() || out.sizes() != c10::IntArrayRef(sizes_of(a, b))) {
    return false;
  }
  return at::get_overlap_status(out, a) == at::MemOverlapStatus::No &&
         at::get_overlap_status(out, b) == at::MemOverlapStatus::No;
}

}  // namespace

numeric::arithmetic product_mode(c10::ScalarType type) {
  const numeric::arithmetic chosen = mode();
  return type == c10::ScalarType::BFloat16 ? numeric::arithmetic::xint16 : chosen;
}

at::Tensor wide_product(const char* name, const at::Tensor& a, const at::Tensor& b) {
  require_operands(name, a, b);
  const c10::ScalarType wide = compute_type(name, a.scalar_type());
  require_float(name, a, wide);
  const at::Tensor c = make_beside(a, sizes_of(a, b), wide);
  if (wide == c10::ScalarType::Double) {
    multiply_double(a, b, c);
  } else {
    multiply_wide(name, a, b, c);
  }
  return c;
}

at::Tensor product_in(const char* name, numeric::arithmetic mode, const at::Tensor& a,
                      const at::Tensor& b) {
  require_operands(name, a, b);
  const at::Tensor c = make_beside(a, sizes_of(a, b), at::kFloat);
  multiply(name, mode, a, b, c);
  return c;
}

bool product_into(const char* name, const at::Tensor& a, const at::Tensor& b,
                  const at::Tensor& out) {
  require_operands(name, a, b);
  require_float(name, a, a.scalar_type());
  if (!can_write_to(a, b, out)) return false;
  if (a.scalar_type() == c10::ScalarType::Double) {
    multiply_double(a, b, out);
  } else {
    multiply(name, product_mode(a.scalar_type()), a, b, out);
  }
  return true;
}

at::Tensor product(const char* name, const at::Tensor& a, const at::Tensor& b) {
  if (a.is_complex()) return complex_product(name, a, b);
  if (!is_widened(a) || product_mode(a.scalar_type()) == numeric::arithmetic::log64) {
    return rounded_to(wide_product(name, a, b), a.scalar_type());
  }
  require_operands(name, a, b);
  const at::Tensor c = passing(passing_slot::dot_products, sizes_of(a, b));
  multiply_wide(name, a, b, c);
  return c.to(a.scalar_type());
}

}  // namespace potl::libtorch::dispatch
