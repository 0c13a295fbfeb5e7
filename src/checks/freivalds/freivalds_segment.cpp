// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/freivalds_segment.hpp>

#include <cmath>
#include <vector>

#include <potl/numeric/detail/projection.hpp>

#include "freivalds_adam.hpp"
#include "freivalds_bounds.hpp"

namespace potl::checks {
namespace {

using namespace freivalds_detail;
using numeric::executor;
using numeric::matrix;
using doubles = std::vector<double>;

constexpr double unit = unit_of<float>;

/// A tensor of the optimizer, projected, and what its rows are at most: their norm, the error that
/// float32 may have made of it by now, and the square of what is usual.
struct tracked {
  doubles projected, size, error, usual;

  tracked(std::int64_t rows, int vectors)
      : projected(static_cast<std::size_t>(rows * vectors)),
        size(static_cast<std::size_t>(rows)),
        error(size.size()),
        usual(size.size()) {}
};

void project_rows(const matrix<const float>& m, const doubles& r, int vectors, doubles& out,
                  doubles& norms, const executor& threads) {
  numeric::project(m, {r.data(), out.data(), vectors, norms.data(), nullptr, nullptr}, threads);
  for (double& norm : norms) norm = std::sqrt(norm);
}

tracked track(const matrix<const float>& m, std::int64_t rows, const doubles& r, int vectors,
              const executor& threads) {
  tracked out(rows, vectors);
  if (m.data != nullptr) project_rows(m, r, vectors, out.projected, out.size, threads);
  return out;
}

bool same_shape(const matrix<const float>& a, const matrix<const float>& b) noexcept {
  return a.data == nullptr || (a.rows == b.rows && a.columns == b.columns);
}

[[noreturn]] void refuse(const char* what, const char* remedy) {
  throw exception({errc::usage, what, remedy});
}

void check_arguments(const segment_state& start, const segment_state& end,
                     const segment_optimizer& optimizer, std::int64_t sampled) {
  const auto& w = start.weights;
  const bool fits = w.data != nullptr && end.weights.data != nullptr && w.rows >= 1 &&
                    w.columns >= 1 && same_shape(end.weights, w) && same_shape(start.first, w) &&
                    same_shape(end.first, w) && same_shape(start.second, w) &&
                    same_shape(end.second, w);
  if (!fits) refuse("the tensors of a segment do not have the shape of its weights", "");
  const auto share = [](double value) { return value >= 0 && value < 1; };
  const bool ranges = share(optimizer.momentum) && share(optimizer.beta1) &&
                      share(optimizer.beta2) && optimizer.dampening >= 0 &&
                      optimizer.dampening <= 1 && optimizer.epsilon >= 0 &&
                      optimizer.weight_decay >= 0 && std::isfinite(optimizer.weight_decay) &&
                      std::isfinite(optimizer.epsilon);
  if (!ranges) refuse("an option of the optimizer is out of range", "torch.optim has the ranges");
  if (optimizer.update == segment_update::adam &&
      (sampled < 1 || end.first.data == nullptr || end.second.data == nullptr)) {
    refuse("a segment of Adam needs both moments at its end, and a column to recompute", "");
  }
  // Where rounding can hide whether the second moment is zero, nothing bounds what it divides.
  if (optimizer.update == segment_update::adam && !(optimizer.epsilon > 0)) {
    refuse("Adam without an epsilon has no bound on its rounding", "train with an epsilon above 0");
  }
  if (optimizer.update == segment_update::sgd && optimizer.momentum > 0 &&
      end.first.data == nullptr) {
    refuse("a segment with momentum needs the buffer at its end", "");
  }
}

void check_step(const segment_step& step, const matrix<const float>& weights) {
  if (step.a.rows != weights.rows || step.b.columns != weights.columns ||
      step.a.columns != step.b.rows) {
    refuse("the operands of a step do not give a gradient of the weights' shape",
           "A is rows x depth, B is depth x columns");
  }
  if (!(std::isfinite(step.rate) && step.rate >= 0 && std::isfinite(step.scale))) {
    refuse("a step has a rate below zero, or a number that is not finite", "");
  }
}

/// The gradient of one step, projected. `terms`: |A| times the norms of B's rows, times the scale.
struct gradient {
  doubles projected, terms;
  double error = 0;  ///< of float32, as a share of the terms
};

class gradients {
 public:
  gradients(std::int64_t rows, int vectors, const executor& threads)
      : vectors_(vectors), threads_(threads) {
    out_.projected.resize(static_cast<std::size_t>(rows * vectors));
    out_.terms.resize(static_cast<std::size_t>(rows));
  }

  const gradient& of(const segment_step& step, const doubles& r) {
    const auto depth = static_cast<std::size_t>(step.b.rows);
    right_.resize(depth * static_cast<std::size_t>(vectors_));
    norms_.resize(depth);
    project_rows(step.b, r, vectors_, right_, norms_, threads_);
    numeric::project(
        step.a,
        {right_.data(), out_.projected.data(), vectors_, nullptr, norms_.data(), out_.terms.data()},
        threads_);
    for (double& one : out_.projected) one *= step.scale;
    for (double& one : out_.terms) one *= std::fabs(step.scale);
    // The product, and the multiplication with the scale.
    out_.error = gamma(static_cast<double>(depth) + 2, unit);
    return out_;
  }

 private:
  int vectors_;
  const executor& threads_;
  doubles right_, norms_;
  gradient out_;
};

/// The recursion of torch.optim.SGD for one row: sizes, errors and squares of what is usual go the
/// way of the numbers. Each operation of float32 adds a unit of what it gives.
class sgd {
 public:
  explicit sgd(const segment_optimizer& optimizer) noexcept : of_(optimizer) {}

  void step(const segment_step& now, const gradient& g, bool first_ever, int vectors, tracked& w,
            tracked& buffer) const noexcept {
    const double fresh = first_ever ? 1 : 1 - of_.dampening;
    const double mu = of_.momentum, decay = of_.weight_decay, eta = now.rate;
    const std::size_t rows = w.size.size();
    const bool has_buffer = mu > 0;
    for (std::size_t i = 0; i < rows; ++i) {
      for (int v = 0; v < vectors; ++v) {
        const std::size_t at = static_cast<std::size_t>(v) * rows + i;
        const double direction = g.projected[at] + decay * w.projected[at];
        double update = direction;
        if (has_buffer) {
          buffer.projected[at] = mu * buffer.projected[at] + fresh * direction;
          update = of_.nesterov ? direction + mu * buffer.projected[at] : buffer.projected[at];
        }
        w.projected[at] -= eta * update;
      }
      const double size = g.terms[i] + decay * w.size[i];
      const double error = g.error * g.terms[i] + decay * w.error[i] + 2 * unit * size;
      const double usual = square(usual_of_terms * unit * g.terms[i]) + square(decay) * w.usual[i];
      double update = size, update_error = error, update_usual = usual;
      if (has_buffer) {
        buffer.size[i] = mu * buffer.size[i] + fresh * size;
        buffer.error[i] = mu * buffer.error[i] + fresh * error + 3 * unit * buffer.size[i];
        buffer.usual[i] =
            square(mu) * buffer.usual[i] + square(fresh) * usual + square(unit * buffer.size[i]);
        update = of_.nesterov ? size + mu * buffer.size[i] : buffer.size[i];
        update_error =
            of_.nesterov ? error + mu * buffer.error[i] + 2 * unit * update : buffer.error[i];
        update_usual = of_.nesterov ? usual + square(mu) * buffer.usual[i] : buffer.usual[i];
      }
      w.size[i] += eta * update;
      w.error[i] += eta * update_error + 2 * unit * eta * update + unit * w.size[i];
      // Errors of a buffer stay for about 1 / (1 - mu) steps, all in the same direction.
      w.usual[i] += square(eta / (1 - mu)) * update_usual + square(unit * w.size[i]);
    }
  }

 private:
  static double square(double x) noexcept { return x * x; }
  segment_optimizer of_;
};

freivalds_result compare(const matrix<const float>& end, const tracked& expected, const doubles& r,
                         int vectors, double z, double false_alarm, const executor& threads) {
  const std::size_t rows = expected.size.size();
  doubles got(expected.projected.size()), norms(rows);
  project_rows(end, r, vectors, got, norms, threads);
  limits none;
  comparison compared(none);
  // The verifier's own sums: far below float32's unit, however the vectors fall.
  const double own = 0x1p-40 * (std::sqrt(static_cast<double>(end.columns)) + z);
  for (std::size_t i = 0; i < rows; ++i) {
    const double size = expected.size[i] + norms[i];
    const double sound = z * expected.error[i] + own * size;
    const double usual = z * 2 * std::sqrt(expected.usual[i]) + own * size;
    for (int v = 0; v < vectors; ++v) {
      const std::size_t at = static_cast<std::size_t>(v) * rows + i;
      compared.add(static_cast<std::int64_t>(i), got[at] - expected.projected[at], sound, usual,
                   expected.size[i]);
    }
  }
  return compared.finish(false_alarm);
}

}  // namespace

segment_result freivalds_segment(const segment_state& start, const segment_state& end,
                                 std::uint64_t count, const segment_steps& steps,
                                 const segment_optimizer& optimizer,
                                 const freivalds_options& options, std::int64_t sampled,
                                 const executor& threads) {
  validate(options);
  check_arguments(start, end, optimizer, sampled);
  const auto& shape = start.weights;
  const int vectors = options.probes;
  const bool adam = optimizer.update == segment_update::adam;
  probes random(options.key);
  doubles r(static_cast<std::size_t>(shape.columns * vectors));
  random.draw(r);
  const double z = gauge(2 * static_cast<double>(shape.rows) * vectors, options.false_alarm);
  tracked weights = track(shape, shape.rows, r, vectors, threads);
  tracked buffer = track(start.first, shape.rows, r, vectors, threads);
  gradients gradient_of(shape.rows, vectors, threads);
  const sgd linear(optimizer);
  adam_columns columns(start, optimizer, adam ? std::min(sampled, shape.columns) : 0, random);
  segment_optimizer moment = optimizer;  // Adam's first moment is a buffer of its own
  moment.momentum = optimizer.beta1;
  moment.dampening = optimizer.beta1;
  moment.weight_decay = 0;
  moment.nesterov = false;
  const sgd first_moment(moment);
  for (std::uint64_t index = 0; index < count; ++index) {
    segment_step step = steps(index);
    check_step(step, shape);
    const gradient& g = gradient_of.of(step, r);
    if (adam) {
      columns.step(step, threads);
      step.rate = 0;
      first_moment.step(step, g, false, vectors, weights, buffer);
    } else {
      const bool first_ever = optimizer.steps_before + index == 0;
      linear.step(step, g, first_ever, vectors, weights, buffer);
    }
  }
  segment_result out;
  out.columns = shape.columns;
  if (adam || optimizer.momentum > 0) {
    out.first = compare(end.first, buffer, r, vectors, z, options.false_alarm, threads);
  }
  if (!adam) {
    out.weights = compare(end.weights, weights, r, vectors, z, options.false_alarm, threads);
    return out;
  }
  out.sampled = columns.count();
  out.weights = columns.compare_weights(end.weights);
  out.second = columns.compare_second(end.second);
  return out;
}

}  // namespace potl::checks
