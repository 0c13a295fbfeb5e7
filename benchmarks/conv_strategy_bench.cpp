// SPDX-License-Identifier: Apache-2.0
// Each special way to convolve in ord32 against the general one, tiles: its speed on the layers of
// ResNet-18, ResNet-50, MobileNetV2 and ResNeXt-50 that take it, on one thread. A way's ratio is
// the geometric mean over its layers; what is within noise of 1 is not worth its code. The bits are
// compared, too. FULL=1 prints each layer.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <potl/core/detail/rng.hpp>
#include <potl/numeric/detail/executor.hpp>

#include "bench.hpp"
#include "numeric/convolution/depthwise.hpp"
#include "numeric/convolution/few_channels.hpp"
#include "numeric/convolution/gather.hpp"
#include "numeric/convolution/line_run.hpp"
#include "numeric/convolution/pointwise.hpp"
#include "numeric/convolution/pointwise_weight_gradient.hpp"
#include "numeric/convolution/weight_gradient.hpp"

namespace {

using namespace potl::numeric;

convolution layer(std::int64_t batch, std::int64_t in, std::int64_t out, std::int64_t size,
                  std::int64_t kernel, std::int64_t stride = 1, std::int64_t groups = 1) {
  const std::int64_t around = kernel / 2;
  return {batch,
          in,
          out,
          groups,
          {1, size, size},
          {1, kernel, kernel},
          {1, stride, stride},
          {0, around, around},
          {1, 1, 1}};
}

std::vector<convolution> layers() {
  std::vector<convolution> out;
  // ResNet-18 for images of 32 x 32.
  out.push_back(layer(32, 3, 64, 32, 3));
  for (std::int64_t width = 64, size = 32; width <= 512; width *= 2, size /= 2) {
    if (width > 64) {
      out.push_back(layer(32, width / 2, width, 2 * size, 3, 2));
      out.push_back(layer(32, width / 2, width, 2 * size, 1, 2));
    }
    out.push_back(layer(32, width, width, size, 3));
  }
  // ResNet-50 and ResNeXt-50 for images of 224 x 224.
  out.push_back(layer(4, 3, 64, 224, 7, 2));
  for (std::int64_t width = 64, size = 56; width <= 512; width *= 2, size /= 2) {
    out.push_back(layer(4, 4 * width, width, size, 1));
    out.push_back(layer(4, width, width, size, 3));
    out.push_back(layer(4, width, 4 * width, size, 1));
    out.push_back(layer(4, 2 * width, 2 * width, size, 3, 1, 32));
    if (width > 64) out.push_back(layer(4, 2 * width, 4 * width, 2 * size, 1, 2));
  }
  // MobileNetV2 for images of 224 x 224.
  out.push_back(layer(4, 3, 32, 224, 3, 2));
  const std::int64_t blocks[][4] = {{32, 16, 112, 1}, {96, 24, 112, 2}, {144, 32, 56, 2},
                                    {192, 64, 28, 2}, {384, 64, 14, 1}, {576, 160, 14, 2},
                                    {960, 320, 7, 1}};
  for (const auto& [wide, narrow, size, stride] : blocks) {
    out.push_back(layer(4, wide, wide, size, 3, stride, wide));
    out.push_back(layer(4, wide, narrow, size / stride, 1));
    out.push_back(layer(4, narrow, wide, size / stride, 1));
  }
  return out;
}

std::vector<float> values(std::int64_t count, std::uint64_t key) {
  std::vector<float> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto bits = static_cast<std::int32_t>(potl::random_bits({key, 1}, i) & 0xffff);
    out[i] = static_cast<float>(bits - 32768) / 32768;
  }
  return out;
}

std::string name_of(const convolution& g) {
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  return text(g.in_channels) + "-" + text(g.out_channels) + " " + text(g.kernel[1]) + "x" +
         text(g.kernel[1]) + "/" + text(g.stride[1]) + " @" + text(g.input[1]) +
         (g.groups > 1 ? " groups " + text(g.groups) : "");
}

struct way {
  std::vector<double> ratios, lows, highs;
};

class comparison {
 public:
  void add(const std::string& name, const convolution& g, std::vector<float>& result,
           const std::function<void()>& tiles, const std::function<void()>& special) {
    tiles();
    const std::vector<float> expected = result;
    special();
    if (std::memcmp(expected.data(), result.data(), result.size() * sizeof(float)) != 0) {
      std::fprintf(stderr, "%s has other bits for %s\n", name.c_str(), name_of(g).c_str());
      std::exit(1);
    }
    const potl::bench::outcome one = potl::bench::compare(
        name + " " + name_of(g), 1, "layers/s", "tiles", 1, full_ ? 25 : 9, tiles, special);
    if (full_) std::printf("%-48s %6.2f\n", one.name.c_str(), one.ratio);
    way& all = ways_[name];
    all.ratios.push_back(one.ratio);
    all.lows.push_back(one.low);
    all.highs.push_back(one.high);
  }

  std::vector<potl::bench::outcome> results() const {
    const auto mean = [](const std::vector<double>& of) {
      double sum = 0;
      for (const double one : of) sum += std::log(one);
      return std::exp(sum / static_cast<double>(of.size()));
    };
    std::vector<potl::bench::outcome> out;
    for (const auto& [name, all] : ways_) {
      out.push_back({"conv." + name, static_cast<double>(all.ratios.size()), "layers", "tiles",
                     mean(all.ratios), mean(all.lows), mean(all.highs), 1});
    }
    return out;
  }

 private:
  bool full_ = std::getenv("POTL_BENCH_FULL") != nullptr;
  std::map<std::string, way> ways_;
};

void compare_layer(const convolution& g, comparison& all) {
  const executor& threads = inline_executor();
  const conv::kernels& with = conv::active_kernels();
  const auto volume = [](const std::array<std::int64_t, 3>& of) { return of[0] * of[1] * of[2]; };
  std::vector<float> x = values(g.batch * g.in_channels * volume(g.input), 1);
  std::vector<float> w = values(g.out_channels * (g.in_channels / g.groups) * volume(g.kernel), 2);
  std::vector<float> y = values(g.batch * g.out_channels * volume(g.output()), 3);

  const auto gathers = [&](const std::string& direction, const conv::gather& what,
                           std::vector<float>& result, const std::function<void()>& product) {
    const auto tiles = [&] { conv::run_tiles(what, with, threads); };
    if (conv::is_product(g, with, threads)) {
      all.add("product." + direction, g, result, tiles, product);
    } else if (conv::has_planes(what)) {
      all.add("planes." + direction, g, result, tiles,
              [&] { conv::run_planes(what, with, threads); });
    } else if (conv::has_lines(what, with)) {
      all.add("lines." + direction, g, result, tiles,
              [&] { conv::run_lines(what, with, threads); });
    }
  };
  std::vector<float> result = y;
  gathers("forward", conv::forward_gather(g, x.data(), w.data(), result.data()), result,
          [&] { conv::pointwise(g, x.data(), w.data(), result.data(), with, threads); });
  result = x;
  gathers(
      "input_gradient", conv::input_gradient_gather(g, y.data(), w.data(), result.data()), result,
      [&] { conv::pointwise_input_gradient(g, y.data(), w.data(), result.data(), with, threads); });

  result = w;
  const auto weight_gradient = [&](const char* name, auto special) {
    all.add(
        std::string(name) + ".weight_gradient", g, result,
        [&] { conv::weight_gradient_tiles(g, x.data(), y.data(), result.data(), with, threads); },
        [&] { special(g, x.data(), y.data(), result.data(), with, threads); });
  };
  if (conv::is_depthwise(g)) {
    weight_gradient("depthwise", conv::depthwise_weight_gradient);
  } else if (conv::has_few_channels(g, with)) {
    weight_gradient("few_channels", conv::few_channels_weight_gradient);
  } else if (conv::reads_rows(g, with)) {
    weight_gradient("pointwise", conv::pointwise_weight_gradient);
  }
}

}  // namespace

int main() {
  comparison all;
  for (const convolution& one : layers()) compare_layer(one, all);
  potl::bench::report("conv_strategy", all.results());
}
