// SPDX-License-Identifier: Apache-2.0
// Other ways to compute that show how large honest noise is. Part of adapter_test.
#pragma once

namespace {

at::Tensor wave(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).mul(0.37).sin().reshape(sizes);
}

/// What sums give, with rough sums of that seed.
at::Tensor roughly(std::uint64_t seed, const std::function<at::Tensor()>& what) {
  pl::detail::rough_sums sums(seed);
  const pl::detail::rough_sums::block block(sums);
  return what();
}

/// The largest difference, in units of roundoff of a row's typical element.
double off(const at::Tensor& rough, const at::Tensor& plain) {
  const at::Tensor row = plain.square().mean({-1}, true).sqrt();
  return ((rough - plain) / row).abs().max().item<double>() * 0x1p24;
}

void rough_sums_are_off_by_some_units_of_roundoff_and_nothing_else_is() {
  const at::Tensor a = wave({40, 30}), b = wave({30, 40}), bias = wave({40});
  const at::Tensor images = wave({2, 3, 8, 8}), filters = wave({4, 3, 3, 3});
  const std::vector<std::function<at::Tensor()>> sums{
      [&] { return at::matmul(a, b); }, [&] { return at::linear(a, b.t(), bias); },
      [&] { return a.sum(0); }, [&] { return at::conv2d(images, filters); },
      [&] { return at::layer_norm(a, {30}); }};
  for (const auto& sum : sums) {
    const at::Tensor plain = sum();
    const double smooth = off(roughly(2, sum), plain), rougher = off(roughly(1, sum), plain);
    EXPECT(smooth > 1 && smooth < 8 * 6 && rougher > smooth && rougher < 32 * 6);
    EXPECT(roughly(2, sum).equal(roughly(2, sum)) && !roughly(2, sum).equal(roughly(4, sum)));
  }
  // Of an operator that computes a mean inside, too.
  const std::vector<std::function<at::Tensor()>> others{
      [&] { return at::relu(a) * 2 + a; }, [&] { return at::softmax(a, 1); },
      [&] { return at::mse_loss(a, b.t()); }, [&] { return at::std(a, 1); }};
  for (const auto& other : others) EXPECT(roughly(1, other).equal(other()));
  const at::Tensor zeros = at::zeros({2, 30});
  EXPECT(roughly(1, [&] { return at::matmul(zeros, b); }).equal(at::zeros({2, 40})));
  const at::Tensor low = a.to(at::kBFloat16), lower = b.to(at::kBFloat16);
  const auto product = [&] { return at::matmul(low, lower); };
  EXPECT(at::allclose(roughly(1, product), product(), 0x1p-7, 0));
}

void sums_are_never_left_as_they_are_in_silence() {
  const at::Tensor a = wave({40, 30});
  at::enableRecordFunction(false);
  EXPECT(!roughly(2, [&] { return a.sum(0); }).equal(a.sum(0)));
  EXPECT(!at::isRecordFunctionEnabled());
  at::enableRecordFunction(true);
  EXPECT(code_of([] { pl::detail::rough_sums(2).require_all(); }) == potl::errc::unsupported);
}

void rough_sums_reach_backward_passes_and_change_no_version() {
  const at::Tensor x = wave({20, 30}), start = wave({30, 30});
  const auto gradient = [&] {
    const at::Tensor weight = start.clone().requires_grad_();
    const at::Tensor out = at::layer_norm(at::relu(at::matmul(x, weight)), {30});
    (out * wave({20, 30})).sum().backward();
    return weight.grad();
  };
  const at::Tensor plain = gradient();
  const double distance = off(roughly(1, gradient), plain);
  EXPECT(distance > 1 && distance < 1e5);
  EXPECT(gradient().equal(plain));  // nothing of it stays
}

void a_job_in_stock_arithmetic_is_rough_where_asked() {
  const pl::builder build = builder_of(adam);
  pl::workload work(build, job_of(build));
  const potl::transcript::state start = work.capture();
  const auto end = [&] {
    work.load_state(start, 0);
    const at::Tensor generator = at::detail::getDefaultCPUGenerator().get_state();
    work.run_step(1);
    EXPECT(at::detail::getDefaultCPUGenerator().get_state().equal(generator));
    return work.capture().state_digest();
  };
  const potl::digest usual = end();
  EXPECT(work.roughen(5));
  const potl::digest rough = end();
  EXPECT(work.roughen(5));
  EXPECT(end() == rough && rough != usual);
  // Without potl's arithmetics, a repeat has nothing else.
  EXPECT(work.perturb(1));
  const potl::digest first = end();
  EXPECT(work.perturb(2));
  EXPECT(end() != first && first != usual);
  EXPECT(!work.perturb(1, true));
  EXPECT(!work.perturb(0));
  EXPECT(end() == usual);
}

void what_divides_by_nothing_that_it_keeps_is_linear() {
  const auto answer = [](const make_optimizers& make, const std::function<void(Net&)>& change) {
    const pl::builder build = builder_of([&](Net& net) {
      net->last->bias.set_requires_grad(true);
      change(net);
      return make(net);
    });
    return pl::workload(build, job_of(build)).is_linear();
  };
  const auto nothing = [](Net&) {};
  EXPECT(answer(momentum, nothing));
  EXPECT(!answer(adam, nothing) && !answer(adamw_two_groups, nothing));
  EXPECT(!answer(momentum, [](Net& net) { net->last->bias.set_requires_grad(false); }));
  EXPECT(!answer(momentum, [](Net& net) { net->register_buffer("kept", at::zeros({3})); }));
  EXPECT(
      answer(momentum, [](Net& net) { net->register_buffer("count", at::zeros({3}, at::kLong)); }));
  EXPECT(!answer(
      [](Net& net) -> optimizer_list {
        return {std::make_shared<torch::optim::SGD>(net->first->parameters(), 0.1)};
      },
      nothing));
}

}  // namespace
