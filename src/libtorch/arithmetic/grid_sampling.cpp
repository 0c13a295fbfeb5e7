// SPDX-License-Identifier: Apache-2.0
// Values between the elements of an image, at positions that a grid gives, and their gradients:
// elementwise operations, gathers and sums in the order written. The axes are weighed one by one,
// as taps; a corner is one tap of each axis, the first axis outermost.
#include <array>
#include <cmath>
#include <tuple>
#include <vector>

#include <ATen/ops/addcmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "real.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;

enum interpolation : std::int64_t { linear = 0, nearest = 1, cubic = 2 };
enum padding : std::int64_t { zeros = 0, border = 1, reflection = 2 };

struct sampling {
  std::int64_t interpolation, padding;
  bool align_corners;
};

/// One element of an axis that counts for each position, with the derivative of its weight by the
/// position. Undefined: 1, and 0.
struct tap {
  Tensor place, inside, weight, slope;
};

/// The taps of each position along an axis; a change of the grid moves it by `scale` times that.
struct axis_taps {
  std::vector<tap> taps;
  Tensor scale;
};

/// A position and its derivative, moved onto the image as the padding says.
struct position {
  Tensor x, scale;
};

position reflected(const position& of, double low, double high) {
  if (low == high) return {at::zeros_like(of.x), at::zeros_like(of.scale)};
  const double span = high - low;
  const Tensor from = of.x - low;
  const Tensor distance = from.abs();
  const Tensor rest = distance.fmod(span);
  const Tensor is_even = (distance / span).floor().fmod(2.0) == 0;
  const Tensor turned = at::where(is_even == (from >= 0), of.scale, -of.scale);
  return {at::where(is_even, rest + low, (span - rest) + low), turned};
}

position clipped(const position& of, double last) {
  const Tensor is_within = (of.x > 0) & (of.x < last);
  return {of.x.clamp(0.0, last), at::where(is_within, of.scale, 0.0)};
}

position padded(position of, const sampling& how, std::int64_t size) {
  const auto count = static_cast<double>(size);
  if (how.padding == reflection) {
    of = how.align_corners ? reflected(of, 0.0, count - 1) : reflected(of, -0.5, count - 0.5);
  }
  return how.padding == zeros ? of : clipped(of, count - 1);
}

tap tap_at(Tensor x, const sampling& how, std::int64_t size, Tensor weight, Tensor slope) {
  if (how.interpolation == cubic) x = padded({x, at::zeros_like(x)}, how, size).x;
  const Tensor inside = (x >= 0) & (x <= static_cast<double>(size - 1));
  // What is outside, or no number, gets some place, and counts for nothing.
  const Tensor place = at::where(inside, x, 0.0).to(at::kLong);
  return {place, inside, std::move(weight), std::move(slope)};
}

/// Weights of the four elements around a position that is t behind the second (a = -3/4).
axis_taps cubic_taps(const Tensor& first, const Tensor& t, const sampling& how, std::int64_t size) {
  constexpr double a = -0.75;
  const auto near = [](const Tensor& x) { return ((x * (a + 2) - (a + 3)) * x * x) + 1; };
  const auto far = [](const Tensor& x) { return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a; };
  const auto near_slope = [](const Tensor& x) { return (x * (3 * (a + 2)) - 2 * (a + 3)) * x; };
  const auto far_slope = [](const Tensor& x) { return (x * (3 * a) - 10 * a) * x + 8 * a; };
  const Tensor rest = 1 - t;
  axis_taps out;
  out.taps = {tap_at(first - 1, how, size, far(t + 1), far_slope(t + 1)),
              tap_at(first, how, size, near(t), near_slope(t)),
              tap_at(first + 1, how, size, near(rest), -near_slope(rest)),
              tap_at(first + 2, how, size, far(rest + 1), -far_slope(rest + 1))};
  return out;
}

axis_taps taps_of(const Tensor& grid, const sampling& how, std::int64_t size) {
  const auto count = static_cast<double>(size);
  const double scale = (how.align_corners ? count - 1 : count) / 2;
  position along = {how.align_corners ? (grid + 1) / 2 * (count - 1) : ((grid + 1) * count - 1) / 2,
                    at::zeros_like(grid) + scale};
  if (how.interpolation != cubic) along = padded(along, how, size);
  axis_taps out;
  if (how.interpolation == nearest) {
    out.taps = {tap_at(along.x.round(), how, size, {}, {})};
  } else {
    const Tensor first = along.x.floor();
    const Tensor t = along.x - first;
    if (how.interpolation == cubic) {
      out = cubic_taps(first, t, how, size);
    } else {
      const Tensor one = at::zeros_like(t) + 1;
      out.taps = {tap_at(first, how, size, 1 - t, -one), tap_at(first + 1, how, size, t, one)};
    }
  }
  out.scale = along.scale;
  return out;
}

/// An image as [samples, channels, elements], and one tap after the other of each position as
/// [samples, positions].
class sampled {
 public:
  using corner = std::vector<std::size_t>;

  sampled(const char* name, const Tensor& image, const Tensor& grid, const sampling& how)
      : type_(compute_type(on_devices(name), image.scalar_type())) {
    const std::int64_t axes = image.dim() - 2;
    TORCH_CHECK((axes == 2 || axes == 3) && grid.dim() == axes + 2 && grid.size(-1) == axes &&
                    grid.size(0) == image.size(0) && grid.scalar_type() == image.scalar_type(),
                name, ": an image of sizes ", image.sizes(), " and type ", image.scalar_type(),
                " does not fit a grid of sizes ", grid.sizes(), " and type ", grid.scalar_type());
    TORCH_CHECK(product(image.sizes(), 2, image.dim()) > 0, name, ": the image has no elements");
    TORCH_CHECK(how.interpolation >= linear && how.interpolation <= (axes == 2 ? cubic : nearest),
                name, ": there is no such interpolation of ", axes, " dimensions");
    TORCH_CHECK(how.padding >= zeros && how.padding <= reflection, name, ": no such padding");
    require_one_device(name, image, grid);
    shape_ = image.sizes();
    grid_shape_ = grid.sizes();
    const std::int64_t elements = product(shape_, 2, image.dim());
    const std::int64_t positions = product(grid_shape_, 1, axes + 1);
    values_ = image.to(type_).reshape({image.size(0), image.size(1), elements});
    const Tensor places = grid.to(type_).reshape({grid.size(0), positions, axes});
    for (std::int64_t i = 0; i < axes; ++i) {
      axes_.push_back(taps_of(places.select(2, axes - 1 - i), how, image.size(2 + i)));
    }
  }

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
  Tensor weight(const corner& of, std::size_t sloping) const {
    Tensor out;
    for (std::size_t i = 0; i < of.size(); ++i) {
      const tap& one = axes_[i].taps[of[i]];
      const Tensor& factor = i == sloping ? one.slope : one.weight;
      if (factor.defined()) out = out.defined() ? out * factor : factor;
    }
    return out;
  }
  Tensor weight(const corner& of) const { return weight(of, of.size()); }

  Tensor inside(const corner& of) const {
    Tensor out;
    for (std::size_t i = 0; i < of.size(); ++i) {
      const Tensor& one = axes_[i].taps[of[i]].inside;
      out = out.defined() ? out & one : one;
    }
    return out.unsqueeze(1);
  }

  /// Where in the image, for each channel.
  Tensor places(const corner& of) const {
    Tensor out;
    for (std::size_t i = 0; i < of.size(); ++i) {
      const Tensor& place = axes_[i].taps[of[i]].place;
      out = out.defined() ? out * shape_[i + 2] + place : place;
    }
    return out.unsqueeze(1).expand({-1, shape_[1], -1});
  }

  Tensor gathered(const corner& of) const {
    return at::where(inside(of), values_.gather(2, places(of)), 0.0);
  }

  Tensor image_gradient(const Tensor& dy) const {
    const Tensor out = at::zeros_like(values_);
    for_each_corner([&](const corner& of) {
      const Tensor factor = weight(of);
      const Tensor share = factor.defined() ? dy * factor.unsqueeze(1) : dy;
      out.scatter_add_(2, places(of), at::where(inside(of), share, 0.0));
    });
    return out.reshape(shape_);
  }

  Tensor grid_gradient(const Tensor& dy) const {
    std::vector<Tensor> slopes(axes_.size());
    for (std::size_t i = 0; i < axes_.size(); ++i) slopes[i] = at::zeros_like(axes_[i].scale);
    for_each_corner([&](const corner& of) {
      if (!axes_[0].taps[0].slope.defined()) return;  // the nearest one stays it
      const Tensor products = (dy * gathered(of)).sum(1);
      for (std::size_t i = 0; i < axes_.size(); ++i) slopes[i].addcmul_(products, weight(of, i));
    });
    std::vector<Tensor> out;
    for (std::size_t i = axes_.size(); i-- > 0;) out.push_back(slopes[i] * axes_[i].scale);
    return at::stack(out, -1).reshape(grid_shape_);
  }

  Tensor result() const {
    Tensor out = at::zeros({shape_[0], shape_[1], axes_[0].scale.size(1)}, values_.options());
    for_each_corner([&](const corner& of) {
      const Tensor factor = weight(of);
      const Tensor found = gathered(of);
      out = factor.defined() ? at::addcmul(out, found, factor.unsqueeze(1)) : out + found;
    });
    sizes to(shape_.begin(), shape_.begin() + 2);
    to.append(grid_shape_.begin() + 1, grid_shape_.end() - 1);
    return out.reshape(to);
  }

  Tensor flat(const Tensor& dy) const {
    return dy.to(type_).reshape({shape_[0], shape_[1], axes_[0].scale.size(1)});
  }

 private:
  c10::ScalarType type_;
  sizes shape_, grid_shape_;
  Tensor values_;
  std::vector<axis_taps> axes_;
};

Tensor grid_sampler(const Tensor& image, const Tensor& grid, std::int64_t interpolation,
                    std::int64_t padding, bool align_corners) {
  const sampled all("grid_sampler", image, grid, {interpolation, padding, align_corners});
  return rounded_to(all.result(), image.scalar_type());
}

std::tuple<Tensor, Tensor> grid_sampler_backward(const Tensor& dy, const Tensor& image,
                                                 const Tensor& grid, std::int64_t interpolation,
                                                 std::int64_t padding, bool align_corners,
                                                 std::array<bool, 2> wanted) {
  const char* name = "grid_sampler_backward";
  const sampled all(name, image, grid, {interpolation, padding, align_corners});
  require_one_device(name, image, dy);
  const Tensor gradient = all.flat(dy);
  return {wanted[0] ? rounded_to(all.image_gradient(gradient), image.scalar_type()) : Tensor(),
          wanted[1] ? rounded_to(all.grid_gradient(gradient), grid.scalar_type()) : Tensor()};
}

}  // namespace

void register_grid_sampling(registrar& r) {
  const char* note = "products of the axes' weights; weighted sum, corners row-major";
  const char* back = "corner after corner, each in ascending order of the outputs";
  for (const std::string name : {"grid_sampler_2d", "grid_sampler_3d"}) {
    r.kernel<grid_sampler>(name, note);
    r.kernel<grid_sampler_backward>(name + "_backward", back);
  }
  r.refused({"_grid_sampler_2d_cpu_fallback"}, "use torch.nn.functional.grid_sample");
  r.composed({"affine_grid_generator"}, "linspace and bmm");
}

}  // namespace potl::libtorch::dispatch
