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
  bind_value<tensor>(module, "TensorDistance", bound_member{"path", &tensor::path},
                     bound_member{"count", &tensor::count}, bound_member{"l2", &tensor::l2},
                     bound_member{"excess", &tensor::excess},
                     bound_member{"rounding", &tensor::rounding},
                     bound_member{"update_l2", &tensor::update_l2},
                     bound_member{"replayed_update_l2", &tensor::replayed_update_l2},
                     bound_member{"rounding_only", &tensor::rounding_only},
                     bound_member{"judged", &tensor::judged});
  bind_value<group>(
      module, "GroupDistance", bound_member{"group", &group::group}, bound_member{"l1", &group::l1},
      bound_member{"l2", &group::l2}, bound_member{"linf", &group::linf},
      bound_member{"cosine", &group::cosine}, bound_member{"update_l2", &group::update_l2},
      bound_member{"replayed_update_l2", &group::replayed_update_l2},
      bound_member{"weight_l2", &group::weight_l2}, bound_member{"finite", &group::finite},
      bound_member{"structure_equal", &group::structure_equal},
      bound_member{"excess_l2", &group::excess_l2},
      bound_member{"rounding_l2", &group::rounding_l2}, bound_member{"count", &group::count},
      bound_member{"tensors", &group::tensors},
      bound_member{"worst_relative", &group::worst_relative},
      bound_member{"worst_tensor", &group::worst_tensor});
}

void bind_requests(py::module_& module) {
  using segment = segment_request;
  using loss = loss_request;
  using subset = subset_loss_request;
  describe_request(
      bind_value<segment>(module, "SegmentRequest", bound_member{"start", &segment::start},
                          bound_member{"end", &segment::end}, bound_member{"why", &segment::why},
                          bound_member{"branch", &segment::branch},
                          bound_member{"start_branch", &segment::start_branch},
                          bound_member{"superseded", &segment::superseded},
                          bound_member{"noise_repeats", &segment::noise_repeats},
                          bound_member{"noise_if_equal", &segment::noise_if_equal},
                          bound_member{"rough_repeats", &segment::rough_repeats}));
  describe_request(bind_value<loss>(module, "LossRequest", bound_member{"step", &loss::step},
                                    bound_member{"noise_repeats", &loss::noise_repeats},
                                    bound_member{"loss_floor", &loss::loss_floor}));
  describe_request(bind_value<subset>(module, "SubsetLossRequest",
                                      bound_member{"step", &subset::step},
                                      bound_member{"sample_ids", &subset::sample_ids}));
}

void bind_measurements(py::module_& module) {
  using rejection = rounding_rejection;
  using summary = rounding_summary;
  bind_value<rejection>(module, "RoundingRejection", bound_member{"step", &rejection::step},
                        bound_member{"fault", &rejection::fault},
                        bound_member{"message", &rejection::message},
                        bound_member{"proof", &rejection::proof});
  bind_value<summary>(module, "RoundingSummary", bound_member{"values", &summary::values},
                      bound_member{"entries", &summary::entries},
                      bound_member{"corrections", &summary::corrections},
                      bound_member{"rejected", &summary::rejected},
                      bound_member{"moved_l2", &summary::moved_l2},
                      bound_member{"reachable_l2", &summary::reachable_l2},
                      bound_member{"rejections", &summary::rejections})
      .def(
          "add", [](summary& self, const py::dict& audit) { add(self, audit_of(audit)); },
          py::arg("audit"));
  using segment = segment_measurement;
  bind_value<segment>(
      module, "SegmentMeasurement", bound_member{"request", &segment::request},
      bound_member{"status", &segment::status}, bound_member{"message", &segment::message},
      bound_member{"not_finite", &segment::not_finite},
      bound_member{"digest_equal", &segment::digest_equal},
      bound_member{"first_differing_step", &segment::first_differing_step},
      bound_member{"first_differing_operator", &segment::first_differing_operator},
      bound_member{"rounding", &segment::rounding}, bound_member{"losses", &segment::losses},
      bound_member{"rates", &segment::rates}, bound_member{"skipped", &segment::skipped},
      bound_member{"finite", &segment::finite}, bound_member{"distances", &segment::distances},
      bound_member{"noise", &segment::noise},
      bound_member{"other_arithmetic", &segment::other_arithmetic},
      bound_member{"noise_losses", &segment::noise_losses}, bound_member{"rough", &segment::rough},
      bound_member{"rough_losses", &segment::rough_losses},
      bound_member{"repeat_skipped", &segment::repeat_skipped},
      bound_member{"gradient_norm_mean", &segment::gradient_norm_mean},
      bound_member{"load_seconds", &segment::load_seconds},
      bound_member{"replay_seconds", &segment::replay_seconds},
      bound_member{"noise_seconds", &segment::noise_seconds})
      .def_property_readonly("spent", &segment::spent);
  using loss = loss_measurement;
  bind_value<loss>(module, "LossMeasurement", bound_member{"request", &loss::request},
                   bound_member{"status", &loss::status}, bound_member{"message", &loss::message},
                   bound_member{"not_finite", &loss::not_finite}, bound_member{"loss", &loss::loss},
                   bound_member{"noise", &loss::noise}, bound_member{"seconds", &loss::seconds})
      .def_property_readonly("spent", &loss::spent);
  using subset = subset_loss_measurement;
  bind_value<subset>(
      module, "SubsetLossMeasurement", bound_member{"request", &subset::request},
      bound_member{"status", &subset::status}, bound_member{"message", &subset::message},
      bound_member{"not_finite", &subset::not_finite}, bound_member{"mean", &subset::mean},
      bound_member{"standard_deviation", &subset::standard_deviation},
      bound_member{"seconds", &subset::seconds})
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
  bind_value<finding>(
      module, "Finding", bound_member{"check", &finding::check},
      bound_member{"rule", &finding::rule}, bound_member{"result", &finding::result},
      bound_member{"reason", &finding::reason}, bound_member{"first_step", &finding::first_step},
      bound_member{"last_step", &finding::last_step},
      bound_member{"statistic", &finding::statistic},
      bound_member{"threshold", &finding::threshold},
      bound_member{"error_probability", &finding::error_probability},
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
