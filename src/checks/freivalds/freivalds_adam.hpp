// SPDX-License-Identifier: Apache-2.0
// Adam on a few columns of a layer, in float64, with bounds of what float32 makes of it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <potl/checks/freivalds_segment.hpp>

#include "freivalds_bounds.hpp"

namespace potl::checks::freivalds_detail {

class adam_columns {
 public:
  /// Draws `count` different columns.
  adam_columns(const segment_state& start, const segment_optimizer& optimizer, std::int64_t count,
               probes& random);

  std::int64_t count() const noexcept { return static_cast<std::int64_t>(chosen_.size()); }

  void step(const segment_step& step, const numeric::executor& threads);

  freivalds_result compare_weights(const numeric::matrix<const float>& end) const;
  freivalds_result compare_second(const numeric::matrix<const float>& end) const;

 private:
  struct cell {
    double w = 0, m = 0, v = 0;
    double w_error = 0, m_error = 0, v_error = 0;
  };
  struct bounded {
    double value, error, size;
  };

  void update(cell& one, double g, double g_error, double rate, double left1,
              double left2) const noexcept;
  freivalds_result compare(const numeric::matrix<const float>& end,
                           const std::function<bounded(const cell&)>& of) const;
  std::int64_t row_of(std::size_t at) const noexcept {
    return static_cast<std::int64_t>(at) % rows_;
  }
  std::int64_t column_of(std::size_t at) const noexcept {
    return chosen_[static_cast<std::size_t>(static_cast<std::int64_t>(at) / rows_)];
  }

  segment_optimizer of_;
  std::int64_t rows_;
  std::uint64_t done_;
  std::vector<std::int64_t> chosen_;
  std::vector<cell> cells_;  ///< one chosen column after the other
};

}  // namespace potl::checks::freivalds_detail
