// SPDX-License-Identifier: Apache-2.0
// Disputes for Python: the referee's desk, a party, and judging a transcript again.
#include <potl/dispute/player.hpp>
#include <potl/dispute/proceedings.hpp>
#include <potl/dispute/referee.hpp>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/operators.h>

#include "transcript.hpp"
#include "values.hpp"

namespace pybind11::detail {

template <>
struct type_caster<potl::dispute::party>
    : named_value_caster<potl::dispute::party, &potl::dispute::to_string,
                         potl::dispute::party::trainer, potl::dispute::party::auditor> {};

template <>
struct type_caster<potl::dispute::level_kind>
    : named_value_caster<potl::dispute::level_kind, &potl::dispute::to_string,
                         potl::dispute::level_kind::steps, potl::dispute::level_kind::operators,
                         potl::dispute::level_kind::chunks> {};

template <>
struct type_caster<potl::dispute::act>
    : named_value_caster<potl::dispute::act, &potl::dispute::to_string, potl::dispute::act::claim,
                         potl::dispute::act::opening, potl::dispute::act::answer> {};

// Those that a ruling can have; the others only come from the game.
template <>
struct type_caster<potl::dispute::reason>
    : named_value_caster<potl::dispute::reason, &potl::dispute::to_string,
                         potl::dispute::reason::opening, potl::dispute::reason::structure,
                         potl::dispute::reason::value, potl::dispute::reason::referee> {};

}  // namespace pybind11::detail

namespace potl::python {
namespace {

using namespace potl::dispute;

std::vector<std::uint8_t> copied(const py::buffer& from) {
  const readable_buffer read(from);
  return {read.bytes().begin(), read.bytes().end()};
}

py::tuple pair_of(const both<digest>& of) {
  return py::make_tuple(to_bytes(of.trainer), to_bytes(of.auditor));
}

both<digest> to_both(const std::optional<std::pair<py::object, py::object>>& of) {
  if (!of) return {};
  return {to_digest(of->first), to_digest(of->second)};
}

signing_key another(const signing_key& key) { return signing_key::from_pem(key.to_pem()).value(); }

void bind_decisions(py::module_& module) {
  py::class_<inner_bisection>(module, "DisputeNext", py::module_local())
      .def(py::init([](level_kind kind, std::uint64_t size, std::uint64_t subject,
                       std::uint64_t length,
                       const std::optional<std::pair<py::object, py::object>>& claimed) {
             return inner_bisection{kind, size, subject, length, to_both(claimed)};
           }),
           py::arg("kind"), py::arg("size"), py::kw_only(), py::arg("subject") = 0,
           py::arg("length") = 0, py::arg("claimed") = py::none())
      .def_readonly("kind", &inner_bisection::kind)
      .def_readonly("size", &inner_bisection::size)
      .def_readonly("subject", &inner_bisection::subject)
      .def_readonly("length", &inner_bisection::bytes)
      .def_property_readonly("claimed",
                             [](const inner_bisection& self) { return pair_of(self.claimed); })
      .def(py::self == py::self);
  py::class_<question>(module, "DisputeQuestion", py::module_local())
      .def(py::init([](const py::buffer& text, std::uint64_t max_bytes) {
             return question{copied(text), max_bytes};
           }),
           py::arg("text"), py::arg("max_bytes"))
      .def_property_readonly("text", [](const question& self) { return to_bytes(self.text); })
      .def_readonly("max_bytes", &question::max_bytes)
      .def(py::self == py::self);
  py::class_<ruling>(module, "DisputeRuling", py::module_local())
      .def(py::init(
               [](reason why, bool trainer_wrong, bool auditor_wrong, const py::buffer& evidence) {
                 return ruling{{trainer_wrong, auditor_wrong}, why, copied(evidence)};
               }),
           py::arg("why"), py::kw_only(), py::arg("trainer_wrong") = false,
           py::arg("auditor_wrong") = false, py::arg("evidence") = py::bytes())
      .def_readonly("why", &ruling::why)
      .def_property_readonly("trainer_wrong", [](const ruling& self) { return self.wrong.trainer; })
      .def_property_readonly("auditor_wrong", [](const ruling& self) { return self.wrong.auditor; })
      .def_property_readonly("evidence", [](const ruling& self) { return to_bytes(self.evidence); })
      .def(py::self == py::self);
}

void bind_values_of_parties(py::module_& module) {
  py::class_<claim>(module, "DisputeClaim", py::module_local())
      .def(py::init([](py::handle value, const std::optional<py::buffer>& record,
                       std::uint64_t index, const py::iterable& proof) {
             claim out{to_digest(value), {}};
             if (record) out.record = committed_record{index, copied(*record), to_digests(proof)};
             return out;
           }),
           py::arg("value"), py::kw_only(), py::arg("record") = py::none(), py::arg("index") = 0,
           py::arg("proof") = py::tuple());
  py::class_<opening>(module, "DisputeOpening", py::module_local())
      .def(py::init([](const py::buffer& leaf, const py::iterable& proof) {
             return opening{copied(leaf), to_digests(proof)};
           }),
           py::arg("leaf"), py::arg("proof"))
      .def_property_readonly("leaf", [](const opening& self) { return to_bytes(self.leaf); })
      .def_property_readonly("proof",
                             [](const opening& self) { return to_bytes_list(self.proof); });
  py::class_<dispute::verdict>(module, "DisputeVerdict", py::module_local())
      .def_property_readonly("winner", &dispute::verdict::winner)
      .def_property_readonly("trainer_wrong",
                             [](const dispute::verdict& self) { return self.wrong.trainer; })
      .def_property_readonly("auditor_wrong",
                             [](const dispute::verdict& self) { return self.wrong.auditor; })
      .def_property_readonly("why",
                             [](const dispute::verdict& self) { return to_string(self.why); })
      .def(py::self == py::self);
  py::class_<judged>(module, "DisputeJudged", py::module_local())
      .def_readonly("verdict", &judged::outcome)
      .def_readonly("believed", &judged::believed)
      .def_readonly("step", &judged::step);
}

void bind_proceedings(py::module_& module) {
  py::class_<setting>(module, "DisputeSetting", py::module_local())
      .def(py::init([](const job_handle& job, const public_key& trainer, const public_key& auditor,
                       const public_key& referee) {
             return setting(*job.agreed, trainer, auditor, referee);
           }),
           py::arg("job"), py::kw_only(), py::arg("trainer"), py::arg("auditor"),
           py::arg("referee"));
  py::class_<bisection>(module, "DisputeBisection", py::module_local())
      .def_readonly("kind", &bisection::kind)
      .def_readonly("size", &bisection::size)
      .def_readonly("low", &bisection::low)
      .def_readonly("high", &bisection::high)
      .def_property_readonly("agreed", [](const bisection& self) { return to_bytes(self.agreed); })
      .def_property_readonly("claimed", [](const bisection& self) { return pair_of(self.claimed); })
      .def_readonly("asked", &bisection::asked);
  py::class_<turn>(module, "DisputeTurn", py::module_local())
      .def_readonly("who", &turn::who)
      .def_property_readonly("level", [](const turn& self) { return self.where.level; })
      .def_property_readonly("index", [](const turn& self) { return self.where.index; })
      .def_property_readonly("what", [](const turn& self) { return self.where.what; })
      .def_readonly("deadline", &turn::deadline);
  py::class_<proceedings>(module, "DisputeProceedings", py::module_local())
      .def(py::init([](const setting& known, const std::string& first) {
             return proceedings::begin(known, first).value();
           }),
           py::arg("setting"), py::arg("first_line"))
      .def(
          "append", [](proceedings& self, const std::string& line) { require(self.append(line)); },
          py::arg("line"))
      .def_property_readonly("verdict",
                             [](const proceedings& self) { return self.state().decided(); })
      .def_property_readonly("expected",
                             [](const proceedings& self) -> std::optional<turn> {
                               if (!self.state().expected().who) return std::nullopt;
                               return self.state().expected();
                             })
      .def_property_readonly(
          "is_referees_turn",
          [](const proceedings& self) { return self.state().is_referees_turn(); })
      .def_property_readonly("bisections",
                             [](const proceedings& self) { return self.state().bisections(); })
      .def_property_readonly("moves", [](const proceedings& self) { return self.state().moves(); })
      .def_property_readonly("head", [](const proceedings& self) { return to_bytes(self.head()); })
      .def_property_readonly("step", &proceedings::step)
      .def(
          "final_state",
          [](const proceedings& self, party one) {
            return to_bytes(*self.notes().of(one).final_state);
          },
          py::arg("party"))
      .def_property_readonly("inner", &proceedings::inner)
      .def_property_readonly("openings",
                             [](const proceedings& self) {
                               return py::make_tuple(self.openings().trainer,
                                                     self.openings().auditor);
                             })
      .def_property_readonly("asked", &proceedings::asked)
      .def_property_readonly("answers",
                             [](const proceedings& self) {
                               return py::make_tuple(to_bytes(self.answers().trainer.bytes),
                                                     to_bytes(self.answers().auditor.bytes));
                             })
      .def_property_readonly("message_bytes", &proceedings::message_bytes)
      .def(
          "trainers_rounding",
          [](const proceedings& self, const py::iterable& shown) -> py::object {
            std::vector<committed_record> records;
            for (py::handle one : shown) {
              const auto [record, index, proof] =
                  py::cast<std::tuple<py::buffer, std::uint64_t, py::iterable>>(one);
              records.push_back({index, copied(record), to_digests(proof)});
            }
            const auto found =
                last_rounding(records, self.step(), self.state().bisections()[0].size,
                              self.notes().trainer)
                    .value();
            if (!found) return py::none();
            return py::make_tuple(to_bytes(found->content), found->bytes);
          },
          py::arg("shown"));
}

void bind_referee(py::module_& module) {
  py::class_<referee>(module, "DisputeReferee", py::module_local())
      .def_static(
          "open",
          [](const setting& known, std::string trainer, std::string auditor, std::uint64_t turn_ms,
             const signing_key& key, std::uint64_t at) {
            return referee::open(known,
                                 {known.job, {std::move(trainer), std::move(auditor)}, turn_ms},
                                 another(key), at)
                .value();
          },
          py::arg("setting"), py::kw_only(), py::arg("trainer"), py::arg("auditor"),
          py::arg("turn_ms"), py::arg("key"), py::arg("at"))
      .def_static(
          "resume",
          [](const setting& known, const std::string& stored, const signing_key& key,
             std::uint64_t at) { return referee::resume(known, stored, another(key), at).value(); },
          py::arg("setting"), py::arg("transcript"), py::kw_only(), py::arg("key"), py::arg("at"))
      .def(
          "receive",
          [](referee& self, party from, const py::buffer& text, std::uint64_t at) {
            return self.receive(from, readable_buffer(text).bytes(), at);
          },
          py::arg("sender"), py::arg("text"), py::kw_only(), py::arg("at"))
      .def("tick", &referee::tick, py::kw_only(), py::arg("at"))
      .def(
          "decide",
          [](referee& self, const decision& made, std::uint64_t at) {
            return self.decide(made, at).value();
          },
          py::arg("decision"), py::kw_only(), py::arg("at"))
      .def(
          "author",
          [](const referee& self, const py::buffer& text) {
            return self.author(readable_buffer(text).bytes());
          },
          py::arg("text"))
      .def_property_readonly("proceedings", [](const referee& self) { return self.now(); })
      .def_property_readonly("transcript", &referee::transcript);
}

knowledge known_by(const py::function& claimed, const py::function& opened,
                   const py::function& answered) {
  return {[claimed](const proceedings& now) { return py::cast<claim>(claimed(now)); },
          [opened](const proceedings& now) { return py::cast<opening>(opened(now)); },
          [answered](const proceedings& now) {
            return answer{copied(py::cast<py::buffer>(answered(now)))};
          }};
}

void bind_player(py::module_& module) {
  py::class_<player>(module, "DisputePlayer", py::module_local())
      .def(py::init([](const setting& known, party self, const signing_key& key,
                       const std::string& first, const py::function& claimed,
                       const py::function& opened, const py::function& answered) {
             return player::join(known, self, another(key), known_by(claimed, opened, answered),
                                 first)
                 .value();
           }),
           py::arg("setting"), py::arg("party"), py::kw_only(), py::arg("key"),
           py::arg("first_line"), py::arg("claim"), py::arg("opening"), py::arg("answer"))
      .def(
          "follow", [](player& self, const std::string& line) { require(self.follow(line)); },
          py::arg("line"))
      .def("next_message", &player::next_message)
      .def_property_readonly("proceedings", [](const player& self) { return self.now(); });
}

judged judged_again(const setting& known, const std::string& transcript, const py::object& again) {
  recomputation recompute;
  if (!again.is_none()) {
    recompute = [&](const proceedings& before, const decision& made) -> status {
      const py::object refused = again(before, made);
      if (refused.is_none()) return unit{};
      return error{errc::mismatch, py::cast<std::string>(refused), ""};
    };
  }
  return judge_again(known, transcript, recompute).value();
}

}  // namespace

void bind_dispute(py::module_& module) {
  bind_decisions(module);
  bind_values_of_parties(module);
  bind_proceedings(module);
  bind_referee(module);
  bind_player(module);
  module.def("judge_dispute", &judged_again, py::arg("setting"), py::arg("transcript"),
             py::arg("again") = py::none());
}

}  // namespace potl::python
