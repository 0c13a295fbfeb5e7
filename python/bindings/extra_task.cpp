// SPDX-License-Identifier: Apache-2.0
// The extra task for Python: samples from a key into buffers, plans, and judgements as values.
#include "extra_task.hpp"

#include <optional>

#include <potl/checks/detail/extra_task_audit.hpp>
#include <potl/checks/extra_task.hpp>
#include <potl/checks/extra_task_samples.hpp>
#include <potl/statistics/detail/two_sample.hpp>

#include "values.hpp"

namespace potl::python {
namespace {

using namespace py::literals;
using checks::extra_samples;
using checks::extra_task_options;

extra_task_options options_of(const py::dict& options) {
  return extra_task_options::parse(to_json(options)).value();
}

checks::extra_set set_of(const std::string& name) {
  if (name == "extra") return checks::extra_set::extra;
  if (name == "control") return checks::extra_set::control;
  throw exception({errc::usage, "there is no set \"" + name + "\"", "extra and control exist"});
}

/// The elements of a contiguous buffer, or nothing when it holds other values.
template <class Element>
std::optional<std::span<Element>> elements_of(const py::buffer_info& info) {
  using value = std::remove_const_t<Element>;
  py::ssize_t step = sizeof(value);
  if (!info.item_type_is_equivalent_to<value>()) return std::nullopt;
  for (auto i = static_cast<std::size_t>(info.ndim); i-- > 0; step *= info.shape[i]) {
    if (info.shape[i] > 1 && info.strides[i] != step) return std::nullopt;
  }
  return std::span<Element>(static_cast<Element*>(info.ptr), static_cast<std::size_t>(info.size));
}

[[noreturn]] void wrong_buffer(const char* wanted) {
  throw exception({errc::usage, "a buffer is not contiguous or of another type",
                   std::string("pass a contiguous array of ") + wanted});
}

template <class Element>
std::span<Element> span_of(const py::buffer_info& info, const char* wanted) {
  const auto found = elements_of<Element>(info);
  if (!found) wrong_buffer(wanted);
  return *found;
}

/// Calls `into` with the elements of `out`, without the interpreter's lock.
template <class Into>
void fill_elements(const py::buffer& out, Into into) {
  const py::buffer_info info = out.request(true);
  const auto fits = [&](auto found) {
    if (!found) return false;
    const py::gil_scoped_release release;
    into(*found);
    return true;
  };
  if (!fits(elements_of<std::uint8_t>(info)) && !fits(elements_of<std::int64_t>(info)) &&
      !fits(elements_of<double>(info))) {
    wrong_buffer("uint8 (images), int64 (tokens) or float64 (tables)");
  }
}

void fill(const extra_samples& self, const std::string& set, std::uint64_t first,
          const py::buffer& out, std::uint64_t copy) {
  const auto which = set_of(set);
  fill_elements(out, [&](auto found) { self.fill(which, first, copy, found); });
}

void fill_places(const extra_samples& self, const py::buffer& places, const py::buffer& out) {
  const py::buffer_info info = places.request();
  const auto rows = span_of<const std::int64_t>(info, "int64");
  if (info.ndim != 2 || info.shape[1] != 3) {
    throw exception({errc::usage, "places are rows of set, index and copy", ""});
  }
  std::vector<checks::extra_place> all;
  for (std::size_t i = 0; i < rows.size(); i += 3) {
    if (rows[i] < 0 || rows[i] > 1 || rows[i + 1] < 0 || rows[i + 2] < 0) {
      throw exception(
          {errc::usage, "there is no such place", "sets are 0 (extra) and 1 (control)"});
    }
    all.push_back({rows[i] == 0 ? checks::extra_set::extra : checks::extra_set::control,
                   static_cast<std::uint64_t>(rows[i + 1]),
                   static_cast<std::uint64_t>(rows[i + 2])});
  }
  fill_elements(out, [&](auto found) { self.fill(all, found); });
}

py::bytes int64_bytes(const std::vector<std::int64_t>& values) {
  return to_bytes({reinterpret_cast<const std::uint8_t*>(values.data()), 8 * values.size()});
}

py::list names_of(const std::vector<checks::extra_grade>& grades) {
  return list_of(grades, [](const auto& one) { return one.name(); });
}

void bind_samples(py::module_& module) {
  py::class_<extra_samples>(module, "ExtraSamples", py::module_local())
      .def(
          py::init([](const py::object& key, const py::dict& content, std::uint64_t samples,
                      std::uint64_t classes, const py::dict& options) {
            const readable_buffer bytes(key);
            const auto parsed = checks::parse_extra_content(to_json(content)).value();
            return extra_samples::make(bytes.bytes(), parsed, samples, classes, options_of(options))
                .value();
          }),
          py::arg("key"), py::arg("content"), py::kw_only(), py::arg("samples"), py::arg("classes"),
          py::arg("options"))
      .def(
          "count",
          [](const extra_samples& self, const std::string& set) { return self.count(set_of(set)); },
          py::arg("which"))
      .def_property_readonly("classes", &extra_samples::classes)
      .def_property_readonly("elements", &extra_samples::elements)
      .def_property_readonly("grades",
                             [](const extra_samples& self) { return names_of(self.grades()); })
      .def("label", &extra_samples::label, py::arg("index"))
      .def("grade", &extra_samples::grade, py::arg("index"))
      .def("fill", &fill, py::arg("which"), py::arg("first"), py::arg("out"), py::kw_only(),
           py::arg("copy") = 0)
      .def("fill_places", &fill_places, py::arg("places"), py::arg("out"))
      .def("uploads",
           [](const extra_samples& self) {
             return list_of(self.uploads(), [](const auto& one) {
               return py::make_tuple(one.index, one.copy, one.label);
             });
           })
      .def(
          "order",
          [](const extra_samples& self, std::uint64_t real) {
            std::vector<std::int64_t> order;
            {
              const py::gil_scoped_release release;
              order = self.order(real);
            }
            return int64_bytes(order);
          },
          py::arg("real"));
}

py::list rows_of(const std::vector<checks::extra_power>& powers) {
  return list_of(powers, [](const auto& one) {
    return py::dict("power"_a = one.power, "learned"_a = one.learned, "share"_a = one.share);
  });
}

py::dict plan(std::uint64_t training_samples, std::uint64_t classes, const py::dict& options,
              const std::optional<py::dict>& content) {
  const auto parsed = options_of(options);
  std::optional<checks::extra_content> family;
  if (content) family = checks::parse_extra_content(to_json(*content)).value();
  checks::extra_plan plan;
  {
    const py::gil_scoped_release release;
    plan = (family ? checks::plan_extra_task(training_samples, classes, parsed, *family)
                   : checks::plan_extra_task(training_samples, classes, parsed))
               .value();
  }
  py::dict out;
  out["training_samples"] = plan.training_samples;
  out["classes"] = plan.classes;
  out["samples"] = plan.samples;
  out["uploads"] = plan.uploads;
  out["controls"] = plan.controls;
  out["eta"] = plan.eta;
  out["chance"] = plan.threshold.chance;
  out["level"] = plan.threshold.level;
  out["needed"] = plan.threshold.needed;
  out["grades"] = names_of(plan.grades);
  out["needed_for_acceptance"] = plan.needed_for_acceptance;
  out["needed_effect"] = plan.needed_effect;
  out["powers"] = rows_of(plan.powers);
  out["acceptance"] = rows_of(plan.acceptance);
  py::dict accuracy;
  accuracy["expected"] = plan.accuracy.expected;
  accuracy["most"] = plan.accuracy.most;
  accuracy["measured"] = plan.accuracy.measured;
  out["accuracy"] = accuracy;
  out["warnings"] = plan.warnings;
  return out;
}

py::list counts_of(const std::vector<checks::extra_grade_count>& counts) {
  return list_of(counts, [](const auto& one) {
    return py::dict("grade"_a = one.grade.name(), "samples"_a = one.samples, "hits"_a = one.hits);
  });
}

py::object dict_of(const std::optional<checks::extra_progress>& progress) {
  if (!progress) return py::none();
  py::dict out;
  out["share"] = progress->share;
  out["low"] = progress->low;
  out["high"] = progress->high;
  out["text"] = progress->text;
  return out;
}

const char* verdict_of(outcome result) {
  if (result == outcome::pass) return "accepted";
  return result == outcome::reject ? "rejected" : "inconclusive";
}

using named_curves = std::vector<std::pair<std::string, std::vector<std::pair<double, double>>>>;

std::vector<checks::extra_curve> curves_of(const named_curves& curves,
                                           const std::vector<std::uint64_t>& measured) {
  std::vector<checks::extra_curve> out;
  for (const auto& [grade, points] : curves) {
    out.push_back({grade, points, out.size() < measured.size() ? measured[out.size()] : 0});
  }
  return out;
}

py::dict judge(const py::dict& options, std::uint64_t samples, std::uint64_t classes,
               const py::buffer& extra, const py::buffer& control, const py::iterable& earlier,
               const named_curves& curves, const std::vector<std::uint64_t>& measured) {
  const auto parsed = options_of(options);
  const py::buffer_info extra_info = extra.request(), control_info = control.request();
  const checks::extra_answers answers{span_of<const double>(extra_info, "float64"),
                                      span_of<const double>(control_info, "float64")};
  const auto before = to_digests(earlier);
  const auto reference = curves_of(curves, measured);
  checks::extra_result found;
  digest hash;
  {
    const py::gil_scoped_release release;
    found = checks::judge_extra_task(parsed, samples, classes, answers, before, reference).value();
    hash = answers.hash();
  }
  py::dict out;
  out["verdict"] = verdict_of(found.result);
  out["reason"] = found.reason;
  out["samples"] = found.samples;
  out["controls"] = found.controls;
  out["classes"] = found.classes;
  out["hits"] = found.hits;
  out["control_hits"] = found.control_hits;
  out["invalid"] = found.invalid;
  out["needed"] = found.needed;
  out["needed_against_control"] = found.needed_against_control;
  out["needed_for_acceptance"] = found.needed_for_acceptance;
  out["known"] = found.known;
  out["effect"] = found.effect;
  out["needed_effect"] = found.needed_effect;
  out["p_value"] = found.p_value;
  out["control_p_value"] = found.control_p_value;
  out["acceptance_p_value"] = found.acceptance_p_value;
  out["level"] = found.level;
  out["submission"] = found.submission;
  out["hash"] = to_bytes(hash);
  out["grades"] = counts_of(found.grades);
  out["progress"] = dict_of(found.progress);
  out["findings"] = py::cast(found.findings);
  out["limits"] = found.limits;
  return out;
}

py::object progress(
    const std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t>>& counts,
    const named_curves& curves, const std::vector<std::uint64_t>& measured) {
  std::vector<checks::extra_grade_count> given;
  for (const auto& [grade, samples, hits] : counts) {
    given.push_back({checks::extra_grade::parse(grade).value(), samples, hits});
  }
  const auto reference = curves_of(curves, measured);
  return dict_of(std::optional(checks::estimate_extra_progress(given, reference).value()));
}

template <class Size>
Size window_of(const py::object& window, const char* wanted) {
  try {
    return window.cast<Size>();
  } catch (const py::cast_error&) {
    throw exception({errc::usage, "the window is of another kind", wanted});
  }
}

py::tuple shared_regions(const py::buffer& samples, const py::object& window, std::uint64_t stride,
                         std::uint64_t dropped_bits, std::uint64_t least, bool anywhere) {
  const py::buffer_info info = samples.request();
  checks::region_search search;
  search.stride = stride;
  search.dropped_bits = dropped_bits;
  search.least = least;
  search.anywhere = anywhere;
  const auto side = [&](std::size_t axis) { return static_cast<std::uint64_t>(info.shape[axis]); };
  result<checks::region_counts> found = error{errc::usage, "samples are not images or texts", ""};
  if (const auto images = elements_of<const std::uint8_t>(info); images && info.ndim == 4) {
    std::tie(search.rows, search.columns) = window_of<std::pair<std::uint64_t, std::uint64_t>>(
        window, "images have windows (rows, columns)");
    const py::gil_scoped_release release;
    found = checks::shared_regions(*images, {side(1), side(2), side(3)}, search);
  } else if (const auto texts = elements_of<const std::int64_t>(info); texts && info.ndim == 2) {
    search.columns = window_of<std::uint64_t>(window, "texts have a window of words, an integer");
    const py::gil_scoped_release release;
    found = checks::shared_regions(*texts, side(1), search);
  } else {
    wrong_buffer("uint8 (count, height, width, channels) or int64 (count, length)");
  }
  const checks::region_counts counts = std::move(found).value();
  return py::make_tuple(counts.shared, counts.windows);
}

py::tuple mann_whitney(const py::buffer& first, const py::buffer& second) {
  const py::buffer_info first_info = first.request(), second_info = second.request();
  const auto found = statistics::mann_whitney_less(span_of<const double>(first_info, "float64"),
                                                   span_of<const double>(second_info, "float64"));
  return py::make_tuple(found.u, found.p_value, found.exact);
}

}  // namespace

void bind_extra_task(py::module_& module) {
  bind_samples(module);
  module.def(
      "extra_needed_hits",
      [](std::uint64_t samples, std::uint64_t classes, double alpha, double epsilon,
         std::uint64_t submissions) {
        return checks::extra_threshold_of(samples, classes, alpha, epsilon, submissions)
            .value()
            .needed;
      },
      py::kw_only(), py::arg("samples"), py::arg("classes"), py::arg("alpha") = 0.01,
      py::arg("epsilon") = 0.03, py::arg("submissions") = 1);
  const auto within = [](std::uint64_t size) {
    if (size > std::uint64_t{1} << 20) {
      throw exception({errc::usage, "a side or length is 2^20 at most", ""});
    }
    return size;
  };
  module.def(
      "extra_region",
      [within](std::uint64_t side, double fixed) {
        return checks::extra_region(within(side), checks::millionths(fixed));
      },
      py::arg("side"), py::arg("fixed"));
  module.def(
      "extra_words",
      [within](std::uint64_t length, double fixed) {
        return checks::extra_words(within(length), checks::millionths(fixed));
      },
      py::arg("length"), py::arg("fixed"));
  module.def("plan_extra_task", &plan, py::kw_only(), py::arg("training_samples"),
             py::arg("classes"), py::arg("options"), py::arg("content") = py::none());
  module.def("judge_extra_task", &judge, py::kw_only(), py::arg("options"), py::arg("samples"),
             py::arg("classes"), py::arg("extra"), py::arg("control"),
             py::arg("earlier") = py::tuple(), py::arg("curves") = named_curves(),
             py::arg("measured") = py::tuple());
  module.def("extra_progress", &progress, py::arg("counts"), py::arg("curves"), py::kw_only(),
             py::arg("measured") = py::tuple());
  module.def("shared_regions", &shared_regions, py::arg("samples"), py::kw_only(),
             py::arg("window"), py::arg("stride") = 1, py::arg("dropped_bits") = 0,
             py::arg("least") = 2, py::arg("anywhere") = false);
  module.def(
      "difference_p_value",
      [](std::uint64_t hits, std::uint64_t samples, std::uint64_t control_hits,
         std::uint64_t controls, double margin) {
        if (hits > samples || control_hits > controls) {
          throw exception({errc::usage, "there are more hits than samples", ""});
        }
        return statistics::difference_test(samples, controls, margin).p_value(hits, control_hits);
      },
      py::arg("hits"), py::arg("samples"), py::arg("control_hits"), py::arg("controls"),
      py::arg("margin"));
  module.def("mann_whitney_less", &mann_whitney, py::arg("first"), py::arg("second"));
}

}  // namespace potl::python
