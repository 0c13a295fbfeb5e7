// SPDX-License-Identifier: Apache-2.0
// A task under a job's randomness: the same step trains and replays.
//
// Satisfies the concept potl::workload of potl/verify.hpp.
//
// Claims: losses, updates and states are a function of (job, restored state): bit for bit where the
// job's arithmetic is exact, else up to the rounding of LibTorch's kernels (and bit for bit with
// the same LibTorch, processor and number of threads).
// Assumes a task whose state is all in its modules and optimizers, and losses that draw random
// numbers from LibTorch's default CPU generator alone.
#pragma once

#include <torch/nn/utils/clip_grad.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <potl/checks/detail/copies.hpp>
#include <potl/libtorch/detail/first_steps.hpp>
#include <potl/libtorch/detail/linear.hpp>
#include <potl/libtorch/detail/operator_tracer.hpp>
#include <potl/libtorch/detail/step_arithmetic.hpp>
#include <potl/libtorch/detail/step_rounding.hpp>
#include <potl/libtorch/detail/still_watch.hpp>
#include <potl/libtorch/detail/unchanged.hpp>
#include <potl/libtorch/detail/update.hpp>
#include <potl/libtorch/task.hpp>
#include <potl/transcript/detail/batch_order.hpp>
#include <potl/verify.hpp>

namespace potl::libtorch {

/// What one step did, and what else a record says of it.
struct step_result : step_outcome {
  std::uint64_t step = 0;
  bool non_finite = false;  ///< the loss or a gradient was NaN or infinite
  std::uint64_t duration_ns = 0;
  std::vector<std::uint8_t> rounding_log{};  ///< of a job in log64, unless the step followed one
};

/// A task under a job: it runs any step, from any state.
class workload {
 public:
  /// Builds the task. Throws potl::exception: usage, naming the difference, when the task is not
  /// the job's; unsupported when it brings no exact arithmetic for a job in one. With `compare`
  /// false it is taken as it is, which a test of a cheat needs. `build` is kept and may be called
  /// again: what it refers to must outlive the workload.
  workload(const builder& build, transcript::job agreed, bool compare = true)
      : agreed_(std::make_unique<transcript::job>(std::move(agreed))),
        order_(std::make_unique<transcript::batch_order>(*agreed_)),
        build_(build),
        task_(build_task(build, agreed_->seed)),
        flags_(flags_of(*task_.model)),
        squares_(squares_of(*task_.model)),
        options_(detail::fixed_options_of(task_)),
        arithmetic_(agreed_->arithmetic, task_.exact),
        rounding_(agreed_->arithmetic),
        written_(writes()) {
    for (std::size_t i = 0; i < task_.optimizers.size(); ++i) {
      first_counts_.push_back(
          detail::counts_of(*task_.optimizers[i], "optimizers/" + std::to_string(i)));
    }
    if (!compare) first_kept_.emplace(task_.optimizers.size());
    if (!compare) return;
    ends_ = transcript::first_steps_of(*agreed_).value();
    const std::vector<std::string> found = differences();
    if (!found.empty()) throw exception({errc::usage, found.front(), "build what was agreed"});
    copies_ = copies_of(build);
  }

  const transcript::job& agreed() const noexcept { return *agreed_; }
  libtorch::task& task() noexcept { return task_; }
  /// Updates done so far, as counted by the state.
  std::uint64_t step() const noexcept { return step_; }
  /// What keeps the present state from being the outcome of the agreed steps up to `step`, each run
  /// once, as far as torch counts writes; nothing: it may be.
  std::optional<std::string> not_the_outcome_of(std::uint64_t step) const;

  /// How the task differs from what was agreed, one sentence each. Meaningful before the first
  /// step; reads all data.
  std::vector<std::string> differences();

  /// A copy of the whole training state. Throws potl::exception (unsupported) when a train flag,
  /// requires_grad or an option of an optimizer but its rate is another than the build's: such a
  /// state would be refused.
  transcript::state capture() {
    auto changed = changed_flag();
    if (!changed) changed = changed_option();
    if (changed) {
      throw exception({errc::unsupported, "training has changed " + *changed,
                       "set train flags, requires_grad and options of optimizers in the function "
                       "that builds the task, and leave them"});
    }
    return capture_task(task_, step_, step_ / agreed_->steps_per_epoch(), memory_);
  }

  /// Makes the task hold the state after `step`, bit for bit. Throws potl::exception (mismatch)
  /// with the path of the first difference in form; the task is then partly restored.
  void load_state(const transcript::state& from, std::uint64_t step);

  /// Runs a step on its agreed samples, with its own randomness and the agreed learning rates.
  step_result run_step(std::uint64_t step) { return run_step(step, order_->of(step)); }
  /// The same on these samples.
  step_result run_step(std::uint64_t step, std::span<const std::int64_t> ids);

  /// Runs a step up to its update, which is not made: the gradients before clipping are left in the
  /// parameters. Gives the loss. Of the state, what forward passes change is changed.
  double run_passes(std::uint64_t step);
  /// Of all optimizers, in their order; each has the gradient of the last step or passes, if any.
  std::vector<at::Tensor> parameters() const;

  /// The loss that a step on these samples would report from the state as it is; nothing changes.
  double batch_loss(std::uint64_t step, std::span<const std::int64_t> ids);

  /// Mean and standard deviation of the per-sample losses of `ids`, in train mode; nothing changes.
  subset_outcome subset_loss(std::span<const std::int64_t> ids);

  /// Why this machine is none to accuse by: it ends the first steps in other bits than the job
  /// pins. Trains them with a task of its own, once. "": it does not, or the job pins none.
  std::string other_first_steps();
  /// The same of one step that ended in the present state; of tasks that are taken as they are, "".
  std::string other_end(std::uint64_t step, double loss) {
    if (step == 0 || step > ends_.size()) return "";
    const bool same = transcript::end_of_step(capture().state_digest(), loss) == ends_[step - 1];
    return same ? "" : detail::other_end(step);
  }

  /// Computes otherwise, as another honest machine might: step_arithmetic.
  bool perturb(std::uint64_t way, bool threads_only = false) {
    return arithmetic_.perturb(way, threads_only);
  }
  /// Until perturb() is called, leaves each sum as far off as another machine might.
  bool roughen(std::uint64_t seed) { return arithmetic_.roughen(seed); }

  /// Whether no step divides by what a state keeps: checks::any_workload.
  bool is_linear() const { return detail::is_linear(task_); }

  /// In log64: the next step or batch_loss follows this log of the trainer's; null: steps log.
  void follow(std::uint64_t /*step*/, const checks::logged_rounding* logged) {
    rounding_.follow(logged);
  }
  /// What following showed in the steps since the last call; nothing in other arithmetics.
  std::optional<checks::rounding_summary> rounding() { return rounding_.take(); }

  /// Watches the gradients of the steps that come next, where replays may end in other bits.
  void expect(std::uint64_t first, std::uint64_t last) {
    still_.begin(!arithmetic_.is_exact());
    passes_ = (last - first + 1) * task_.accumulate;
  }
  /// The elements that had no gradient in these steps, and those of averages of them.
  std::vector<checks::still_elements> still() const {
    return checks::with_copies(still_.found(task_), copies_, passes_);
  }

  /// Runs a step as run_step does, and says what each of its operators returned.
  std::vector<transcript::traced_operator> trace(std::uint64_t step,
                                                 std::span<const std::int64_t> ids) {
    detail::operator_tracer tracer;
    run_step(step, ids);
    return tracer.take();
  }

  workload(const workload&) = delete;
  workload& operator=(const workload&) = delete;
  ~workload() = default;

 private:
  struct part {
    std::span<const std::int64_t> ids;
    double share = 1;
  };
  std::vector<part> micro_batches(std::span<const std::int64_t> ids) const;
  std::optional<std::string> changed_flag() const;
  std::optional<std::string> changed_option() const;
  std::optional<std::string> other_first_loss(const json_value& agreed);
  at::Tensor losses_of(std::span<const std::int64_t> ids, const digest& key);
  at::Tensor loss_of(const part& one, std::uint64_t step, std::uint64_t number);
  void forget_gradients();
  void require_dense_gradients() const;
  std::uint64_t writes() const;
  /// Leaves what is written in its life out of what counts as somebody else's.
  class uncounted {
   public:
    explicit uncounted(workload& of) : of_(of), before_(of.writes()) {}
    uncounted(const uncounted&) = delete;
    uncounted& operator=(const uncounted&) = delete;
    ~uncounted() { of_.written_ += of_.writes() - before_; }

   private:
    workload& of_;
    std::uint64_t before_;
  };
  double pass_over(std::uint64_t step, std::span<const std::int64_t> ids);
  double clip_gradients();
  checks::copies copies_of(const builder& build) const;
  const std::set<std::int64_t>& first_kept(std::size_t at);

  std::unique_ptr<transcript::job> agreed_;
  std::unique_ptr<transcript::batch_order> order_;
  builder build_;
  libtorch::task task_;
  std::map<std::string, bool> flags_;          ///< of the build: no step may change them
  std::set<std::string> squares_;              ///< its running variances
  std::map<std::string, json_value> options_;  ///< of its optimizers, likewise
  std::vector<std::map<std::int64_t, std::int64_t>> first_counts_;  ///< of its optimizers
  std::optional<std::vector<std::set<std::int64_t>>> first_kept_;   ///< by them after two steps
  transcript::snapshot_memory memory_;
  std::uint64_t step_ = 0;
  step_arithmetic arithmetic_;
  step_rounding rounding_;
  detail::still_watch still_;
  checks::copies copies_;
  std::vector<digest> ends_;          ///< of the first steps, as the job pins them
  std::optional<std::string> other_;  ///< of first steps, once they were trained
  std::uint64_t passes_ = 0;          ///< forward passes of the steps that are watched
  std::uint64_t updates_ = 0;  ///< run to come to this state, those before a restored one included
  std::uint64_t written_ = 0;  ///< writes() when the workload wrote last
  bool touched_ = false;       ///< somebody else wrote before a step
};

inline std::vector<std::string> workload::differences() {
  const transcript::job& job = *agreed_;
  std::vector<std::string> out;
  const auto compare = [&](const char* name, std::uint64_t own, std::uint64_t agreed) {
    if (own == agreed) return;
    out.push_back(std::string(name) + " is " + std::to_string(own) + ", agreed was " +
                  std::to_string(agreed));
  };
  compare("batch_size", task_.batch_size, job.batch_size);
  compare("accumulate", task_.accumulate, job.accumulate);
  compare("epochs", task_.epochs, job.epochs);
  compare("drop_last", task_.drop_last, job.drop_last);
  compare("the number of samples", sample_count(task_.data), job.data_count);
  if (!out.empty()) return out;
  const json_value document = job.document();
  const json_value* agreed_task = document.find("task");
  const json_value own = describe_task(task_);
  for (const json_member& member : *own.if_object()) {
    const json_value* agreed = agreed_task == nullptr ? nullptr : agreed_task->find(member.name);
    if (agreed == nullptr || !(*agreed == member.value)) {
      out.push_back("task." + member.name + " is not the agreed one");
    }
  }
  if (data_root(task_.data) != job.data_root) {
    out.push_back(
        "the data set holds other samples or labels than agreed: if code computes them, their bits "
        "may depend on the machine, so prepare them once and store them");
  }
  if (step_ == 0 && capture().state_digest() != job.initial_state) {
    out.push_back("the initial state is not the agreed one");
  }
  const json_value* first = agreed_task == nullptr ? nullptr : agreed_task->find("first_loss");
  if (out.empty() && step_ == 0 && first != nullptr) {
    if (const auto other = other_first_loss(*first)) out.push_back(*other);
  }
  return out;
}

// What `losses` computes is in no description of the task. A client whose code has changed since
// the job was made would accuse the trainer.
inline std::optional<std::string> workload::other_first_loss(const json_value& agreed) {
  const auto wanted = agreed.root().number();
  const double own = batch_loss(1, order_->of(1));
  // Other machines sum in other orders, at the precision of the parameters.
  double rounding = 0;
  if (!arithmetic_.is_exact()) {
    rounding = 0x1p-23;
    for (const at::Tensor& one : parameters()) {
      if (one.scalar_type() == at::kHalf) rounding = std::max(rounding, 0x1p-10);
      if (one.scalar_type() == at::kBFloat16) rounding = std::max(rounding, 0x1p-7);
    }
  }
  if (wanted && std::abs(own - *wanted) <= 1024 * rounding * (1 + std::abs(*wanted))) {
    return std::nullopt;
  }
  const json_value mine = own;
  return "the loss of step 1 is " + canonical_json(mine) + " here, and agreed was " +
         canonical_json(agreed) +
         ": task::losses, forward() or what they draw (potl::libtorch::dropout draws the same "
         "everywhere) is not the agreed one";
}

// Of a task of its own, which takes two steps where a tensor may be a copy.
inline checks::copies workload::copies_of(const builder& build) const {
  if (arithmetic_.is_exact() || !detail::may_have_copies(task_)) return {};
  workload own(build, *agreed_, false);
  std::vector<transcript::state> states{own.capture()};
  for (std::uint64_t step = 1; step <= std::min<std::uint64_t>(2, agreed_->steps); ++step) {
    own.run_step(step);
    states.push_back(own.capture());
  }
  std::vector<std::vector<std::string>> places;
  for (auto& [parameter, paths] : detail::places_of(own.task_)) places.push_back(std::move(paths));
  return checks::copies_of(states, places);
}

inline std::string workload::other_first_steps() {
  if (other_) return *other_;
  std::string found;
  if (!ends_.empty()) {
    workload own(build_, *agreed_, false);
    for (std::uint64_t step = 1; step <= ends_.size() && found.empty(); ++step) {
      const double loss = own.run_step(step).loss;
      const digest end = transcript::end_of_step(own.capture().state_digest(), loss);
      if (end != ends_[step - 1]) found = detail::other_end(step);
    }
  }
  other_ = found;
  return found;
}

inline void workload::load_state(const transcript::state& from, std::uint64_t step) {
  using namespace detail;
  const out_of_inference mode;
  const transcript::state_map& tree = map_at(from.root(), "state");
  const auto at = [&](const char* name) -> const transcript::state_value& {
    return member(tree, std::string(name), name);
  };
  require_size(tree.size(), 7, "state");
  for (const char* name : {"scaler", "ema"}) scalar_at<std::monostate>(at(name), name);
  require_size(list_at(at("schedulers"), "schedulers").size(), 0, "schedulers");
  require_size(map_at(at("state"), "state").size(), 0, "state");
  const transcript::state_map& counters = map_at(at("counters"), "counters");
  require_size(counters.size(), 2, "counters");
  const auto counter = [&](const char* name) {
    const std::string path = std::string("counters/") + name;
    return scalar_at<std::int64_t>(member(counters, std::string(name), path), path);
  };
  if (std::cmp_not_equal(counter("step"), step)) mismatch("counters/step", "another step");
  if (std::cmp_not_equal(counter("epoch"), step / agreed_->steps_per_epoch())) {
    mismatch("counters/epoch", "another epoch than the step's");
  }
  restorer into;
  restore_module(*task_.model, at("model"), into, squares_);
  // Else one false step could freeze a model for all the others.
  if (const auto changed = changed_flag()) mismatch(*changed, "another value than the task's");
  const transcript::state_list& optimizers = list_at(at("optimizers"), "optimizers");
  require_size(optimizers.size(), task_.optimizers.size(), "optimizers");
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    const std::string path = "optimizers/" + std::to_string(i);
    restore_optimizer(*task_.optimizers[i], optimizers[i], into, path);
    require_counts(*task_.optimizers[i], static_cast<std::int64_t>(step), first_counts_[i], path);
    if (step >= 2) require_kept(*task_.optimizers[i], path, [&] { return first_kept(i); });
  }
  step_ = step;
  updates_ = step;
  written_ = writes();
  touched_ = false;
}

inline const std::set<std::int64_t>& workload::first_kept(std::size_t at) {
  if (!first_kept_) {
    first_kept_ = detail::kept_after_two_steps(task_.optimizers.size(), [&] {
      return std::make_unique<workload>(build_, *agreed_, false);
    });
  }
  return (*first_kept_)[at];
}

/// The path of the first one.
inline std::optional<std::string> workload::changed_flag() const {
  for (const auto& [path, flag] : flags_of(*task_.model)) {
    if (const auto own = flags_.find(path); own == flags_.end() || own->second != flag) return path;
  }
  return std::nullopt;
}

/// The path of the first one.
inline std::optional<std::string> workload::changed_option() const {
  for (const auto& [path, value] : detail::fixed_options_of(task_)) {
    const auto own = options_.find(path);
    if (own == options_.end() || !(own->second == value)) return path;
  }
  return std::nullopt;
}

inline std::vector<workload::part> workload::micro_batches(
    std::span<const std::int64_t> ids) const {
  // As even as possible, the larger ones first.
  std::vector<part> out;
  const std::size_t parts = std::min<std::size_t>(task_.accumulate, ids.size());
  std::size_t first = 0;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t size = ids.size() / parts + (i < ids.size() % parts ? 1 : 0);
    out.push_back(
        {ids.subspan(first, size), static_cast<double>(size) / static_cast<double>(ids.size())});
    first += size;
  }
  return out;
}

// Torch counts those to each tensor, but for writes through data().
inline std::uint64_t workload::writes() const {
  std::uint64_t out = 0;
  const module_tensors all = tensors_of(*task_.model);
  for (const auto* tensors : {&all.parameters, &all.buffers}) {
    for (const auto& [name, tensor] : *tensors) {
      if (!tensor.is_inference()) out += static_cast<std::uint64_t>(tensor._version());
    }
  }
  return out;
}

inline std::optional<std::string> workload::not_the_outcome_of(std::uint64_t step) const {
  if (updates_ != step) {
    return "the workload has made " + std::to_string(updates_) + " updates, and not " +
           std::to_string(step);
  }
  if (touched_ || writes() != written_) {
    return "something beside the workload's steps has written to parameters or buffers";
  }
  return std::nullopt;
}

inline std::vector<at::Tensor> workload::parameters() const {
  std::vector<at::Tensor> out;
  for (const auto& optimizer : task_.optimizers) {
    for (const auto& group : optimizer->param_groups()) {
      out.insert(out.end(), group.params().begin(), group.params().end());
    }
  }
  return out;
}

inline at::Tensor workload::losses_of(std::span<const std::int64_t> ids, const digest& key) {
  const tensors batch = select_samples(task_.data, ids);
  seed_generator(key);
  at::Tensor out = task_.losses(batch);
  if (out.dim() != 1 || std::cmp_not_equal(out.size(0), ids.size())) {
    throw exception({errc::usage, "task::losses must give one loss per sample, shape [n]",
                     "use at::Reduction::None"});
  }
  return out;
}

// Of a micro-batch, weighted with its share of the step.
inline at::Tensor workload::loss_of(const part& one, std::uint64_t step, std::uint64_t number) {
  at::Tensor out = losses_of(one.ids, derive_key(agreed_->seed, "step", {step, number})).mean();
  return one.share == 1 ? out : out * one.share;
}

inline void workload::forget_gradients() {
  for (const auto& optimizer : task_.optimizers) optimizer->zero_grad();
}

// Neither their norm nor their elements can be asked for.
inline void workload::require_dense_gradients() const {
  for (const auto& [name, one] : tensors_of(*task_.model).parameters) {
    if (!one.grad().defined() || one.grad().layout() == at::kStrided) continue;
    throw exception({errc::unsupported, "the gradient of model/parameters/" + name + " is sparse",
                     "make its module without sparse(true)"});
  }
}

// Forward and backward passes of a step, in its block.
inline double workload::pass_over(std::uint64_t step, std::span<const std::int64_t> ids) {
  forget_gradients();
  double out = 0;
  std::uint64_t number = 0;
  for (const part& one : micro_batches(ids)) {
    const at::Tensor loss = loss_of(one, step, number++);
    if (!loss.requires_grad()) {
      detail::misuse("no parameter leads to what task::losses returns",
                     "compute the losses from the model's output, without detach() or a "
                     "NoGradGuard, and leave requires_grad on");
    }
    loss.backward();
    out += loss.item<double>();
  }
  arithmetic_.require_chosen();
  require_dense_gradients();
  return out;
}

// Gives the norm that the optimizers see.
inline double workload::clip_gradients() {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> all = parameters();
  if (task_.grad_clip) torch::nn::utils::clip_grad_norm_(all, *task_.grad_clip);
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& one : all) {
    if (one.grad().defined()) gradients.push_back(one.grad());
  }
  if (gradients.empty()) return 0;
  const auto norm_of_all = [&] {
    std::vector<at::Tensor> norms;
    for (const at::Tensor& one : gradients) {
      norms.push_back(at::linalg_vector_norm(one).to(at::kDouble));
    }
    return at::linalg_vector_norm(at::stack(norms)).item<double>();
  };
  const double norm = norm_of_all();
  if (std::isfinite(norm)) return norm;
  // Squares overflow long before their roots.
  for (at::Tensor& one : gradients) one = one.to(at::kDouble);
  return norm_of_all();
}

inline double workload::run_passes(std::uint64_t step) {
  const generator_scope scope;
  const at::AutoGradMode with_gradients(true);
  const step_rounding::part rounded(rounding_, step);  // never ended: this is not a whole step
  const auto block = arithmetic_.block(rounded.session());
  return pass_over(step, order_->of(step));
}

inline step_result workload::run_step(std::uint64_t step, std::span<const std::int64_t> ids) {
  const auto begin = std::chrono::steady_clock::now();
  touched_ = touched_ || writes() != written_;
  const generator_scope scope;
  const at::AutoGradMode with_gradients(true);
  step_result out;
  out.step = step;
  if (const std::vector<double>* rates = agreed_->rates_at(step)) set_rates(task_, *rates);
  out.rates = rates_of(task_);
  {
    step_rounding::part rounded(rounding_, step);
    const auto block = arithmetic_.block(rounded.session());
    out.loss = pass_over(step, ids);
    out.gradient_norm = clip_gradients();
    still_.look_at(parameters());
    for (const auto& optimizer : task_.optimizers) update(*optimizer, arithmetic_.is_exact());
    out.rounding_log = rounded.end();
  }
  out.finite = std::isfinite(out.loss) && std::isfinite(out.gradient_norm);
  out.non_finite = !*out.finite;
  step_ = step;
  ++updates_;
  written_ = writes();
  out.duration_ns = static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
  return out;
}

inline double workload::batch_loss(std::uint64_t step, std::span<const std::int64_t> ids) {
  const uncounted writing(*this);
  const generator_scope scope;
  const at::AutoGradMode with_gradients(true);  // as in the step: operators may look at that
  detail::unchanged guard(*task_.model);
  double out = 0;
  const std::vector<part> parts = micro_batches(ids);
  const step_rounding::part rounded(rounding_, step);  // never ended: this is not a whole step
  const auto block = arithmetic_.block(rounded.session());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor loss = loss_of(parts[i], step, i);
    out += loss.item<double>();
    // The log of the step has backward passes between its losses.
    if (rounding_.follows() && i + 1 < parts.size()) loss.backward();
  }
  arithmetic_.require_chosen();
  forget_gradients();
  guard.restore();
  return out;
}

inline subset_outcome workload::subset_loss(std::span<const std::int64_t> ids) {
  if (ids.empty()) throw exception({errc::usage, "a mean over no samples", ""});
  const uncounted writing(*this);
  const generator_scope scope;
  const at::NoGradGuard no_grad;
  detail::unchanged guard(*task_.model);
  const auto block = arithmetic_.block();
  tensors parts;
  for (std::size_t first = 0; first < ids.size(); first += task_.batch_size) {
    const auto some =
        ids.subspan(first, std::min<std::size_t>(task_.batch_size, ids.size() - first));
    const digest key = derive_key(agreed_->seed, "subset", {step_, parts.size()});
    parts.push_back(losses_of(some, key).to(at::kDouble));
  }
  const at::Tensor all = at::cat(parts);
  guard.restore();
  return {all.mean().item<double>(), all.std(false).item<double>()};
}

static_assert(potl::workload<workload>);

}  // namespace potl::libtorch
