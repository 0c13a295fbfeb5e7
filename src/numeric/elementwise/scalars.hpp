// SPDX-License-Identifier: Apache-2.0
// From the options of an optimizer to the scalars of combinations.hpp, for every device.
#pragma once

#include <cmath>

#include <potl/numeric/combine.hpp>
#include <potl/numeric/elementwise.hpp>

#include "combinations.hpp"

namespace potl::numeric::elementwise {
namespace {

template <class Real>
sgd_scalars<Real> scalars_of(const sgd_options& options) {
  return {static_cast<Real>(-options.learning_rate),
          static_cast<Real>(options.momentum),
          static_cast<Real>(1.0 - options.dampening),
          static_cast<Real>(options.weight_decay),
          options.weight_decay != 0.0,
          options.momentum != 0.0,
          options.nesterov,
          options.maximize,
          options.first_step};
}

template <class Real>
adam_scalars<Real> scalars_of(const adam_options& options, bool amsgrad) {
  const double correction1 = 1.0 - exact_pow(options.beta1, options.step);
  const double correction2 = 1.0 - exact_pow(options.beta2, options.step);
  return {static_cast<Real>(-(options.learning_rate / correction1)),
          static_cast<Real>(std::sqrt(correction2)),
          static_cast<Real>(options.epsilon),
          static_cast<Real>(options.weight_decay),
          static_cast<Real>(1.0 - options.learning_rate * options.weight_decay),
          static_cast<Real>(1.0 - options.beta1),
          static_cast<Real>(options.beta2),
          static_cast<Real>(1.0 - options.beta2),
          options.weight_decay != 0.0,
          options.decoupled_decay,
          options.maximize,
          amsgrad};
}

}  // namespace
}  // namespace potl::numeric::elementwise
