// SPDX-License-Identifier: Apache-2.0
// Jobs, recorders and commitments for Python. Whatever waits for a disk does so without the
// interpreter lock.
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <potl/crypto/signature.hpp>
#include <potl/encoding/json.hpp>
#include <potl/transcript/commitment.hpp>
#include <potl/transcript/detail/batch_order.hpp>
#include <potl/transcript/detail/run_files.hpp>
#include <potl/transcript/first_steps.hpp>
#include <potl/transcript/job.hpp>
#include <potl/transcript/writer.hpp>

#include "transcript.hpp"

namespace potl::python {
namespace {

using namespace potl::transcript;

// A recorder keeps the Python key alive, because the writer refers to it.
struct recorder {
  py::object key;
  writer log;
};

py::list to_list(std::span<const std::int64_t> values) {
  return list_of(values, [](std::int64_t one) { return py::int_(one); });
}

py::object fields_of(const job_handle& self) { return to_python(self.agreed->document()); }

void bind_job(py::module_& module) {
  const auto number = [](std::uint64_t job::*field) {
    return [field](const job_handle& self) { return (*self.agreed).*field; };
  };
  py::class_<job_handle>(module, "Job", py::module_local())
      .def_static(
          "parse",
          [](py::handle text) {
            const readable_buffer buffer(text);
            return job_handle(parse_job(buffer.bytes()).value());
          },
          py::arg("text"))
      .def_property_readonly(
          "text", [](const job_handle& self) { return to_bytes(as_bytes_view(self.agreed->text)); })
      .def_property_readonly("id",
                             [](const job_handle& self) { return to_bytes(self.agreed->id()); })
      .def("fields", &fields_of)
      .def("first_steps",
           [](const job_handle& self) {
             return list_of(first_steps_of(*self.agreed).value(),
                            [](const digest& end) { return py::str(end.hex()); });
           })
      .def_property_readonly("seed", number(&job::seed))
      .def_property_readonly("steps", number(&job::steps))
      .def_property_readonly("epochs", number(&job::epochs))
      .def_property_readonly("steps_per_epoch",
                             [](const job_handle& self) { return self.agreed->steps_per_epoch(); })
      .def_property_readonly("batch_size", number(&job::batch_size))
      .def_property_readonly("accumulate", number(&job::accumulate))
      .def_property_readonly("checkpoint_every", number(&job::checkpoint_every))
      .def_property_readonly("max_segment", number(&job::max_segment))
      .def_property_readonly("store_every", number(&job::store_every))
      .def_property_readonly("segments",
                             [](const job_handle& self) { return self.agreed->segments(); })
      .def_property_readonly("data_count", number(&job::data_count))
      .def_property_readonly(
          "data_root", [](const job_handle& self) { return to_bytes(self.agreed->data_root); })
      .def_property_readonly(
          "initial_state",
          [](const job_handle& self) { return to_bytes(self.agreed->initial_state); })
      .def_property_readonly("arithmetic",
                             [](const job_handle& self) { return self.agreed->arithmetic; })
      .def_property_readonly("trainer",
                             [](const job_handle& self) -> py::object {
                               if (!self.agreed->trainer) return py::none();
                               return to_bytes(*self.agreed->trainer);
                             })
      .def(
          "epoch_of",
          [](const job_handle& self, std::uint64_t step) {
            if (step == 0) throw exception({errc::usage, "steps count from 1", ""});
            return self.agreed->epoch_of(step);
          },
          py::arg("step"))
      .def(
          "sample_ids",
          [](const job_handle& self, std::uint64_t step) {
            const std::lock_guard lock(self.order->mutex);
            return to_list(self.order->order.of(step));
          },
          py::arg("step"))
      .def(
          "rates_at",
          [](const job_handle& self, std::uint64_t step) -> py::object {
            const std::vector<double>* rates = self.agreed->rates_at(step);
            if (rates == nullptr) return py::none();
            return py::cast(*rates);
          },
          py::arg("step"))
      .def(
          "is_checkpoint",
          [](const job_handle& self, std::uint64_t step) {
            return self.agreed->is_checkpoint(step);
          },
          py::arg("step"));
}

void append_step(recorder& self, const py::object& after, std::uint64_t step, std::uint64_t epoch,
                 const std::vector<std::int64_t>& sample_ids, double loss,
                 const std::vector<double>& rates, std::uint64_t random_draws, std::uint32_t flags,
                 std::uint64_t duration_ns, bool checkpoint, const py::object& rounding_log) {
  std::optional<readable_buffer> rounding;
  if (!rounding_log.is_none()) rounding.emplace(rounding_log);
  const step_entry entry{
      step,         epoch, sample_ids,  loss,       rates,
      random_draws, flags, duration_ns, checkpoint, rounding ? rounding->bytes() : bytes_view{}};
  if (py::isinstance<state>(after)) {
    const auto& whole = py::cast<const state&>(after);
    const py::gil_scoped_release released;
    return require(self.log.append_step(whole, entry));
  }
  const digest known = to_digest(after);
  const py::gil_scoped_release released;
  require(self.log.append_step(known, entry));
}

void bind_recorder(py::module_& module) {
  module.def(
      "holds_run", [](const file_path& directory) { return holds_run(directory).value(); },
      py::arg("directory"));
  py::class_<recorder>(module, "Recorder", py::module_local())
      .def_static(
          "create",
          [](const file_path& directory, const job_handle& agreed, py::object key,
             const std::string& software) {
            const auto& signer = py::cast<const signing_key&>(key);
            const writer_options options{directory, software};
            auto made = [&] {
              py::gil_scoped_release released;
              return std::make_unique<writer>(
                  writer::create(options, *agreed.agreed, signer).value());
            }();
            return std::make_unique<recorder>(recorder{std::move(key), std::move(*made)});
          },
          py::arg("directory"), py::arg("job"), py::arg("key"), py::kw_only(), py::arg("software"))
      .def_static(
          "resume",
          [](const file_path& directory, const job_handle& agreed, py::object key,
             const std::string& software, bool past_limits) {
            const auto& signer = py::cast<const signing_key&>(key);
            writer_options options{directory, software};
            options.past_limits = past_limits;
            auto made = [&] {
              py::gil_scoped_release released;
              return std::make_unique<writer::resumed>(
                  writer::resume(options, *agreed.agreed, signer).value());
            }();
            auto out =
                std::make_unique<recorder>(recorder{std::move(key), std::move(made->recorder)});
            return py::make_tuple(std::move(out), made->step, made->at);
          },
          py::arg("directory"), py::arg("job"), py::arg("key"), py::kw_only(), py::arg("software"),
          py::arg("past_limits") = false)
      .def(
          "append_initial",
          [](recorder& self, const state& before) {
            py::gil_scoped_release released;
            require(self.log.append_initial(before));
          },
          py::arg("state"))
      .def("append_step", &append_step, py::arg("state"), py::kw_only(), py::arg("step"),
           py::arg("epoch"), py::arg("sample_ids"), py::arg("loss"), py::arg("rates"),
           py::arg("random_draws"), py::arg("flags"), py::arg("duration_ns"), py::arg("checkpoint"),
           py::arg("rounding_log") = py::none())
      .def("acknowledged",
           [](const recorder& self) {
             py::gil_scoped_release released;
             return self.log.acknowledged();
           })
      .def("flush",
           [](recorder& self) {
             py::gil_scoped_release released;
             require(self.log.flush());
           })
      .def("publish",
           [](recorder& self) {
             py::gil_scoped_release released;
             return self.log.publish().value();
           })
      .def("close",
           [](recorder& self) {
             py::gil_scoped_release released;
             require(self.log.close());
           })
      .def("abandon", [](recorder& self) {
        py::gil_scoped_release released;
        require(self.log.abandon());
      });
}

std::optional<operator_trace> trace_in(const file_path& directory, std::uint64_t step) {
  result<operator_trace> found = read_trace(directory, step);
  if (!found && found.why().code == errc::missing) return std::nullopt;
  return std::move(found).value();
}

void bind_trace(py::module_& module) {
  py::class_<operator_trace>(module, "OperatorTrace", py::module_local())
      .def(py::init([](std::uint64_t step, py::handle before, const py::iterable& operators) {
             return operator_trace{step, to_digest(before), operators_of(operators)};
           }),
           py::arg("step"), py::arg("before"), py::arg("operators"))
      .def_readonly("step", &operator_trace::step)
      .def_property_readonly("before",
                             [](const operator_trace& self) { return to_bytes(self.before); })
      .def_property_readonly("operators",
                             [](const operator_trace& self) {
                               return list_of(self.operators, [](const traced_operator& one) {
                                 return py::make_tuple(one.name, one.result.hex());
                               });
                             })
      .def("first_difference", &first_difference, py::arg("other"))
      .def(
          "write",
          [](const operator_trace& self, const file_path& directory) {
            return write_trace(directory, self).value();
          },
          py::arg("directory"))
      .def_static("read", &trace_in, py::arg("directory"), py::arg("step"));
  module.def("returns_unset", &returns_unset, py::arg("operator"));
}

void bind_run_files(py::module_& module) {
  module.attr("LOG_NAME") = log_name;
  module.attr("JOB_NAME") = job_name;
  module.attr("TELEMETRY_NAME") = telemetry_name;
  module.attr("COMMITMENT_NAME") = commitment_name;
  module.attr("KEY_NAME") = key_name;
  module.attr("CHECKPOINT_FOLDER") = checkpoint_folder;
  module.attr("ROUNDING_FOLDER") = rounding_folder;
  module.def("checkpoint_entry", &checkpoint_entry, py::arg("step"), py::arg("branch"));
  module.def("rounding_entry", &rounding_entry, py::arg("branch"));
}

}  // namespace

void bind_transcript(py::module_& module) {
  bind_job(module);
  bind_run_files(module);
  bind_trace(module);
  bind_recorder(module);
  bind_repetition(module);
  bind_work(module);
  module.attr("FIRST_STEPS") = first_steps_name;
  module.attr("MAX_JOB_BYTES") = max_job_bytes;
  module.attr("SKIPPED") = static_cast<std::uint32_t>(step_flag::skipped);
  module.attr("NON_FINITE") = static_cast<std::uint32_t>(step_flag::non_finite);
  module.attr("TOLERANCE_CAP") = job{}.tolerance_cap;
  module.attr("MAX_RESUMES") = job{}.max_resumes;
  module.def("pins_first_steps", &pins_first_steps, py::arg("arithmetic"));
  module.def(
      "end_of_step",
      [](py::handle state, double loss) { return end_of_step(to_digest(state), loss).hex(); },
      py::arg("state"), py::arg("loss"));
  module.def(
      "digest_of_order",
      [](const py::iterable& steps) {
        order_digest out;
        for (py::handle ids : steps) {
          const py::buffer_info info = py::reinterpret_borrow<py::buffer>(ids).request();
          if (info.ndim != 1 || !info.item_type_is_equivalent_to<std::int64_t>() ||
              info.strides[0] != sizeof(std::int64_t)) {
            throw py::type_error("the ids of a step are contiguous int64");
          }
          out.add(digest_of_ids(
              {static_cast<const std::int64_t*>(info.ptr), static_cast<std::size_t>(info.size)}));
        }
        return to_bytes(out.finish());
      },
      py::arg("steps"));
  module.def("affordable_stride", &affordable_stride, py::arg("segments"), py::arg("state_bytes"));
  module.def(
      "commit_run",
      [](const file_path& directory, const signing_key& key) {
        py::gil_scoped_release released;
        return commit_run(directory, key).value();
      },
      py::arg("directory"), py::arg("key"));
}

}  // namespace potl::python
