// SPDX-License-Identifier: Apache-2.0
// RoundingSession for Python, in every module that computes: potl._core has products of its own,
// potl._torch feeds a session from torch's operators.
#pragma once

#include <optional>
#include <string>

#include <potl/numeric/detail/rounding_session.hpp>

#include "bindings.hpp"

namespace potl::python {

inline py::dict dict_of(const numeric::log_rejection& rejection) {
  py::dict out;
  out["fault"] = to_string(rejection.fault);
  out["message"] = rejection.message;
  out["proof"] = rejection.proof ? py::object(to_bytes(encode(*rejection.proof))) : py::none();
  return out;
}

inline py::dict dict_of(const numeric::step_audit& audit) {
  py::dict out;
  out["step"] = audit.step;
  out["values"] = audit.values;
  out["entries"] = audit.entries;
  out["own_ties"] = audit.own_ties;
  out["corrections"] = audit.corrections;
  out["exact_dots"] = audit.exact_dots;
  out["moved_l2"] = audit.moved_l2;
  out["reachable_l2"] = audit.reachable_l2;
  out["reachable_linf"] = audit.reachable_linf;
  out["rejected"] = audit.rejected;
  py::list rejections;
  for (const numeric::log_rejection& each : audit.rejections) rejections.append(dict_of(each));
  out["rejections"] = rejections;
  return out;
}

/// Of what dict_of() tells: potl._torch knows no class of potl._core's.
inline numeric::log_rejection rejection_of(const py::dict& told) {
  numeric::log_rejection out;
  const auto fault = py::cast<std::string>(told["fault"]);
  while (to_string(out.fault) != fault) {
    if (out.fault == numeric::log_fault::missing_entry) {
      throw exception({errc::usage, "rounding logs have no fault named " + fault, ""});
    }
    out.fault = static_cast<numeric::log_fault>(static_cast<int>(out.fault) + 1);
  }
  out.message = py::cast<std::string>(told["message"]);
  if (!told["proof"].is_none()) {
    out.proof = numeric::decode_fraud_proof(readable_buffer(told["proof"]).bytes()).value();
  }
  return out;
}

inline numeric::step_audit audit_of(const py::dict& told) {
  numeric::step_audit out;
  const auto read = [&](const char* name, auto& into) {
    into = py::cast<std::remove_reference_t<decltype(into)>>(told[name]);
  };
  read("step", out.step);
  read("values", out.values);
  read("entries", out.entries);
  read("corrections", out.corrections);
  read("moved_l2", out.moved_l2);
  read("reachable_l2", out.reachable_l2);
  read("rejected", out.rejected);
  for (py::handle each : told["rejections"]) {
    out.rejections.push_back(rejection_of(py::cast<py::dict>(each)));
  }
  return out;
}

inline py::dict dict_of(const numeric::step_log& log) {
  py::dict out;
  out["step"] = log.step;
  out["bytes"] = to_bytes(log.bytes);
  out["digest"] = to_bytes(log.content);
  out["values"] = log.values;
  out["entries"] = log.entries;
  return out;
}

inline numeric::log_role role_of(const std::string& name) {
  if (name == "trainer") return numeric::log_role::trainer;
  if (name == "auditor") return numeric::log_role::auditor;
  if (name == "none") return numeric::log_role::none;
  throw exception({errc::usage, "a role is \"trainer\", \"auditor\" or \"none\"", ""});
}

inline py::dict counts_of(const numeric::rounding_session& session) {
  py::dict out;
  for (const auto& [kind, counts] : session.counts()) {
    py::dict each;
    each["values"] = counts.values;
    each["ties"] = counts.ties;
    each["corrections"] = counts.corrections;
    out[py::str(kind)] = each;
  }
  return out;
}

inline py::object watched_of(const numeric::rounding_session& session) {
  if (!session.watched()) return py::none();
  const numeric::element_ruling& found = *session.watched();
  py::dict out;
  out["fault"] = to_string(found.fault);
  out["value"] = found.value;
  out["distance"] = found.distance;
  out["window"] = found.window;
  out["step"] = found.step;
  return out;
}

/// The caller may add methods of its own.
inline py::class_<numeric::rounding_session> bind_rounding_session(py::module_& module) {
  return py::class_<numeric::rounding_session>(module, "RoundingSession", py::module_local())
      .def(py::init([](const std::string& role, int bits, std::uint64_t order) {
             return numeric::rounding_session({role_of(role), bits, order});
           }),
           py::arg("role"), py::kw_only(), py::arg("bits") = 32, py::arg("order") = 0)
      .def(
          "begin_step",
          [](numeric::rounding_session& self, std::uint64_t step, const py::object& log,
             const py::object& committed) {
            if (log.is_none()) {
              self.begin_step(step);
              return;
            }
            const readable_buffer bytes(log);
            std::optional<digest> bound;
            if (!committed.is_none()) bound = to_digest(committed);
            self.begin_step(step, bytes.bytes(), bound);
          },
          py::arg("step"), py::kw_only(), py::arg("log") = py::none(),
          py::arg("committed") = py::none())
      .def("end_step", [](numeric::rounding_session& self) { return dict_of(self.end_step()); })
      .def("end_audit", [](numeric::rounding_session& self) { return dict_of(self.end_audit()); })
      .def("cancel_step", &numeric::rounding_session::cancel_step)
      .def("watch", &numeric::rounding_session::watch, py::arg("position"))
      .def_property_readonly("watched", &watched_of)
      .def_property_readonly("values", &numeric::rounding_session::values)
      .def_property_readonly("counts", &counts_of);
}

}  // namespace potl::python
