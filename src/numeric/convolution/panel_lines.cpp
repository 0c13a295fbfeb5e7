// SPDX-License-Identifier: Apache-2.0
#include "panel_lines.hpp"

#include <algorithm>
#include <utility>

namespace potl::numeric::conv {
namespace {

// Lines are cut where a panel is full; what goes on where the run before ended belongs to it.
class segment_builder {
 public:
  explicit segment_builder(std::int64_t width) : width_(width), filled_(width) {}

  void add(std::int64_t start, std::int64_t length) {
    for (std::int64_t i = 0; i < length;) {
      if (filled_ == width_) {
        all_.panels.push_back(all_.segments.size());
        filled_ = 0;
      }
      const std::int64_t run = std::min(length - i, width_ - filled_);
      segment* const before = filled_ == 0 ? nullptr : &all_.segments.back();
      if (before != nullptr && before->source + before->length == start + i)
        before->length += run;
      else
        all_.segments.push_back({start + i, run});
      filled_ += run;
      i += run;
    }
  }

  panel_lines finish() && {
    all_.panels.push_back(all_.segments.size());
    return std::move(all_);
  }

 private:
  std::int64_t width_, filled_;
  panel_lines all_;
};

}  // namespace

panel_lines lines_of(const block& here, const window& from, const panel_shape& shape) {
  panel_lines direct;
  segment_builder packed(shape.width);
  for (std::int64_t n = 0; n < here.images; ++n)
    for (std::int64_t d = 0; d < here.d1 - here.d0; ++d)
      for (std::int64_t h = 0; h < here.h1 - here.h0; ++h) {
        const std::int64_t start = from.line(n, d, h);
        if (!shape.direct) {
          packed.add(start, shape.line);
          continue;
        }
        for (std::int64_t i = 0; i < shape.line; i += shape.lanes)
          direct.vectors.push_back(start + i);
      }
  return shape.direct ? direct : std::move(packed).finish();
}

}  // namespace potl::numeric::conv
