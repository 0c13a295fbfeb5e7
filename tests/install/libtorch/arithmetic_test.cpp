// SPDX-License-Identifier: Apache-2.0
// The guard of the LibTorch adapter, installed. One behaviour a test; prints what failed and exits
// 1.
#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <potl/libtorch/arithmetic.hpp>
#include <potl/libtorch/libtorch.hpp>

#include "expect.hpp"

namespace arithmetic_test {
namespace {

using potl::libtorch::deterministic_guard;
using potl::libtorch::not_reproducible;
using potl::libtorch::stock_guard;
using potl::numeric::arithmetic;

at::Tensor values(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).mul(0.37).sin().reshape(sizes);
}

bool refuses(const at::Tensor& x, std::string* message = nullptr) {
  try {
    static_cast<void>(at::special_erfcx(x));
  } catch (const not_reproducible& error) {
    if (message != nullptr) *message = error.message() + " / " + error.remedy();
    return true;
  }
  return false;
}

void a_product_is_the_chain_of_its_mode() {
  const at::Tensor a = values({3, 700});
  const at::Tensor b = values({700, 5});
  at::Tensor got;
  {
    const deterministic_guard guard(arithmetic::ord32);
    got = at::mm(a, b);
  }
  const auto left = a.accessor<float, 2>();
  const auto right = b.accessor<float, 2>();
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) {
      float first = 0;
      float second = 0;
      for (std::int64_t k = 0; k < 512; ++k) first = std::fma(left[i][k], right[k][j], first);
      for (std::int64_t k = 512; k < 700; ++k) second = std::fma(left[i][k], right[k][j], second);
      EXPECT(got[i][j].item<float>() == first + second);
    }
  }
}

void the_guard_ends_with_its_scope_and_nests() {
  const at::Tensor x = values({8});
  EXPECT(!refuses(x));
  {
    const deterministic_guard outer;
    EXPECT(refuses(x));
    { const deterministic_guard inner; }
    EXPECT(refuses(x));
    {
      const stock_guard loader;
      EXPECT(!refuses(x));
      const deterministic_guard own(arithmetic::cr32);
      EXPECT(refuses(x));
    }
    EXPECT(refuses(x));
  }
  EXPECT(!refuses(x));
}

void a_refusal_names_operator_and_remedy() {
  const deterministic_guard guard;
  std::string message;
  EXPECT(refuses(values({8}), &message));
  EXPECT(message.find("aten::special_erfcx") != std::string::npos);
  EXPECT(message.find("outside the block") != std::string::npos);
}

void another_mode_inside_is_misuse() {
  const deterministic_guard guard(arithmetic::xint16);
  try {
    const deterministic_guard other(arithmetic::cr32);
    EXPECT(false);
  } catch (const potl::exception& error) {
    EXPECT(error.details().code == potl::errc::usage);
  }
}

potl::libtorch::task small_task(bool refused, std::int64_t features = 300, int classes = 4) {
  torch::nn::Linear net(features, classes);
  potl::libtorch::task out;
  out.model = net.ptr();
  out.optimizers = {std::make_shared<torch::optim::SGD>(net->parameters(), 0.1)};
  out.data = {values({32, features}), at::arange(32, at::kLong).remainder(4)};
  out.losses = [net, refused](const potl::libtorch::tensors& batch) mutable {
    const at::Tensor scores = net(batch[0]);
    const at::Tensor losses = at::cross_entropy_loss(scores, batch[1], {}, at::Reduction::None);
    if (!refused) return losses;
    return losses + at::multi_margin_loss(scores, batch[1], 1, 1, {}, at::Reduction::None);
  };
  out.batch_size = 8;
  out.epochs = 2;
  out.exact = potl::libtorch::exact_block;
  return out;
}

// What torch warns of.
class said_by_torch : c10::WarningHandler {
 public:
  said_by_torch() { c10::WarningUtils::set_warning_handler(this); }
  ~said_by_torch() override { c10::WarningUtils::set_warning_handler(before_); }
  const std::string& text() const { return text_; }

 private:
  void process(const c10::Warning& one) override { text_ += one.msg(); }
  c10::WarningHandler* before_ = c10::WarningUtils::get_warning_handler();
  std::string text_;
};

void a_job_says_what_its_steps_can_compute_in() {
  using potl::libtorch::make_job;
  const auto plain = [] { return small_task(false); };
  const auto other = [] { return small_task(true); };
  EXPECT(make_job(plain, {.seed = 0}).arithmetic == "ord32");
  EXPECT(make_job(plain, {.seed = 0, .arithmetic = "stock"}).arithmetic == "stock");
  const said_by_torch said;
  EXPECT(make_job(other, {.seed = 0}).arithmetic == "stock");
  EXPECT(said.text().find("multi_margin_loss is not reproducible") != std::string::npos);
  EXPECT(said.text().find("This job is in stock arithmetic") != std::string::npos);
  bool refused = false;
  try {
    make_job(other, {.seed = 0, .arithmetic = "cr32"});
  } catch (const not_reproducible& error) {
    refused = error.message().find("multi_margin_loss") != std::string::npos;
  }
  EXPECT(refused);
}

// A task whose first step fails, in ord32 then, and whose others do not.
template <class Fail>
potl::libtorch::builder failing_once(Fail fail) {
  return [fail, failed = std::make_shared<bool>(false)] {
    auto out = small_task(false);
    out.losses = [fail, failed, honest = out.losses](const potl::libtorch::tensors& batch) {
      if (!std::exchange(*failed, true)) fail();
      return honest(batch);
    };
    return out;
  };
}

void only_what_torch_says_of_operators_makes_a_job_stock() {
  using potl::libtorch::make_job;
  const said_by_torch said;
  const auto refuses = [] { TORCH_CHECK(false, "no such shape"); };
  EXPECT(make_job(failing_once(refuses), {.seed = 0}).arithmetic == "stock");
  EXPECT(said.text().find("a step fails in ord32: no such shape") != std::string::npos);
  const auto passes_on = [](auto fail) {
    try {
      make_job(failing_once(fail), {.seed = 0});
    } catch (const std::exception&) {
      return true;
    }
    return false;
  };
  EXPECT(passes_on([] { TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory"); }));
  EXPECT(passes_on([] { throw std::bad_alloc(); }));
  EXPECT(passes_on([] { throw std::runtime_error("the user's own"); }));
}

void noise_is_another_arithmetic_where_there_is_one() {
  const auto build = [] { return small_task(true); };  // lenient: what has no form runs as stock
  potl::libtorch::workload work(
      build, potl::libtorch::make_job(build, {.seed = 0, .arithmetic = "stock"}));
  const auto start = work.capture();
  const auto end_in = [&](std::uint64_t way, bool threads_only, bool other) {
    work.load_state(start, 0);
    EXPECT(work.perturb(way, threads_only) == other);
    work.run_step(1);
    work.perturb(0);
    return work.capture().state_digest();
  };
  const potl::digest usual = end_in(0, false, false);
  const potl::digest first = end_in(1, false, true);
  const potl::digest second = end_in(2, false, true);
  EXPECT(first != usual && second != usual && first != second);
  EXPECT(end_in(1, false, true) == first);
  const int threads = at::get_num_threads();
  work.perturb(1, true);
  EXPECT(at::get_num_threads() != threads);
  work.perturb(0);
  EXPECT(at::get_num_threads() == threads);
  EXPECT(refuses(values({8})) == false);  // nothing of it stays
}

// Dropout, noise and samples of another arithmetic would be no rounding errors.
void noise_draws_the_numbers_of_the_steps() {
  const at::Tensor rates = at::full({50}, 2.5), chances = at::full({50}, 0.25);
  const std::function<at::Tensor()> draws[] = {
      [] { return at::rand({50}); },
      [] { return at::randn({50}); },
      [] { return at::randperm(50); },
      [] { return at::dropout(at::ones({50}), 0.5, true); },
      [] { return std::get<0>(at::native_dropout(at::ones({50}), 0.5, true)); },
      [] { return at::empty({50}).exponential_(2); },
      [] { return at::empty({50}).cauchy_(); },
      [] { return at::empty({50}).geometric_(0.25); },
      [] { return at::empty({50}).log_normal_(); },
      [&] { return at::bernoulli(chances); },
      [&] { return at::empty({50}).bernoulli_(chances); },
      [&] { return at::normal(rates, chances); },
      [&] { return at::normal(rates, 2); },
      [&] { return at::normal(1, chances); },
      [&] { return at::_standard_gamma(rates); },
      [&] { return at::_sample_dirichlet(rates); },
      [&] { return at::poisson(rates); },
      [&] { return at::binomial(rates.round(), chances); },
      [] { return at::rrelu(values({50}), 0.1, 0.3, true); },
      [&] { return at::multinomial(chances, 1); },
      [&] { return at::multinomial(chances, 20, true); },
  };
  std::size_t number = 0;
  for (const auto& draw : draws) {
    const auto drawn = [&](bool noise) {
      const auto block = noise ? potl::libtorch::exact_block({.lenient = true}) : nullptr;
      torch::manual_seed(7);
      return draw();
    };
    expect(drawn(true).equal(drawn(false)), "draw " + std::to_string(number++), __LINE__);
  }
}

void an_exact_job_has_the_same_bits_in_every_way() {
  const auto build = [] { return small_task(false); };
  potl::libtorch::workload work(
      build, potl::libtorch::make_job(build, {.seed = 0, .arithmetic = "xint24"}));
  const auto start = work.capture();
  EXPECT(work.other_end(0, 0).empty());  // no step, of which a job pins nothing
  work.run_step(1);
  const potl::digest usual = work.capture().state_digest();
  for (std::uint64_t way = 1; way <= 4; ++way) {
    work.load_state(start, 0);
    EXPECT(!work.perturb(way, false));
    work.run_step(1);
    EXPECT(work.capture().state_digest() == usual);
  }
}

void a_recomputed_loss_has_the_bits_of_its_step() {
  const auto build = [] {
    potl::libtorch::task out = small_task(false);
    out.accumulate = 2;
    return out;
  };
  for (const char* mode : {"ord32", "log64"}) {
    potl::libtorch::workload work(build,
                                  potl::libtorch::make_job(build, {.seed = 0, .arithmetic = mode}));
    for (std::uint64_t step = 1; step <= work.agreed().steps; ++step) {
      const double loss = work.batch_loss(step, work.agreed().sample_ids(step));
      EXPECT(work.run_step(step).loss == loss);
    }
  }
}

void mixed_precision_has_an_exact_form() {
  const auto build = [] {
    potl::libtorch::task out = small_task(false);
    out.losses = [plain = out.losses](const potl::libtorch::tensors& batch) {
      at::autocast::set_autocast_enabled(at::kCPU, true);
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      const at::Tensor losses = plain(batch);
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      return losses;
    };
    return out;
  };
  const auto plain = [] { return small_task(false); };
  const auto mixed = potl::libtorch::make_job(build, {.seed = 0, .arithmetic = "ord32"});
  potl::libtorch::workload work(build, mixed);
  EXPECT(work.task().model->parameters()[0].scalar_type() == at::kFloat);
  const double loss = work.run_step(1).loss;
  potl::libtorch::workload wide(
      plain, potl::libtorch::make_job(plain, {.seed = 0, .arithmetic = "ord32"}));
  EXPECT(std::fabs(loss - wide.run_step(1).loss) > 1e-6);
}

void a_verifier_follows_the_log_of_each_step() {
  const auto build = [] { return small_task(false, 20000, 256); };  // long sums have near ties
  const auto job = potl::libtorch::make_job(build, {.seed = 0, .arithmetic = "log64"});
  potl::libtorch::workload trainer(build, job), verifier(build, job);
  const auto start = trainer.capture();
  std::vector<std::uint8_t> bytes = trainer.run_step(1).rounding_log;
  const auto follow = [&](std::optional<potl::digest> committed) {
    const potl::checks::logged_rounding logged{bytes, committed};
    verifier.load_state(start, 0);
    verifier.follow(1, &logged);
    EXPECT(verifier.run_step(1).rounding_log.empty());
    return verifier.rounding().value();
  };
  const auto seen = follow(potl::numeric::rounding_log_digest(bytes));
  EXPECT(seen.values > 0 && seen.rejected == 0);
  EXPECT(verifier.capture().state_digest() == trainer.capture().state_digest());
  potl::numeric::rounding_log turned = potl::numeric::decode_rounding_log(bytes).value();
  EXPECT(turned.entries.size() == seen.entries && seen.entries > 0);
  EXPECT(follow(std::nullopt).rejections.at(0).fault == "not_committed");
  EXPECT(follow(potl::digest{}).rejections.at(0).fault == "other_log");
  for (auto& one : turned.entries) one.up = !one.up;
  bytes = potl::numeric::encode_rounding_log(turned);
  const auto other = follow(potl::numeric::rounding_log_digest(bytes));
  EXPECT(other.corrections > 0 && other.corrections + other.rejected == seen.entries);
  verifier.follow(0, nullptr);
  EXPECT(verifier.run_step(2).rounding_log.size() > 0);
  EXPECT(verifier.rounding()->values == 0);
}

void the_table_is_there() {
  std::size_t kernels = 0;
  for (const auto& entry : potl::libtorch::operators()) kernels += entry.runs == "kernel";
  EXPECT(kernels > 200);
}

}  // namespace

int run() {
  a_product_is_the_chain_of_its_mode();
  the_guard_ends_with_its_scope_and_nests();
  a_refusal_names_operator_and_remedy();
  another_mode_inside_is_misuse();
  a_job_says_what_its_steps_can_compute_in();
  only_what_torch_says_of_operators_makes_a_job_stock();
  noise_is_another_arithmetic_where_there_is_one();
  noise_draws_the_numbers_of_the_steps();
  an_exact_job_has_the_same_bits_in_every_way();
  a_recomputed_loss_has_the_bits_of_its_step();
  mixed_precision_has_an_exact_form();
  a_verifier_follows_the_log_of_each_step();
  the_table_is_there();
  return status();
}

}  // namespace arithmetic_test
