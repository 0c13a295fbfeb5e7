// SPDX-License-Identifier: Apache-2.0
// Guarded trainings for Python: sockets, both sides of a session, and the report.
#include <potl/checks/spot_check.hpp>
#include <potl/checks/spot_check_door.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <potl/encoding/json.hpp>
#include <potl/report.hpp>
#include <potl/transcript/job.hpp>

#include "transcript.hpp"
#include "values.hpp"

namespace potl::python {
namespace {

using namespace potl::checks;
using namespace py::literals;

spot_check_socket::time_point in(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(seconds));
}

// Interrupts are looked at by the thread that waits.
void look_for_signals() {
  calling_python([] {
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  });
}

/// Runs `call` without the interpreter's lock.
template <class Call>
auto interruptible(Call call) {
  try {
    const py::gil_scoped_release free;
    return call();
  } catch (interrupted& one) {
    throw std::move(one.what);
  }
}

py::memoryview writable(std::span<float> out) {
  return py::memoryview::from_memory(out.data(),
                                     static_cast<py::ssize_t>(out.size() * sizeof(float)));
}

/// An object with the attributes tensors, weights_bytes and steps, and the method gradient.
class python_gradients final : public gradient_source {
 public:
  explicit python_gradients(py::object self)
      : self_(std::move(self)),
        weights_bytes_(py::cast<std::uint64_t>(self_.attr("weights_bytes"))),
        steps_(py::cast<std::uint64_t>(self_.attr("steps"))) {
    for (const py::handle one : self_.attr("tensors")) {
      auto [name, elements] = py::cast<std::pair<std::string, std::uint64_t>>(one);
      tensors_.push_back({std::move(name), elements});
    }
  }

  std::vector<spot_check_tensor> tensors() override { return tensors_; }
  std::uint64_t weights_bytes() override { return weights_bytes_; }
  std::uint64_t steps() override { return steps_; }
  double gradient(std::uint64_t step, bytes_view weights, std::uint64_t way,
                  std::span<float> out) override {
    return calling_python([&] {
      const auto given = py::memoryview::from_memory(static_cast<const void*>(weights.data()),
                                                     static_cast<py::ssize_t>(weights.size()));
      try {
        return py::cast<double>(self_.attr("gradient")(step, given, way, writable(out)));
      } catch (const py::error_already_set& thrown) {
        // The other side reads it: what says its remedy needs no stack.
        if (auto own = own_error_of(thrown)) throw exception(*std::move(own));
        throw;
      }
    });
  }

 private:
  py::object self_;
  std::vector<spot_check_tensor> tensors_;
  std::uint64_t weights_bytes_, steps_;
};

/// An object with the methods of guarded_training.
class python_training final : public guarded_training {
 public:
  explicit python_training(py::object self) : self_(std::move(self)) {}
  ~python_training() override { weights_.clear(); }

  std::uint64_t step() override {
    return calling_python([&] { return py::cast<std::uint64_t>(self_.attr("step")); });
  }
  std::vector<bytes_view> weights() override {
    return calling_python([&] {
      weights_.clear();
      std::vector<bytes_view> out;
      for (const py::handle one : self_.attr("weights")()) {
        weights_.push_back(std::make_unique<readable_buffer>(one));
        out.push_back(weights_.back()->bytes());
      }
      return out;
    });
  }
  void update(std::uint64_t step, std::span<float> gradient, double norm, double loss) override {
    calling_python([&] {
      weights_.clear();
      self_.attr("update")(step, writable(gradient), norm, loss);
    });
  }
  void keep() override {
    calling_python([&] { self_.attr("keep")(); });
  }
  void finalise(std::uint64_t step) override {
    calling_python([&] { self_.attr("finalise")(step); });
  }
  void roll_back() override {
    calling_python([&] {
      weights_.clear();
      self_.attr("roll_back")();
    });
  }

 private:
  py::object self_;
  std::vector<std::unique_ptr<readable_buffer>> weights_;
};

/// A socket that is given away once.
struct bound_socket {
  std::unique_ptr<spot_check_socket> self;

  spot_check_socket take() {
    if (!self) throw exception({errc::usage, "this connection was used", "connect again"});
    spot_check_socket out = std::move(*self);
    self.reset();
    return out;
  }
};

bound_socket bound(spot_check_socket socket) {
  socket.idle = look_for_signals;
  return {std::make_unique<spot_check_socket>(std::move(socket))};
}

spot_check_result guard_training(bound_socket& socket, const py::buffer& key,
                                 const std::string& job_text, const py::object& training,
                                 const py::object& checker, std::vector<double> probabilities,
                                 double clip, double tolerance, std::uint64_t segment,
                                 std::uint64_t lag, double timeout, std::uint64_t until,
                                 bool background, const py::object& told) {
  const readable_buffer secret(key);
  python_training trained(training);
  python_gradients checking(checker);
  spot_check_options options;
  options.probabilities = std::move(probabilities);
  options.clip = clip;
  options.tolerance = tolerance;
  options.segment = segment;
  options.lag = lag;
  options.timeout = timeout;
  options.until = until;
  options.background = background;
  options.idle = look_for_signals;
  if (!told.is_none()) {
    options.told = [&](std::uint64_t step, std::uint64_t final_step) {
      calling_python([&] { told(step, final_step); });
    };
  }
  spot_check_socket connected = socket.take();
  return interruptible([&] {
    return guard(std::move(connected), secret.bytes(), job_text, trained, checking, options);
  });
}

py::tuple serve_worker(bound_socket& socket, const py::buffer& key, const py::object& make,
                       double timeout) {
  const readable_buffer secret(key);
  std::unique_ptr<python_gradients> source;
  spot_check_socket connected = socket.take();
  const spot_check_served done = interruptible([&] {
    return serve(
        std::move(connected), secret.bytes(),
        [&](const std::string& text) -> gradient_source& {
          return *calling_python([&] {
            source = std::make_unique<python_gradients>(make(text));
            return source.get();
          });
        },
        timeout);
  });
  return py::make_tuple(done.stopped, done.reason, done.steps);
}

py::bytes report_of(const spot_check_result& session, const job_handle& job,
                    const statistics::displacement_certificate& planned,
                    std::uint64_t stopped_before, const py::dict& context) {
  const report_context known = report_context::parse(to_json(context)).value();
  const json_value report = make_guarded_report(
      *job.agreed, session, judge_spot_check(session, planned, stopped_before), known);
  return to_bytes(as_bytes_view(canonical_json(report)));
}

}  // namespace

void bind_spot_check(py::module_& module) {
  py::class_<bound_socket>(module, "SpotCheckSocket", py::module_local())
      .def_static(
          "connect",
          [](const std::string& address, double seconds) {
            return bound(interruptible([&] {
              return spot_check_socket::connect(address, in(seconds), look_for_signals).value();
            }));
          },
          py::arg("address"), py::arg("seconds"))
      .def_static("pair",
                  [] {
                    auto [left, right] = spot_check_socket::pair();
                    return std::pair(bound(std::move(left)), bound(std::move(right)));
                  })
      .def("close", [](bound_socket& self) { self.self.reset(); });
  py::class_<spot_check_listener>(module, "SpotCheckListener", py::module_local())
      .def(py::init<const std::string&>(), py::arg("address"))
      .def_property_readonly("address", &spot_check_listener::address)
      .def(
          "accept",
          [](spot_check_listener& self, double seconds) {
            return bound(
                interruptible([&] { return self.accept(in(seconds), look_for_signals).value(); }));
          },
          py::arg("seconds"));
  py::class_<spot_check_door>(module, "SpotCheckDoor", py::module_local())
      .def(py::init([](const std::string& address, const py::buffer& key) {
             return std::make_unique<spot_check_door>(address, readable_buffer(key).bytes());
           }),
           py::arg("address"), py::kw_only(), py::arg("key"))
      .def_property_readonly("address", &spot_check_door::address)
      .def(
          "next",
          [](spot_check_door& self, double seconds) {
            return bound(
                interruptible([&] { return self.next(in(seconds), look_for_signals).value(); }));
          },
          py::arg("seconds"));
  py::class_<spot_check_result>(module, "SpotCheckSession", py::module_local())
      .def_property_readonly("end",
                             [](const spot_check_result& self) { return to_string(self.end); })
      .def_readonly("reason", &spot_check_result::reason)
      .def_readonly("tensor", &spot_check_result::tensor)
      .def_readonly("step", &spot_check_result::step)
      .def_readonly("first_step", &spot_check_result::first_step)
      .def_readonly("final_step", &spot_check_result::final_step)
      .def_readonly("checked", &spot_check_result::checked)
      .def_readonly("largest", &spot_check_result::largest)
      .def_readonly("seconds", &spot_check_result::seconds)
      .def_readonly("check_seconds", &spot_check_result::check_seconds)
      .def_property_readonly("losses",
                             [](const spot_check_result& self) {
                               py::list out;
                               for (const auto& one : self.entries) out.append(one.loss);
                               return out;
                             })
      .def_property_readonly("norms", [](const spot_check_result& self) {
        py::list out;
        for (const auto& one : self.entries) out.append(one.norm);
        return out;
      });
  module.attr("SPOT_CHECK_WAYS") = spot_check_ways;
  module.def("spot_check_guard", &guard_training, py::arg("socket"), py::kw_only(), py::arg("key"),
             py::arg("job"), py::arg("training"), py::arg("checker"), py::arg("probabilities"),
             py::arg("clip"), py::arg("tolerance"), py::arg("segment"), py::arg("lag"),
             py::arg("timeout"), py::arg("until"), py::arg("background"),
             py::arg("told") = py::none());
  module.def("spot_check_serve", &serve_worker, py::arg("socket"), py::kw_only(), py::arg("key"),
             py::arg("make"), py::arg("timeout"));
  module.def("spot_check_report", &report_of, py::arg("session"), py::kw_only(), py::arg("job"),
             py::arg("certificate"), py::arg("stopped_before"), py::arg("context"));
}

}  // namespace potl::python
