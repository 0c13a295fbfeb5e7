// SPDX-License-Identifier: Apache-2.0
// Operators of torchvision that its detectors train with: boxes that overlap less, and means of
// regions of an image.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "real.hpp"
#include "registrar.hpp"
#include "torchvision.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;

// ---------------------------------------------------------------------- boxes

/// Which boxes overlap no better one by more than `threshold`, the best first. The overlap is
/// common / (area + other area - common), left to right.
Tensor nms(const Tensor& boxes, const Tensor& scores, double threshold) {
  const char* name = "torchvision.nms";
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 4 && scores.dim() == 1 &&
                  scores.size(0) == boxes.size(0),
              name, ": expected boxes [n, 4] and scores [n], got sizes ", boxes.sizes(), " and ",
              scores.sizes());
  const c10::ScalarType type = compute_type(name, boxes.scalar_type());
  const Tensor best_first =
      std::get<1>(at::sort(row_major(name, scores, type), /*stable=*/true, 0, /*descending=*/true));
  const Tensor all = row_major(name, boxes, type);
  std::vector<std::int64_t> kept;
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    const auto order = values<std::int64_t>(best_first);
    const auto box = [&](std::int64_t i) { return all.const_data_ptr<Real>() + 4 * i; };
    const auto area = [&](std::int64_t i) {
      return (box(i)[2] - box(i)[0]) * (box(i)[3] - box(i)[1]);
    };
    const auto overlap = [&](std::int64_t i, std::int64_t j) {
      const Real* a = box(i);
      const Real* b = box(j);
      const Real wide = std::max(zero, std::min(a[2], b[2]) - std::max(a[0], b[0]));
      const Real high = std::max(zero, std::min(a[3], b[3]) - std::max(a[1], b[1]));
      const Real common = wide * high;
      return common / (area(i) + area(j) - common);
    };
    std::vector<char> is_dropped(order.size(), 0);
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (is_dropped[i] != 0) continue;
      kept.push_back(order[i]);
      for (std::size_t j = i + 1; j < order.size(); ++j) {
        if (static_cast<double>(overlap(order[i], order[j])) > threshold) is_dropped[j] = 1;
      }
    }
  });
  return at::tensor(kept, at::TensorOptions(at::kLong));
}

// ---------------------------------------------------------------------- regions

/// Regions are as large as a model makes them: most samples of a bin along an axis, and of all
/// bins.
constexpr std::int64_t most_in_line = 4096, most_in_region = std::int64_t{1} << 24;
constexpr std::size_t enough_at_once = std::size_t{1} << 18;  ///< samples, of several regions

struct pooling {
  double scale;
  std::int64_t high, wide;  ///< bins
  std::int64_t samples;     ///< of a bin along an axis; up to 0: one for each element
  bool aligned;
};

/// The four elements around a sample, with their weights; none where it is outside.
template <class Real>
struct corners {
  std::array<std::int64_t, 4> place{};
  std::array<Real, 4> weight{};
};

template <class Real>
corners<Real> around(Real y, Real x, std::int64_t height, std::int64_t width) {
  const auto is_near = [](Real at, std::int64_t size) {
    return at >= -1 && at <= static_cast<Real>(size);  // false for NaN
  };
  if (!is_near(y, height) || !is_near(x, width)) return {};
  const auto split = [](Real& at, std::int64_t size) {
    at = std::max(at, Real{0});
    const std::int64_t low = std::min(static_cast<std::int64_t>(at), size - 1);
    if (low == size - 1) at = static_cast<Real>(low);
    return std::array{low, std::min(low + 1, size - 1)};
  };
  const auto [top, bottom] = split(y, height);
  const auto [left, right] = split(x, width);
  const Real down = y - static_cast<Real>(top), along = x - static_cast<Real>(left);
  const Real up = 1 - down, back = 1 - along;
  return {{top * width + left, top * width + right, bottom * width + left, bottom * width + right},
          {up * back, up * along, down * back, down * along}};
}

/// One region: its image, and the samples of each bin, both row-major.
template <class Real>
struct region {
  std::int64_t image, samples;
  std::vector<corners<Real>> places;
};

template <class Real>
region<Real> region_of(const Real* of, const pooling& how, std::int64_t height,
                       std::int64_t width) {
  const auto scale = static_cast<Real>(how.scale);
  const Real offset = how.aligned ? Real{0.5} : Real{0};
  const Real left = of[1] * scale - offset, top = of[2] * scale - offset;
  Real wide = (of[3] * scale - offset) - left, high = (of[4] * scale - offset) - top;
  if (!how.aligned) {
    wide = std::max(wide, Real{1});
    high = std::max(high, Real{1});
  }
  const Real bin_high = high / static_cast<Real>(how.high);
  const Real bin_wide = wide / static_cast<Real>(how.wide);
  const auto count = [&](Real size) {
    if (how.samples > 0) return how.samples;
    const auto most = static_cast<Real>(most_in_line);
    TORCH_CHECK(size <= most, "torchvision.roi_align: a bin of ", size, " elements");
    return static_cast<std::int64_t>(std::ceil(std::max(size, Real{0})));
  };
  const std::int64_t rows = count(bin_high), columns = count(bin_wide);
  TORCH_CHECK(how.high * rows * how.wide * columns <= most_in_region,
              "torchvision.roi_align: ", how.high * rows, " by ", how.wide * columns,
              " samples of a region");
  region<Real> out{static_cast<std::int64_t>(of[0]), std::max<std::int64_t>(rows * columns, 1), {}};
  const auto at = [](Real start, std::int64_t bin, Real size, std::int64_t i, std::int64_t n) {
    const Real inside = (static_cast<Real>(i) + Real{0.5}) * size / static_cast<Real>(n);
    return start + static_cast<Real>(bin) * size + inside;
  };
  for (std::int64_t bin = 0; bin < how.high * how.wide; ++bin) {
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const Real y = at(top, bin / how.wide, bin_high, i / columns, rows);
      const Real x = at(left, bin % how.wide, bin_wide, i % columns, columns);
      out.places.push_back(around(y, x, height, width));
    }
  }
  return out;
}

/// Calls body(plane of the image, plane of bins, region) for all regions of each channel, in order.
/// Few regions at once, because the samples of all may take much memory.
template <class Real, class Body>
void for_each_plane(const char* name, const Tensor& boxes, const pooling& how,
                    c10::IntArrayRef image, const Body& body) {
  TORCH_CHECK(boxes.dim() == 2 && boxes.size(1) == 5, name, ": expected rois [n, 5], got sizes ",
              boxes.sizes());
  TORCH_CHECK(how.high > 0 && how.wide > 0 && image[2] > 0 && image[3] > 0, name,
              ": sizes must be positive");
  TORCH_CHECK(how.samples <= most_in_line, name, ": at most ", most_in_line,
              " samples of a bin along an axis");
  const std::int64_t channels = image[1], plane = image[2] * image[3];
  const std::int64_t bins = how.high * how.wide;
  for (std::int64_t first = 0, last = 0; first < boxes.size(0); first = last) {
    std::vector<region<Real>> some;
    for (std::size_t held = 0; last < boxes.size(0) && held < enough_at_once; ++last) {
      const Real* box = boxes.const_data_ptr<Real>() + 5 * last;
      TORCH_CHECK(box[0] >= 0 && box[0] < static_cast<Real>(image[0]), name, ": region ", last,
                  " is of image ", box[0], " of ", image[0]);
      some.push_back(region_of(box, how, image[2], image[3]));
      held += some.back().places.size();
    }
    executor().run(static_cast<std::size_t>(channels), [&](std::size_t task) {
      const auto c = static_cast<std::int64_t>(task);
      std::int64_t target = first * channels + c;
      for (const region<Real>& one : some) {
        body((one.image * channels + c) * plane, target * bins, one);
        target += channels;
      }
    });
  }
}

/// The mean over the samples of a bin, one product and one sum after the other.
Tensor roi_align(const Tensor& image, const Tensor& boxes, const pooling& how) {
  const char* name = "torchvision.roi_align";
  TORCH_CHECK(image.dim() == 4, name, ": expected an image [n, c, h, w]");
  const c10::ScalarType type = compute_type(name, image.scalar_type());
  const Tensor x = row_major(name, image, type), places = row_major(name, boxes, type);
  const Tensor out = make({boxes.size(0), image.size(1), how.high, how.wide}, type);
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    const std::int64_t bins = how.high * how.wide;
    const Real* from = x.const_data_ptr<Real>();
    Real* to = out.mutable_data_ptr<Real>();
    for_each_plane<Real>(name, places, how, image.sizes(),
                         [&](std::int64_t source, std::int64_t target, const region<Real>& of) {
                           const auto each = static_cast<std::int64_t>(of.places.size()) / bins;
                           for (std::int64_t bin = 0; bin < bins; ++bin) {
                             Real sum = 0;
                             for (std::int64_t i = 0; i < each; ++i) {
                               const auto& around =
                                   of.places[static_cast<std::size_t>(bin * each + i)];
                               for (std::size_t k = 0; k < 4; ++k) {
                                 if (around.weight[k] != 0)
                                   sum += around.weight[k] * from[source + around.place[k]];
                               }
                             }
                             to[target + bin] = sum / static_cast<Real>(of.samples);
                           }
                         });
  });
  return rounded_to(out, image.scalar_type());
}

/// dy weight / samples, added region after region, bin after bin, sample after sample.
Tensor roi_align_backward(const Tensor& dy, const Tensor& boxes, const pooling& how,
                          c10::IntArrayRef image) {
  const char* name = "torchvision.roi_align's gradient";
  TORCH_CHECK(dy.sizes() == c10::IntArrayRef({boxes.size(0), image[1], how.high, how.wide}), name,
              ": does not fit sizes ", dy.sizes());
  const c10::ScalarType type = compute_type(name, dy.scalar_type());
  const Tensor slopes = row_major(name, dy, type), places = row_major(name, boxes, type);
  const Tensor out = at::zeros(image, slopes.options());
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    const std::int64_t bins = how.high * how.wide;
    const Real* from = slopes.const_data_ptr<Real>();
    Real* to = out.mutable_data_ptr<Real>();
    for_each_plane<Real>(name, places, how, image,
                         [&](std::int64_t target, std::int64_t source, const region<Real>& of) {
                           const auto each = static_cast<std::int64_t>(of.places.size()) / bins;
                           for (std::int64_t j = 0; j < bins * each; ++j) {
                             const auto& around = of.places[static_cast<std::size_t>(j)];
                             for (std::size_t k = 0; k < 4; ++k) {
                               if (around.weight[k] == 0) continue;
                               const Real share = from[source + j / each] * around.weight[k];
                               to[target + around.place[k]] +=
                                   share / static_cast<Real>(of.samples);
                             }
                           }
                         });
  });
  return rounded_to(out, dy.scalar_type());
}

// ---------------------------------------------------------------------- the stack

void call_nms(arguments of, ::torch::jit::Stack& results) {
  results.emplace_back(nms(of[0].toTensor(), of[1].toTensor(), of[2].toDouble()));
}

void call_align(arguments of, ::torch::jit::Stack& results) {
  results.emplace_back(
      roi_align(of[0].toTensor(), of[1].toTensor(),
                {of[2].toDouble(), of[3].toInt(), of[4].toInt(), of[5].toInt(), of[6].toBool()}));
}

void call_align_backward(arguments of, ::torch::jit::Stack& results) {
  const std::array image{of[5].toInt(), of[6].toInt(), of[7].toInt(), of[8].toInt()};
  results.emplace_back(roi_align_backward(
      of[0].toTensor(), of[1].toTensor(),
      {of[2].toDouble(), of[3].toInt(), of[4].toInt(), of[9].toInt(), of[10].toBool()}, image));
}

}  // namespace

void register_regions() {
  auto* library =
      new ::torch::Library(::torch::Library::IMPL, "torchvision", key, __FILE__, __LINE__);
  library->impl("nms", of_torchvision<call_nms, 3>());
  library->impl("roi_align", of_torchvision<call_align, 7>());
  library->impl("_roi_align_backward", of_torchvision<call_align_backward, 11>());
  register_deformable(*library);
}

}  // namespace potl::libtorch::dispatch
