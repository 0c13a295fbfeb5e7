// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/spot_check_sgd.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace potl::checks {

spot_check_sgd::spot_check_sgd(sgd_state from, sgd_recipe recipe)
    : recipe_(std::move(recipe)), now_(std::move(from)), final_(now_) {
  const bool fits = now_.momentum.empty() || now_.momentum.size() == now_.weights.size();
  if (!fits || now_.step > recipe_.rates.size()) {
    throw exception({errc::usage, "the state is none of this training", "resume from its own"});
  }
  if (!(recipe_.clip > 0) || !(recipe_.momentum >= 0 && recipe_.momentum < 1)) {
    throw exception({errc::usage, "clip is positive, and momentum is in [0, 1)", ""});
  }
}

std::vector<bytes_view> spot_check_sgd::weights() {
  return {{reinterpret_cast<const std::uint8_t*>(now_.weights.data()),
           now_.weights.size() * sizeof(float)}};
}

void spot_check_sgd::update(std::uint64_t step, std::span<float> gradient, double norm,
                            double /*loss*/) {
  if (step != now_.step + 1 || step > recipe_.rates.size() ||
      gradient.size() != now_.weights.size()) {
    throw exception({errc::usage, "the gradient is not that of the next step", ""});
  }
  // As a float it may be next to nothing, and be rounded to twice as much.
  const double factor = norm > recipe_.clip ? recipe_.clip / (norm + 1e-6) : 1;
  const auto rate = static_cast<float>(recipe_.rates[step - 1]);
  const auto mu = static_cast<float>(recipe_.momentum);
  const auto decay = static_cast<float>(recipe_.weight_decay);
  const bool first = now_.momentum.empty();
  const auto fresh = first ? 1.0F : static_cast<float>(1 - recipe_.dampening);
  if (mu > 0) now_.momentum.resize(gradient.size());
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const auto clipped = static_cast<float>(factor * double{gradient[i]});
    float direction = clipped + decay * now_.weights[i];
    if (mu > 0) {
      float& buffer = now_.momentum[i];
      buffer = first ? direction : mu * buffer + fresh * direction;
      direction = recipe_.nesterov ? direction + mu * buffer : buffer;
    }
    now_.weights[i] -= rate * direction;
  }
  now_.step = step;
}

void spot_check_sgd::finalise(std::uint64_t step) {
  const auto found = kept_.find(step);
  if (found == kept_.end()) {
    throw exception({errc::usage, "no state was kept after this step", ""});
  }
  final_ = std::move(found->second);
  kept_.erase(kept_.begin(), std::next(found));
  if (finalised) finalised(final_);
}

void spot_check_sgd::roll_back() {
  now_ = final_;
  kept_.clear();
}

}  // namespace potl::checks
