// SPDX-License-Identifier: Apache-2.0
// What `potl doctor` asks the C++ side: its arithmetic, its libraries, its compiler.
#include <openssl/crypto.h>

#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/numeric/detail/fp_environment.hpp>
#include <potl/numeric/detail/isa.hpp>

#include "bindings.hpp"

namespace potl::python {

void bind_environment(py::module_& module) {
  module.def("fp_environment", [] {
    py::dict out;
    for (const fp_check& check : fp_environment()) {
      out[py::str(check.name.data(), check.name.size())] =
          py::make_tuple(check.ok, check.ok ? std::string(check.meaning) : check.cause);
    }
    return out;
  });
  module.def("processor_name", &numeric::processor_name);
  module.def("build_info", [] {
    py::dict out;
    out["openssl"] = OpenSSL_version(OPENSSL_VERSION);
    out["compiler"] = __VERSION__;
    out["hashes_chunks_together"] = hashes_chunks_together();
#ifdef NDEBUG
    out["assertions"] = false;
#else
    out["assertions"] = true;
#endif
    return out;
  });
}

}  // namespace potl::python
