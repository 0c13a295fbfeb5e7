// SPDX-License-Identifier: Apache-2.0
// torchvision's deformable convolution: each element of the kernel reads the image at a place of
// its own, which the offset moves. Image after image, in the operators of `sampled` and products of
// the mode.
#include <array>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include "between.hpp"
#include "torchvision.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;

/// The operands in the type of the computation. A column is what one output reads: the elements of
/// the kernel for each channel.
class deformed {
 public:
  explicit deformed(arguments of)
      : stride_{of[5].toInt(), of[6].toInt()},
        padding_{of[7].toInt(), of[8].toInt()},
        dilation_{of[9].toInt(), of[10].toInt()},
        groups_(of[11].toInt()),
        offset_groups_(of[12].toInt()),
        is_masked_(of[13].toBool()) {
    const char* name = "torchvision.deform_conv2d";
    type_ = compute_type(name, of[0].toTensor().scalar_type());
    image_ = row_major(name, of[0].toTensor(), type_);
    weight_ = row_major(name, of[1].toTensor(), type_);
    offset_ = row_major(name, of[2].toTensor(), type_);
    mask_ = row_major(name, of[3].toTensor(), type_);
    bias_ = row_major(name, of[4].toTensor(), type_);
    TORCH_CHECK(image_.dim() == 4 && weight_.dim() == 4 && groups_ > 0 && offset_groups_ > 0 &&
                    image_.size(1) == weight_.size(1) * groups_ && weight_.size(0) % groups_ == 0 &&
                    image_.size(1) % offset_groups_ == 0 && bias_.numel() == weight_.size(0) &&
                    image_.numel() > 0 && weight_.numel() > 0,
                name, ": weights of sizes ", weight_.sizes(), " in ", groups_,
                " groups, offsets in ", offset_groups_, " and ", bias_.numel(),
                " biases do not fit an image of sizes ", image_.sizes());
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const auto at = static_cast<std::int64_t>(axis) + 2;
      TORCH_CHECK(stride_[axis] > 0 && dilation_[axis] > 0 && padding_[axis] >= 0, name,
                  ": stride and dilation must be positive, and padding not negative");
      constexpr std::int64_t most = std::int64_t{1} << 31;  // no sum or product overflows
      TORCH_CHECK(stride_[axis] < most && dilation_[axis] < most && padding_[axis] < most &&
                      image_.size(at) < most && weight_.size(at) < most,
                  name, ": sizes, stride, padding and dilation must be below 2^31");
      const std::int64_t reach = dilation_[axis] * (weight_.size(at) - 1) + 1;
      out_[axis] = (image_.size(at) + 2 * padding_[axis] - reach) / stride_[axis] + 1;
      TORCH_CHECK(image_.size(at) + 2 * padding_[axis] >= reach, name, ": the image is too small");
    }
    elements_ = weight_.size(2) * weight_.size(3);
    places_ = out_[0] * out_[1];
    const auto expect = [&](const Tensor& given, std::int64_t each) {
      const sizes size{image_.size(0), offset_groups_ * elements_ * each, out_[0], out_[1]};
      TORCH_CHECK(given.sizes() == size, name, ": expected offsets or a mask of sizes ", size,
                  ", got ", given.sizes());
    };
    expect(offset_, 2);
    if (is_masked_) expect(mask_, 1);
  }

  Tensor result() const {
    std::vector<Tensor> out;
    for (std::int64_t i = 0; i < image_.size(0); ++i) {
      const Tensor products = at::bmm(weights(), columns(i, samples(i).result()));
      out.push_back(products.reshape({-1, out_[0], out_[1]}) + bias_.reshape({-1, 1, 1}));
    }
    return at::stack(out);
  }

  /// Of image, weights, offsets, mask and bias.
  std::array<Tensor, 5> gradients(const Tensor& given) const {
    const Tensor dy = given.to(type_);
    TORCH_CHECK(dy.sizes() == sizes({image_.size(0), weight_.size(0), out_[0], out_[1]}),
                "torchvision.deform_conv2d's gradient: does not fit sizes ", dy.sizes());
    Tensor weight = at::zeros_like(weights());
    const Tensor image = at::empty_like(image_), offset = at::empty_like(offset_);
    const Tensor mask = at::zeros_like(mask_);
    for (std::int64_t i = 0; i < image_.size(0); ++i) {
      const sampled all = samples(i);
      const Tensor found = all.result();
      const Tensor slopes = dy.select(0, i).reshape({groups_, -1, places_});
      weight += at::bmm(slopes, columns(i, found).transpose(1, 2));
      Tensor read = at::bmm(weights().transpose(1, 2), slopes).reshape(found.sizes());
      if (is_masked_) {
        mask.select(0, i).copy_((read * found).sum(1).reshape(mask.sizes().slice(1)));
        read = read * weights_of_places(i);
      }
      image.select(0, i).copy_(all.image_gradient(all.flat(read)).reshape(image.sizes().slice(1)));
      const Tensor moved = all.grid_gradient(all.flat(read));  // [group, element, place, (x, y)]
      offset.select(0, i).copy_(
          moved.flip(-1).permute({0, 1, 3, 2}).reshape(offset.sizes().slice(1)));
    }
    return {image, weight.reshape(weight_.sizes()), offset, mask, dy.sum({0, 2, 3})};
  }

 private:
  Tensor weights() const { return weight_.reshape({groups_, weight_.size(0) / groups_, -1}); }

  Tensor weights_of_places(std::int64_t image) const {
    return mask_.select(0, image).reshape({offset_groups_, 1, elements_, places_});
  }

  Tensor columns(std::int64_t image, const Tensor& found) const {
    return (is_masked_ ? found * weights_of_places(image) : found).reshape({groups_, -1, places_});
  }

  /// Where output and element of the kernel read along an axis, without the offset.
  Tensor start(std::size_t axis) const {
    const auto count = [&](std::int64_t n) { return at::arange(n, image_.options()); };
    const Tensor outputs = count(out_[axis]) * stride_[axis] - padding_[axis];
    const Tensor inside =
        count(weight_.size(static_cast<std::int64_t>(axis) + 2)) * dilation_[axis];
    return axis == 0 ? inside.reshape({-1, 1, 1, 1}) + outputs.reshape({-1, 1})
                     : inside.reshape({-1, 1, 1}) + outputs;
  }

  /// The offset groups of an image are samples, with the channels that they move.
  sampled samples(std::int64_t image) const {
    const sizes groups{offset_groups_, elements_, places_, 2};
    const Tensor offset = offset_.select(0, image).reshape(
        {offset_groups_, weight_.size(2), weight_.size(3), 2, out_[0], out_[1]});
    std::vector<axis_taps> axes;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const Tensor moved = offset.select(3, static_cast<std::int64_t>(axis)) + start(axis);
      const Tensor x = moved.reshape({offset_groups_, -1});
      axes.push_back({linear_taps(x, image_.size(static_cast<std::int64_t>(axis) + 2)),
                      at::zeros_like(x) + 1});
    }
    const Tensor planes = image_.select(0, image);
    return {planes.reshape({offset_groups_, -1, planes.size(1), planes.size(2)}), groups,
            std::move(axes)};
  }

  std::array<std::int64_t, 2> stride_, padding_, dilation_, out_{};
  std::int64_t groups_, offset_groups_;
  bool is_masked_;
  c10::ScalarType type_;
  Tensor image_, weight_, offset_, mask_, bias_;
  std::int64_t elements_ = 0, places_ = 0;
};

void deform_conv2d(arguments of, ::torch::jit::Stack& results) {
  results.emplace_back(rounded_to(deformed(of).result(), of[0].toTensor().scalar_type()));
}

void deform_conv2d_backward(arguments of, ::torch::jit::Stack& results) {
  const arguments operands = of.slice(1);
  std::size_t i = 0;
  for (const Tensor& gradient : deformed(operands).gradients(of[0].toTensor())) {
    results.emplace_back(rounded_to(gradient, operands[i++].toTensor().scalar_type()));
  }
}

}  // namespace

void register_deformable(::torch::Library& library) {
  library.impl("deform_conv2d", of_torchvision<deform_conv2d, 14>());
  library.impl("_deform_conv2d_backward", of_torchvision<deform_conv2d_backward, 15>());
}

}  // namespace potl::libtorch::dispatch
