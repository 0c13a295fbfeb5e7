// SPDX-License-Identifier: Apache-2.0
// Freivalds' check on buffers: numpy arrays, and what offers itself as one.
#include <optional>
#include <utility>
#include <vector>

#include <potl/checks/freivalds.hpp>
#include <potl/checks/freivalds_segment.hpp>
#include <potl/numeric/detail/projection.hpp>

#include "matrices.hpp"

namespace potl::python {
namespace {

using checks::freivalds_options;
using checks::freivalds_result;
using numeric::matrix;

freivalds_options options_of(int probes, double false_alarm, double stored, const py::object& key) {
  freivalds_options out{probes, false_alarm, stored, {}};
  if (!key.is_none()) out.key = to_digest(key);
  return out;
}

/// A buffer of three dimensions as many matrices; of two as one.
template <class Element>
struct matrices {
  matrix<const Element> first;
  std::int64_t count, stride;
};

template <class Element>
matrices<Element> matrices_of(const py::buffer_info& info) {
  if (info.ndim == 2) return {matrix_of<const Element>(info), 1, 0};
  constexpr auto size = static_cast<py::ssize_t>(sizeof(Element));
  if (info.ndim != 3 || !info.item_type_is_equivalent_to<Element>() ||
      info.strides[0] % size != 0 || info.strides[1] % size != 0 || info.strides[2] % size != 0) {
    throw exception({errc::usage, "an operand is not a batch of matrices of float32", ""});
  }
  return {{static_cast<const Element*>(info.ptr), info.shape[1], info.shape[2],
           info.strides[1] / size, info.strides[2] / size},
          info.shape[0],
          info.strides[0] / size};
}

template <class Element>
freivalds_result check_one(const py::buffer_info& a, const py::buffer_info& b,
                           const py::buffer_info& c, const freivalds_options& options,
                           const numeric::executor& threads) {
  const auto left = matrix_of<const Element>(a), right = matrix_of<const Element>(b),
             result = matrix_of<const Element>(c);
  py::gil_scoped_release released;
  return checks::freivalds(left, right, result, options, threads);
}

freivalds_result check(const py::buffer& a, const py::buffer& b, const py::buffer& c,
                       const freivalds_options& options, const thread_pool* pool,
                       const std::optional<py::buffer>& added) {
  const py::buffer_info left = a.request(), right = b.request(), result = c.request();
  if (!added && left.ndim != 3) {
    return left.item_type_is_equivalent_to<double>()
               ? check_one<double>(left, right, result, options, threads_of(pool))
               : check_one<float>(left, right, result, options, threads_of(pool));
  }
  const auto lefts = matrices_of<float>(left), rights = matrices_of<float>(right),
             results = matrices_of<float>(result);
  if (lefts.count != rights.count || lefts.count != results.count) {
    throw exception({errc::usage, "A, B and C do not hold equally many matrices", ""});
  }
  const numeric::gemm_batch batch{lefts.count, lefts.stride, rights.stride, results.stride};
  checks::freivalds_addend addend;
  py::buffer_info held;
  if (added) {
    held = added->request();
    const auto sums = matrices_of<float>(held);
    if (sums.count != lefts.count) {
      throw exception({errc::usage, "D does not hold as many matrices as C", ""});
    }
    addend = {sums.first, sums.stride};
  }
  py::gil_scoped_release released;
  if (!added) {
    return checks::freivalds(batch, lefts.first, rights.first, results.first, options,
                             threads_of(pool));
  }
  return checks::freivalds(batch, lefts.first, rights.first, addend, results.first, options,
                           threads_of(pool));
}

freivalds_result check_exactly(const py::buffer& a, const py::buffer& b, const py::buffer& c,
                               int probes, const py::object& key) {
  const py::buffer_info left = a.request(), right = b.request(), result = c.request();
  const auto left_view = matrix_of<const std::int32_t>(left),
             right_view = matrix_of<const std::int32_t>(right);
  const auto result_view = matrix_of<const std::int64_t>(result);
  const auto from = options_of(probes, 0.5, 0, key).key;
  py::gil_scoped_release released;
  freivalds_result out;
  if (!checks::freivalds_exact(left_view, right_view, result_view, probes, from)) {
    out.outcome = checks::freivalds_outcome::inconsistent;
  }
  out.compared = result_view.rows * probes;
  return out;
}

using direction = freivalds_result (*)(const numeric::convolution&, const float*, const float*,
                                       const float* bias, const float*, const freivalds_options&,
                                       const numeric::executor&);

// No gradient but that of the bias itself has a bias.
template <auto Check>
freivalds_result without_bias(const numeric::convolution& g, const float* first,
                              const float* second, const float* /*bias*/, const float* claimed,
                              const freivalds_options& options, const numeric::executor& threads) {
  return Check(g, first, second, claimed, options, threads);
}

using tensor_sizes = std::array<std::int64_t, 5>;

/// The elements of a tensor of these sizes, of which leading ones of 1 behind the channels may be
/// left out.
const float* tensor_of(const py::buffer_info& info, const tensor_sizes& wanted) {
  py::ssize_t step = sizeof(float);
  bool fits = info.item_type_is_equivalent_to<float>() && info.ndim >= 3 && info.ndim <= 5;
  for (std::size_t i = 0; fits && i < 5; ++i) {
    const std::size_t left_out = 5 - static_cast<std::size_t>(info.ndim);
    const bool given = i < 2 || i >= 2 + left_out;
    fits = wanted[i] == (given ? info.shape[i < 2 ? i : i - left_out] : 1);
  }
  for (auto i = static_cast<std::size_t>(info.ndim); i-- > 0; step *= info.shape[i])
    fits = fits && (info.shape[i] < 2 || info.strides[i] == step);
  if (!fits) {
    throw exception({errc::usage, "a tensor of the convolution does not fit its geometry",
                     "pass contiguous tensors of float32, batch x channels x sizes"});
  }
  return static_cast<const float*>(info.ptr);
}

freivalds_result check_convolution(const std::string& gradient, const numeric::convolution& g,
                                   const py::buffer& first, const py::buffer& second,
                                   const py::buffer& claimed, const freivalds_options& options,
                                   const thread_pool* pool, const std::optional<py::buffer>& bias) {
  const auto sized = [](std::int64_t parts, std::int64_t channels,
                        const std::array<std::int64_t, 3>& of) {
    return tensor_sizes{parts, channels, of[0], of[1], of[2]};
  };
  const tensor_sizes y = sized(g.batch, g.out_channels, g.output());
  const tensor_sizes x = sized(g.batch, g.in_channels, g.input);
  const tensor_sizes w = sized(g.out_channels, g.in_channels / g.groups, g.kernel);
  struct one {
    const char* name;
    direction run;
    tensor_sizes first, second, claimed;
  };
  const one all[] = {{"", &checks::freivalds_convolution, x, w, y},
                     {"input", &without_bias<&checks::freivalds_input_gradient>, y, w, x},
                     {"weight", &without_bias<&checks::freivalds_weight_gradient>, x, y, w}};
  if (bias && !gradient.empty()) {
    throw exception({errc::usage, "no gradient of a convolution has a bias", ""});
  }
  for (const one& which : all) {
    if (gradient != which.name) continue;
    const py::buffer_info left = first.request(), right = second.request(),
                          result = claimed.request();
    const float *l = tensor_of(left, which.first), *r = tensor_of(right, which.second),
                *c = tensor_of(result, which.claimed);
    const float* b = nullptr;
    py::buffer_info held;
    if (bias) {
      held = bias->request();
      const bool fits = held.ndim == 1 && held.item_type_is_equivalent_to<float>() &&
                        held.shape[0] == g.out_channels && held.strides[0] == held.itemsize;
      if (!fits) throw exception({errc::usage, "the bias is not one float32 for each channel", ""});
      b = static_cast<const float*>(held.ptr);
    }
    py::gil_scoped_release released;
    return which.run(g, l, r, b, c, options, threads_of(pool));
  }
  throw exception({errc::usage, "gradient is \"\", \"input\" or \"weight\"", ""});
}

/// Of each channel the sum of its elements and of their squares. A row has a channel of one image;
/// rows of the same channel are `channels` apart.
std::pair<std::vector<double>, std::vector<double>> channel_sums(const py::buffer& x,
                                                                 std::int64_t channels,
                                                                 const thread_pool* pool) {
  const py::buffer_info held = x.request();
  const auto rows = matrix_of<const float>(held);
  if (channels < 1 || rows.rows % channels != 0) {
    throw exception({errc::usage, "the rows are not as many for each channel", ""});
  }
  const py::gil_scoped_release released;
  std::vector<double> sums(static_cast<std::size_t>(channels)), squares(sums.size());
  const std::vector<double> ones(static_cast<std::size_t>(rows.columns), 1.0);
  std::vector<double> sum(static_cast<std::size_t>(rows.rows)), square(sum.size());
  numeric::project(rows, {ones.data(), sum.data(), 1, square.data(), nullptr, nullptr},
                   threads_of(pool));
  for (std::size_t row = 0; row < sum.size(); ++row) {
    sums[row % sums.size()] += sum[row];
    squares[row % sums.size()] += square[row];
  }
  return {std::move(sums), std::move(squares)};
}

/// The state of a layer, with its buffers.
struct held_state {
  std::vector<py::buffer_info> held;
  checks::segment_state state;

  explicit held_state(const py::sequence& tensors) {
    matrix<const float>* const to[] = {&state.weights, &state.first, &state.second};
    for (std::size_t i = 0; i < 3; ++i) {
      const py::object one = tensors[i];
      if (one.is_none()) continue;
      held.push_back(py::cast<py::buffer>(one).request());
      *to[i] = matrix_of<const float>(held.back());
    }
  }
};

checks::segment_result check_segment(const py::sequence& start, const py::sequence& end,
                                     const py::sequence& steps,
                                     const checks::segment_optimizer& optimizer,
                                     const freivalds_options& options, std::int64_t sampled,
                                     const thread_pool* pool) {
  const held_state before(start), after(end);
  std::vector<py::buffer_info> operands;
  const auto step_of = [&](std::uint64_t index) {
    py::gil_scoped_acquire held;
    // Asked for one after the other; what is not a sequence in memory may load them as they come.
    const py::tuple one = steps[static_cast<std::size_t>(index)];
    operands.clear();
    operands.push_back(py::cast<py::buffer>(one[0]).request());
    operands.push_back(py::cast<py::buffer>(one[1]).request());
    const auto inputs = matrix_of<const float>(operands[0]);
    const auto output_gradients = matrix_of<const float>(operands[1]);
    return checks::segment_step{output_gradients.transposed(), inputs, py::cast<double>(one[2]),
                                py::cast<double>(one[3])};
  };
  const auto count = static_cast<std::uint64_t>(py::len(steps));
  py::gil_scoped_release released;
  const auto clear = [&operands](void*) {
    py::gil_scoped_acquire held;
    operands.clear();
  };
  const std::unique_ptr<void, decltype(clear)> at_end(&operands, clear);
  return checks::freivalds_segment(before.state, after.state, count, step_of, optimizer, options,
                                   sampled, threads_of(pool));
}

}  // namespace

void bind_freivalds(py::module_& module) {
  py::class_<freivalds_result>(module, "FreivaldsResult", py::module_local(),
                               "What Freivalds' check found of a product.")
      .def_property_readonly("outcome",
                             [](const freivalds_result& r) { return checks::to_string(r.outcome); })
      .def_property_readonly("holds", &freivalds_result::holds)
      .def_property_readonly("rejected", &freivalds_result::rejected)
      .def_readonly("worst", &freivalds_result::worst)
      .def_readonly("usual", &freivalds_result::usual)
      .def_readonly("row", &freivalds_result::row)
      .def_readonly("rounding", &freivalds_result::rounding)
      .def_readonly("false_alarm", &freivalds_result::false_alarm)
      .def_readonly("compared", &freivalds_result::compared);
  py::class_<checks::segment_result>(
      module, "SegmentResult", py::module_local(),
      "What a check of a whole segment found of weights and moments.")
      .def_property_readonly("holds", &checks::segment_result::holds)
      .def_property_readonly("rejected", &checks::segment_result::rejected)
      .def_readonly("weights", &checks::segment_result::weights)
      .def_readonly("first", &checks::segment_result::first)
      .def_readonly("second", &checks::segment_result::second)
      .def_readonly("sampled", &checks::segment_result::sampled)
      .def_readonly("columns", &checks::segment_result::columns);
  module.def(
      "freivalds",
      [](const py::buffer& a, const py::buffer& b, const py::buffer& c, int probes,
         double false_alarm, double stored, const py::object& key, const thread_pool* pool,
         const std::optional<py::buffer>& added) {
        return check(a, b, c, options_of(probes, false_alarm, stored, key), pool, added);
      },
      py::arg("a"), py::arg("b"), py::arg("c"), py::arg("probes"), py::arg("false_alarm"),
      py::arg("stored"), py::arg("key"), py::arg("pool") = nullptr, py::arg("added") = py::none());
  module.def("freivalds_exact", &check_exactly, py::arg("a"), py::arg("b"), py::arg("c"),
             py::arg("probes"), py::arg("key"));
  module.def(
      "freivalds_convolution",
      [](const std::string& gradient, const py::buffer& first, const py::buffer& second,
         const py::buffer& claimed, std::int64_t batch, std::int64_t in_channels,
         std::int64_t out_channels, std::int64_t groups,
         const std::array<std::array<std::int64_t, 3>, 5>& sizes, int probes, double false_alarm,
         double stored, const py::object& key, const thread_pool* pool,
         const std::optional<py::buffer>& bias) {
        const numeric::convolution geometry{batch,    in_channels, out_channels, groups,  sizes[0],
                                            sizes[1], sizes[2],    sizes[3],     sizes[4]};
        return check_convolution(gradient, geometry, first, second, claimed,
                                 options_of(probes, false_alarm, stored, key), pool, bias);
      },
      py::arg("gradient"), py::arg("first"), py::arg("second"), py::arg("claimed"),
      py::arg("batch"), py::arg("in_channels"), py::arg("out_channels"), py::arg("groups"),
      py::arg("sizes"), py::arg("probes"), py::arg("false_alarm"), py::arg("stored"),
      py::arg("key"), py::arg("pool") = nullptr, py::arg("bias") = py::none());
  module.def("channel_sums", &channel_sums, py::arg("x"), py::arg("channels"),
             py::arg("pool") = nullptr);
  module.def(
      "freivalds_segment",
      [](const py::sequence& start, const py::sequence& end, const py::sequence& steps,
         const std::string& update, double weight_decay, double momentum, double dampening,
         bool nesterov, double beta1, double beta2, double epsilon, std::uint64_t steps_before,
         std::int64_t sampled, int probes, double false_alarm, const py::object& key,
         const thread_pool* pool) {
        if (update != "sgd" && update != "adam") {
          throw exception({errc::usage, "there is no update \"" + update + "\"", ""});
        }
        const checks::segment_optimizer optimizer{
            update == "sgd" ? checks::segment_update::sgd : checks::segment_update::adam,
            weight_decay,
            momentum,
            dampening,
            nesterov,
            beta1,
            beta2,
            epsilon,
            steps_before};
        return check_segment(start, end, steps, optimizer, options_of(probes, false_alarm, 0, key),
                             sampled, pool);
      },
      py::arg("start"), py::arg("end"), py::arg("steps"), py::arg("update"),
      py::arg("weight_decay"), py::arg("momentum"), py::arg("dampening"), py::arg("nesterov"),
      py::arg("beta1"), py::arg("beta2"), py::arg("epsilon"), py::arg("steps_before"),
      py::arg("sampled"), py::arg("probes"), py::arg("false_alarm"), py::arg("key"),
      py::arg("pool") = nullptr);
}

}  // namespace potl::python
