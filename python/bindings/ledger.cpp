// SPDX-License-Identifier: Apache-2.0
// The ledger for Python: challenges as (nonce, checks, time, document), commitments as text.
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <potl/encoding/json.hpp>
#include <potl/evidence/detail/ledger.hpp>

#include "bindings.hpp"

namespace potl::python {
namespace {

using transcript::ledger_challenge;
using transcript::ledger_memory;

py::tuple to_tuple(const ledger_memory& known) {
  const auto challenges = list_of(known.challenges, [](const ledger_challenge& one) {
    const auto checks = list_of(one.checks, [](const auto& check) {
      return py::make_tuple(check.first, to_python(check.second));
    });
    return py::make_tuple(one.nonce.hex(), py::tuple(checks), one.time,
                          one.document ? py::object(py::str(one.document->hex())) : py::none());
  });
  return py::make_tuple(challenges, known.commitments);
}

ledger_challenge to_challenge(const py::tuple& from) {
  ledger_challenge out;
  out.nonce = to_digest(from[0]);
  for (const py::handle pair : py::cast<py::iterable>(from[1])) {
    const auto [name, options] = py::cast<std::pair<std::string, py::object>>(pair);
    out.checks.emplace_back(name, to_json(options));
  }
  out.time = py::cast<double>(from[2]);
  if (!from[3].is_none()) out.document = to_digest(from[3]);
  return out;
}

}  // namespace

void bind_ledger(py::module_& module) {
  module.def(
      "default_ledger",
      [](py::handle job) { return transcript::default_ledger(to_digest(job)).value(); },
      py::arg("job"));
  module.def(
      "recall",
      [](const file_path& path, py::handle job) {
        return to_tuple(transcript::recall(path, to_digest(job)).value());
      },
      py::arg("path"), py::arg("job"));
  module.def(
      "remember",
      [](const file_path& path, py::handle job, const std::optional<std::string>& commitment,
         const std::optional<py::tuple>& challenge) {
        const digest id = to_digest(job);
        std::optional<ledger_challenge> asked;
        if (challenge) asked = to_challenge(*challenge);
        const ledger_memory before = [&] {
          const py::gil_scoped_release released;  // another process may have it
          return transcript::remember(path, id, commitment, asked,
                                      [] {
                                        const py::gil_scoped_acquire held;
                                        if (PyErr_CheckSignals() != 0)
                                          throw py::error_already_set();
                                      })
              .value();
        }();
        return to_tuple(before);
      },
      py::arg("path"), py::arg("job"), py::arg("commitment"), py::arg("challenge"));
}

}  // namespace potl::python
