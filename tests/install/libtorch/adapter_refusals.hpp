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

void options_that_the_build_does_not_set_are_refused() {
  const pl::builder build = builder_of(momentum);
  const auto answer = [&](const std::function<void(torch::optim::OptimizerParamGroup&)>& change) {
    pl::workload work(build, job_of(build));
    change(work.task().optimizers[0]->param_groups()[0]);
    return code_of([&] { work.capture(); });
  };
  EXPECT(answer([](auto& of) { of.options().set_lr(0.5); }) == potl::errc::internal);  // accepted
  EXPECT(answer([](auto& of) {
           static_cast<torch::optim::SGDOptions&>(of.options()).momentum(0.5);
         }) == potl::errc::unsupported);
  EXPECT(answer([](auto& of) { of.params().pop_back(); }) == potl::errc::unsupported);
}

void a_model_that_is_not_made_by_the_build_is_refused() {
  const pl::task once = builder_of(momentum)();
  EXPECT(code_of([&] { job_of([&] { return once; }); }) == potl::errc::usage);
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

void other_optimizer_state_is_refused() {
  // What becomes of a state after two steps; `change` gets the optimizer, and the first parameter.
  using change_of = std::function<void(torch::optim::Optimizer&, const at::Tensor&)>;
  const auto answer = [](const make_optimizers& make, const change_of& change) {
    const pl::builder build = builder_of(make);
    const potl::transcript::job job = job_of(build);
    pl::workload work(build, job);
    for (const std::uint64_t step : {1, 2}) work.run_step(step);
    torch::optim::Optimizer& optimizer = *work.task().optimizers[0];
    change(optimizer, optimizer.param_groups()[0].params()[0]);
    const potl::transcript::state changed = work.capture();
    return code_of([&] { pl::workload(build, job).load_state(changed, 2); });
  };
  const auto nothing = [](auto&, auto&) {};
  const auto gone = [](torch::optim::Optimizer& of, const at::Tensor& one) {
    of.state().erase(one.unsafeGetTensorImpl());
  };
  const auto sgd = [](Net& net) {
    return optimizer_list{std::make_shared<torch::optim::SGD>(net->parameters(), 0.1)};
  };
  const auto given_momentum = [](torch::optim::Optimizer& of, const at::Tensor& one) {
    auto kept = std::make_unique<torch::optim::SGDParamState>();
    kept->momentum_buffer(at::ones_like(one));
    of.state()[one.unsafeGetTensorImpl()] = std::move(kept);
  };
  const auto other_maximum = [](const at::Tensor& maximum) {
    return [maximum](torch::optim::Optimizer& of, const at::Tensor& one) {
      auto& kept = *of.state().at(one.unsafeGetTensorImpl());
      static_cast<torch::optim::AdamParamState&>(kept).max_exp_avg_sq(
          maximum.defined() ? at::zeros_like(one) : maximum);
    };
  };
  const auto without_maxima = [](Net& net) {
    return optimizer_list{std::make_shared<torch::optim::Adam>(net->parameters(), 0.01)};
  };
  for (const make_optimizers& make : {make_optimizers(momentum), make_optimizers(adam)}) {
    EXPECT(answer(make, nothing) == potl::errc::internal);  // accepted
    EXPECT(answer(make, gone) == potl::errc::mismatch);
  }
  EXPECT(answer(sgd, nothing) == potl::errc::internal);
  EXPECT(answer(sgd, given_momentum) == potl::errc::mismatch);
  EXPECT(answer(without_maxima, nothing) == potl::errc::internal);
  EXPECT(answer(without_maxima, other_maximum(at::ones({1}))) == potl::errc::mismatch);
  EXPECT(answer(adam, other_maximum({})) == potl::errc::mismatch);
}

void only_a_state_that_lacks_something_makes_a_workload_train() {
  const pl::builder plain = builder_of(momentum);
  int built = 0;
  bool fails = false;
  const pl::builder build = [&] {
    ++built;
    return fails ? throw std::bad_alloc() : plain();
  };
  const potl::transcript::job job = job_of(build);
  pl::workload work(build, job);
  for (const std::uint64_t step : {1, 2}) work.run_step(step);
  const potl::transcript::state honest = work.capture();
  torch::optim::Optimizer& optimizer = *work.task().optimizers[0];
  optimizer.state().erase(optimizer.param_groups()[0].params()[0].unsafeGetTensorImpl());
  const potl::transcript::state changed = work.capture();
  built = 0;
  work.load_state(honest, 2);
  EXPECT(built == 0);
  // What the verifier cannot find out neither passes nor accuses.
  fails = true;
  bool is_own = false;
  try {
    work.load_state(changed, 2);
  } catch (const std::exception& thrown) {
    is_own = potl::checks::trouble_of(thrown).own;
  }
  EXPECT(is_own);
  fails = false;
  EXPECT(code_of([&] { work.load_state(changed, 2); }) == potl::errc::mismatch);
}

void optimizer_state_is_compared() {
  other_optimizer_state_is_refused();
  only_a_state_that_lacks_something_makes_a_workload_train();
}

void a_running_variance_below_zero_is_refused() {
  const pl::builder plain = builder_of(momentum);
  const pl::builder tied = [plain] {
    pl::task made = plain();
    const auto buffers = pl::tensors_of(*made.model).buffers;
    made.model->register_buffer("before", buffers.at("norm.running_var"));
    return made;
  };
  for (const pl::builder& build : {plain, tied}) {
    const potl::transcript::job job = job_of(build);
    const auto answer = [&](const char* buffer) {
      pl::workload work(build, job);
      work.run_step(1);
      pl::tensors_of(*work.task().model).buffers.at(buffer).view(-1)[0].fill_(-1e-30);
      const potl::transcript::state changed = work.capture();
      return code_of([&] { pl::workload(build, job).load_state(changed, 1); });
    };
    EXPECT(answer("norm.running_mean") == potl::errc::internal);  // accepted
    EXPECT(answer("norm.running_var") == potl::errc::mismatch);
  }
}

void a_running_variance_that_the_build_leaves_below_zero_is_no_square() {
  const pl::builder build = [plain = builder_of(momentum)] {
    pl::task made = plain();
    made.initialize = [](torch::nn::Module& model, std::uint64_t seed) {
      pl::initialize(model, seed);
      pl::tensors_of(model).buffers.at("norm.running_var").fill_(-1);
    };
    return made;
  };
  const potl::transcript::job job = job_of(build);
  pl::workload work(build, job);
  work.run_step(1);
  const potl::transcript::state after = work.capture();
  EXPECT(code_of([&] { pl::workload(build, job).load_state(after, 1); }) == potl::errc::internal);
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

void what_no_pass_can_restore_is_refused() {
  const pl::builder plain = builder_of(momentum);
  const auto answer = [&](const std::function<void(pl::task&)>& change) {
    return code_of([&] {
      job_of([&] {
        pl::task out = plain();
        change(out);
        return out;
      });
    });
  };
  EXPECT(answer([](pl::task& of) {
           of.model->register_buffer("shared", at::zeros({1}).expand({4}));
         }) == potl::errc::unsupported);
  EXPECT(answer([](pl::task& of) {
           of.model->register_buffer("row", at::zeros({4}).expand({1, 4}));
         }) == potl::errc::internal);  // accepted
  EXPECT(answer([](pl::task& of) {
           const at::Tensor ring = of.model->register_buffer("ring", at::zeros({0}));
           of.losses = [ring, theirs = of.losses](const pl::tensors& batch) {
             ring.set_data(at::zeros({ring.size(0) + 1}));
             return theirs(batch);
           };
         }) == potl::errc::unsupported);
}

void losses_without_a_gradient_are_refused() {
  const pl::builder plain = builder_of(momentum);
  const auto detached = [&] {
    pl::task out = plain();
    out.losses = [theirs = out.losses](const pl::tensors& batch) { return theirs(batch).detach(); };
    return out;
  };
  EXPECT(code_of([&] { job_of(detached); }) == potl::errc::usage);
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

// It may keep more, and an exact arithmetic would not call its step().
void an_optimizer_derived_from_torchs_is_refused() {
  struct halving : torch::optim::SGD {
    using SGD::SGD;
    at::Tensor step(LossClosure closure) override {
      for (const at::Tensor& one : param_groups()[0].params()) one.mutable_grad().mul_(0.5);
      return SGD::step(std::move(closure));
    }
  };
  const auto derived = [](Net& net) -> optimizer_list {
    return {std::make_shared<halving>(net->first->parameters(), torch::optim::SGDOptions(0.05))};
  };
  EXPECT(code_of([&] { job_of(builder_of(derived)); }) == potl::errc::unsupported);
}

void a_sparse_gradient_is_refused() {
  const pl::builder build = [] {
    torch::nn::Embedding words(torch::nn::EmbeddingOptions(3, 2).sparse(true));
    pl::task out;
    out.model = words.ptr();
    out.optimizers = {std::make_shared<torch::optim::SGD>(words->parameters(), 0.1)};
    out.data = {data()[1]};
    out.losses = [words](const pl::tensors& batch) mutable { return words(batch[0]).sum(1); };
    return out;
  };
  std::string why;
  try {
    job_of(build);
  } catch (const potl::exception& e) {
    if (e.details().code == potl::errc::unsupported) why = e.what();
  }
  EXPECT(why.find("model/parameters/weight is sparse (make") != std::string::npos);
}

void what_is_not_finite_is_refused_before_anybody_trains() {
  const auto says = [](const std::string& what, const std::function<void(pl::task&)>& change) {
    try {
      job_of([&] {
        pl::task out = builder_of(momentum)();
        change(out);
        return out;
      });
    } catch (const potl::exception& e) {
      return e.details().message.find(what) != std::string::npos;
    }
    return false;
  };
  EXPECT(says("before the first step model/buffers/spare holds NaN",
              [](pl::task& of) { of.model->register_buffer("spare", at::full({3}, NAN)); }));
  EXPECT(says("after the first steps model/parameters/first.bias holds", [](pl::task& of) {
    of.rates = [](std::uint64_t) { return std::vector<double>{1e38}; };
  }));
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
