// SPDX-License-Identifier: Apache-2.0
// Values between the elements of an image, at positions that a grid gives, and their gradients:
// the taps of each position, as the padding and the interpolation say.
#include <array>
#include <cmath>
#include <tuple>
#include <vector>

#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "between.hpp"
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

/// Weights of the four elements around a position that is t behind the second (a = -3/4).
axis_taps cubic_taps(const Tensor& first, const Tensor& t, const sampling& how, std::int64_t size) {
  constexpr double a = -0.75;
  const auto near = [](const Tensor& x) { return ((x * (a + 2) - (a + 3)) * x * x) + 1; };
  const auto far = [](const Tensor& x) { return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a; };
  const auto near_slope = [](const Tensor& x) { return (x * (3 * (a + 2)) - 2 * (a + 3)) * x; };
  const auto far_slope = [](const Tensor& x) { return (x * (3 * a) - 10 * a) * x + 8 * a; };
  const Tensor rest = 1 - t;
  const auto moved = [&](const Tensor& x, Tensor weight, Tensor slope) {
    const position to = padded({x, at::zeros_like(x)}, how, size);
    return tap_at(to.x, size, std::move(weight), std::move(slope));
  };
  axis_taps out;
  out.taps = {moved(first - 1, far(t + 1), far_slope(t + 1)), moved(first, near(t), near_slope(t)),
              moved(first + 1, near(rest), -near_slope(rest)),
              moved(first + 2, far(rest + 1), -far_slope(rest + 1))};
  return out;
}

axis_taps taps_of(const Tensor& grid, const sampling& how, std::int64_t size) {
  const auto count = static_cast<double>(size);
  const double scale = (how.align_corners ? count - 1 : count) / 2;
  position along = {how.align_corners ? (grid + 1) / 2 * (count - 1) : ((grid + 1) * count - 1) / 2,
                    at::zeros_like(grid) + scale};
  if (how.interpolation != cubic) along = padded(along, how, size);
  axis_taps out;
  switch (how.interpolation) {
    case nearest: out.taps = {tap_at(along.x.round(), size, {}, {})}; break;
    case linear: out.taps = linear_taps(along.x, size); break;
    default: {
      const Tensor first = along.x.floor();
      out = cubic_taps(first, along.x - first, how, size);
    }
  }
  out.scale = along.scale;
  return out;
}

sampled samples_of(const char* name, const Tensor& image, const Tensor& grid, const sampling& how) {
  const c10::ScalarType type = compute_type(on_devices(name), image.scalar_type());
  const std::int64_t axes = image.dim() - 2;
  TORCH_CHECK((axes == 2 || axes == 3) && grid.dim() == axes + 2 && grid.size(-1) == axes &&
                  grid.size(0) == image.size(0) && grid.scalar_type() == image.scalar_type(),
              name, ": an image of sizes ", image.sizes(), " and type ", image.scalar_type(),
              " does not fit a grid of sizes ", grid.sizes(), " and type ", grid.scalar_type());
  TORCH_CHECK(product(image.sizes(), 2, image.dim()) > 0, name, ": the image has no elements");
  TORCH_CHECK(how.interpolation >= linear && how.interpolation <= cubic, name,
              ": no such interpolation");
  TORCH_CHECK(how.padding >= zeros && how.padding <= reflection, name, ": no such padding");
  require_one_device(name, image, grid);
  const std::int64_t positions = product(grid.sizes(), 1, axes + 1);
  const Tensor places = grid.to(type).reshape({grid.size(0), positions, axes});
  std::vector<axis_taps> taps;
  for (std::int64_t i = 0; i < axes; ++i) {
    taps.push_back(taps_of(places.select(2, axes - 1 - i), how, image.size(2 + i)));
  }
  return {image.to(type), grid.sizes(), std::move(taps)};
}

Tensor grid_sampler(const Tensor& image, const Tensor& grid, std::int64_t interpolation,
                    std::int64_t padding, bool align_corners) {
  const sampled all =
      samples_of("grid_sampler", image, grid, {interpolation, padding, align_corners});
  return rounded_to(all.result(), image.scalar_type());
}

std::tuple<Tensor, Tensor> grid_sampler_backward(const Tensor& dy, const Tensor& image,
                                                 const Tensor& grid, std::int64_t interpolation,
                                                 std::int64_t padding, bool align_corners,
                                                 std::array<bool, 2> wanted) {
  const char* name = "grid_sampler_backward";
  const sampled all = samples_of(name, image, grid, {interpolation, padding, align_corners});
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
