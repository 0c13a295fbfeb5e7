// SPDX-License-Identifier: Apache-2.0
// What happens beside the steps: in other threads, and to recompute a loss. Part of adapter_test.
#pragma once

#include <thread>

namespace {

void recomputing_a_loss_changes_nothing() {
  const pl::builder build = [] {
    pl::task out = builder_of(momentum)();
    const at::Tensor frozen = pl::tensors_of(*out.model).parameters.at("last.bias");
    out.losses = [frozen, plain = out.losses](const pl::tensors& batch) {
      const at::NoGradGuard no_grad;
      frozen.add_(1e-3);  // as a teacher follows
      const at::AutoGradMode with_gradients(true);
      return plain(batch);
    };
    return out;
  };
  const potl::transcript::job job = job_of(build);
  pl::workload work(build, job);
  EXPECT(work.capture().state_digest() == job.initial_state);
  work.run_step(1);
  const potl::digest before = work.capture().state_digest();
  const std::vector<std::int64_t> batch = work.agreed().sample_ids(2);
  const double loss = work.batch_loss(2, batch);
  const std::vector<std::int64_t> ids{1, 5, 9};
  EXPECT(work.subset_loss(ids).standard_deviation > 0);
  double largest = 0;
  for (std::uint64_t way = 1; way <= 8; ++way) {
    work.perturb(way);
    largest = std::max(largest, std::abs(work.batch_loss(2, batch) - loss));
  }
  work.perturb(0);
  EXPECT(largest > 0 && largest < 1e-5);
  EXPECT(work.capture().state_digest() == before);
  EXPECT(work.run_step(2).loss == loss);
}

void gradients_are_finite_where_their_squares_are_not() {
  const pl::builder build = [] {
    pl::task out = builder_of(momentum)();
    out.losses = [plain = out.losses](const pl::tensors& batch) { return plain(batch) * 1e25; };
    out.rates = [](std::uint64_t) { return std::vector<double>{1e-30}; };
    out.grad_clip.reset();
    return out;
  };
  const pl::step_result done = pl::workload(build, job_of(build)).run_step(1);
  EXPECT(!done.non_finite && done.gradient_norm > 1e20 && std::isfinite(done.gradient_norm));
}

void nothing_writes_to_what_inference_made() {
  const pl::task task = builder_of(momentum)();
  const at::Tensor teacher = [] {
    const c10::InferenceMode guard;
    return at::ones({2});
  }();
  task.model->register_parameter("teacher", teacher, false);
  { const pl::detail::unchanged guard(*task.model); }
  EXPECT(at::equal(teacher, at::ones({2})));
}

void threads_draw_their_own_numbers() {
  const pl::builder build = builder_of(momentum);
  const potl::transcript::job job = job_of(build);
  const auto end = [&](potl::digest& out) {
    pl::workload work(build, job);
    for (std::uint64_t step = 1; step <= job.steps; ++step) work.run_step(step);
    out = work.capture().state_digest();
  };
  potl::digest alone;
  end(alone);
  std::vector<potl::digest> together(8);
  std::vector<std::thread> threads;
  for (potl::digest& one : together) threads.emplace_back([&] { end(one); });
  for (std::thread& one : threads) one.join();
  for (const potl::digest& one : together) EXPECT(one == alone);
}

void a_client_in_inference_mode_trains_as_others() {
  const pl::builder build = builder_of(adam);
  const auto trained = [&](bool infers) {
    const c10::InferenceMode mode(infers);
    const potl::transcript::job job = job_of(build);
    pl::workload work(build, job), other(build, job);
    work.run_step(1);
    other.load_state(work.capture(), 1);
    other.run_step(2);
    EXPECT(other.batch_loss(3, job.sample_ids(3)) > 0);
    EXPECT(c10::InferenceMode::is_enabled() == infers);
    return other.capture().state_digest();
  };
  EXPECT(trained(true) == trained(false));
}

void autocast_around_a_step_is_no_part_of_it() {
  const auto end_of = [](const pl::builder& build, bool around) {
    pl::workload work(build, job_of(build));
    at::autocast::set_autocast_enabled(at::kCPU, around);
    work.run_step(1);
    EXPECT(at::autocast::is_autocast_enabled(at::kCPU) == around);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return work.capture().state_digest();
  };
  const pl::builder plain = builder_of(momentum);
  EXPECT(end_of(plain, true) == end_of(plain, false));
  const pl::builder leaves_it_on = [&] {
    pl::task out = plain();
    out.losses = [losses = out.losses](const pl::tensors& batch) {
      const at::Tensor each = losses(batch);
      at::autocast::set_autocast_enabled(at::kCPU, true);
      return each;
    };
    return out;
  };
  EXPECT(end_of(leaves_it_on, true) == end_of(leaves_it_on, false));
}

}  // namespace
