// SPDX-License-Identifier: Apache-2.0
// What the adapter refuses, because a verifier would accuse the trainer of it. Part of
// adapter_test.
#pragma once

namespace {

void flags_that_the_build_does_not_set_are_refused() {
  const pl::builder build = builder_of(momentum);
  const auto refused = [&](const std::function<void(torch::nn::Module&)>& change) {
    pl::workload work(build, job_of(build));
    work.run_step(1);
    change(*work.task().model);
    potl::transcript::snapshot_memory memory;
    const potl::transcript::state changed = pl::capture_task(work.task(), 1, 0, memory);
    EXPECT(code_of([&] { work.capture(); }) == potl::errc::unsupported);
    return code_of([&] { pl::workload(build, job_of(build)).load_state(changed, 1); });
  };
  EXPECT(refused([](auto& model) { model.eval(); }) == potl::errc::mismatch);
  EXPECT(refused([](auto& model) { model.parameters()[0].set_requires_grad(false); }) ==
         potl::errc::mismatch);
}

void moments_and_counts_that_no_steps_make_are_refused() {
  using kept = torch::optim::AdamParamState;
  const pl::builder build = builder_of(adam);
  const potl::transcript::job job = job_of(build);
  const auto answer = [&](const std::function<void(kept&)>& change) {
    pl::workload work(build, job);
    work.run_step(1);
    for (auto& [owner, one] : work.task().optimizers[0]->state()) change(static_cast<kept&>(*one));
    const potl::transcript::state changed = work.capture();
    return code_of([&] { pl::workload(build, job).load_state(changed, 1); });
  };
  const auto below = [](at::Tensor of) { of.view(-1)[0].fill_(-1e-30); };
  EXPECT(answer([&](kept& one) { below(one.exp_avg()); }) == potl::errc::internal);  // accepted
  EXPECT(answer([&](kept& one) { below(one.exp_avg_sq()); }) == potl::errc::mismatch);
  EXPECT(answer([&](kept& one) { below(one.max_exp_avg_sq()); }) == potl::errc::mismatch);
  EXPECT(answer([](kept& one) { one.step(0); }) == potl::errc::internal);
  EXPECT(answer([](kept& one) { one.step(2); }) == potl::errc::mismatch);
  EXPECT(answer([](kept& one) { one.step(-1); }) == potl::errc::mismatch);
}

void updates_are_counted_from_what_the_build_has_counted_and_in_each_group() {
  const pl::builder build = builder_of([](Net& net) -> optimizer_list {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(net->first->parameters());
    groups.emplace_back(net->parameters());
    const auto out = std::make_shared<torch::optim::Adam>(groups, torch::optim::AdamOptions(0.01));
    for (const at::Tensor& one : net->parameters()) one.mutable_grad() = at::zeros_like(one);
    out->step();
    out->zero_grad();
    return {out};
  });
  pl::workload work(build, job_of(build));
  work.run_step(1);
  const potl::transcript::state after = work.capture();
  EXPECT(code_of([&] { work.load_state(after, 1); }) == potl::errc::internal);
}

void losses_other_than_the_jobs_are_refused() {
  const pl::builder build = builder_of(momentum);
  const auto with_losses = [&](double factor) {
    return [&build, factor] {
      pl::task out = build();
      out.losses = [theirs = out.losses, factor](const pl::tensors& batch) {
        return theirs(batch) * factor;
      };
      return out;
    };
  };
  const potl::transcript::job job = job_of(build);
  EXPECT(code_of([&] { pl::workload(with_losses(1.001), job); }) == potl::errc::usage);
  pl::workload rounded(with_losses(1 + 1e-5), job);
  EXPECT(rounded.step() == 0);
  EXPECT(code_of([&] { job_of(with_losses(NAN)); }) == potl::errc::usage);
}

void an_optimizer_of_another_model_is_refused() {
  Net elsewhere;
  const auto foreign = [&](Net&) { return momentum(elsewhere); };
  EXPECT(code_of([&] { job_of(builder_of(foreign)); }) == potl::errc::usage);
  const auto none = [](Net&) { return optimizer_list{nullptr}; };
  EXPECT(code_of([&] { job_of(builder_of(none)); }) == potl::errc::usage);
}

void what_had_no_gradient_is_found_where_a_parameter_is_in_two_groups() {
  const pl::builder build = builder_of([](Net& net) -> optimizer_list {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(net->first->parameters());
    groups.emplace_back(net->parameters());
    return {std::make_shared<torch::optim::SGD>(groups, torch::optim::SGDOptions(0.05))};
  });
  pl::workload work(build, job_of(build));
  work.expect(1, 1);
  work.run_step(1);
  // The frozen bias is the last of six parameters, two of which are counted once.
  std::string found;
  for (const potl::checks::still_elements& one : work.still()) {
    if (one.paths.back() == "model/parameters/last.bias") found += one.paths.front() + " ";
  }
  EXPECT(found == "optimizers/0/state/5 ");
}

void a_folder_with_other_files_records_nothing(const std::string& path) {
  const pl::builder build = builder_of(momentum);
  const potl::signing_key key = potl::signing_key::generate();
  std::filesystem::create_directories(path);
  potl::write_file_atomically(path + "/thesis.tex", potl::as_bytes_view(std::string("x"))).value();
  pl::workload work(build, job_of(build));
  EXPECT(code_of([&] { pl::recorder(path, work, key); }) == potl::errc::usage);
  EXPECT(!std::filesystem::exists(path + "/job.json"));
  std::filesystem::remove(path + "/thesis.tex");
  pl::recorder run(path, work, key);
  EXPECT(!run.done());
}

void what_happens_beside_the_recorded_steps_is_refused(const std::string& path) {
  const pl::builder build = builder_of(adam);
  const potl::transcript::job job = job_of(build);
  const potl::signing_key key = potl::signing_key::generate();
  int number = 0;
  const auto refused = [&](const std::function<void(pl::workload&)>& before,
                           const std::function<void(pl::workload&)>& between) {
    pl::workload work(build, job);
    pl::recorder run(path + std::to_string(number++), work, key);
    run.step();
    before(work);
    const pl::step_result done = work.run_step(2);
    between(work);
    return code_of([&] { run.append(done); }) == potl::errc::usage;
  };
  const auto nothing = [](pl::workload&) {};
  EXPECT(!refused(nothing, nothing));
  EXPECT(refused(nothing, [](pl::workload& work) { work.run_step(2); }));
  EXPECT(refused(nothing, [](pl::workload& work) { work.task().optimizers[0]->step(); }));
  EXPECT(refused([](pl::workload& work) { work.task().losses(work.task().data); }, nothing));
  const auto measure = [](pl::workload& work) {
    work.batch_loss(2, work.agreed().sample_ids(2));
    work.subset_loss(work.agreed().sample_ids(1));
  };
  EXPECT(!refused(measure, measure));
}

}  // namespace
