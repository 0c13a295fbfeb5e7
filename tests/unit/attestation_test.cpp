// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include <potl/attestation.hpp>
#include <potl/core/file.hpp>
#include <potl/crypto/detail/dsse.hpp>
#include <potl/crypto/hasher.hpp>
#include <potl/transcript/commitment.hpp>

#include "crypto/base64.hpp"
#include "run_fixture.hpp"
#include "shared_vectors.hpp"

using namespace potl;

namespace {

const std::string moment = "2026-11-27T20:00:00Z";
constexpr std::string_view statement_payload = "application/vnd.in-toto+json";

signing_key key_of(char fill) {
  return signing_key::from_seed(as_bytes_view(std::string(32, fill))).value();
}

struct signed_report {
  potl_test::temporary_directory root;
  std::string model = root.file("model.safetensors");
  signing_key key = key_of('v');
  digest job = sha256_of(as_bytes_view("job"));
  digest commitment = sha256_of(as_bytes_view("root"));
  signing_key trainer = key_of('t');

  signed_report() {
    write_file_atomically(model, as_bytes_view(std::string(5'000'000, 'm'))).value();
  }

  json_value report() const {
    const digest file = sha256_of(as_bytes_view(std::string(5'000'000, 'm')));
    return json_value::of(
        {{"format", "potl-report-v1"},
         {"verdict", "accepted"},
         {"findings", json_value::array{json_value::of({{"result", "pass"}})}},
         {"job", json_value::of({{"id", job.hex()}, {"trainer", trainer.verifier().hex()}})},
         {"commitment", json_value::of({{"root", commitment.hex()}, {"size", 3}})},
         {"model", json_value::of({{"delivered", true}, {"sha256", file.hex()}})}});
  }
  /// What of a commitment may be another one's.
  struct other {
    std::optional<digest> job = {}, root = {};
    std::uint64_t size = 3;
    char signer = 't';
  };
  std::string note(const other& what) const {
    return transcript::sign_run_note(what.job.value_or(job), what.size,
                                     what.root.value_or(commitment), digest{}, key_of(what.signer))
        .value();
  }
  std::string note() const { return note(other{}); }
  std::string text() const { return sign_attestation(report(), key, moment).value(); }
  result<attestation> open(const std::string& envelope, const attested& held) const {
    return open_attestation(as_bytes_view(envelope), key.verifier(), held);
  }
  /// Why it is refused; nothing where it opens.
  std::optional<errc> refused(const std::string& envelope) const {
    const auto got = open(envelope, {.model = {}, .job = job, .commitment = {}});
    return got ? std::nullopt : std::optional(got.why().code);
  }
  /// An envelope around this, signed as it should be.
  std::string around(const std::string& payload) const {
    const auto signature =
        key.sign(detail::dsse_message(statement_payload, as_bytes_view(payload)));
    return nlohmann::json{{"payload", detail::to_base64(as_bytes_view(payload))},
                          {"payloadType", std::string(statement_payload)},
                          {"signatures", {{{"sig", detail::to_base64(signature)}}}}}
        .dump();
  }
};

nlohmann::json payload_of(const std::string& envelope) {
  const auto text = nlohmann::json::parse(envelope)["payload"].get<std::string>();
  const auto bytes = detail::from_base64(text).value();
  return nlohmann::json::parse(bytes.begin(), bytes.end());
}

json_value payload_subjects(const std::string& envelope) {
  const auto text = nlohmann::json::parse(envelope)["payload"].get<std::string>();
  return *parse_json(detail::from_base64(text).value()).value().find("subject");
}

}  // namespace

TEST_CASE("what is signed is what DSSE says", "[attestation]") {
  const auto encoded = [](std::string_view type, std::string_view payload) {
    const auto bytes = detail::dsse_message(type, as_bytes_view(payload));
    return std::string(bytes.begin(), bytes.end());
  };
  CHECK(encoded("", "") == "DSSEv1 0  0 ");
  if (!potl_test::have_vectors("dsse")) return;
  const auto vectors =
      nlohmann::json::parse(potl_test::contents(potl_test::vectors("dsse") / "dsse_vectors.json"));
  REQUIRE(vectors["pae"].size() == 4);
  for (const auto& one : vectors["pae"]) {
    CHECK(encoded(one["payloadType"].get<std::string>(), one["payload_utf8"].get<std::string>()) ==
          one["pae_utf8"].get<std::string>());
  }
}

TEST_CASE("an attestation says what was signed, to who holds what it is about", "[attestation]") {
  const signed_report here;
  const std::string text = here.text();
  const attested all{.model = here.model, .job = here.job, .commitment = here.note()};
  const attestation got = here.open(text, all).value();
  CHECK(got.report == here.report());
  CHECK(got.signed_at == moment);
  CHECK(here.open(text, {.model = here.model, .job = {}, .commitment = {}}));
  CHECK(here.open(text, {.model = {}, .job = {}, .commitment = here.note()}));
  CHECK(here.open(text, {}).why().code == errc::usage);
}

TEST_CASE("other tools read an attestation as an in-toto statement", "[attestation]") {
  const signed_report here;
  const auto statement = payload_of(here.text());
  CHECK(statement["_type"] == "https://in-toto.io/Statement/v1");
  const auto& model = statement["subject"][0];
  CHECK(model["name"] == "model");
  const auto file = file_pieces::open(here.model).value();
  CHECK(model["digest"]["sha256"] == sha256_of_file(file).value().hex());
  CHECK(statement["subject"].size() == 3);
  CHECK(statement["predicate"]["report"]["verdict"] == "accepted");
}

TEST_CASE("an attestation about something else is refused", "[attestation]") {
  const signed_report here;
  const std::string text = here.text(), other = here.root.file("other.safetensors");
  write_file_atomically(other, as_bytes_view(std::string(5'000'001, 'm'))).value();
  const digest strange = sha256_of(as_bytes_view("strange"));
  const auto of_other = here.open(text, {.model = other, .job = here.job, .commitment = {}});
  CHECK(of_other.why().code == errc::mismatch);
  CHECK(of_other.why().remedy.find("the one that was verified") != std::string::npos);
  CHECK(here.open(text, {.model = {}, .job = strange, .commitment = {}}).why().code ==
        errc::mismatch);
  CHECK(here.open(text, {.model = {}, .job = here.job, .commitment = here.note({.root = strange})})
            .why()
            .code == errc::mismatch);
  CHECK(
      here.open(text, {.model = here.root.file("none"), .job = {}, .commitment = {}}).why().code ==
      errc::missing);
  json_value report = here.report();
  report.set("model", json_value::of({{"delivered", false}, {"sha256", nullptr}}));
  const std::string without = sign_attestation(report, here.key, moment).value();
  CHECK(here.open(without, {.model = here.model, .job = {}, .commitment = {}}).why().code ==
        errc::missing);
  CHECK(here.open(without, {.model = {}, .job = here.job, .commitment = {}}));
}

TEST_CASE("the run's own trainer attests nothing", "[attestation]") {
  signed_report here;
  json_value report = here.report();
  CHECK(sign_attestation(report, here.trainer, moment).why().code == errc::usage);
  // Elsewhere it is signed none the less, or leaves out who trained.
  here.key = key_of('t');
  const std::string text = here.around(canonical_json(
      json_value::of({{"_type", "https://in-toto.io/Statement/v1"},
                      {"subject", payload_subjects(signed_report().text())},
                      {"predicateType", "https://potl.invalid/attestation/v1"},
                      {"predicate", json_value::of({{"report", report}, {"signedAt", moment}})}})));
  CHECK(here.open(text, {.model = here.model, .job = {}, .commitment = {}}).why().code ==
        errc::mismatch);
  report.set("job", json_value::of({{"id", here.job.hex()}, {"trainer", nullptr}}));
  const std::string silent = sign_attestation(report, here.key, moment).value();
  attested held{.model = here.model, .job = here.job, .commitment = {}};
  CHECK(here.open(silent, held));
  held.commitment = here.note();
  CHECK(here.open(silent, held).why().code == errc::mismatch);
  held.commitment.reset();
  held.trainer = digest{here.trainer.verifier().raw()};
  CHECK(here.open(silent, held).why().code == errc::mismatch);
  held.trainer = digest{key_of('w').verifier().raw()};
  CHECK(here.open(silent, held));
}

TEST_CASE("a commitment is compared as a whole", "[attestation]") {
  const signed_report here;
  const auto opened = [&](const json_value& report, const std::string& note) {
    const std::string text = sign_attestation(report, here.key, moment).value();
    const auto got = here.open(text, {.model = {}, .job = {}, .commitment = note});
    return got ? std::nullopt : std::optional(got.why().code);
  };
  json_value report = here.report();
  CHECK(opened(report, here.note()) == std::nullopt);
  CHECK(opened(report, here.note({.size = 4})) == errc::mismatch);
  CHECK(opened(report, here.note({.job = here.commitment})) == errc::mismatch);
  CHECK(opened(report, here.note({.signer = 'w'})) == errc::mismatch);
  CHECK(opened(report, "no note") == errc::malformed);
  // Where none was agreed, nobody can say whose signature it has to be.
  report.set("job", json_value::of({{"id", here.job.hex()}, {"trainer", nullptr}}));
  CHECK(opened(report, here.note({.signer = 'w'})) == std::nullopt);
  report.set("commitment", json_value::of({{"root", here.commitment.hex()}, {"size", nullptr}}));
  CHECK(opened(report, here.note()) == errc::malformed);
  report.set("commitment", json_value::of({{"root", nullptr}, {"size", nullptr}}));
  CHECK(opened(report, here.note()) == errc::missing);
}

TEST_CASE("nothing is believed that the key has not signed", "[attestation]") {
  const signed_report here;
  const auto honest = nlohmann::json::parse(here.text());
  const auto changed = [&](auto change) {
    auto copy = honest;
    change(copy);
    return here.refused(copy.dump());
  };
  CHECK(here.refused(honest.dump(2)) == std::nullopt);
  auto payload = payload_of(here.text());
  payload["predicate"]["report"]["verdict"] = "rejected";
  CHECK(changed([&](auto& one) {
          one["payload"] = detail::to_base64(as_bytes_view(payload.dump()));
        }) == errc::mismatch);
  CHECK(changed([](auto& one) { one["payloadType"] = "text/plain"; }) == errc::malformed);
  CHECK(changed([](auto& one) { one["signatures"] = nlohmann::json::array(); }) == errc::mismatch);
  CHECK(changed([](auto& one) { one.erase("signatures"); }) == errc::malformed);
  CHECK(changed([](auto& one) { one["signatures"][0]["sig"] = "AAAA"; }) == errc::mismatch);
  CHECK(changed([](auto& one) { one["signatures"][0]["sig"] = "not base64"; }) == errc::malformed);
  CHECK(changed([](auto& one) { one["signatures"][0]["keyid"] = 7; }) == errc::malformed);
  CHECK(changed([](auto& one) { one["signatures"].push_back(one["signatures"][0]); }) ==
        errc::malformed);
  CHECK(changed([](auto& one) {
          for (int i = 0; i < 16; ++i) one["signatures"].push_back({{"sig", "AAAA"}});
        }) == errc::malformed);
  json_value whole = here.report();
  whole.set("timeline", json_value::array(300));
  const std::string unsigned_report = canonical_json(whole);
  const auto named = here.open(unsigned_report, {.model = {}, .job = here.job, .commitment = {}});
  CHECK(named.why().message == "this is a report that nobody has signed");
  for (const char* const text : {"", "[]", "{}", "null", "{\"payload\":1}"}) {
    CHECK(here.refused(text) == errc::malformed);
  }
  const std::string envelope = here.text();
  const attested held{.model = {}, .job = here.job, .commitment = {}};
  CHECK(open_attestation(as_bytes_view(envelope), key_of('w').verifier(), held).why().code ==
        errc::mismatch);
}

TEST_CASE("signatures of others stand beside, in either alphabet", "[attestation]") {
  const signed_report here;
  auto envelope = nlohmann::json::parse(here.text());
  const nlohmann::json another = {{"sig", "AAAA"}, {"keyid", "another"}, {"cert", "ignored"}};
  envelope["signatures"].insert(envelope["signatures"].begin(), another);
  for (auto& one : envelope["signatures"]) {
    auto text = one["sig"].get<std::string>();
    std::replace(text.begin(), text.end(), '+', '-');
    std::replace(text.begin(), text.end(), '/', '_');
    one["sig"] = text;
  }
  CHECK(here.refused(envelope.dump()) == std::nullopt);
}

TEST_CASE("a statement whose parts contradict each other is refused", "[attestation]") {
  const signed_report here;
  const auto honest = payload_of(here.text());
  const auto changed = [&](auto change) {
    auto copy = honest;
    change(copy);
    return here.refused(here.around(copy.dump()));
  };
  CHECK(here.refused(here.around(honest.dump())) == std::nullopt);
  const std::string strange = sha256_of(as_bytes_view("strange")).hex();
  CHECK(changed([&](auto& one) { one["subject"][0]["digest"]["sha256"] = strange; }) ==
        errc::malformed);
  CHECK(changed([](auto& one) { one["predicateType"] = "https://slsa.dev/provenance/v1"; }) ==
        errc::malformed);
  CHECK(changed([](auto& one) { one["predicate"]["signedAt"] = "yesterday"; }) == errc::malformed);
  CHECK(changed([](auto& one) { one["predicate"].erase("report"); }) == errc::malformed);
  CHECK(changed([](auto& one) { one["predicate"]["report"].erase("job"); }) == errc::malformed);
  CHECK(changed([](auto& one) { one["predicate"]["report"]["job"]["id"] = 1; }) == errc::malformed);
  CHECK(changed([](auto& one) { one["predicate"]["report"]["format"] = "x"; }) == errc::malformed);
}

TEST_CASE("what nobody could read is not signed", "[attestation]") {
  const signed_report here;
  json_value report = here.report(), longer = here.report(), many = json_value::array(1 << 18);
  report.set("verdict", "inconclusive");
  longer.set("verdict", "inconclusive");
  report.set("findings", std::move(many));
  CHECK(sign_attestation(report, here.key, moment).why().code == errc::limit);
  json_value::array texts(40, json_value(std::string(200'000, 'x')));
  longer.set("findings", json_value(std::move(texts)));
  const auto long_one = sign_attestation(longer, here.key, moment);
  REQUIRE(long_one);
  CHECK(here.open(*long_one, {.model = {}, .job = here.job, .commitment = {}}));
}

TEST_CASE("an acceptance without what it rests on is neither signed nor read", "[attestation]") {
  const signed_report here;
  const auto finding = [](const char* what) { return json_value::of({{"result", what}}); };
  const json_value pass = finding("pass"), note = finding("note"), reject = finding("reject");
  const json_value::array none, noted{note}, torn{pass, reject};
  auto payload = payload_of(here.text());
  for (const auto& [findings, why] : {std::pair{none, "none of its findings passes"},
                                      std::pair{noted, "none of its findings passes"},
                                      std::pair{torn, "one of its findings rejects"}}) {
    json_value report = here.report();
    report.set("findings", findings);
    const auto made = sign_attestation(report, here.key, moment);
    REQUIRE(!made);
    CHECK(made.why().code == errc::usage);
    CHECK(made.why().message.find(why) != std::string::npos);
    // Another program signs it none the less.
    payload["predicate"]["report"] = nlohmann::json::parse(canonical_json(report));
    CHECK(here.refused(here.around(payload.dump())) == errc::malformed);
    report.set("verdict", "rejected");
    CHECK(sign_attestation(report, here.key, moment));
  }
}

TEST_CASE("what is no report of a run is not signed", "[attestation]") {
  const signed_report here;
  const auto refused = [&](const json_value& report, const std::string& time = moment) {
    const auto made = sign_attestation(report, here.key, time);
    return !made && made.why().code == errc::usage;
  };
  CHECK(refused(json_value::of({})));
  CHECK(refused(json_value("text")));
  json_value report = here.report();
  CHECK(refused(report, "2026-11-27 20:00:00"));
  CHECK(refused(report, "2026-11-27T20:00:00"));
  CHECK_FALSE(refused(report, "2028-02-29T23:59:59Z"));
  for (const char* never : {"2026-02-29T20:00:00Z", "2026-13-01T20:00:00Z", "0000-11-27T20:00:00Z",
                            "2026-11-27T24:00:00Z", "2026-11-27T20:60:00Z", "2026-11-27T20:00:60Z"})
    CHECK(refused(report, never));
  report.set("model", json_value::of({{"sha256", "short"}}));
  CHECK(refused(report));
  CHECK(refused(json_value::of({{"format", "potl-report-v1"}})));
}
