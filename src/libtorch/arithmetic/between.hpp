// SPDX-License-Identifier: Apache-2.0
// Values between the elements of an image, and their gradients: elementwise operations, gathers and
// sums in the order written. The axes are weighed one by one, as taps; a corner is one tap of each
// axis, the first axis outermost.
#pragma once

#include <utility>
#include <vector>

#include <ATen/ops/addcmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "real.hpp"

namespace potl::libtorch::dispatch {

/// One element of an axis that counts for each position, with the derivative of its weight by the
/// position. Undefined: 1, and 0.
struct tap {
  at::Tensor place, inside, weight, slope;
};

/// The taps of each position along an axis; a change of the grid moves it by `scale` times that.
struct axis_taps {
  std::vector<tap> taps;
  at::Tensor scale;
};

/// What is outside, or no number, gets some place, and counts for nothing.
inline tap tap_at(const at::Tensor& x, std::int64_t size, at::Tensor weight, at::Tensor slope) {
  const at::Tensor inside = (x >= 0) & (x <= static_cast<double>(size - 1));
  const at::Tensor place = at::where(inside, x, 0.0).to(at::kLong);
  return {place, inside, std::move(weight), std::move(slope)};
}

/// The elements on both sides of each position.
inline std::vector<tap> linear_taps(const at::Tensor& x, std::int64_t size) {
  const at::Tensor first = x.floor();
  const at::Tensor t = x - first;
  const at::Tensor one = at::zeros_like(t) + 1;
  return {tap_at(first, size, 1 - t, -one), tap_at(first + 1, size, t, one)};
}

/// An image as [samples, channels, elements], and one tap after the other of each position as
/// [samples, positions].
class sampled {
 public:
  using corner = std::vector<std::size_t>;

  /// `places` are the sizes of what the positions form: [samples, ..., axes of the image].
  sampled(const at::Tensor& image, c10::IntArrayRef places, std::vector<axis_taps> axes)
      : shape_(image.sizes()),
        grid_shape_(places),
        values_(image.reshape({image.size(0), image.size(1), product(shape_, 2, image.dim())})),
        axes_(std::move(axes)) {}

  /// Calls body(corner) with the numbers of its taps, in order.
  template <class Body>
  void for_each_corner(const Body& body) const {
    corner of(axes_.size(), 0);
    for (;;) {
      body(of);
      std::size_t axis = axes_.size();
      while (axis > 0 && ++of[axis - 1] == axes_[axis - 1].taps.size()) of[--axis] = 0;
      if (axis == 0) return;
    }
  }

  /// Product of the weights of all axes but one, times the slope of that one; undefined: 1.
  at::Tensor weight(const corner& of, std::size_t sloping) const {
    at::Tensor out;
    for (std::size_t i = 0; i < of.size(); ++i) {
      const tap& one = axes_[i].taps[of[i]];
      const at::Tensor& factor = i == sloping ? one.slope : one.weight;
      if (factor.defined()) out = out.defined() ? out * factor : factor;
    }
    return out;
  }
  at::Tensor weight(const corner& of) const { return weight(of, of.size()); }

  at::Tensor inside(const corner& of) const {
    at::Tensor out;
    for (std::size_t i = 0; i < of.size(); ++i) {
      const at::Tensor& one = axes_[i].taps[of[i]].inside;
      out = out.defined() ? out & one : one;
    }
    return out.unsqueeze(1);
  }

  /// Where in the image, for each channel.
  at::Tensor places(const corner& of) const {
    at::Tensor out;
    for (std::size_t i = 0; i < of.size(); ++i) {
      const at::Tensor& place = axes_[i].taps[of[i]].place;
      out = out.defined() ? out * shape_[i + 2] + place : place;
    }
    return out.unsqueeze(1).expand({-1, shape_[1], -1});
  }

  at::Tensor gathered(const corner& of) const {
    return at::where(inside(of), values_.gather(2, places(of)), 0.0);
  }

  at::Tensor image_gradient(const at::Tensor& dy) const {
    const at::Tensor out = at::zeros_like(values_);
    for_each_corner([&](const corner& of) {
      const at::Tensor factor = weight(of);
      const at::Tensor share = factor.defined() ? dy * factor.unsqueeze(1) : dy;
      out.scatter_add_(2, places(of), at::where(inside(of), share, 0.0));
    });
    return out.reshape(shape_);
  }

  at::Tensor grid_gradient(const at::Tensor& dy) const {
    std::vector<at::Tensor> slopes(axes_.size());
    for (std::size_t i = 0; i < axes_.size(); ++i) slopes[i] = at::zeros_like(axes_[i].scale);
    for_each_corner([&](const corner& of) {
      if (!axes_[0].taps[0].slope.defined()) return;  // the nearest one stays it
      const at::Tensor products = (dy * gathered(of)).sum(1);
      for (std::size_t i = 0; i < axes_.size(); ++i) slopes[i].addcmul_(products, weight(of, i));
    });
    std::vector<at::Tensor> out;
    for (std::size_t i = axes_.size(); i-- > 0;) out.push_back(slopes[i] * axes_[i].scale);
    return at::stack(out, -1).reshape(grid_shape_);
  }

  at::Tensor result() const {
    at::Tensor out = at::zeros({shape_[0], shape_[1], axes_[0].scale.size(1)}, values_.options());
    for_each_corner([&](const corner& of) {
      const at::Tensor factor = weight(of);
      const at::Tensor found = gathered(of);
      out = factor.defined() ? at::addcmul(out, found, factor.unsqueeze(1)) : out + found;
    });
    sizes to(shape_.begin(), shape_.begin() + 2);
    to.append(grid_shape_.begin() + 1, grid_shape_.end() - 1);
    return out.reshape(to);
  }

  at::Tensor flat(const at::Tensor& dy) const {
    return dy.to(values_.scalar_type()).reshape({shape_[0], shape_[1], axes_[0].scale.size(1)});
  }

 private:
  sizes shape_, grid_shape_;
  at::Tensor values_;
  std::vector<axis_taps> axes_;
};

}  // namespace potl::libtorch::dispatch
