// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <string>
#include <vector>

#include <potl/crypto/signature.hpp>

namespace {

using potl::as_bytes_view;
using potl::errc;
using potl::public_key;
using potl::signing_key;

signing_key key_of(char fill) {
  return signing_key::from_seed(as_bytes_view(std::string(32, fill))).value();
}

void check_refused(const potl::error& why) {
  CHECK(why.code == errc::malformed);
  CHECK(why.remedy.find("potl keygen") != std::string::npos);
}

}  // namespace

TEST_CASE("a signature verifies for its message and its key alone") {
  const signing_key key = key_of('a');
  const auto message = as_bytes_view("trained as agreed");
  const auto signature = key.sign(message);
  REQUIRE(key.verifier().verify(message, signature));
  REQUIRE(key.verifier().verify(as_bytes_view("trained otherwise"), signature).why().code ==
          errc::mismatch);
  REQUIRE_FALSE(key_of('b').verifier().verify(message, signature));
  for (std::size_t bit = 0; bit < 8 * signature.size(); ++bit) {
    auto damaged = signature;
    damaged[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    REQUIRE_FALSE(key.verifier().verify(message, damaged));
  }
  REQUIRE_FALSE(key.verifier().verify(message, potl::bytes_view(signature).first(63)));
  REQUIRE_FALSE(key.verifier().verify(message, {}));
}

TEST_CASE("keys survive the way through PEM, and moving") {
  signing_key key = signing_key::generate();
  const public_key verifier = key.verifier();
  const signing_key again = signing_key::from_pem(key.to_pem()).value();
  REQUIRE(again.verifier() == verifier);
  REQUIRE(again.sign(as_bytes_view("x")) == key.sign(as_bytes_view("x")));
  REQUIRE(public_key::from_pem(verifier.to_pem()).value() == verifier);
  REQUIRE(public_key::from_raw(verifier.raw()).value() == verifier);
  signing_key moved = std::move(key);
  REQUIRE(verifier.verify(as_bytes_view("x"), moved.sign(as_bytes_view("x"))));
  const signing_key last = std::move(moved);
  REQUIRE_THROWS_AS(moved.sign(as_bytes_view("x")), potl::exception);
}

TEST_CASE("two generated keys differ, and errors show a key as jobs do") {
  const signing_key a = signing_key::generate();
  const signing_key b = signing_key::generate();
  REQUIRE_FALSE(a.verifier() == b.verifier());
  const std::string shown = potl::digest{a.verifier().raw()}.hex();
  REQUIRE(a.verifier().hex() == shown);
  REQUIRE(a.verifier().verify({}, b.sign({})).why().message.find(shown) != std::string::npos);
}

TEST_CASE("what is not one Ed25519 PEM block is refused with the remedy") {
  const signing_key key = key_of('a');
  const std::string secret = key.to_pem();
  const std::string open = key.verifier().to_pem();
  // An X25519 public key (RFC 7748, section 6.1): right length, wrong algorithm.
  const std::string other =
      "-----BEGIN PUBLIC KEY-----\n"
      "MCowBQYDK2VuAyEAhSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\n"
      "-----END PUBLIC KEY-----\n";
  for (const std::string& text :
       {std::string(), std::string("potl"), secret, open + open, "comment\n" + open,
        open + "trailing", other, open.substr(0, open.size() / 2), std::string(1 << 20, 'A')}) {
    check_refused(public_key::from_pem(text).why());
  }
  std::string encrypted = secret;
  for (std::size_t at; (at = encrypted.find(" PRIVATE")) != std::string::npos;) {
    encrypted.replace(at, 8, " ENCRYPTED_PRIVATE");
  }
  for (const std::string& text :
       {std::string(), open, secret + secret, encrypted, secret.substr(0, secret.size() / 2)}) {
    check_refused(signing_key::from_pem(text).why());
  }
  REQUIRE(public_key::from_pem("\r\n" + open + "\n \n").has_value());
}

TEST_CASE("raw keys and seeds have 32 bytes") {
  const std::vector<std::uint8_t> bytes(33);
  for (std::size_t size : {0u, 31u, 33u}) {
    const auto view = potl::bytes_view(bytes).first(size);
    REQUIRE(public_key::from_raw(view).why().code == errc::malformed);
    REQUIRE(signing_key::from_seed(view).why().code == errc::malformed);
  }
}

TEST_CASE("a public key that is not a point verifies nothing") {
  const auto key = public_key::from_raw(as_bytes_view(std::string(32, '\xff'))).value();
  REQUIRE_FALSE(key.verify(as_bytes_view("x"), std::vector<std::uint8_t>(64)));
}
