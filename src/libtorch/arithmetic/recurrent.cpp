// SPDX-License-Identifier: Apache-2.0
// One direction of one layer of an LSTM. torch hands it to oneDNN; here it is the operators that
// torch's own cells run, in the order in which autograd would run them, so that the gradients have
// the same bits with torch.backends.mkldnn on and off. RNN and GRU arrive as cells already.
#include <tuple>
#include <vector>

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "real.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

constexpr std::int64_t lstm_mode = 2;

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
  at::Tensor c = cx.reshape({batch, hidden});
  std::vector<at::Tensor> outputs(static_cast<std::size_t>(steps));
  // Gates after their functions, and the cell, of each step in the order of the steps.
  std::vector<at::Tensor> kept;
  for (std::int64_t k = 0; k < steps; ++k) {
    const std::int64_t time = time_of(k, steps, reverse);
    const at::Tensor gates =
        at::linear(h, w_hidden, if_true(has_biases, b_hidden)).add_(gates_of_input[time]);
    const auto part = [&](std::int64_t i) { return gates.narrow(1, i * hidden, hidden); };
    const at::Tensor in = at::sigmoid(part(0));
    const at::Tensor forget = at::sigmoid(part(1));
    const at::Tensor cell = at::tanh(part(2));
    const at::Tensor out = at::sigmoid(part(3));
    c = (forget * c).add_(in * cell);
    h = out * at::tanh(c);
    outputs[static_cast<std::size_t>(time)] = h;
    if (keep) kept.push_back(at::cat({in, forget, cell, out, c}, 1));
  }
  const at::Tensor workspace = kept.empty() ? make({0}, input.scalar_type()) : at::stack(kept);
  const at::Tensor output =
      outputs.empty() ? make({0, batch, hidden}, input.scalar_type()) : at::stack(outputs);
  return {output, h.clone().view(hx.sizes()), c.clone().view(cx.sizes()), workspace};
}

/// a + b where either may be missing.
at::Tensor plus(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? a + b : a;
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
  TORCH_CHECK(workspace.size(0) == steps,
              "mkldnn_rnn_layer_backward: the forward pass kept nothing");
  const at::Tensor d_out = value_or_undefined(d_output);
  at::Tensor dh = value_or_undefined(d_hy);
  at::Tensor dc = value_or_undefined(d_cy);
  if (dh.defined()) dh = dh.reshape({batch, hidden});
  if (dc.defined()) dc = dc.reshape({batch, hidden});
  std::vector<at::Tensor> d_gates_of_input(static_cast<std::size_t>(steps));
  at::Tensor dw_hidden, db_hidden;
  for (std::int64_t k = steps - 1; k >= 0; --k) {
    const std::int64_t time = time_of(k, steps, reverse);
    const auto part = [&](std::int64_t i) { return workspace[k].narrow(1, i * hidden, hidden); };
    const at::Tensor in = part(0), forget = part(1), cell = part(2), out = part(3);
    const at::Tensor before =
        k == 0 ? cx.reshape({batch, hidden}) : workspace[k - 1].narrow(1, 4 * hidden, hidden);
    const at::Tensor h_before =
        k == 0 ? hx.reshape({batch, hidden}) : output[time_of(k - 1, steps, reverse)];
    if (d_out.defined()) dh = plus(d_out[time], dh);
    const at::Tensor state = at::tanh(part(4));
    const at::Tensor d_gate_out = dh.defined() ? dh * state : at::zeros_like(state);
    if (dh.defined()) dc = plus(dc, at::tanh_backward(dh * out, state));
    if (!dc.defined()) dc = at::zeros_like(state);
    const at::Tensor gates =
        at::cat({at::sigmoid_backward(dc * cell, in), at::sigmoid_backward(dc * before, forget),
                 at::tanh_backward(dc * in, cell), at::sigmoid_backward(d_gate_out, out)},
                1);
    d_gates_of_input[static_cast<std::size_t>(time)] = gates;
    dw_hidden = plus(dw_hidden, at::mm(gates.t(), h_before));
    if (has_biases) db_hidden = plus(db_hidden, gates.sum(0));
    dh = at::mm(gates, w_hidden);
    dc = dc * forget;
  }
  const at::Tensor gates = at::stack(d_gates_of_input).view({steps * batch, 4 * hidden});
  const at::Tensor flat = input.reshape({steps * batch, input.size(2)});
  return {at::mm(gates, w_input).view(input.sizes()),
          at::mm(gates.t(), flat),
          dw_hidden,
          has_biases ? gates.sum(0) : at::zeros_like(b_input),
          has_biases ? db_hidden : at::zeros_like(b_hidden),
          dh.view(hx.sizes()),
          dc.view(cx.sizes())};
}

}  // namespace

void register_recurrent(registrar& r) {
  const char* note =
      "the operators of torch's LSTM cell, and of their gradients in autograd's order";
  r.kernel<layer>("mkldnn_rnn_layer", note);
  r.kernel<layer_backward>("mkldnn_rnn_layer_backward", note);
}

}  // namespace potl::libtorch::dispatch
