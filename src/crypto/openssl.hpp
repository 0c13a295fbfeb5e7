// SPDX-License-Identifier: Apache-2.0
// What the bodies in this folder share: owners of OpenSSL objects and one way to fail.
#pragma once

#include <memory>
#include <string>

#include <openssl/err.h>
#include <openssl/evp.h>

#include <potl/core/error.hpp>

namespace potl::detail {

template <auto Free>
struct openssl_deleter {
  template <class Object>
  void operator()(Object* object) const noexcept {
    Free(object);
  }
};

using digest_context = std::unique_ptr<EVP_MD_CTX, openssl_deleter<EVP_MD_CTX_free>>;
using mac_context = std::unique_ptr<EVP_MAC_CTX, openssl_deleter<EVP_MAC_CTX_free>>;
using key_handle = std::unique_ptr<EVP_PKEY, openssl_deleter<EVP_PKEY_free>>;
using key_context = std::unique_ptr<EVP_PKEY_CTX, openssl_deleter<EVP_PKEY_CTX_free>>;

/// Throws errc::internal with the name of the failed call and OpenSSL's reason; leaves its error
/// queue empty.
[[noreturn]] inline void throw_openssl(const char* call) {
  const unsigned long code = ERR_get_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  throw exception(error{
      errc::internal,
      std::string("OpenSSL: ") + call + " failed" + (reason ? std::string(": ") + reason : ""),
      "run `potl doctor`"});
}

inline void require(bool success, const char* call) {
  if (!success) throw_openssl(call);
}

}  // namespace potl::detail
