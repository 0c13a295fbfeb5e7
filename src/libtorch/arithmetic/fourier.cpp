// SPDX-License-Identifier: Apache-2.0
// Fourier transforms (numeric/detail/fourier.hpp): one dimension after the other in double, and one
// rounding at the end.
#include <potl/numeric/detail/fourier.hpp>

#include <cmath>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/native/SpectralOpsUtils.h>
#include <ATen/ops/cat.h>
#include <c10/core/WrapDimMinimal.h>

#include "elements.hpp"
#include "real.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;
using numeric::fourier_kind;
using dimensions = c10::SmallVector<std::int64_t, 6>;

dimensions wrapped(c10::IntArrayRef dims, const Tensor& x) {
  dimensions out;
  for (const std::int64_t dim : dims) out.push_back(c10::maybe_wrap_dim(dim, x.dim()));
  return out;
}

double factor_of(std::int64_t normalization, std::int64_t elements) {
  const auto count = static_cast<double>(elements);
  using at::native::fft_norm_mode;
  switch (static_cast<fft_norm_mode>(normalization)) {
    case fft_norm_mode::none: return 1;
    case fft_norm_mode::by_root_n: return 1 / std::sqrt(count);
    case fft_norm_mode::by_n: return 1 / count;
  }
  TORCH_CHECK(false, "there is no normalization ", normalization);
}

/// The transforms of one call, of one dimension after the other: what lies between them is double.
class transforms {
 public:
  transforms(const char* name, const Tensor& x, std::int64_t normalization, std::int64_t elements,
             bool backward, std::size_t count)
      : real_(c10::toRealValueType(x.scalar_type())),
        factor_(factor_of(normalization, elements)),
        backward_(backward),
        left_(count) {
    require_plain(name, x);
    if (real_ != at::kFloat && real_ != at::kDouble) {
      refuse(std::string(name) + " of " + c10::toString(x.scalar_type()),
             "convert it to float32 before, and back after");
    }
    now_ = x.resolve_conj().contiguous();
  }

  void run(std::int64_t dim, std::int64_t length, fourier_kind kind) {
    const numeric::fourier_shape shape{product(now_.sizes(), 0, dim), length,
                                       product(now_.sizes(), dim + 1, now_.dim())};
    sizes to(now_.sizes());
    to[static_cast<std::size_t>(dim)] = kind == fourier_kind::from_real ? length / 2 + 1 : length;
    const c10::ScalarType real = --left_ == 0 ? real_ : at::kDouble;
    const Tensor out = make(to, kind == fourier_kind::to_real ? real : c10::toComplexType(real));
    with_real(c10::toRealValueType(now_.scalar_type()), [&](auto in) {
      with_real(real, [&](auto result) {
        numeric::fourier(shape, kind, backward_, std::exchange(factor_, 1.0),
                         static_cast<const decltype(in)*>(now_.const_data_ptr()),
                         static_cast<decltype(result)*>(out.mutable_data_ptr()), executor());
      });
    });
    now_ = out;
  }

  const Tensor& result() const { return now_; }

 private:
  Tensor now_;
  c10::ScalarType real_;
  double factor_;
  bool backward_;
  std::size_t left_;
};

std::int64_t elements_of(const Tensor& x, c10::IntArrayRef dims) {
  std::int64_t out = 1;
  for (const std::int64_t dim : dims) out *= x.size(dim);
  return out;
}

/// With the other half of the spectrum of real numbers: all places negated, and conjugated.
Tensor with_mirror(const Tensor& half, std::int64_t length, std::int64_t dim,
                   c10::IntArrayRef others) {
  Tensor rest = half.narrow(dim, 1, length - half.size(dim)).flip(dim);
  for (const std::int64_t other : others) rest = rest.flip(other).roll(1, other);
  return at::cat({half, rest.conj()}, dim);
}

Tensor complex_to_complex(const Tensor& x, c10::IntArrayRef dim, std::int64_t normalization,
                          bool forward) {
  if (dim.empty()) return x.clone();
  const dimensions dims = wrapped(dim, x);
  TORCH_CHECK(x.is_complex(), "_fft_c2c: expected complex numbers");
  transforms all("_fft_c2c", x, normalization, elements_of(x, dims), !forward, dims.size());
  for (std::size_t i = dims.size(); i-- > 0;) {
    all.run(dims[i], x.size(dims[i]), fourier_kind::complex);
  }
  return all.result();
}

Tensor real_to_complex(const Tensor& x, c10::IntArrayRef dim, std::int64_t normalization,
                       bool onesided) {
  dimensions dims = wrapped(dim, x);
  TORCH_CHECK(!x.is_complex() && !dims.empty(), "_fft_r2c: expected real numbers and a dimension");
  transforms all("_fft_r2c", x, normalization, elements_of(x, dims), false, dims.size());
  const std::int64_t last = dims.back(), length = x.size(last);
  dims.pop_back();
  all.run(last, length, fourier_kind::from_real);
  for (std::size_t i = dims.size(); i-- > 0;) {
    all.run(dims[i], x.size(dims[i]), fourier_kind::complex);
  }
  return onesided ? all.result() : with_mirror(all.result(), length, last, dims);
}

Tensor complex_to_real(const Tensor& x, c10::IntArrayRef dim, std::int64_t normalization,
                       std::int64_t length) {
  dimensions dims = wrapped(dim, x);
  TORCH_CHECK(x.is_complex() && !dims.empty(), "_fft_c2r: expected complex numbers, a dimension");
  const std::int64_t last = dims.back();
  TORCH_CHECK(length >= 1 && x.size(last) == length / 2 + 1, "_fft_c2r: ", x.size(last),
              " numbers are not half of a transform of ", length);
  dims.pop_back();
  transforms all("_fft_c2r", x, normalization, elements_of(x, dims) * length, true,
                 dims.size() + 1);
  for (const std::int64_t one : dims) all.run(one, x.size(one), fourier_kind::complex);
  all.run(last, length, fourier_kind::to_real);
  return all.result();
}

}  // namespace

void register_fourier(registrar& r) {
  const char* note = "numeric/detail/fourier.hpp in float64, rounded once";
  r.kernel<complex_to_complex>("_fft_c2c", note, {"_fft_c2c.out"});
  r.kernel<real_to_complex>("_fft_r2c", note, {"_fft_r2c.out"});
  r.kernel<complex_to_real>("_fft_c2r", note, {"_fft_c2r.out"});
}

}  // namespace potl::libtorch::dispatch
