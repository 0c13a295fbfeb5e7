// SPDX-License-Identifier: Apache-2.0
// Which tensors of a model are copies or averages of a parameter that is trained: where it had no
// gradient, every machine computes the same of them, too. The verifier's own first states tell.
//
// Claims: finds tensors that start with the values of a parameter, or as zeros, and then move as an
// average of it does. What starts with one number everywhere may be a copy of several parameters.
// Cannot see: copies of at most three numbers, averages in another shape, and those that a step
// after the second makes of zeros.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <potl/checks/request.hpp>
#include <potl/libtorch/detail/module_state.hpp>
#include <potl/libtorch/task.hpp>
#include <potl/numeric/detail/distance.hpp>

namespace potl::libtorch::detail {

/// The values of a tensor in the initial state, and after each of the first steps.
using course = std::vector<at::Tensor>;
/// The path of each copy, with those of the parameters that it may be of.
using copies = std::map<std::string, std::vector<std::string>>;

/// Tensors that no optimizer steps, and the parameters of their shapes that one does; by path.
struct copy_candidates {
  std::map<std::string, at::Tensor> parameters, others;
};

inline copy_candidates candidates_of(const task& of) {
  std::set<const void*> stepped;
  std::set<std::vector<std::int64_t>> shapes;
  for (const auto& optimizer : of.optimizers) {
    for (const auto& group : optimizer->param_groups()) {
      for (const at::Tensor& one : group.params()) {
        stepped.insert(one.unsafeGetTensorImpl());
        shapes.insert(one.sizes().vec());
      }
    }
  }
  copy_candidates out;
  const module_tensors all = tensors_of(*of.model);
  const auto sort = [&](const std::map<std::string, at::Tensor>& tensors, const char* part) {
    for (const auto& [name, one] : tensors) {
      if (stepped.contains(one.unsafeGetTensorImpl())) {
        out.parameters.emplace(part + name, one);
      } else if (one.is_floating_point() && shapes.contains(one.sizes().vec())) {
        out.others.emplace(part + name, one);
      }
    }
  };
  sort(all.parameters, "model/parameters/");
  sort(all.buffers, "model/buffers/");
  std::erase_if(out.parameters, [&](const auto& one) {
    return std::none_of(out.others.begin(), out.others.end(), [&](const auto& other) {
      return other.second.sizes() == one.second.sizes();
    });
  });
  return out;
}

/// Products, their sum, and what they are of are rounded.
inline constexpr double roundings_of_an_average = 4;

/// Whether values are a sum of what they were and of a parameter's values before and after the
/// step, each times a factor.
inline bool is_average(const at::Tensor& after, const at::Tensor& before,
                       const at::Tensor& of_before, const at::Tensor& of_after, double unit) {
  // Differences, because all of these are nearly equal; of one length each, for the same reason.
  at::Tensor terms = at::stack({before, of_before - before, of_after - of_before}, 1);
  terms = terms / at::linalg_vector_norm(terms, 2, 0).clamp_min(std::numeric_limits<double>::min());
  const auto finite = [](const at::Tensor& of) { return of.isfinite().all().item<bool>(); };
  if (!finite(terms) || !finite(after)) return false;
  const at::Tensor factors =
      std::get<0>(at::linalg_lstsq(terms, after.unsqueeze(1), std::nullopt, "gelsd"));
  const at::Tensor left = after - terms.matmul(factors).squeeze(1);
  const at::Tensor most = terms.abs().matmul(factors.abs());
  return left.norm().item<double>() <= roundings_of_an_average * unit * most.norm().item<double>();
}

/// Whether values differ by far more than they are rounded by.
inline bool is_uneven(const at::Tensor& values, double unit) {
  const double apart = (values - values.mean()).norm().item<double>();
  return apart > 16 * roundings_of_an_average * unit * values.norm().item<double>();
}

inline bool is_copy(const course& copy, const course& parameter) {
  const at::Tensor &made = copy.front(), &of = parameter.front();
  // Three factors make any three numbers of any others.
  if (made.sizes() != of.sizes() || made.numel() <= 3) return false;
  const std::optional<dtype> own_type = dtype_of(made.scalar_type());
  const std::optional<dtype> its_type = dtype_of(of.scalar_type());
  if (!own_type || !its_type) return false;
  const double unit =
      std::max(numeric::unit_roundoff(*own_type), numeric::unit_roundoff(*its_type));
  const auto some = [&](const course& values) {
    course out;
    const std::int64_t stride = (made.numel() + 0xffff) / 0x10000;
    for (const at::Tensor& one : values) {
      out.push_back(one.reshape({-1}).slice(0, 0, std::nullopt, stride).to(at::kDouble));
    }
    return out;
  };
  // Statistics of norms, too, start as one number everywhere, and as their weights and biases do.
  const bool tells = made.dim() > 1 || std::any_of(copy.begin(), copy.end(), [&](const auto& one) {
                       return is_uneven(one.to(at::kDouble), unit);
                     });
  const bool moves = std::any_of(copy.begin(), copy.end(),
                                 [&](const at::Tensor& one) { return !one.equal(made); });
  const bool starts_as_zeros = moves && !made.any().item<bool>();
  if (!tells || !(made.equal(of.to(made.scalar_type())) || starts_as_zeros)) return false;
  const course own = some(copy), its = some(parameter);
  for (std::size_t i = 0; i + 1 < own.size(); ++i) {
    if (!is_average(own[i + 1], own[i], its[i], its[i + 1], unit)) return false;
  }
  return true;
}

/// Collects the values of a task's tensors, and compares.
class copy_finder {
 public:
  explicit copy_finder(const task& of) : tensors_(candidates_of(of)) { look(); }

  /// Whether there is a tensor that may be a copy.
  bool wanted() const { return !tensors_.others.empty(); }
  /// To be called after each of the first steps.
  void look() {
    if (!wanted()) return;
    for (const auto* part : {&tensors_.parameters, &tensors_.others}) {
      for (const auto& [path, one] : *part) courses_[path].push_back(one.detach().clone());
    }
  }
  copies found() const {
    const at::NoGradGuard no_grad;
    copies out;
    for (const auto& [path, own] : tensors_.others) {
      for (const auto& [name, its] : tensors_.parameters) {
        if (is_copy(courses_.at(path), courses_.at(name))) out[path].push_back(name);
      }
    }
    return out;
  }

 private:
  copy_candidates tensors_;
  std::map<std::string, course> courses_;
};

/// What still_watch found, with the copies of parameters. An element of a copy that may be of
/// several parameters counts if none of these had a gradient there. `roundings`: how often an
/// average was taken.
inline std::vector<checks::still_elements> with_copies(std::vector<checks::still_elements> still,
                                                       const copies& all, std::uint64_t roundings) {
  std::map<std::string, std::vector<std::uint8_t>> masks;
  for (const checks::still_elements& one : still) {
    for (const std::string& path : one.paths) masks.emplace(path, one.mask);
  }
  for (const auto& [path, names] : all) {
    std::vector<std::uint8_t> mask = masks[names.front()];
    for (const std::string& name : names) {
      const std::vector<std::uint8_t>& other = masks[name];
      mask.resize(std::min(mask.size(), other.size()));  // without such elements there is none
      for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = std::min(mask[i], other[i]);
    }
    if (!mask.empty()) still.push_back({{path}, std::move(mask), roundings});
  }
  return still;
}

}  // namespace potl::libtorch::detail
