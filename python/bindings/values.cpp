// SPDX-License-Identifier: Apache-2.0
#include "values.hpp"

#include <potl/checks/detail/rounding_audit.hpp>
#include <potl/checks/replayer.hpp>

#include "bound_value.hpp"
#include "replayer.hpp"
#include "rounding_session.hpp"

namespace potl::python {
namespace {

using namespace potl::checks;

[[noreturn]] void wrong_type(py::handle one, const char* wanted) {
  throw exception(
      {errc::usage,
       py::cast<std::string>(py::str(py::type::of(one).attr("__name__"))) + " is no " + wanted,
       ""});
}

// What every request has, beside its fields.
template <class Request>
void describe_request(py::class_<Request> type) {
  type.def_property_readonly("kind", &Request::kind)
      .def_property_readonly("from_step", &Request::from_step)
      .def_property_readonly("steps", &Request::steps)
      .def("place", [](const Request& self) { return request(self).place(); })
      .def("key", [](const Request& self) { return request(self).key(); });
}

void bind_distances(py::module_& module) {
  using tensor = tensor_distance;
  using group = group_distance;
  bind_value<tensor>(module, "TensorDistance", POTL_MEMBER(tensor, path),
                     POTL_MEMBER(tensor, count), POTL_MEMBER(tensor, l2),
                     POTL_MEMBER(tensor, excess), POTL_MEMBER(tensor, rounding),
                     POTL_MEMBER(tensor, update_l2), POTL_MEMBER(tensor, replayed_update_l2),
                     POTL_MEMBER(tensor, rounding_only), POTL_MEMBER(tensor, judged));
  bind_value<group>(module, "GroupDistance", POTL_MEMBER(group, group), POTL_MEMBER(group, l1),
                    POTL_MEMBER(group, l2), POTL_MEMBER(group, linf), POTL_MEMBER(group, cosine),
                    POTL_MEMBER(group, update_l2), POTL_MEMBER(group, replayed_update_l2),
                    POTL_MEMBER(group, weight_l2), POTL_MEMBER(group, finite),
                    POTL_MEMBER(group, structure_equal), POTL_MEMBER(group, excess_l2),
                    POTL_MEMBER(group, rounding_l2), POTL_MEMBER(group, count),
                    POTL_MEMBER(group, tensors), POTL_MEMBER(group, worst_relative),
                    POTL_MEMBER(group, worst_tensor));
}

void bind_requests(py::module_& module) {
  using segment = segment_request;
  using loss = loss_request;
  using subset = subset_loss_request;
  describe_request(bind_value<segment>(
      module, "SegmentRequest", POTL_MEMBER(segment, start), POTL_MEMBER(segment, end),
      POTL_MEMBER(segment, why), POTL_MEMBER(segment, branch), POTL_MEMBER(segment, start_branch),
      POTL_MEMBER(segment, superseded), POTL_MEMBER(segment, noise_repeats),
      POTL_MEMBER(segment, noise_if_equal), POTL_MEMBER(segment, rough_repeats)));
  describe_request(bind_value<loss>(module, "LossRequest", POTL_MEMBER(loss, step),
                                    POTL_MEMBER(loss, noise_repeats),
                                    POTL_MEMBER(loss, loss_floor)));
  describe_request(bind_value<subset>(module, "SubsetLossRequest", POTL_MEMBER(subset, step),
                                      POTL_MEMBER(subset, sample_ids)));
}

void bind_measurements(py::module_& module) {
  using rejection = rounding_rejection;
  using summary = rounding_summary;
  bind_value<rejection>(module, "RoundingRejection", POTL_MEMBER(rejection, step),
                        POTL_MEMBER(rejection, fault), POTL_MEMBER(rejection, message),
                        POTL_MEMBER(rejection, proof));
  bind_value<summary>(module, "RoundingSummary", POTL_MEMBER(summary, values),
                      POTL_MEMBER(summary, entries), POTL_MEMBER(summary, corrections),
                      POTL_MEMBER(summary, rejected), POTL_MEMBER(summary, moved_l2),
                      POTL_MEMBER(summary, reachable_l2), POTL_MEMBER(summary, rejections))
      .def(
          "add", [](summary& self, const py::dict& audit) { add(self, audit_of(audit)); },
          py::arg("audit"));
  using segment = segment_measurement;
  bind_value<segment>(
      module, "SegmentMeasurement", POTL_MEMBER(segment, request), POTL_MEMBER(segment, status),
      POTL_MEMBER(segment, message), POTL_MEMBER(segment, not_finite),
      POTL_MEMBER(segment, digest_equal), POTL_MEMBER(segment, first_differing_step),
      POTL_MEMBER(segment, first_differing_operator), POTL_MEMBER(segment, rounding),
      POTL_MEMBER(segment, losses), POTL_MEMBER(segment, rates), POTL_MEMBER(segment, skipped),
      POTL_MEMBER(segment, finite), POTL_MEMBER(segment, distances), POTL_MEMBER(segment, noise),
      POTL_MEMBER(segment, other_arithmetic), POTL_MEMBER(segment, noise_losses),
      POTL_MEMBER(segment, rough), POTL_MEMBER(segment, rough_losses),
      POTL_MEMBER(segment, repeat_skipped), POTL_MEMBER(segment, gradient_norm_mean),
      POTL_MEMBER(segment, load_seconds), POTL_MEMBER(segment, replay_seconds),
      POTL_MEMBER(segment, noise_seconds))
      .def_property_readonly("spent", &segment::spent);
  using loss = loss_measurement;
  bind_value<loss>(module, "LossMeasurement", POTL_MEMBER(loss, request), POTL_MEMBER(loss, status),
                   POTL_MEMBER(loss, message), POTL_MEMBER(loss, not_finite),
                   POTL_MEMBER(loss, loss), POTL_MEMBER(loss, noise), POTL_MEMBER(loss, seconds))
      .def_property_readonly("spent", &loss::spent);
  using subset = subset_loss_measurement;
  bind_value<subset>(module, "SubsetLossMeasurement", POTL_MEMBER(subset, request),
                     POTL_MEMBER(subset, status), POTL_MEMBER(subset, message),
                     POTL_MEMBER(subset, not_finite), POTL_MEMBER(subset, mean),
                     POTL_MEMBER(subset, standard_deviation), POTL_MEMBER(subset, seconds))
      .def_property_readonly("spent", &subset::spent);
  using own = python_measurement;
  py::class_<own> own_type(module, "Measurement", py::module_local());
  own_type.attr("__module__") = "potl._core";
  own_type
      .def(py::init([](py::object request, measured status, std::string message, py::object value,
                       std::string not_finite, double seconds) {
             own out;
             out.request.self = shared_object(std::move(request));
             out.status = status;
             out.message = std::move(message);
             out.not_finite = std::move(not_finite);
             out.value = shared_object(std::move(value));
             out.seconds = seconds;
             return out;
           }),
           py::arg("request"), py::kw_only(), py::arg("status") = measured::ok,
           py::arg("message") = "", py::arg("value") = py::none(), py::arg("not_finite") = "",
           py::arg("seconds") = 0.0)
      .def_property_readonly("request", [](const own& self) { return self.request.self.get(); })
      .def_readonly("status", &own::status)
      .def_readonly("message", &own::message)
      .def_readonly("not_finite", &own::not_finite)
      .def_property_readonly("value", [](const own& self) { return self.value.get(); })
      .def_readonly("seconds", &own::seconds)
      .def_property_readonly("spent", &own::spent)
      .def(py::pickle(
          [](const own& self) {
            return py::make_tuple(self.request.self.get(), self.status, self.message,
                                  self.value.get(), self.not_finite, self.seconds);
          },
          [](const py::tuple& from) {
            own out;
            out.request.self = shared_object(from[0]);
            out.status = py::cast<measured>(from[1]);
            out.message = py::cast<std::string>(from[2]);
            out.value = shared_object(from[3]);
            out.not_finite = py::cast<std::string>(from[4]);
            out.seconds = py::cast<double>(from[5]);
            return out;
          }));
}

using details = std::vector<std::pair<std::string, fact>>;

details details_of(const py::dict& from) {
  details out;
  for (const auto& [name, value] : from) {
    out.emplace_back(py::cast<std::string>(name), py::cast<fact>(value));
  }
  return out;
}

void bind_findings(py::module_& module) {
  bind_value<finding>(module, "Finding", POTL_MEMBER(finding, check), POTL_MEMBER(finding, rule),
                      POTL_MEMBER(finding, result), POTL_MEMBER(finding, reason),
                      POTL_MEMBER(finding, first_step), POTL_MEMBER(finding, last_step),
                      POTL_MEMBER(finding, statistic), POTL_MEMBER(finding, threshold),
                      POTL_MEMBER(finding, error_probability),
                      bound_member{"facts", &finding::details})
      .def_property(
          "details",
          [](const finding& self) {
            py::dict out;
            for (const auto& [name, value] : self.details) out[py::str(name)] = py::cast(value);
            return out;
          },
          [](finding& self, const py::dict& from) { self.details = details_of(from); });
}

template <class Value>
bool holds(py::handle one) {
  return py::isinstance<Value>(one);
}

}  // namespace

// ------------------------------------------------------------------ requests of Python classes

std::string python_request::kind() const {
  return calling_python([&] { return py::cast<std::string>(self.get().attr("kind")); });
}

std::uint64_t python_request::from_step() const {
  return calling_python([&] { return py::cast<std::uint64_t>(self.get().attr("from_step")); });
}

std::uint64_t python_request::steps() const {
  return calling_python([&] { return py::cast<std::uint64_t>(self.get().attr("steps")); });
}

std::string python_request::place() const {
  return calling_python([&] { return py::cast<std::string>(self.get().attr("place")()); });
}

std::string python_request::key() const {
  return calling_python([&] { return py::cast<std::string>(self.get().attr("key")()); });
}

python_measurement python_request::answer(replayer& with) const {
  const auto begin = std::chrono::steady_clock::now();
  python_measurement out;
  out.value = answered(self, with);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return out;
}

// ------------------------------------------------------------------ of any kind

py::object to_python(const request& one) {
  if (const auto* found = one.get_if<segment_request>()) return py::cast(*found);
  if (const auto* found = one.get_if<loss_request>()) return py::cast(*found);
  if (const auto* found = one.get_if<subset_loss_request>()) return py::cast(*found);
  if (const auto* found = one.get_if<python_request>()) return found->self.get();
  throw exception(
      {errc::unsupported, "requests of kind " + one.kind() + " are unknown to Python", ""});
}

py::object to_python(const measurement& one) {
  if (const auto* found = one.get_if<segment_measurement>()) return py::cast(*found);
  if (const auto* found = one.get_if<loss_measurement>()) return py::cast(*found);
  if (const auto* found = one.get_if<subset_loss_measurement>()) return py::cast(*found);
  if (const auto* found = one.get_if<python_measurement>()) return py::cast(*found);
  throw exception({errc::unsupported, "these measurements are unknown to Python", ""});
}

request request_of(py::handle one) {
  if (holds<segment_request>(one)) return py::cast<segment_request>(one);
  if (holds<loss_request>(one)) return py::cast<loss_request>(one);
  if (holds<subset_loss_request>(one)) return py::cast<subset_loss_request>(one);
  if (!py::hasattr(one, "measure")) wrong_type(one, "request");
  return python_request{shared_object(py::reinterpret_borrow<py::object>(one))};
}

measurement measurement_of(py::handle one) {
  if (holds<segment_measurement>(one)) return py::cast<segment_measurement>(one);
  if (holds<loss_measurement>(one)) return py::cast<loss_measurement>(one);
  if (holds<subset_loss_measurement>(one)) return py::cast<subset_loss_measurement>(one);
  if (holds<python_measurement>(one)) return py::cast<python_measurement>(one);
  wrong_type(one, "measurement");
}

finding finding_of(py::handle one) {
  if (holds<finding>(one)) return py::cast<finding>(one);
  if (!py::hasattr(one, "result") || !py::hasattr(one, "reason")) wrong_type(one, "finding");
  finding out;
  const auto read = [&](const char* name, auto& to) {
    if (!py::hasattr(one, name)) return;
    to = py::cast<std::remove_cvref_t<decltype(to)>>(one.attr(name));
  };
  read("check", out.check);
  read("rule", out.rule);
  read("result", out.result);
  read("reason", out.reason);
  read("first_step", out.first_step);
  read("last_step", out.last_step);
  read("statistic", out.statistic);
  read("threshold", out.threshold);
  read("error_probability", out.error_probability);
  if (py::hasattr(one, "details")) {
    out.details = details_of(py::dict(py::reinterpret_borrow<py::object>(one.attr("details"))));
  }
  return out;
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the signature is pybind11's.
static void pass_interrupts(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (interrupted& one) {
    one.what.restore();
  }
}

void bind_values(py::module_& module) {
  py::register_local_exception_translator(&pass_interrupts);
  bind_distances(module);
  bind_requests(module);
  bind_measurements(module);
  bind_findings(module);
}

}  // namespace potl::python
