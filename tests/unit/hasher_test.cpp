// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <string>
#include <vector>

#include <potl/crypto/detail/one_time_code.hpp>
#include <potl/crypto/hasher.hpp>

namespace {

using potl::as_bytes_view;

std::vector<std::uint8_t> some_bytes(std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(i * 131 + i / 256);
  return bytes;
}

// RFC 8439, 2.5.2.
const potl::digest code_key =
    potl::digest::from_hex("85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b")
        .value();
const std::string code_message = "Cryptographic Forum Research Group";
constexpr potl::one_time_code::value expected_code{0xa8, 0x06, 0x1d, 0xc1, 0x30, 0x51, 0x36, 0xc6,
                                                   0xc2, 0x2b, 0x8b, 0xaf, 0x0c, 0x01, 0x27, 0xa9};

}  // namespace

TEST_CASE("SHA-256 of the examples in FIPS 180") {
  REQUIRE(potl::sha256_of(potl::bytes_view{}).hex() ==
          "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  REQUIRE(potl::sha256_of(as_bytes_view("abc")).hex() ==
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("SHA-256 does not depend on how the message is cut") {
  const auto bytes = some_bytes(1000);
  const potl::bytes_view all(bytes);
  const potl::digest expected = potl::sha256_of(all);
  for (std::size_t cut = 0; cut <= bytes.size(); cut += 7) {
    potl::sha256 hasher;
    hasher.update(all.first(cut)).update({}).update(all.subspan(cut));
    REQUIRE(hasher.finish() == expected);
    REQUIRE(potl::sha256_of(all.first(cut), all.subspan(cut)) == expected);
  }
}

TEST_CASE("a hasher is ready for the next message after finish and after reset") {
  potl::sha256 hasher;
  const potl::digest empty = hasher.finish();
  hasher.update(as_bytes_view("abc"));
  const potl::digest abc = hasher.finish();
  REQUIRE(hasher.finish() == empty);
  hasher.update(as_bytes_view("something else"));
  hasher.reset();
  hasher.update(as_bytes_view("abc"));
  REQUIRE(hasher.finish() == abc);
  potl::sha256 moved = std::move(hasher);
  moved.update(as_bytes_view("abc"));
  REQUIRE(moved.finish() == abc);
}

TEST_CASE("HMAC of RFC 4231, test case 2, and with an empty key") {
  const auto key = as_bytes_view("Jefe");
  const auto message = as_bytes_view("what do ya want for nothing?");
  REQUIRE(potl::hmac_sha256(key, message).hex() ==
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  REQUIRE(potl::hmac_sha512(key, message)[0] == 0x16);
  REQUIRE(potl::hmac_sha256({}, {}).hex() ==
          "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST_CASE("HMAC of RFC 4231, test cases 3 and 6: a key as long as the message, a longer one") {
  const std::vector<std::uint8_t> fifty(50, 0xdd), twenty(20, 0xaa), long_key(131, 0xaa);
  REQUIRE(potl::hmac_sha256(twenty, fifty).hex() ==
          "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  REQUIRE(potl::hmac_sha256(long_key,
                            as_bytes_view("Test Using Larger Than Block-Size Key - Hash Key First"))
              .hex() == "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  // Keys at the block's size: equal keys after padding, and none that is hashed.
  std::vector<std::uint8_t> block(64, 0);
  REQUIRE(potl::hmac_sha256(block, fifty) == potl::hmac_sha256({}, fifty));
  block.push_back(0);
  REQUIRE(potl::hmac_sha256(block, fifty) != potl::hmac_sha256({}, fifty));
}

TEST_CASE("one HMAC key serves many messages") {
  potl::hmac_sha256_key key(as_bytes_view("key"));
  const potl::digest first = key.of(as_bytes_view("one"));
  const potl::digest second = key.of(as_bytes_view("two"));
  REQUIRE(first != second);
  REQUIRE(key.of(as_bytes_view("one")) == first);
  REQUIRE(potl::hmac_sha256(as_bytes_view("key"), as_bytes_view("two")) == second);
}

TEST_CASE("an object that goes on with another key is one of that key") {
  const auto message = as_bytes_view("message");
  potl::hmac_sha256_key key(as_bytes_view("one"));
  for (const char* name : {"two", "one"}) {  // before and after the first message
    key.rekey(as_bytes_view(name));
    REQUIRE(key.of(message) == potl::hmac_sha256(as_bytes_view(name), message));
    REQUIRE(key.of(message) == potl::hmac_sha256(as_bytes_view(name), message));
  }
  key.rekey({});  // an empty key is one, too
  REQUIRE(key.of(message) == potl::hmac_sha256({}, message));
}

TEST_CASE("constant-time equality compares lengths and bytes") {
  REQUIRE(potl::equal_constant_time(as_bytes_view("abc"), as_bytes_view("abc")));
  REQUIRE_FALSE(potl::equal_constant_time(as_bytes_view("abc"), as_bytes_view("abd")));
  REQUIRE_FALSE(potl::equal_constant_time(as_bytes_view("abc"), as_bytes_view("ab")));
  REQUIRE(potl::equal_constant_time({}, {}));
}

TEST_CASE("the code of the example in RFC 8439, however the message is cut") {
  const potl::bytes_view all = potl::as_bytes_view(code_message);
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    potl::one_time_code code(code_key);
    code.update(all.first(cut)).update(all.subspan(cut));
    CHECK(code.finish() == expected_code);
  }
}

TEST_CASE("a code is of its key and of every bit of the message") {
  const auto code_of = [](const potl::digest& with, const std::string& text) {
    return potl::one_time_code(with).update(potl::as_bytes_view(text)).finish();
  };
  for (std::size_t bit = 0; bit < 8 * code_message.size(); ++bit) {
    std::string other = code_message;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << (bit % 8)));
    CHECK(code_of(code_key, other) != expected_code);
  }
  CHECK(code_of(code_key, code_message + '\0') != expected_code);
  potl::digest another = code_key;
  another.bytes[3] ^= 1;
  CHECK(code_of(another, code_message) != expected_code);
}

#if defined(__x86_64__)
namespace {

/// Whether the thread has numbers in the upper halves of vector registers.
bool upper_halves_in_use() {
  std::uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return (low & 4) != 0;
}

}  // namespace

TEST_CASE("a code leaves nothing in vector registers that later instructions wait for") {
  unsigned a = 13, b = 0, c = 1, d = 0;  // what the processor saves of its registers
  asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  const bool is_told = __builtin_cpu_supports("avx") && (a & 4) != 0;
  if (is_told) asm volatile("vzeroupper");
  if (!is_told || upper_halves_in_use()) {
    SUCCEED("this processor does not tell");
    return;
  }
  for (const std::string& message : {std::string(2, 'm'), std::string(1000, 'm')}) {
    static_cast<void>(potl::one_time_code(code_key).update(as_bytes_view(message)).finish());
    CHECK_FALSE(upper_halves_in_use());
  }
}
#endif
