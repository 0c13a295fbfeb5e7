// SPDX-License-Identifier: Apache-2.0
// One direction of one layer of an LSTM. torch hands it to oneDNN; here it is the operators that
// torch's own cells run, in the order in which autograd would run them, so that the gradients have
// the same bits with torch.backends.mkldnn on and off. RNN and GRU arrive as cells already.
// All that a step computes beside products is one pass (numeric/detail/cells.hpp), except in narrow
// types, in which every operator rounds.
#include <potl/numeric/detail/cells.hpp>

#include <tuple>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "fallback.hpp"
#include "mode.hpp"
#include "real.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

constexpr std::int64_t lstm_mode = 2;
/// Input, forget, cell and output gate, and the cell.
constexpr std::int64_t parts_of_a_step = 5;

using tensors = std::vector<at::Tensor>;
using layer_result = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using layer_gradients =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

void require_lstm(std::int64_t mode, c10::IntArrayRef batch_sizes) {
  if (mode != lstm_mode || !batch_sizes.empty()) {
    refuse("a recurrent layer of oneDNN that is not an LSTM over padded sequences",
           "set torch.backends.mkldnn.enabled = False");
  }
}

std::optional<at::Tensor> if_true(bool wanted, const at::Tensor& tensor) {
  return wanted ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

/// The time of the k-th step.
std::int64_t time_of(std::int64_t k, std::int64_t steps, bool reverse) {
  return reverse ? steps - 1 - k : k;
}

bool is_narrow(const at::Tensor& of) { return at::isReducedFloatingType(of.scalar_type()); }

/// The memory of a row-major operand of so many elements; null where there is none.
template <class Real>
const Real* read(const at::Tensor& of, std::int64_t count) {
  if (!of.defined()) return nullptr;
  TORCH_CHECK(of.is_contiguous() && of.numel() == count,
              "an LSTM's operands do not fit its size: got ", of.sizes());
  return of.const_data_ptr<Real>();
}

/// Computes the parts of a step, and h.
void run_step(const at::Tensor& of_state, const at::Tensor& of_input, const at::Tensor& before,
              const at::Tensor& parts, const at::Tensor& h) {
  const std::int64_t batch = h.size(0), hidden = h.size(1);
  if (is_narrow(h)) {
    const at::Tensor gates = of_state.add(of_input).view({batch, 4, hidden}).transpose(0, 1);
    const tensors part = parts.unbind(0);
    for (const std::int64_t gate : {0, 1, 3}) parts[gate].copy_(gates[gate].sigmoid());
    part[2].copy_(gates[2].tanh());
    part[4].copy_(part[1] * before + part[0] * part[2]);
    h.copy_(part[3] * part[4].tanh());
    return;
  }
  with_real(h.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    const std::int64_t cells = batch * hidden;
    numeric::lstm(
        numeric::lstm_step<Real>{batch, hidden, read<Real>(of_state, 4 * cells),
                                 read<Real>(of_input, 4 * cells), read<Real>(before, cells),
                                 parts.mutable_data_ptr<Real>(), h.mutable_data_ptr<Real>()},
        executor());
  });
}

/// a + b where either may be missing.
at::Tensor plus(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? a + b : a;
}

/// Writes the gradient of the gates, and returns that of the cells before the step.
at::Tensor run_slope(const at::Tensor& d_output, const at::Tensor& dh_next, const at::Tensor& dc,
                     const at::Tensor& parts, const at::Tensor& before, const at::Tensor& d_gates) {
  const std::int64_t batch = before.size(0), hidden = before.size(1);
  if (is_narrow(before)) {
    const tensors part = parts.unbind(0);
    const at::Tensor &in = part[0], &forget = part[1], &cell = part[2], &out = part[3];
    const at::Tensor state = part[4].tanh(), dh = plus(d_output, dh_next);
    const at::Tensor d_out = dh.defined() ? dh * state : at::zeros_like(state);
    at::Tensor d = dh.defined() ? plus(dc, at::tanh_backward(dh * out, state)) : dc;
    if (!d.defined()) d = at::zeros_like(state);
    at::Tensor into = d_gates;
    at::cat_out(into,
                {at::sigmoid_backward(d * cell, in), at::sigmoid_backward(d * before, forget),
                 at::tanh_backward(d * in, cell), at::sigmoid_backward(d_out, out)},
                1);
    return d * forget;
  }
  const at::Tensor dc_before = make({batch, hidden}, before.scalar_type());
  with_real(before.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    const std::int64_t cells = batch * hidden;
    numeric::lstm(
        numeric::lstm_slope<Real>{batch, hidden, read<Real>(d_output, cells),
                                  read<Real>(dh_next, cells), read<Real>(dc, cells),
                                  read<Real>(parts, parts_of_a_step * cells),
                                  read<Real>(before, cells), d_gates.mutable_data_ptr<Real>(),
                                  dc_before.mutable_data_ptr<Real>()},
        executor());
  });
  return dc_before;
}

layer_result layer(const at::Tensor& input, const at::Tensor& w_input, const at::Tensor& w_hidden,
                   const at::Tensor& b_input, const at::Tensor& b_hidden, const at::Tensor& hx,
                   const at::Tensor& cx, bool reverse, c10::IntArrayRef batch_sizes,
                   std::int64_t mode, std::int64_t hidden, std::int64_t, bool has_biases, bool,
                   bool, bool train) {
  require_lstm(mode, batch_sizes);
  const std::int64_t steps = input.size(0);
  const std::int64_t batch = input.size(1);
  const at::Tensor gates_of_input = at::linear(input, w_input, if_true(has_biases, b_input));
  const bool keep = train || c10::GradMode::is_enabled();
  at::Tensor h = hx.reshape({batch, hidden});
  at::Tensor c = cx.reshape({batch, hidden}).contiguous();
  const at::Tensor output = make({steps, batch, hidden}, input.scalar_type());
  // Gates after their functions, and the cell, of each step in the order of the steps: each of them
  // in one piece, as all of the work on single elements wants it.
  const at::Tensor workspace =
      make({keep ? steps : 1, parts_of_a_step, batch, hidden}, input.scalar_type());
  const tensors outputs = output.unbind(0), of_input = gates_of_input.contiguous().unbind(0);
  for (std::int64_t k = 0; k < steps; ++k) {
    const auto time = static_cast<std::size_t>(time_of(k, steps, reverse));
    const at::Tensor gates = at::linear(h, w_hidden, if_true(has_biases, b_hidden));
    const at::Tensor now = workspace[keep ? k : 0];
    run_step(gates, of_input[time], c, now, outputs[time]);
    c = now[4];
    h = outputs[time];
  }
  return {output, h.clone().view(hx.sizes()), c.clone().view(cx.sizes()), workspace};
}

layer_gradients layer_backward(const at::Tensor& input, const at::Tensor& w_input,
                               const at::Tensor& w_hidden, const at::Tensor& b_input,
                               const at::Tensor& b_hidden, const at::Tensor& hx,
                               const at::Tensor& cx, const at::Tensor& output, const at::Tensor&,
                               const at::Tensor&, const std::optional<at::Tensor>& d_output,
                               const std::optional<at::Tensor>& d_hy,
                               const std::optional<at::Tensor>& d_cy, bool reverse,
                               std::int64_t mode, std::int64_t hidden, std::int64_t,
                               bool has_biases, bool, bool, c10::IntArrayRef batch_sizes, bool,
                               const at::Tensor& workspace) {
  require_lstm(mode, batch_sizes);
  const std::int64_t steps = input.size(0);
  const std::int64_t batch = input.size(1);
  TORCH_CHECK(workspace.dim() == 4 && workspace.size(0) == steps,
              "mkldnn_rnn_layer_backward: the forward pass kept nothing");
  const auto each = [](const at::Tensor& of) { return of.defined() ? of.unbind(0) : tensors(); };
  const at::Tensor d_out = value_or_undefined(d_output);
  const tensors d_outs = each(d_out.defined() ? d_out.contiguous() : d_out), outputs = each(output);
  const tensors parts = each(workspace);
  at::Tensor dh = value_or_undefined(d_hy);
  at::Tensor dc = value_or_undefined(d_cy);
  if (dh.defined()) dh = dh.reshape({batch, hidden}).contiguous();
  if (dc.defined()) dc = dc.reshape({batch, hidden}).contiguous();
  const at::Tensor c_first = cx.reshape({batch, hidden}).contiguous();
  const at::Tensor d_gates = make({steps, batch, 4 * hidden}, input.scalar_type());
  const tensors d_gates_of = each(d_gates);
  at::Tensor dw_hidden, db_hidden;
  for (std::int64_t k = steps - 1; k >= 0; --k) {
    const auto time = static_cast<std::size_t>(time_of(k, steps, reverse));
    const auto step = static_cast<std::size_t>(k);
    const at::Tensor h_before =
        k == 0 ? hx.reshape({batch, hidden})
               : outputs[static_cast<std::size_t>(time_of(k - 1, steps, reverse))];
    const at::Tensor& gates = d_gates_of[time];
    dc = run_slope(d_outs.empty() ? at::Tensor() : d_outs[time], dh, dc, parts[step],
                   k == 0 ? c_first : parts[step - 1][4], gates);
    const at::Tensor product = at::mm(gates.t(), h_before);
    dw_hidden = dw_hidden.defined() ? dw_hidden.add_(product) : product;
    dh = at::mm(gates, w_hidden);
  }
  if (has_biases) {
    const tensors sums = each(d_gates.sum(1));
    for (std::int64_t k = steps - 1; k >= 0; --k) {
      db_hidden = plus(db_hidden, sums[static_cast<std::size_t>(time_of(k, steps, reverse))]);
    }
  }
  const at::Tensor gates = d_gates.view({steps * batch, 4 * hidden});
  const at::Tensor flat = input.reshape({steps * batch, input.size(2)});
  return {at::mm(gates, w_input).view(input.sizes()),
          at::mm(gates.t(), flat),
          dw_hidden,
          has_biases ? gates.sum(0) : at::zeros_like(b_input),
          has_biases ? db_hidden : at::zeros_like(b_hidden),
          dh.view(hx.sizes()),
          dc.view(cx.sizes())};
}

/// Under autocast oneDNN gets a layer in the narrow type as a whole; in torch's own cells products
/// alone are narrow.
void onednn_or_refuse(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                      ::torch::jit::Stack* stack) {
  const at::Tensor& input = (*stack)[stack->size() - handle.schema().arguments().size()].toTensor();
  const bool has_onednn = at::hasMKLDNN() && at::globalContext().userEnabledMkldnn();
  if (!has_onednn && input.is_cpu() && input.scalar_type() == at::kFloat &&
      at::autocast::is_autocast_enabled(at::kCPU) && !lets_through()) {
    refuse("under autocast, an LSTM without oneDNN computes in other types than with it",
           "set torch.backends.mkldnn.enabled = True, or run the LSTM outside autocast");
  }
  constexpr c10::DispatchKeySet stock(c10::DispatchKeySet::FULL_AFTER, key_above_autograd);
  handle.redispatchBoxed(keys & stock, stack);
}

}  // namespace

void register_cells() {
  auto& library =
      *new ::torch::Library(::torch::Library::IMPL, "aten", key_above_autograd, __FILE__, __LINE__);
  library.impl("lstm.input", ::torch::CppFunction::makeFromBoxedFunction<&onednn_or_refuse>());
}

void register_recurrent(registrar& r) {
  const char* note =
      "the operators of torch's LSTM cell, and of their gradients in autograd's order";
  r.kernel<layer>("mkldnn_rnn_layer", note);
  r.kernel<layer_backward>("mkldnn_rnn_layer_backward", note);
}

}  // namespace potl::libtorch::dispatch
