// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/work.hpp>

#include "transcript.hpp"

namespace potl::python {

using namespace transcript;

void bind_work(py::module_& module) {
  module.attr("WORK_HEADER_BYTES") = work_header_bytes;
  module.def(
      "work_code",
      [](py::handle nonce, py::handle job_id, std::uint64_t step, const state& before,
         const state& after) {
        const digest key = to_digest(nonce), job = to_digest(job_id);
        work_code made;
        {
          const py::gil_scoped_release released;
          made = code_of_work(key, job, step, before, after);
        }
        return py::make_tuple(to_bytes(made.code), made.changed);
      },
      py::arg("nonce"), py::arg("job_id"), py::arg("step"), py::arg("before"), py::arg("after"));
  module.def(
      "work_file_header",
      [](py::handle job_id, py::handle nonce) {
        return to_bytes(work_file_header(to_digest(job_id), to_digest(nonce)));
      },
      py::arg("job_id"), py::arg("nonce"));
  module.def(
      "read_work_file",
      [](py::handle data, py::handle job_id, py::handle nonce, std::uint64_t max_steps) {
        const readable_buffer buffer(data);
        return to_bytes_list(
            read_work_file(buffer.bytes(), to_digest(job_id), to_digest(nonce), max_steps).value());
      },
      py::arg("data"), py::arg("job_id"), py::arg("nonce"), py::arg("max_steps"));
  module.def(
      "sign_work_note",
      [](py::handle job_id, py::handle nonce, const py::object& commitment,
         const py::iterable& codes, const signing_key& key) {
        std::optional<digest> bound;
        if (!commitment.is_none()) bound = to_digest(commitment);
        return sign_work_note(to_digest(job_id), to_digest(nonce), bound, to_digests(codes), key)
            .value();
      },
      py::arg("job_id"), py::arg("nonce"), py::arg("commitment"), py::arg("codes"), py::arg("key"));
  module.def(
      "verify_work_note",
      [](const std::string& text, py::handle job_id, py::handle nonce, const py::iterable& codes,
         const public_key& key) -> py::object {
        const work_note note = parse_work_note(text).value();
        require(
            verify_work_note(note, to_digest(job_id), to_digest(nonce), to_digests(codes), key));
        if (!note.commitment) return py::none();
        return to_bytes(*note.commitment);
      },
      py::arg("text"), py::arg("job_id"), py::arg("nonce"), py::arg("codes"), py::arg("key"));
}

}  // namespace potl::python
