// SPDX-License-Identifier: Apache-2.0
#include "replayer.hpp"

#include <exception>
#include <memory>

#include <potl/checks/detail/copies.hpp>
#include <potl/checks/detail/rough_sums.hpp>
#include <potl/checks/replayer.hpp>
#include <potl/evidence/evidence.hpp>
#include <potl/transcript/state.hpp>

#include "transcript.hpp"

namespace potl::python {
namespace {

using namespace potl::checks;
using transcript::state;

still_elements still_from(std::vector<std::string> paths, std::string_view mask,
                          std::uint64_t roundings = 0) {
  return {std::move(paths), {mask.begin(), mask.end()}, roundings};
}

py::list still_with_copies(
    const std::vector<std::pair<std::vector<std::string>, std::string>>& still, const copies& all,
    std::uint64_t roundings) {
  std::vector<still_elements> own;
  for (const auto& [paths, mask] : still) own.push_back(still_from(paths, mask));
  return list_of(with_copies(std::move(own), all, roundings), [](const still_elements& one) {
    return py::make_tuple(one.paths, to_bytes(one.mask), one.roundings);
  });
}

/// Calls the methods of potl._verify._workload.Workload, which have the names of any_workload's.
class python_workload final : public any_workload {
 public:
  explicit python_workload(py::object self) : self_(std::move(self)) {}

  state initial() override {
    return calling_python([&] { return py::cast<state>(method("initial")()); });
  }
  void load_state(const state& from, std::uint64_t step) override {
    calling_python([&] { method("load_state")(from, step); });
  }
  step_outcome run_step(std::uint64_t step, std::span<const std::int64_t>) override {
    return calling_python([&] {
      const py::object done = method("run_step")(step);
      step_outcome out;
      out.loss = py::cast<double>(done.attr("loss"));
      out.rates = py::cast<std::vector<double>>(done.attr("rates"));
      out.skipped = py::cast<bool>(done.attr("skipped"));
      out.gradient_norm = py::cast<double>(done.attr("gradient_norm"));
      out.finite = !py::cast<bool>(done.attr("non_finite"));
      return out;
    });
  }
  state capture() override {
    return calling_python([&] { return py::cast<state>(method("capture")()); });
  }
  double batch_loss(std::uint64_t step, std::span<const std::int64_t>) override {
    return calling_python([&] { return py::cast<double>(method("batch_loss")(step)); });
  }
  subset_outcome subset_loss(std::span<const std::int64_t> ids) override {
    return calling_python([&] {
      const std::vector<std::int64_t> list(ids.begin(), ids.end());
      const auto [mean, deviation] =
          py::cast<std::pair<double, double>>(method("subset_loss")(list));
      return subset_outcome{mean, deviation};
    });
  }
  bool perturb(std::uint64_t way, bool threads_only) override {
    return calling_python([&] { return py::cast<bool>(method("perturb")(way, threads_only)); });
  }
  bool roughen(std::uint64_t seed) override {
    return calling_python([&] { return py::cast<bool>(method("roughen")(seed)); });
  }
  std::optional<std::vector<std::int64_t>> sample_ids(std::uint64_t step) override {
    return calling_python(
        [&] { return py::cast<std::vector<std::int64_t>>(method("sample_ids")(step)); });
  }
  void expect(std::uint64_t first, std::uint64_t last) override {
    calling_python([&] { method("expect")(first, last); });
  }
  void fetch(std::uint64_t step, std::span<const std::int64_t> ids) override {
    calling_python(
        [&] { method("fetch")(step, std::vector<std::int64_t>(ids.begin(), ids.end())); });
  }
  void steer(double loss) override {
    calling_python([&] { method("steer")(loss); });
  }
  bool judges_states() const override { return true; }
  std::optional<state_problem> problem(const state& recorded, std::uint64_t step,
                                       bool logged) override {
    return calling_python([&]() -> std::optional<state_problem> {
      using named = std::optional<std::pair<measured, std::string>>;
      const auto found = py::cast<named>(method("problem")(recorded, step, logged));
      if (!found) return std::nullopt;
      return state_problem{found->first, found->second};
    });
  }
  std::optional<std::string> not_finite(const state& what) override {
    return calling_python([&] { return py::cast<std::string>(method("not_finite")(what)); });
  }
  std::optional<std::uint64_t> largest_state_bytes() override {
    return calling_python([&] { return py::cast<std::uint64_t>(method("largest_state_bytes")()); });
  }
  std::vector<still_elements> still() override {
    return calling_python([&] {
      std::vector<still_elements> out;
      for (const py::handle one : method("still")()) {
        const auto [paths, mask, roundings] =
            py::cast<std::tuple<std::vector<std::string>, std::string, std::uint64_t>>(one);
        out.push_back(still_from(paths, mask, roundings));
      }
      return out;
    });
  }
  bool is_linear() override {
    return calling_python([&] { return py::cast<bool>(method("is_linear")()); });
  }
  std::string other_first_steps() override {
    return calling_python([&] { return py::cast<std::string>(method("other_first_steps")()); });
  }
  void follow(std::uint64_t step, const logged_rounding* logged) override {
    calling_python([&] {
      if (logged == nullptr) {
        method("follow")(step, py::none(), py::none());
        return;
      }
      const py::object committed =
          logged->committed ? py::object(to_bytes(*logged->committed)) : py::none();
      method("follow")(step, to_bytes(logged->log), committed);
    });
  }
  std::optional<rounding_summary> rounding() override {
    return calling_python(
        [&] { return py::cast<std::optional<rounding_summary>>(method("rounding")()); });
  }
  std::optional<std::vector<transcript::traced_operator>> trace(
      std::uint64_t step, std::span<const std::int64_t>) override {
    return calling_python(
        [&] { return operators_of(py::cast<py::iterable>(method("trace")(step))); });
  }

  trouble trouble_of(const std::exception& thrown) const override {
    const auto* raised = dynamic_cast<const py::error_already_set*>(&thrown);
    if (raised == nullptr) return any_workload::trouble_of(thrown);
    return calling_python([&] {
      const auto [kind, message, own] = py::cast<std::tuple<std::string, std::string, bool>>(
          method("trouble_of")(raised->value()));
      return trouble{kind, message, own};
    });
  }

  py::object python() const { return self_; }

 private:
  py::object method(const char* name) const { return self_.attr(name); }

  py::object self_;
};

/// A replayer, what it holds on to, and what ended a request inside a Python request.
class bound_replayer {
 public:
  bound_replayer(py::object evidence, py::object workload, std::optional<double> timeout,
                 bool derive)
      : evidence_(std::move(evidence)),
        work_(std::move(workload)),
        replays_(py::cast<const transcript::evidence&>(evidence_), work_, {timeout, derive}) {}

  py::object answer(const request& asked) {
    std::optional<measurement> out;
    try {
      const py::gil_scoped_release released;
      out = replays_.answer(asked);
    } catch (interrupted& one) {
      throw std::move(one.what);
    }
    return to_python(*out);
  }

  // What a request of Python's may use. What ends the request is kept, since Python could not carry
  // it.
  template <class Call>
  auto within(Call call) {
    try {
      const py::gil_scoped_release released;
      return call(replays_);
    } catch (const interrupted& one) {
      throw one.what;
    } catch (const py::error_already_set&) {
      throw;
    } catch (const exception&) {
      throw;
    } catch (...) {
      ended_ = std::current_exception();
      throw exception({errc::internal, "the request ended", "let this exception pass"});
    }
  }
  void rethrow() {
    if (ended_) std::rethrow_exception(std::exchange(ended_, nullptr));
  }

  py::object workload() const { return work_.python(); }
  py::object evidence() const { return evidence_; }
  bool drives(const replayer& one) const { return &one == &replays_; }

 private:
  py::object evidence_;
  python_workload work_;
  replayer replays_;
  std::exception_ptr ended_;
};

// Which of them is answering: a request gets the object that Python knows.
thread_local bound_replayer* answering = nullptr;

py::object answer(bound_replayer& self, const request& asked) {
  bound_replayer* before = std::exchange(answering, &self);
  const auto restored = [before](void*) { answering = before; };
  const std::unique_ptr<void, decltype(restored)> guard(&self, restored);
  return self.answer(asked);
}

}  // namespace

shared_object answered(const shared_object& request, replayer& with) {
  if (answering == nullptr || !answering->drives(with)) {
    throw exception({errc::unsupported, "a request of Python's needs a replayer of Python's", ""});
  }
  return calling_python([&] {
    try {
      return shared_object(
          request.get().attr("measure")(py::cast(answering, py::return_value_policy::reference)));
    } catch (py::error_already_set&) {
      answering->rethrow();
      throw;
    }
  });
}

void bind_replayer(py::module_& module) {
  py::class_<bound_replayer>(
      module, "Replayer", py::module_local(),
      "Answers requests with the verifier's own training.\n\n"
      "A request of yours gets one: `restore(step)` makes the task hold the recorded state after "
      "a\n"
      "step, `run(start, end)` trains the agreed steps from one, `load(step)` gives a state, and\n"
      "`task` is the verifier's own. What is wrong with a recorded state ends the request.")
      .def(py::init<py::object, py::object, std::optional<double>, bool>(), py::arg("evidence"),
           py::arg("workload"), py::kw_only(), py::arg("timeout") = py::none(),
           py::arg("derive") = false)
      .def("answer", &answer, py::arg("request"))
      .def_property_readonly("workload", &bound_replayer::workload)
      .def_property_readonly("evidence", &bound_replayer::evidence)
      .def_property_readonly(
          "task", [](const bound_replayer& self) { return self.workload().attr("task"); })
      .def(
          "load",
          [](bound_replayer& self, std::uint64_t step) {
            return self.within([step](replayer& with) { return with.load(step); });
          },
          py::arg("step"))
      .def(
          "restore",
          [](bound_replayer& self, std::uint64_t step) {
            self.within([step](replayer& with) { with.restore(with.load(step), step); });
          },
          py::arg("step"))
      .def(
          "run",
          [](bound_replayer& self, std::uint64_t start, std::uint64_t end) {
            return self.within([start, end](replayer& with) {
              return with.run_steps(with.load(start), start, end, std::nullopt);
            });
          },
          py::arg("start"), py::arg("end"))
      .def(
          "not_finite",
          [](bound_replayer& self, const state& what) {
            return self.within([&what](replayer& with) { return with.not_finite(what); });
          },
          py::arg("state"));
  module.def(
      "copies_of",
      [](const std::vector<state>& states, const std::vector<std::vector<std::string>>& places) {
        const py::gil_scoped_release released;
        return copies_of(states, places);
      },
      py::arg("states"), py::arg("places"));
  module.def("with_copies", &still_with_copies, py::arg("still"), py::arg("copies"),
             py::arg("roundings"));
  module.def("rough_sums",
             [] { return std::vector<std::string>(std::begin(rough_sums), std::end(rough_sums)); });
  module.def("roughness", &roughness, py::arg("seed"));
}

}  // namespace potl::python
