// SPDX-License-Identifier: Apache-2.0
#include "values.hpp"

namespace potl::python {
namespace {

template <class Value>
void read(const py::dict& from, const char* name, Value& to) {
  if (from.contains(name)) to = py::cast<Value>(from[name]);
}

template <class Value>
void read(const py::dict& from, const char* name, std::optional<Value>& to) {
  if (from.contains(name) && !from[name].is_none()) to = py::cast<Value>(from[name]);
}

outcome outcome_of(const std::string& name) {
  for (const outcome one : {outcome::pass, outcome::reject, outcome::inconclusive, outcome::note}) {
    if (name == to_string(one)) return one;
  }
  throw exception({errc::usage, "\"" + name + "\" is not a result of a finding", ""});
}

checks::measured measured_of(const std::string& name) {
  using checks::measured;
  if (name == "ok") return measured::ok;
  if (name == "withheld") return measured::withheld;
  if (name == "tampered") return measured::tampered;
  if (name == "verifier_error") return measured::verifier_error;
  if (name == "unknown_form") return measured::unknown_form;
  if (name == "unlawful") return measured::unlawful;
  if (name == "prover_error") return measured::prover_error;
  throw exception({errc::usage, "\"" + name + "\" is not a status of a measurement", ""});
}

checks::group_distance distance_of(const py::dict& from) {
  checks::group_distance out;
  read(from, "group", out.group);
  read(from, "l1", out.l1);
  read(from, "l2", out.l2);
  read(from, "linf", out.linf);
  read(from, "cosine", out.cosine);
  read(from, "update_l2", out.update_l2);
  read(from, "replayed_update_l2", out.replayed_update_l2);
  read(from, "weight_l2", out.weight_l2);
  read(from, "rounding_l2", out.rounding_l2);
  read(from, "excess_l2", out.excess_l2);
  read(from, "count", out.count);
  read(from, "finite", out.finite);
  read(from, "structure_equal", out.structure_equal);
  read(from, "worst_relative", out.worst_relative);
  read(from, "worst_tensor", out.worst_tensor);
  if (from.contains("tensors")) {
    for (const py::handle row : from["tensors"]) {
      const auto one = py::cast<py::tuple>(row);
      const auto number = [&](std::size_t at) { return py::cast<double>(one[at]); };
      out.tensors.push_back({py::cast<std::string>(one[0]), number(1), number(2), number(3),
                             number(4), number(5), number(6), py::cast<bool>(one[7]),
                             py::cast<bool>(one[8])});
    }
  }
  return out;
}

std::vector<checks::group_distance> distances_of(py::handle list) {
  std::vector<checks::group_distance> out;
  for (const py::handle one : list) out.push_back(distance_of(py::cast<py::dict>(one)));
  return out;
}

checks::rounding_summary rounding_of(const py::dict& from) {
  checks::rounding_summary out;
  read(from, "values", out.values);
  read(from, "entries", out.entries);
  read(from, "corrections", out.corrections);
  read(from, "rejected", out.rejected);
  read(from, "moved_l2", out.moved_l2);
  read(from, "reachable_l2", out.reachable_l2);
  if (!from.contains("rejections")) return out;
  for (const py::handle each : from["rejections"]) {
    const auto row = py::cast<py::dict>(each);
    checks::rounding_rejection one;
    read(row, "step", one.step);
    read(row, "fault", one.fault);
    read(row, "message", one.message);
    read(row, "proof", one.proof);
    out.rejections.push_back(std::move(one));
  }
  return out;
}

checks::segment_measurement segment_of(const py::dict& from, const py::dict& request) {
  checks::segment_measurement out;
  read(request, "start", out.request.start);
  read(request, "end", out.request.end);
  read(request, "why", out.request.why);
  read(request, "branch", out.request.branch);
  read(request, "start_branch", out.request.start_branch);
  read(request, "superseded", out.request.superseded);
  read(request, "noise_repeats", out.request.noise_repeats);
  read(request, "noise_if_equal", out.request.noise_if_equal);
  read(from, "other_arithmetic", out.other_arithmetic);
  read(from, "not_finite", out.not_finite);
  read(from, "digest_equal", out.digest_equal);
  read(from, "first_differing_step", out.first_differing_step);
  read(from, "first_differing_operator", out.first_differing_operator);
  if (from.contains("rounding") && !from["rounding"].is_none()) {
    out.rounding = rounding_of(py::cast<py::dict>(from["rounding"]));
  }
  read(from, "losses", out.losses);
  read(from, "rates", out.rates);
  read(from, "skipped", out.skipped);
  if (from.contains("distances")) out.distances = distances_of(from["distances"]);
  if (from.contains("noise")) {
    for (const py::handle one : from["noise"]) out.noise.push_back(distances_of(one));
  }
  read(from, "noise_losses", out.noise_losses);
  read(from, "gradient_norm_mean", out.gradient_norm_mean);
  read(from, "load_seconds", out.load_seconds);
  read(from, "replay_seconds", out.replay_seconds);
  read(from, "noise_seconds", out.noise_seconds);
  return out;
}

}  // namespace

finding finding_of(const py::dict& from) {
  finding out;
  read(from, "check", out.check);
  read(from, "rule", out.rule);
  std::string result = "note";
  read(from, "result", result);
  out.result = outcome_of(result);
  read(from, "reason", out.reason);
  read(from, "first_step", out.first_step);
  read(from, "last_step", out.last_step);
  read(from, "statistic", out.statistic);
  read(from, "threshold", out.threshold);
  read(from, "error_probability", out.error_probability);
  if (from.contains("details")) {
    for (const auto& [name, value] : py::cast<py::dict>(from["details"])) {
      out.details.emplace_back(py::cast<std::string>(name), py::cast<std::string>(py::str(value)));
    }
  }
  return out;
}

std::vector<finding> findings_of(const py::iterable& list) {
  std::vector<finding> out;
  for (const py::handle one : list) out.push_back(finding_of(py::cast<py::dict>(one)));
  return out;
}

py::dict dict_of(const checks::segment_request& request) {
  py::dict out;
  out["kind"] = "segment";
  out["start"] = request.start;
  out["end"] = request.end;
  out["why"] = request.why;
  out["branch"] = request.branch;
  out["start_branch"] = request.start_branch;
  out["superseded"] = request.superseded;
  out["noise_repeats"] = request.noise_repeats;
  out["noise_if_equal"] = request.noise_if_equal;
  return out;
}

py::dict dict_of(const checks::loss_request& request) {
  py::dict out;
  out["kind"] = "loss";
  out["step"] = request.step;
  out["noise_repeats"] = request.noise_repeats;
  return out;
}

py::dict dict_of(const checks::subset_loss_request& request) {
  py::dict out;
  out["kind"] = "subset_loss";
  out["step"] = request.step;
  out["sample_ids"] = request.sample_ids;
  return out;
}

py::dict dict_of(const checks::group_distance& distance) {
  py::dict out;
  py::list tensors;
  for (const checks::tensor_distance& one : distance.tensors) {
    tensors.append(py::make_tuple(one.path, one.count, one.l2, one.excess, one.rounding,
                                  one.update_l2, one.replayed_update_l2, one.scalar,
                                  one.rounding_only));
  }
  out["group"] = distance.group;
  out["l1"] = distance.l1;
  out["l2"] = distance.l2;
  out["linf"] = distance.linf;
  out["cosine"] = distance.cosine;
  out["update_l2"] = distance.update_l2;
  out["replayed_update_l2"] = distance.replayed_update_l2;
  out["weight_l2"] = distance.weight_l2;
  out["rounding_l2"] = distance.rounding_l2;
  out["excess_l2"] = distance.excess_l2;
  out["count"] = distance.count;
  out["finite"] = distance.finite;
  out["structure_equal"] = distance.structure_equal;
  out["tensors"] = tensors;
  out["worst_relative"] = distance.worst_relative;
  out["worst_tensor"] = distance.worst_tensor;
  return out;
}

measurements measurements_of(const py::iterable& list) {
  measurements out;
  for (const py::handle item : list) {
    const auto from = py::cast<py::dict>(item);
    const auto request = py::cast<py::dict>(from["request"]);
    const auto kind = py::cast<std::string>(request["kind"]);
    std::string status = "ok", message;
    read(from, "status", status);
    read(from, "message", message);
    const auto finish = [&](auto& one) {
      one.status = measured_of(status);
      one.message = message;
    };
    if (kind == "segment") {
      finish(out.segments.emplace_back(segment_of(from, request)));
    } else if (kind == "loss") {
      auto& one = out.losses.emplace_back();
      read(request, "step", one.request.step);
      read(request, "noise_repeats", one.request.noise_repeats);
      read(from, "not_finite", one.not_finite);
      read(from, "loss", one.loss);
      read(from, "noise", one.noise);
      read(from, "seconds", one.seconds);
      finish(one);
    } else if (kind == "subset_loss") {
      auto& one = out.subsets.emplace_back();
      read(request, "step", one.request.step);
      read(request, "sample_ids", one.request.sample_ids);
      read(from, "not_finite", one.not_finite);
      read(from, "mean", one.mean);
      read(from, "standard_deviation", one.standard_deviation);
      read(from, "seconds", one.seconds);
      finish(one);
    } else {
      throw exception({errc::usage, "\"" + kind + "\" is not a kind of request", ""});
    }
  }
  return out;
}

}  // namespace potl::python
