// SPDX-License-Identifier: Apache-2.0
#include <potl/attestation.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <potl/core/file.hpp>
#include <potl/crypto/detail/dsse.hpp>
#include <potl/crypto/hasher.hpp>
#include <potl/transcript/commitment.hpp>

#include "crypto/base64.hpp"

namespace potl {
namespace {

constexpr std::string_view payload_type = "application/vnd.in-toto+json";
constexpr std::string_view statement_type = "https://in-toto.io/Statement/v1";
constexpr std::string_view predicate_type = "https://potl.invalid/attestation/v1";
constexpr std::string_view report_format = "potl-report-v1";
constexpr std::size_t max_signatures = 16;
constexpr const char* other_remedy =
    "pass the one that was verified, or ask to have yours verified";
// The payload is one string of the envelope, a third longer than it is itself.
constexpr json_limits envelope_limits{.max_bytes = max_attestation_bytes,
                                      .max_depth = 8,
                                      .max_nodes = 256,
                                      .max_string = std::size_t{11} << 20};

error malformed(const std::string& what) {
  return {errc::malformed, "this is not an attestation: " + what, "ask its signer for it again"};
}

// What of a report the outside of it is compared with.
struct subjects {
  digest job;
  std::optional<digest> root;
  std::optional<digest> model;
};

// No verification accepts without a finding that passes, or beside one that rejects: whoever reads
// an acceptance reads what it rests on.
status require_reasons(const json_value& report) {
  const json_value* verdict = report.find("verdict");
  if (verdict == nullptr || !(*verdict == json_value("accepted"))) return unit{};
  const json_cursor findings = report.root().at("findings");
  const std::size_t count = findings.size() ? *findings.size() : 0;
  const json_value pass("pass"), reject("reject");
  bool passes = false, rejects = false;
  for (std::size_t i = 0; i < count; ++i) {
    const json_value* of = findings.at(i).at("result").get();
    passes = passes || (of != nullptr && *of == pass);
    rejects = rejects || (of != nullptr && *of == reject);
  }
  if (passes && !rejects) return unit{};
  return error{errc::usage,
               rejects ? "the report accepts, and one of its findings rejects"
                       : "the report accepts, and none of its findings passes",
               "sign what verify returned, with all of its findings"};
}

result<subjects> subjects_of(const json_value& report) {
  const json_cursor at = report.root();
  const auto no_report = [](const error& why) {
    return error{errc::usage, "this is not a report: " + why.message, "sign what verify returned"};
  };
  const result<std::string> format = at.string("format");
  if (!format) return no_report(format.why());
  if (*format != report_format) return no_report({errc::malformed, "format is another one", ""});
  if (report.find("job") == nullptr) {
    return error{errc::usage, "the report is about no run that could be opened",
                 "verify again; there is nothing to sign yet"};
  }
  if (const status told = require_reasons(report); !told) return told.why();
  subjects out;
  const result<digest> job = at.at("job").digest("id");
  if (!job) return no_report(job.why());
  out.job = *job;
  const auto optional = [&](const char* member, const char* name,
                            std::optional<digest>& into) -> status {
    const json_value* of = report.find(member);
    const json_value* value = of == nullptr ? nullptr : of->find(name);
    if (value == nullptr || value->type() == json_value::kind::null) return unit{};
    const result<digest> got = at.at(member).digest(name);
    if (!got) return no_report(got.why());
    into = *got;
    return unit{};
  };
  if (status found = optional("commitment", "root", out.root); !found) return found.why();
  if (status found = optional("model", "sha256", out.model); !found) return found.why();
  return out;
}

// As it is written above, and a moment that there is.
bool is_time(std::string_view text) {
  constexpr std::string_view form = "0000-00-00T00:00:00Z";
  if (!std::equal(text.begin(), text.end(), form.begin(), form.end(), [](char c, char like) {
        return like == '0' ? c >= '0' && c <= '9' : c == like;
      })) {
    return false;
  }
  const auto number = [&](std::size_t from, std::size_t size) {
    int out = 0;
    for (const char c : text.substr(from, size)) out = 10 * out + (c - '0');
    return out;
  };
  const int year = number(0, 4);
  const std::chrono::year_month_day day{std::chrono::year(year),
                                        std::chrono::month(unsigned(number(5, 2))),
                                        std::chrono::day(unsigned(number(8, 2)))};
  return year > 0 && day.ok() && number(11, 2) < 24 && number(14, 2) < 60 && number(17, 2) < 60;
}

json_value subject(std::string_view name, std::string_view algorithm, const digest& of) {
  return json_value::of({{"name", name}, {"digest", json_value::of({{algorithm, of.hex()}})}});
}

// The one statement of a report and a time.
result<json_value> statement_of(const json_value& report, std::string_view signed_at) {
  if (!is_time(signed_at)) {
    return error{errc::usage, "the time of signing is not written as 2026-11-27T20:00:00Z", ""};
  }
  const result<subjects> of = subjects_of(report);
  if (!of) return of.why();
  json_value::array about;
  // First what every tool can compare.
  if (of->model) about.push_back(subject("model", "sha256", *of->model));
  about.push_back(subject("job", "potlJobV1", of->job));
  if (of->root) about.push_back(subject("commitment", "potlRootV1", *of->root));
  return json_value::of(
      {{"_type", statement_type},
       {"subject", std::move(about)},
       {"predicateType", predicate_type},
       {"predicate", json_value::of({{"report", report}, {"signedAt", signed_at}})}});
}

// Both alphabets of RFC 4648 are allowed in an envelope.
result<std::vector<std::uint8_t>> decoded(std::string text) {
  std::replace(text.begin(), text.end(), '-', '+');
  std::replace(text.begin(), text.end(), '_', '/');
  auto bytes = detail::from_base64(text);
  if (!bytes) return malformed(bytes.why().message);
  return bytes;
}

// The bytes that the key has signed, and no others.
result<std::vector<std::uint8_t>> signed_payload(bytes_view text, const public_key& signer) {
  const result<json_value> envelope = parse_json(text, envelope_limits);
  if (!envelope) {
    // A report has more values than an envelope may have, and is what a reader confuses with it.
    const result<json_value> whole = parse_json(text);
    const json_value* format = whole ? whole->find("format") : nullptr;
    if (format != nullptr && *format == json_value(report_format)) {
      return error{errc::malformed, "this is a report that nobody has signed",
                   "pass what `potl attestation sign` wrote"};
    }
    return malformed(envelope.why().message);
  }
  const json_cursor at = envelope->root();
  const result<std::string> type = at.string("payloadType"), payload = at.string("payload");
  if (!type) return malformed(type.why().message);
  if (*type != payload_type) return malformed("the payload is of another type");
  if (!payload) return malformed(payload.why().message);
  auto bytes = decoded(*payload);
  if (!bytes) return bytes;
  const result<std::size_t> count = at.at("signatures").size();
  if (!count) return malformed(count.why().message);
  if (*count > max_signatures) return malformed("it has too many signatures");
  const std::vector<std::uint8_t> message = detail::dsse_message(*type, *bytes);
  std::set<std::string> ids;
  bool is_signed = false;
  for (std::size_t i = 0; i < *count; ++i) {
    const json_cursor one = at.at("signatures").at(i);
    const result<std::string> encoded = one.string("sig");
    if (!encoded) return malformed(encoded.why().message);
    const auto signature = decoded(*encoded);
    if (!signature) return signature;
    if (one.get()->find("keyid") != nullptr) {
      const result<std::string> id = one.string("keyid");
      if (!id) return malformed(id.why().message);
      if (!id->empty() && !ids.insert(*id).second) return malformed("a key has signed it twice");
    }
    is_signed = is_signed || static_cast<bool>(signer.verify(message, *signature));
  }
  if (!is_signed) {
    return error{errc::mismatch, "the attestation is not signed by this key",
                 "compare the key with the one that the verifier published"};
  }
  return bytes;
}

status compare(const char* what, const std::optional<digest>& said, const digest& held) {
  if (!said) {
    return error{errc::missing, std::string("the attestation is about no ") + what,
                 "ask its signer to verify with it; of a spot-check, compare the job"};
  }
  if (*said == held) return unit{};
  return error{errc::mismatch, std::string("the attestation is about another ") + what,
               other_remedy};
}

// The root alone leaves open who says so, and of what: a note is as good as its signature.
status compare_note(const json_value& report, const subjects& of, const std::string& text) {
  const auto held = transcript::parse_run_note(text);
  if (!held) return held.why();
  const checkpoint_note& note = held->note.note;
  if (const status same = compare("commitment", of.root, note.root); !same) return same;
  const json_cursor at = report.root();
  const auto size = at.at("commitment").count("size");
  if (!size) return malformed(size.why().message);
  if (held->job_id != of.job || note.size != *size) {
    return error{errc::mismatch, "the attestation is about another commitment", other_remedy};
  }
  const json_value* trainer = at.at("job").get()->find("trainer");
  if (trainer == nullptr || trainer->type() == json_value::kind::null) return unit{};
  const auto named = at.at("job").digest("trainer");
  if (!named) return malformed(named.why().message);
  const auto key = public_key::from_raw(*named);
  if (!key) return malformed(key.why().message);
  if (verify_note(held->note, *key)) return unit{};
  return error{errc::mismatch, "the commitment is not signed by the trainer of the report",
               "pass what the trainer published"};
}

// Whose word for its own run is no verifier's.
bool is_trainer(const json_value& report, const public_key& signer) {
  const json_value* job = report.find("job");
  const json_value* named = job == nullptr ? nullptr : job->find("trainer");
  return named != nullptr && *named == json_value(signer.hex());
}

// The report may leave out who trained: what the reader holds names the trainer, too.
bool is_trainer(const attested& held, const public_key& signer) {
  if (held.trainer && held.trainer->bytes == signer.raw()) return true;
  if (!held.commitment) return false;
  const auto note = transcript::parse_run_note(*held.commitment);
  return note && verify_note(note->note, signer);
}

}  // namespace

result<std::string> sign_attestation(const json_value& report, const signing_key& key,
                                     std::string_view signed_at) {
  const result<json_value> statement = statement_of(report, signed_at);
  if (!statement) return statement.why();
  if (is_trainer(report, key.verifier())) {
    return error{errc::usage,
                 "this is the key of the run's trainer, whose word nobody takes for it",
                 "sign with a verifier's key"};
  }
  const std::string payload = canonical_json(*statement);
  if (const auto read = parse_json(as_bytes_view(payload)); !read) {
    return error{errc::limit, "nobody could read the attestation: " + read.why().message,
                 "the report is too long to be signed"};
  }
  const auto signature = key.sign(detail::dsse_message(payload_type, as_bytes_view(payload)));
  return canonical_json(json_value::of(
      {{"payload", detail::to_base64(as_bytes_view(payload))},
       {"payloadType", payload_type},
       {"signatures",
        json_value::array{json_value::of(
            {{"keyid", key.verifier().hex()}, {"sig", detail::to_base64(signature)}})}}}));
}

result<attestation> open_attestation(bytes_view text, const public_key& signer,
                                     const attested& held) {
  if (!held.model && !held.job && !held.commitment) {
    return error{errc::usage, "there is nothing to compare the attestation with",
                 "name the model, the job or the commitment that you have"};
  }
  const auto payload = signed_payload(text, signer);
  if (!payload) return payload.why();
  result<json_value> statement = parse_json(*payload);
  if (!statement) return malformed(statement.why().message);
  const json_cursor predicate = statement->at("predicate");
  const json_value* report = predicate.at("report").get();
  const result<std::string> signed_at = predicate.string("signedAt");
  if (report == nullptr) return malformed("it holds no report");
  if (!signed_at) return malformed(signed_at.why().message);
  // What other tools read is what the report says.
  const result<json_value> own = statement_of(*report, *signed_at);
  if (!own) return malformed(own.why().message);
  if (!(*own == *statement)) return malformed("its parts contradict each other");
  if (is_trainer(*report, signer) || is_trainer(held, signer)) {
    return error{errc::mismatch, "the run's own trainer has signed the attestation",
                 "ask for the one of a verifier that you trust, and pass that verifier's key"};
  }
  const result<subjects> of = subjects_of(*report);
  if (!of) return of.why();
  if (held.job) {
    if (const status same = compare("job", of->job, *held.job); !same) return same.why();
  }
  if (held.commitment) {
    if (const status same = compare_note(*report, *of, *held.commitment); !same) return same.why();
  }
  if (held.model) {
    const result<file_pieces> file = file_pieces::open(*held.model, links::follow);
    if (!file) return file.why();
    const result<digest> model = sha256_of_file(*file);
    if (!model) return model.why();
    if (const status same = compare("delivered model", of->model, *model); !same) return same.why();
  }
  return attestation{*report, *signed_at};
}

}  // namespace potl
