// SPDX-License-Identifier: Apache-2.0
// Connectionist temporal classification: the sums over all alignments of a target run forward, then
// backward over the frames, in logarithms. Every place of the target with blanks around its labels
// is one element, which follows itself, the place before and, between different labels, the one
// before that.
#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
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

/// The targets of a batch with blanks around their labels, as [samples, places].
class alignments {
 public:
  alignments(const char* name, const Tensor& logs, const Tensor& targets, c10::IntArrayRef frames,
             c10::IntArrayRef lengths, std::int64_t blank) {
    const c10::ScalarType type = logs.scalar_type();
    TORCH_CHECK(type == at::kFloat || type == at::kDouble, name,
                ": log_probs must be float32 or float64, not ", type);
    TORCH_CHECK(logs.dim() == 3, name, ": log_probs must be [frames, samples, classes]");
    const std::int64_t samples = logs.size(1), classes = logs.size(2);
    const bool is_one_row = targets.dim() == 1;
    TORCH_CHECK(is_one_row || (targets.dim() == 2 && targets.size(0) == samples), name,
                ": targets of sizes ", targets.sizes(), " for ", samples, " samples");
    TORCH_CHECK(static_cast<std::int64_t>(frames.size()) == samples &&
                    static_cast<std::int64_t>(lengths.size()) == samples,
                name, ": a length of the input and of the target is expected for each sample");
    TORCH_CHECK(blank >= 0 && blank < classes, name, ": blank must be in label range");
    logs_ = row_major(name, logs, type);
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
    of_places_ = logs_.gather(2, labels_of_frames());
  }

  std::int64_t frames() const { return logs_.size(0); }
  std::int64_t places() const { return labels_.size(1); }
  const Tensor& log_probabilities() const { return logs_; }

  /// Of each place's label, for each frame: [frames, samples, places].
  const Tensor& of_places() const { return of_places_; }

  /// Of all beginnings that end at a place, for each frame: [samples, frames, places].
  Tensor beginnings() const {
    if (frames() == 0) return at::full({labels_.size(0), 0, places()}, impossible, logs_.options());
    // The frame before, behind two places that nothing comes from.
    const Tensor before = at::full({labels_.size(0), places() + 2}, impossible, logs_.options());
    const auto from = [&](std::int64_t steps) { return before.narrow(1, 2 - steps, places()); };
    const Tensor x = from(0), one = from(1), two = from(2);
    std::vector<Tensor> out;
    for (const Tensor& logs : of_places_.unbind(0)) {
      if (out.empty()) {
        out.push_back(at::where(is_start_, logs, impossible));
      } else {
        const Tensor skipped = at::where(can_skip_, two, impossible);
        out.push_back(logs + at::logsumexp(at::stack({x, one, skipped}), 0));
      }
      x.copy_(out.back());
    }
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

  /// Of all ends that begin at a place, for each frame: [frames, samples, places].
  Tensor ends() const {
    const std::int64_t count = places(), away = std::min<std::int64_t>(count, 2);
    // The frame behind, before two places that nothing leads to.
    const Tensor later = at::full({labels_.size(0), count + 2}, impossible, logs_.options());
    const auto from = [&](std::int64_t steps) { return later.narrow(1, steps, count); };
    const Tensor x = from(0), one = from(1), two = from(2);
    const Tensor skips = at::cat({can_skip_.narrow(1, away, count - away),
                                  at::full({labels_.size(0), away}, false, can_skip_.options())},
                                 1);
    const std::vector<Tensor> logs = of_places_.unbind(0), is_last = is_last_frame().unbind(0),
                              starts = at::where(is_end_, of_places_, impossible).unbind(0);
    const Tensor out = at::empty_like(of_places_);
    const std::vector<Tensor> each = out.unbind(0);
    for (std::size_t t = each.size(); t-- > 0;) {
      const Tensor skipped = at::where(skips, two, impossible);
      const Tensor sums = at::logsumexp(at::stack({x, one, skipped}), 0);
      x.copy_(at::where(is_last[t], starts[t], logs[t] + sums));
      each[t].copy_(x);
    }
    return out;
  }

  /// Adds a value of each place to that of its label: [frames, samples, classes].
  Tensor by_label(const Tensor& values) const {
    return at::full(logs_.sizes(), 0.0, logs_.options()).scatter_add(2, labels_of_frames(), values);
  }
  /// Which frames a sample has: [frames, samples, 1].
  Tensor is_frame() const { return last_ >= numbers_of_frames(); }

 private:
  Tensor labels_of_frames() const { return labels_.expand({frames(), -1, -1}); }
  Tensor numbers_of_frames() const {
    return at::arange(frames(), last_.options()).view({-1, 1, 1});
  }
  Tensor is_last_frame() const { return last_ == numbers_of_frames(); }

  Tensor logs_, labels_, ends_, last_, is_end_, is_start_, can_skip_, of_places_;
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
  const Tensor together = beginnings.transpose(0, 1) + all.ends();
  const Tensor expected =
      at::where(together == impossible, 0.0 * loss, (together + loss - all.of_places()).exp());
  Tensor slope = (x.exp() - all.by_label(expected)) * dy.unsqueeze(1);
  if (zero_infinity) slope = at::where(loss == -impossible, 0.0, slope);
  return at::where(all.is_frame(), slope, 0.0);
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
