// SPDX-License-Identifier: Apache-2.0
// Connectionist temporal classification: the sums over all alignments of a target run forward, then
// backward over the frames, in logarithms. Every place of the target with blanks around its labels
// is one element, which follows itself, the place before and, between different labels, the one
// before that.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include "real.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;

constexpr double impossible = -std::numeric_limits<double>::infinity();

/// Moved by `steps` places to later ones, or to earlier ones when that is negative.
Tensor moved(const Tensor& x, std::int64_t steps) {
  const std::int64_t count = x.size(1), away = std::min(std::abs(steps), count);
  const Tensor nothing = at::full({x.size(0), away}, impossible, x.options());
  if (steps < 0) return at::cat({x.narrow(1, away, count - away), nothing}, 1);
  return at::cat({nothing, x.narrow(1, 0, count - away)}, 1);
}

/// The targets of a batch with blanks around their labels, as [samples, places].
class alignments {
 public:
  alignments(const char* name, const Tensor& logs, const Tensor& targets, c10::IntArrayRef frames,
             c10::IntArrayRef lengths, std::int64_t blank)
      : type_(logs.scalar_type()) {
    TORCH_CHECK(type_ == at::kFloat || type_ == at::kDouble, name,
                ": log_probs must be float32 or float64, not ", type_);
    TORCH_CHECK(logs.dim() == 3, name, ": log_probs must be [frames, samples, classes]");
    const std::int64_t samples = logs.size(1), classes = logs.size(2);
    const bool is_one_row = targets.dim() == 1;
    TORCH_CHECK(is_one_row || (targets.dim() == 2 && targets.size(0) == samples), name,
                ": targets of sizes ", targets.sizes(), " for ", samples, " samples");
    TORCH_CHECK(static_cast<std::int64_t>(frames.size()) == samples &&
                    static_cast<std::int64_t>(lengths.size()) == samples,
                name, ": a length of the input and of the target is expected for each sample");
    TORCH_CHECK(blank >= 0 && blank < classes, name, ": blank must be in label range");
    logs_ = row_major(name, logs, type_);
    const Tensor all = row_major(name, targets, at::kLong);
    std::int64_t longest = 0, total = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      TORCH_CHECK(lengths[i] >= 0 && frames[i] >= 0 && frames[i] <= logs.size(0), name,
                  ": expected lengths of inputs from 0 to ", logs.size(0));
      longest = std::max(longest, lengths[i]);
      total += lengths[i];
    }
    TORCH_CHECK(is_one_row ? total == targets.size(0) : longest <= targets.size(1), name,
                ": targets of sizes ", targets.sizes(), " do not hold the labels");
    const std::int64_t places = 2 * longest + 1;
    labels_ = at::full({samples, places}, blank, at::TensorOptions(at::kLong));
    const auto* from = all.const_data_ptr<std::int64_t>();
    auto* to = labels_.mutable_data_ptr<std::int64_t>();
    for (std::int64_t n = 0, start = 0; n < samples; ++n) {
      const auto length = lengths[static_cast<std::size_t>(n)];
      if (!is_one_row) start = n * targets.size(1);
      for (std::int64_t s = 0; s < length; ++s) {
        const std::int64_t label = from[start + s];
        TORCH_CHECK_INDEX(label >= 0 && label < classes, name, ": label ", label, " of ", classes);
        to[n * places + 2 * s + 1] = label;
      }
      start += length;
    }
    const Tensor place = at::arange(places, labels_.options());
    ends_ = at::tensor(lengths, labels_.options()).unsqueeze(1) * 2;
    last_ = at::tensor(frames, labels_.options()).unsqueeze(1) - 1;
    is_end_ = (place == ends_) | (place == ends_ - 1);
    const Tensor other = labels_.narrow(1, 0, std::max<std::int64_t>(places - 2, 0));
    can_skip_ = at::cat({at::full({samples, std::min<std::int64_t>(places, 2)}, false,
                                  at::TensorOptions(at::kBool)),
                         labels_.narrow(1, std::min<std::int64_t>(places, 2),
                                        std::max<std::int64_t>(places - 2, 0)) != other},
                        1) &
                (place % 2 == 1);
    is_start_ = (place < 2).expand_as(labels_);
  }

  std::int64_t frames() const { return logs_.size(0); }
  std::int64_t places() const { return labels_.size(1); }
  const Tensor& log_probabilities() const { return logs_; }

  /// Of each place's label in a frame.
  Tensor of_frame(std::int64_t t) const { return logs_.select(0, t).gather(1, labels_); }

  /// Of all beginnings that end at a place, for each frame: [samples, frames, places].
  Tensor beginnings() const {
    std::vector<Tensor> out;
    for (std::int64_t t = 0; t < frames(); ++t) {
      if (t == 0) {
        out.push_back(at::where(is_start_, of_frame(t), impossible));
        continue;
      }
      const Tensor& x = out.back();
      const Tensor skipped = at::where(can_skip_, moved(x, 2), impossible);
      out.push_back(of_frame(t) + at::logsumexp(at::stack({x, moved(x, 1), skipped}), 0));
    }
    if (out.empty()) return at::full({labels_.size(0), 0, places()}, impossible, logs_.options());
    return at::stack(out, 1);
  }

  /// -log of the probability of each target. Without a frame only the empty one is possible.
  Tensor losses(const Tensor& beginnings) const {
    const Tensor none = at::full({labels_.size(0)}, impossible, logs_.options());
    const Tensor without = at::where((ends_ == 0).squeeze(1), 0.0, none);
    if (frames() == 0) return -without;
    const Tensor at_last =
        beginnings.gather(1, last_.clamp_min(0).unsqueeze(2).expand({-1, 1, places()})).squeeze(1);
    const Tensor sum = at::logsumexp(at::where(is_end_, at_last, impossible), 1);
    return -at::where(last_.squeeze(1) < 0, without, sum);
  }

  /// Calls body(t, ends) from the last frame to the first, with the sums of all ends that begin at
  /// a place.
  template <class Body>
  void for_each_end(const Body& body) const {
    Tensor x = at::full(labels_.sizes(), impossible, logs_.options());
    const Tensor skips = can_skip_.to(type_);
    for (std::int64_t t = frames() - 1; t >= 0; --t) {
      const Tensor from_later = at::where(moved(skips, -2) == 1, moved(x, -2), impossible);
      const Tensor sums = at::logsumexp(at::stack({x, moved(x, -1), from_later}), 0);
      const Tensor logs = of_frame(t);
      x = at::where(last_ == t, at::where(is_end_, logs, impossible), logs + sums);
      body(t, x);
    }
  }

  /// Adds a value of each place to that of its label.
  Tensor by_label(const Tensor& values) const {
    const Tensor zeros = at::full({logs_.size(1), logs_.size(2)}, 0.0, logs_.options());
    return zeros.scatter_add(1, labels_, values);
  }
  Tensor is_frame(std::int64_t t) const { return last_ >= t; }

 private:
  c10::ScalarType type_;
  Tensor logs_, labels_, ends_, last_, is_end_, is_start_, can_skip_;
};

std::tuple<Tensor, Tensor> ctc(const Tensor& logs, const Tensor& targets, c10::IntArrayRef frames,
                               c10::IntArrayRef lengths, std::int64_t blank, bool) {
  const alignments all("ctc_loss", logs, targets, frames, lengths, blank);
  const Tensor beginnings = all.beginnings();
  return {all.losses(beginnings), beginnings};
}

/// exp(log_probs) less how often each label is expected, by which log_softmax makes its gradient.
Tensor ctc_backward(const Tensor& dy, const Tensor& logs, const Tensor& targets,
                    c10::IntArrayRef frames, c10::IntArrayRef lengths, const Tensor& losses,
                    const Tensor& beginnings, std::int64_t blank, bool zero_infinity) {
  const alignments all("ctc_loss_backward", logs, targets, frames, lengths, blank);
  const Tensor& x = all.log_probabilities();
  const Tensor loss = losses.unsqueeze(1);
  const Tensor gradient = dy.unsqueeze(1);
  const Tensor out = at::full(x.sizes(), 0.0, x.options());
  all.for_each_end([&](std::int64_t t, const Tensor& ends) {
    const Tensor together = beginnings.select(1, t) + ends;
    const Tensor expected =
        at::where(together == impossible, 0.0 * loss, (together + loss - all.of_frame(t)).exp());
    Tensor slope = (x.select(0, t).exp() - all.by_label(expected)) * gradient;
    if (zero_infinity) slope = at::where(loss == -impossible, 0.0, slope);
    out.select(0, t).copy_(at::where(all.is_frame(t), slope, 0.0));
  });
  return out;
}

std::vector<std::int64_t> numbers(const Tensor& lengths) {
  const Tensor all = row_major("ctc_loss", lengths, at::kLong);
  const auto found = values<std::int64_t>(all);
  return {found.begin(), found.end()};
}

std::tuple<Tensor, Tensor> ctc_of(const Tensor& logs, const Tensor& targets, const Tensor& frames,
                                  const Tensor& lengths, std::int64_t blank, bool zero_infinity) {
  return ctc(logs, targets, numbers(frames), numbers(lengths), blank, zero_infinity);
}
Tensor ctc_of_backward(const Tensor& dy, const Tensor& logs, const Tensor& targets,
                       const Tensor& frames, const Tensor& lengths, const Tensor& losses,
                       const Tensor& beginnings, std::int64_t blank, bool zero_infinity) {
  return ctc_backward(dy, logs, targets, numbers(frames), numbers(lengths), losses, beginnings,
                      blank, zero_infinity);
}

}  // namespace

void register_ctc(registrar& r) {
  const char* note = "logsumexp over the places before, frame after frame";
  const char* back = "exp(x) less the expected labels, frame after frame from the last one";
  r.kernel<ctc>("_ctc_loss", note);
  r.kernel<ctc_of>("_ctc_loss.Tensor", note);
  r.kernel<ctc_backward>("_ctc_loss_backward", back);
  r.kernel<ctc_of_backward>("_ctc_loss_backward.Tensor", back);
}

}  // namespace potl::libtorch::dispatch
