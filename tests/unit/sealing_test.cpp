// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <map>
#include <string>
#include <vector>

#include <crypto/hpke.hpp>
#include <potl/crypto/sealing.hpp>
#include <potl/crypto/signature.hpp>

namespace {

using potl::as_bytes_view;
using potl::errc;
using potl::frame_opener;
using potl::frame_sealer;
using potl::opening_key;
using potl::sealing_key;
using frame = std::vector<std::uint8_t>;

frame from_hex(const std::string& text) {
  frame out;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    out.push_back(static_cast<std::uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return out;
}

potl::detail::raw_key raw_from(const std::string& text) {
  const frame bytes = from_hex(text);
  potl::detail::raw_key out{};
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

potl::detail::key_handle secret_from(const std::string& text) {
  const frame raw = from_hex(text);
  return potl::detail::key_handle(
      EVP_PKEY_new_raw_private_key_ex(nullptr, "X25519", nullptr, raw.data(), raw.size()));
}

std::string text_of(const frame& bytes) { return {bytes.begin(), bytes.end()}; }

/// Three frames and what opens them.
struct stream {
  opening_key key = opening_key::generate();
  frame_sealer sealer{key.sealer(), as_bytes_view("what both know")};
  std::vector<frame> frames{sealer.seal(as_bytes_view("one"), false),
                            sealer.seal(as_bytes_view("two"), false), sealer.seal({}, true)};

  frame_opener opener(std::string_view info = "what both know") const {
    return frame_opener::begin(key, sealer.head(), as_bytes_view(info)).value();
  }
};

}  // namespace

TEST_CASE("HPKE gives what appendix A.2.1 of RFC 9180 says") {
  const auto fresh =
      secret_from("f4ec9b33b792c372c1d2c2063507b684ef925b8c75a42dbcbf57d63ccd381600");
  const auto receiver =
      secret_from("8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb");
  const auto public_half =
      raw_from("4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a");
  const std::string shared = "0bbe78490412b4bbea4812666f7916932b828bba79942424abb65244930d69a7";
  REQUIRE(potl::detail::raw_public(receiver.get()) == public_half);
  const auto sent = potl::detail::hpke_encapsulate(fresh.get(), public_half).value();
  CHECK(sent.key == raw_from("1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a"));
  CHECK(sent.secret.hex() == shared);
  CHECK(potl::detail::hpke_decapsulate(receiver.get(), sent.key).value() == sent.secret);

  const std::string ode = "Ode on a Grecian Urn";
  const std::string plain = "Beauty is truth, truth beauty";
  // By sequence number; the associated data is "Count-" and that number.
  const std::map<int, std::string> sealed = {
      {0,
       "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a2"
       "8"},
      {1,
       "6b53c051e4199c518de79594e1c4ab18b96f081549d45ce015be002090bb119e85285337cc95ba5f59992dc98"
       "c"},
      {2,
       "71146bd6795ccc9c49ce25dda112a48f202ad220559502cef1f34271e0cb4b02b4f10ecac6f48c32f878fae86"
       "b"},
      {4,
       "63357a2aa291f5a4e5f27db6baa2af8cf77427c7c1a909e0b37214dd47db122bb153495ff0b02e9e54a50dbe1"
       "6"},
  };
  potl::detail::hpke_context sealer(sent.secret, as_bytes_view(ode));
  potl::detail::hpke_context opener(sent.secret, as_bytes_view(ode));
  for (int number = 0; number <= 4; ++number) {
    const std::string count = "Count-" + std::to_string(number);
    const frame made = sealer.seal(as_bytes_view(count), as_bytes_view(plain));
    if (sealed.count(number) != 0) CHECK(made == from_hex(sealed.at(number)));
    CHECK(text_of(opener.open(as_bytes_view(count), made).value()) == plain);
  }
}

TEST_CASE("frames open in their order, and the last is known as the last") {
  const stream sent;
  frame_opener opener = sent.opener();
  CHECK(text_of(opener.open(sent.frames[0], false).value()) == "one");
  CHECK(text_of(opener.open(sent.frames[1], false).value()) == "two");
  CHECK(opener.open(sent.frames[2], true).value().empty());
  CHECK(sent.frames[0].size() == 3 + potl::sealed_frame_extra);
  REQUIRE_THROWS_AS(opener.open(sent.frames[2], true), potl::exception);
}

TEST_CASE("a stream that was cut, reordered or repeated does not open") {
  const stream sent;
  const auto refused = [&](std::vector<std::pair<int, bool>> frames) {
    frame_opener opener = sent.opener();
    for (std::size_t i = 0; i + 1 < frames.size(); ++i) {
      REQUIRE(
          opener.open(sent.frames[static_cast<std::size_t>(frames[i].first)], frames[i].second));
    }
    const auto opened = opener.open(sent.frames[static_cast<std::size_t>(frames.back().first)],
                                    frames.back().second);
    REQUIRE_FALSE(opened);
    CHECK(opened.why().code == errc::mismatch);
  };
  refused({{1, false}});
  refused({{0, true}});
  refused({{0, false}, {0, false}});
  refused({{0, false}, {2, false}});
  refused({{0, false}, {2, true}});
  refused({{0, false}, {1, true}});
  refused({{0, false}, {1, false}, {2, false}});
}

TEST_CASE("every bit of a stream counts, and so do key and info") {
  const stream sent;
  for (std::size_t bit = 0; bit < 8 * sent.frames[0].size(); ++bit) {
    frame damaged = sent.frames[0];
    damaged[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    frame_opener opener = sent.opener();
    REQUIRE_FALSE(opener.open(damaged, false));
    REQUIRE(opener.open(sent.frames[0], false));
  }
  for (std::size_t bit = 0; bit < 8 * sealing_key::size; ++bit) {
    auto head = sent.sealer.head();
    head[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    auto opener = frame_opener::begin(sent.key, head, as_bytes_view("what both know"));
    REQUIRE((!opener || !opener->open(sent.frames[0], false)));
  }
  for (std::size_t size = 0; size < sent.frames[0].size(); ++size) {
    REQUIRE_FALSE(sent.opener().open(potl::bytes_view(sent.frames[0]).first(size), false));
  }
  REQUIRE_FALSE(sent.opener("what both knew").open(sent.frames[0], false));
  auto other = frame_opener::begin(opening_key::generate(), sent.sealer.head(),
                                   as_bytes_view("what both know"));
  REQUIRE_FALSE(other->open(sent.frames[0], false));
}

TEST_CASE("the same is sealed differently each time") {
  const opening_key key = opening_key::generate();
  frame_sealer a(key.sealer(), {});
  frame_sealer b(key.sealer(), {});
  REQUIRE(a.head() != b.head());
  REQUIRE(a.seal(as_bytes_view("x"), true) != b.seal(as_bytes_view("x"), true));
}

TEST_CASE("a point of small order is no key and no head") {
  // The neutral element, a point of order 8 (RFC 7748, section 6.1; Wycheproof).
  for (const char* text : {"0000000000000000000000000000000000000000000000000000000000000000",
                           "0100000000000000000000000000000000000000000000000000000000000000",
                           "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"}) {
    REQUIRE(sealing_key::from_raw(from_hex(text)).why().code == errc::malformed);
    const auto opener = frame_opener::begin(opening_key::generate(), from_hex(text), {});
    REQUIRE(opener.why().code == errc::malformed);
  }
  REQUIRE_FALSE(sealing_key::from_raw(std::vector<std::uint8_t>(31, 9)));
  REQUIRE_FALSE(frame_opener::begin(opening_key::generate(), std::vector<std::uint8_t>(33, 9), {}));
}

TEST_CASE("keys for encryption survive the way through PEM, and are no keys for signatures") {
  opening_key key = opening_key::generate();
  const sealing_key sealer = key.sealer();
  REQUIRE(opening_key::from_pem(key.to_pem()).value().sealer() == sealer);
  REQUIRE(sealing_key::from_pem(sealer.to_pem()).value() == sealer);
  REQUIRE(sealing_key::from_raw(sealer.raw()).value() == sealer);
  const opening_key moved = std::move(key);
  REQUIRE(moved.to_pem() != opening_key::generate().to_pem());

  const auto signs = potl::signing_key::generate();
  const auto confused = [](const auto& outcome, const char* remedy) {
    REQUIRE(outcome.why().code == errc::malformed);
    CHECK(outcome.why().message.find(", but ") != std::string::npos);
    CHECK(outcome.why().remedy.find(remedy) != std::string::npos);
  };
  confused(opening_key::from_pem(signs.to_pem()), "keygen --encryption");
  confused(sealing_key::from_pem(signs.verifier().to_pem()), "keygen --encryption");
  confused(opening_key::from_pem(sealer.to_pem()), "*.pem");
  confused(sealing_key::from_pem(moved.to_pem()), "*.pub");
  confused(potl::signing_key::from_pem(moved.to_pem()), "without --encryption");
  confused(potl::public_key::from_pem(sealer.to_pem()), "without --encryption");
  for (const std::string& text : {std::string("potl"), moved.to_pem() + moved.to_pem()}) {
    REQUIRE(opening_key::from_pem(text).why().message.find("X25519") != std::string::npos);
    REQUIRE(sealing_key::from_pem(text).why().message.find("X25519") != std::string::npos);
  }
}
