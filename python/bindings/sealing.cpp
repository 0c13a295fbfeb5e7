// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/sealing.hpp>

#include "bindings.hpp"

namespace potl::python {

void bind_sealing(py::module_& module) {
  py::class_<sealing_key>(module, "SealingKey", py::module_local())
      .def_static(
          "from_raw",
          [](py::handle raw) {
            return sealing_key::from_raw(readable_buffer(raw).bytes()).value();
          },
          py::arg("raw"))
      .def_static(
          "from_pem", [](const std::string& pem) { return sealing_key::from_pem(pem).value(); },
          py::arg("pem"))
      .def_property_readonly("raw", [](const sealing_key& key) { return to_bytes(key.raw()); })
      .def_property_readonly("key_id", &sealing_key::key_id)
      .def("to_pem", &sealing_key::to_pem);

  py::class_<opening_key>(module, "OpeningKey", py::module_local())
      .def_static("generate", &opening_key::generate)
      .def_static(
          "from_pem", [](const std::string& pem) { return opening_key::from_pem(pem).value(); },
          py::arg("pem"))
      .def_property_readonly("public_key", [](const opening_key& key) { return key.sealer(); })
      .def("to_pem", &opening_key::to_pem);

  py::class_<frame_sealer>(module, "FrameSealer", py::module_local())
      .def(py::init([](const sealing_key& key, py::handle info) {
             return frame_sealer(key, readable_buffer(info).bytes());
           }),
           py::arg("key"), py::arg("info"))
      .def_property_readonly("head",
                             [](const frame_sealer& sealer) { return to_bytes(sealer.head()); })
      .def(
          "seal",
          [](frame_sealer& sealer, py::handle plain, bool last) {
            return to_bytes(sealer.seal(readable_buffer(plain).bytes(), last));
          },
          py::arg("plain"), py::arg("last"));

  py::class_<frame_opener>(module, "FrameOpener", py::module_local())
      .def(py::init([](const opening_key& key, py::handle head, py::handle info) {
             return frame_opener::begin(key, readable_buffer(head).bytes(),
                                        readable_buffer(info).bytes())
                 .value();
           }),
           py::arg("key"), py::arg("head"), py::arg("info"))
      .def(
          "open",
          [](frame_opener& opener, py::handle sealed, bool last) {
            return to_bytes(opener.open(readable_buffer(sealed).bytes(), last).value());
          },
          py::arg("sealed"), py::arg("last"));
}

}  // namespace potl::python
