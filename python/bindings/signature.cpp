// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/detail/signed_note.hpp>
#include <potl/crypto/signature.hpp>

#include "bindings.hpp"

namespace potl::python {
namespace {

void bind_keys(py::module_& module) {
  py::class_<public_key>(module, "PublicKey", py::module_local())
      .def_static(
          "from_raw",
          [](py::handle raw) { return public_key::from_raw(readable_buffer(raw).bytes()).value(); },
          py::arg("raw"))
      .def_static(
          "from_pem", [](const std::string& pem) { return public_key::from_pem(pem).value(); },
          py::arg("pem"))
      .def_property_readonly("raw", [](const public_key& key) { return to_bytes(key.raw()); })
      .def("to_pem", &public_key::to_pem)
      .def(
          "verify",
          [](const public_key& key, py::handle message, py::handle signature) {
            require(
                key.verify(readable_buffer(message).bytes(), readable_buffer(signature).bytes()));
          },
          py::arg("message"), py::arg("signature"))
      .def(
          "__eq__", [](const public_key& a, const public_key& b) { return a == b; },
          py::is_operator())
      .def("__hash__", [](const public_key& key) { return py::hash(to_bytes(key.raw())); })
      .def("__repr__", [](const public_key& key) { return "PublicKey(" + key.hex() + ")"; });

  py::class_<signing_key>(module, "SigningKey", py::module_local())
      .def_static("generate", &signing_key::generate)
      .def_static(
          "from_seed",
          [](py::handle seed) {
            return signing_key::from_seed(readable_buffer(seed).bytes()).value();
          },
          py::arg("seed"))
      .def_static(
          "from_pem", [](const std::string& pem) { return signing_key::from_pem(pem).value(); },
          py::arg("pem"))
      .def_property_readonly("public_key", [](const signing_key& key) { return key.verifier(); })
      .def(
          "sign",
          [](const signing_key& key, py::handle message) {
            return to_bytes(key.sign(readable_buffer(message).bytes()));
          },
          py::arg("message"))
      .def("to_pem", &signing_key::to_pem)
      .def("__repr__",
           [](const signing_key& key) { return "SigningKey(" + key.verifier().hex() + ")"; });
}

/// Notes are text, but files hold bytes: both are taken.
signed_note parse_any(py::handle text) {
  if (py::isinstance<py::str>(text)) {
    return parse_note(as_bytes_view(py::cast<std::string>(text))).value();
  }
  return parse_note(readable_buffer(text).bytes()).value();
}

void bind_notes(py::module_& module) {
  py::class_<checkpoint_note>(module, "CheckpointNote", py::module_local())
      .def(
          py::init([](std::string origin, std::uint64_t size, py::handle root,
                      std::vector<std::string> extensions) {
            return checkpoint_note{std::move(origin), size, to_digest(root), std::move(extensions)};
          }),
          py::arg("origin"), py::arg("size"), py::arg("root"),
          py::arg("extensions") = std::vector<std::string>{})
      .def_readonly("origin", &checkpoint_note::origin)
      .def_readonly("size", &checkpoint_note::size)
      .def_property_readonly("root",
                             [](const checkpoint_note& note) { return to_bytes(note.root); })
      .def_readonly("extensions", &checkpoint_note::extensions)
      .def("text", [](const checkpoint_note& note) { return note_text(note).value(); })
      .def(
          "sign",
          [](const checkpoint_note& note, const signing_key& key) {
            return sign_note(note, key).value();
          },
          py::arg("key"))
      .def(
          "__eq__", [](const checkpoint_note& a, const checkpoint_note& b) { return a == b; },
          py::is_operator());

  py::class_<signed_note>(module, "SignedNote", py::module_local())
      .def_static("parse", &parse_any, py::arg("text"))
      .def_readonly("note", &signed_note::note)
      .def_property_readonly("signatures",
                             [](const signed_note& note) {
                               std::vector<std::tuple<std::string, py::bytes, py::bytes>> list;
                               for (const note_signature& one : note.signatures) {
                                 list.emplace_back(one.key_name, to_bytes(one.key_hash),
                                                   to_bytes(one.signature));
                               }
                               return list;
                             })
      .def(
          "verify",
          [](const signed_note& note, const public_key& key) { require(verify_note(note, key)); },
          py::arg("key"))
      .def("__str__", [](const signed_note& note) { return format_note(note).value(); });
}

}  // namespace

void bind_signatures(py::module_& module) {
  module.attr("MAX_NOTE_BYTES") = note_limit_bytes;
  bind_keys(module);
  bind_notes(module);
}

}  // namespace potl::python
