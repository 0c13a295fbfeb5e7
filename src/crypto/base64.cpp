// SPDX-License-Identifier: Apache-2.0
#include "base64.hpp"

#include <openssl/evp.h>

namespace potl::detail {

std::string to_base64(bytes_view bytes) {
  // EVP_EncodeBlock also writes a terminating zero.
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes.data(),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

result<std::vector<std::uint8_t>> from_base64(std::string_view text) {
  const error bad{errc::malformed, "this is not base64 in its canonical form", ""};
  std::vector<std::uint8_t> bytes(text.size() / 4 * 3);
  const int length =
      EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()),
                      static_cast<int>(text.size()));
  if (length < 0 || text.size() % 4 != 0) return bad;
  // OpenSSL counts padding as bytes and forgives white space and stray bits: comparing with what it
  // would have written leaves the canonical form alone.
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  bytes.resize(static_cast<std::size_t>(length) - padding);
  if (to_base64(bytes) != text) return bad;
  return bytes;
}

}  // namespace potl::detail
