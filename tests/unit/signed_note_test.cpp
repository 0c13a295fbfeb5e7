// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <string>

#include <potl/crypto/detail/signed_note.hpp>
#include <potl/crypto/hasher.hpp>

namespace {

using potl::as_bytes_view;
using potl::errc;

const std::string mark = "\xe2\x80\x94 ";

potl::signing_key key_of(char fill) {
  return potl::signing_key::from_seed(as_bytes_view(std::string(32, fill))).value();
}

potl::checkpoint_note example() {
  return {"potl/v1/" + std::string(64, 'a'),
          1207,
          potl::sha256_of(as_bytes_view("root")),
          {"state " + std::string(64, 'b'), "closed"}};
}

auto parse(std::string_view text) { return potl::parse_note(as_bytes_view(text)); }

}  // namespace

TEST_CASE("a note is parsed to what was signed, verifies, and formats to the same bytes") {
  for (std::size_t extensions = 0; extensions <= 2; ++extensions) {
    potl::checkpoint_note note = example();
    note.extensions.resize(extensions);
    const std::string text = potl::sign_note(note, key_of('k')).value();
    const potl::signed_note parsed = parse(text).value();
    REQUIRE(parsed.note == note);
    REQUIRE(potl::format_note(parsed).value() == text);
    REQUIRE(potl::verify_note(parsed, key_of('k').verifier()));
  }
}

TEST_CASE("the text form is the one of transparency logs") {
  potl::checkpoint_note note = example();
  const std::string text = potl::sign_note(note, key_of('k'), "trainer").value();
  REQUIRE(text.starts_with("potl/v1/" + std::string(64, 'a') +
                           "\n1207\nSBNJTRN+FjG7owHVrKtue7eqdM4RhdRWVl71HXN2d7I=\nstate "));
  REQUIRE(text.find("\nclosed\n\n" + mark + "trainer ") != std::string::npos);
  // C2SP signed-note: SHA-256(key name, newline, algorithm 1, key).
  const potl::digest hash =
      potl::sha256_of(as_bytes_view("trainer\n\x01"), key_of('k').verifier().raw());
  const auto parsed = parse(text).value();
  REQUIRE(std::equal(parsed.signatures[0].key_hash.begin(), parsed.signatures[0].key_hash.end(),
                     hash.bytes.begin()));
}

TEST_CASE("every changed bit of a note is refused") {
  const std::string text = potl::sign_note(example(), key_of('k')).value();
  const potl::public_key key = key_of('k').verifier();
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    const auto parsed = parse(damaged);
    REQUIRE_FALSE((parsed && potl::verify_note(*parsed, key)));
  }
}

TEST_CASE("every truncation of a note is malformed") {
  const std::string text = potl::sign_note(example(), key_of('k')).value();
  for (std::size_t size = 0; size < text.size(); ++size) {
    REQUIRE(parse(text.substr(0, size)).why().code == errc::malformed);
  }
}

TEST_CASE("a signature by another key, name or note is not this one") {
  const potl::public_key key = key_of('k').verifier();
  const auto by_other = parse(potl::sign_note(example(), key_of('x')).value()).value();
  REQUIRE(potl::verify_note(by_other, key).why().code == errc::missing);
  const auto named = parse(potl::sign_note(example(), key_of('k'), "trainer").value()).value();
  REQUIRE(potl::verify_note(named, key).why().code == errc::missing);
  REQUIRE(potl::verify_note(named, key, "trainer"));
  auto moved = parse(potl::sign_note(example(), key_of('k')).value()).value();
  moved.note.size += 1;
  REQUIRE(potl::verify_note(moved, key).why().code == errc::mismatch);
}

TEST_CASE("witnesses' signatures are kept and ignored, a bad one beside a good one is not") {
  auto note = parse(potl::sign_note(example(), key_of('k')).value()).value();
  const potl::public_key key = key_of('k').verifier();
  note.signatures.push_back({"witness.example", {1, 2, 3, 4}, {9, 9, 9}});
  const std::string text = potl::format_note(note).value();
  REQUIRE(parse(text).value() == note);
  REQUIRE(potl::verify_note(note, key));
  note.signatures.push_back(note.signatures[0]);
  note.signatures.back().signature[5] ^= 1;
  REQUIRE(potl::verify_note(note, key).why().code == errc::mismatch);
}

TEST_CASE("other forms of the same content are malformed") {
  const std::string root = "SBNJTRN+FjG7owHVrKtue7eqdM4RhdRWVl71HXN2d7I=";
  const std::string signature = "\n" + mark + "k AAAAAQI=\n";
  REQUIRE(parse("o\n1\n" + root + "\n" + signature));
  REQUIRE(parse("o\n18446744073709551615\n" + root + "\n" + signature));
  for (const std::string& text : {
           "\n1\n" + root + "\n" + signature,                                   // no origin
           "o\n01\n" + root + "\n" + signature,                                 // leading zero
           "o\n+1\n" + root + "\n" + signature,                                 // sign
           "o\n\n" + root + "\n" + signature,                                   // no size
           "o\n18446744073709551616\n" + root + "\n" + signature,               // beyond 64 bits
           "o\n1 \n" + root + "\n" + signature,                                 // space
           "o\n1\n" + root.substr(0, 43) + "\n" + signature,                    // no padding
           "o\n1\nSBNJTRN+FjG7owHVrKtue7eqdM4RhdRWVl71HXN2d7J=\n" + signature,  // stray bits
           "o\n1\n " + root + "\n" + signature,                                 // space
           "o\n1\nAAAA\n" + signature,                                          // short root
           "o\n1\n" + root + "\n\n" + signature,                                // empty extension
           "o\n1\n" + root + "\nx\r\n" + signature,                             // control character
           "o\n1\n" + root + "\n\xc3\xa9\n" + signature,                        // not ASCII
           "o\n1\n" + root + "\n",                                              // no signatures
           "o\n1\n" + root + "\n\n",                                            //
           "o\n1\n" + root + "\n\n- k AAAAAQI=\n",                              // no em dash
           "o\n1\n" + root + "\n\n" + mark + "k+ AAAAAQI=\n",                   // plus in the name
           "o\n1\n" + root + "\n\n" + mark + " AAAAAQI=\n",                     // empty name
           "o\n1\n" + root + "\n\n" + mark + "k AAAAAQ==\n",   // hash without signature
           "o\n1\n" + root + "\n\n" + mark + "k AAAAAQI=",     // no newline
           "o\n1\n" + root + "\n\n" + mark + "k AAAAAQI=\nx",  // text behind
       }) {
    CAPTURE(text);
    CHECK(parse(text).why().code == errc::malformed);
  }
}

TEST_CASE("of two empty lines the first is an extension, which none may be") {
  const std::string note = "o\n1\nSBNJTRN+FjG7owHVrKtue7eqdM4RhdRWVl71HXN2d7I=\n";
  const auto refused = parse(note + "\nx\n\n" + mark + "k AAAAAQI=\n").why();
  REQUIRE(refused.code == errc::malformed);
  REQUIRE(refused.message.find("an extension line") != std::string::npos);
}

TEST_CASE("a note beyond 64 KiB or 16 signatures is refused by its size") {
  REQUIRE(parse(std::string(potl::note_limit_bytes + 1, '\n')).why().code == errc::limit);
  potl::signed_note note{example(), {}};
  note.signatures.assign(16, {"witness", {}, {1}});
  const std::string text = potl::format_note(note).value();
  REQUIRE(parse(text));
  REQUIRE(parse(text + mark + "witness AAAAAAE=\n").why().code == errc::limit);
  note.signatures[0].signature.resize(potl::note_limit_bytes);
  REQUIRE(potl::format_note(note).why().code == errc::limit);
}

TEST_CASE("a note that could not be read again is not written") {
  const potl::signing_key key = key_of('k');
  potl::checkpoint_note note = example();
  note.extensions = {"two\nlines"};
  REQUIRE(potl::sign_note(note, key).why().code == errc::usage);
  note.extensions = {""};
  REQUIRE(potl::sign_note(note, key).why().code == errc::usage);
  note.extensions.clear();
  REQUIRE(potl::sign_note(note, key, "two words").why().code == errc::usage);
  note.origin = "";
  REQUIRE(potl::sign_note(note, key).why().code == errc::usage);
  REQUIRE(potl::format_note({example(), {}}).why().code == errc::usage);
}
