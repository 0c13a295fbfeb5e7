// SPDX-License-Identifier: Apache-2.0
#include <potl/core/error.hpp>

namespace potl {

const char* to_string(errc code) noexcept {
  switch (code) {
    case errc::malformed: return "malformed";
    case errc::limit: return "limit";
    case errc::mismatch: return "mismatch";
    case errc::missing: return "missing";
    case errc::io: return "io";
    case errc::usage: return "usage";
    case errc::unsupported: return "unsupported";
    case errc::internal: return "internal";
  }
  return "internal";
}

}  // namespace potl
