// SPDX-License-Identifier: Apache-2.0
#include <potl/attestation.hpp>

#include <optional>
#include <string>
#include <utility>

#include "bindings.hpp"

namespace potl::python {

void bind_attestation(py::module_& module) {
  module.attr("MAX_ATTESTATION_BYTES") = max_attestation_bytes;
  module.def(
      "sign_attestation",
      [](py::handle report, const signing_key& key, const std::string& signed_at) {
        const json_value document = parse_json(readable_buffer(report).bytes()).value();
        return py::bytes(sign_attestation(document, key, signed_at).value());
      },
      py::arg("report"), py::arg("key"), py::kw_only(), py::arg("signed_at"));
  module.def(
      "open_attestation",
      [](py::handle envelope, const public_key& signer, std::optional<std::string> model,
         const py::object& job, std::optional<std::string> commitment, const py::object& trainer) {
        attested held{.model = std::move(model), .job = {}, .commitment = std::move(commitment)};
        if (!job.is_none()) held.job = to_digest(job);
        if (!trainer.is_none()) held.trainer = to_digest(trainer);
        const readable_buffer text(envelope);
        const attestation got = [&] {
          const py::gil_scoped_release released;
          return open_attestation(text.bytes(), signer, held).value();
        }();
        return py::make_tuple(py::bytes(canonical_json(got.report)), got.signed_at);
      },
      py::arg("envelope"), py::arg("signer"), py::kw_only(), py::arg("model") = py::none(),
      py::arg("job") = py::none(), py::arg("commitment") = py::none(),
      py::arg("trainer") = py::none());
}

}  // namespace potl::python
