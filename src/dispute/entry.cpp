// SPDX-License-Identifier: Apache-2.0
#include <potl/dispute/entry.hpp>

#include <utility>

#include <potl/crypto/detail/signed_note.hpp>
#include <potl/dispute/message.hpp>

#include "dispute/wire.hpp"

namespace potl::dispute {
namespace {

using wire::malformed;

constexpr std::string_view transcript_format = "potl-dispute-v1";
constexpr std::string_view entry_domain = "potl.dispute.entry.v1";

json_value written(const terms& one) {
  return json_value::of({{"auditor", one.commitments.auditor},
                         {"format", transcript_format},
                         {"job", one.job.hex()},
                         {"kind", "terms"},
                         {"trainer", one.commitments.trainer},
                         {"turn_ms", one.turn_ms}});
}

json_value written(const received& one) {
  return json_value::of(
      {{"from", to_string(one.from)}, {"kind", "message"}, {"message", wire::bytes(one.text)}});
}

json_value written(const oversized& one) {
  return json_value::of(
      {{"bytes", one.bytes}, {"from", to_string(one.from)}, {"kind", "oversized"}});
}

json_value written(const silence&) { return json_value::of({{"kind", "silence"}}); }

json_value written(const restarted&) { return json_value::of({{"kind", "restarted"}}); }

json_value written(const inner_bisection& one) {
  return json_value::of({{"auditor", one.claimed.auditor.hex()},
                         {"bytes", one.bytes},
                         {"kind", "next"},
                         {"of", to_string(one.kind)},
                         {"size", one.size},
                         {"subject", one.subject},
                         {"trainer", one.claimed.trainer.hex()}});
}

json_value written(const question& one) {
  return json_value::of(
      {{"kind", "question"}, {"max_bytes", one.max_bytes}, {"question", wire::bytes(one.text)}});
}

json_value written(const ruling& one) {
  return json_value::of({{"auditor_wrong", one.wrong.auditor},
                         {"evidence", wire::bytes(one.evidence)},
                         {"kind", "ruling"},
                         {"trainer_wrong", one.wrong.trainer},
                         {"why", to_string(one.why)}});
}

json_value body_of(const entry& what) {
  return json_value::of(
      {{"at", what.at},
       {"entry", std::visit([](const auto& one) { return written(one); }, what.what)},
       {"previous", what.previous.hex()}});
}

result<terms> read_terms(const json_cursor& at) {
  if (const status only = at.only({"auditor", "format", "job", "kind", "trainer", "turn_ms"});
      !only) {
    return only.why();
  }
  const auto format = at.string("format"), trainer = at.string("trainer"),
             auditor = at.string("auditor");
  const auto job = at.digest("job");
  const auto turn = at.count("turn_ms");
  if (!format) return format.why();
  if (*format != transcript_format) return malformed("no transcript of a dispute");
  if (!trainer) return trainer.why();
  if (!auditor) return auditor.why();
  if (!job) return job.why();
  if (!turn) return turn.why();
  return terms{*job, {*trainer, *auditor}, *turn};
}

result<received> read_message(const json_cursor& at) {
  if (const status only = at.only({"from", "kind", "message"}); !only) return only.why();
  const auto from = wire::side(at.at("from"));
  if (!from) return from.why();
  auto text = wire::bytes(at.at("message"));
  if (!text) return text.why();
  return received{*from, std::move(*text)};
}

result<oversized> read_oversized(const json_cursor& at) {
  if (const status only = at.only({"bytes", "from", "kind"}); !only) return only.why();
  const auto from = wire::side(at.at("from"));
  if (!from) return from.why();
  const auto bytes = at.count("bytes");
  if (!bytes) return bytes.why();
  return oversized{*from, *bytes};
}

result<inner_bisection> read_next(const json_cursor& at) {
  if (const status only = at.only({"auditor", "bytes", "kind", "of", "size", "subject", "trainer"});
      !only) {
    return only.why();
  }
  const auto kind = wire::named(at.at("of"), {level_kind::operators, level_kind::chunks});
  const auto size = at.count("size"), subject = at.count("subject"), bytes = at.count("bytes");
  const auto trainer = at.digest("trainer"), auditor = at.digest("auditor");
  if (!kind) return kind.why();
  for (const auto* one : {&size, &subject, &bytes}) {
    if (!*one) return one->why();
  }
  for (const auto* one : {&trainer, &auditor}) {
    if (!*one) return one->why();
  }
  return inner_bisection{*kind, *size, *subject, *bytes, {*trainer, *auditor}};
}

result<question> read_question(const json_cursor& at) {
  if (const status only = at.only({"kind", "max_bytes", "question"}); !only) return only.why();
  const auto most = at.count("max_bytes");
  if (!most) return most.why();
  auto text = wire::bytes(at.at("question"));
  if (!text) return text.why();
  return question{std::move(*text), *most};
}

result<ruling> read_ruling(const json_cursor& at) {
  if (const status only = at.only({"auditor_wrong", "evidence", "kind", "trainer_wrong", "why"});
      !only) {
    return only.why();
  }
  const auto trainer = at.boolean("trainer_wrong"), auditor = at.boolean("auditor_wrong");
  if (!trainer) return trainer.why();
  if (!auditor) return auditor.why();
  const auto why = wire::named(
      at.at("why"), {reason::opening, reason::structure, reason::value, reason::referee});
  if (!why) return why.why();
  auto evidence = wire::bytes(at.at("evidence"));
  if (!evidence) return evidence.why();
  return ruling{{*trainer, *auditor}, *why, std::move(*evidence)};
}

template <class What>
result<decltype(entry::what)> some(result<What> read) {
  if (!read) return read.why();
  return decltype(entry::what)(std::move(*read));
}

result<decltype(entry::what)> read_what(const json_cursor& at) {
  const auto kind = at.string("kind");
  if (!kind) return kind.why();
  if (*kind == "terms") return some(read_terms(at));
  if (*kind == "message") return some(read_message(at));
  if (*kind == "oversized") return some(read_oversized(at));
  if (*kind == "next") return some(read_next(at));
  if (*kind == "question") return some(read_question(at));
  if (*kind == "ruling") return some(read_ruling(at));
  if (*kind != "silence" && *kind != "restarted") return malformed("unknown kind of entry");
  if (const status only = at.only({"kind"}); !only) return only.why();
  if (*kind == "silence") return decltype(entry::what)(silence{});
  return decltype(entry::what)(restarted{});
}

}  // namespace

bool entry::is_from(const public_key& key) const {
  return key.verify(as_bytes_view(wire::signed_bytes(entry_domain, body_of(*this))), signature)
      .has_value();
}

std::string sign_entry(const entry& what, const signing_key& key) {
  const json_value body = body_of(what);
  return wire::signed_text(body, key.sign(as_bytes_view(wire::signed_bytes(entry_domain, body))));
}

std::string format_entry(const entry& what) {
  return wire::signed_text(body_of(what), what.signature);
}

std::size_t line_limit() noexcept { return message_limit(message_limit(max_answer_bytes)); }

result<entry> parse_entry(bytes_view line) {
  const auto read = parse_canonical_json(line, {line_limit(), 3, 32, line_limit()});
  if (!read) return read.why();
  const json_cursor at = read->root();
  if (const status only = at.only({"at", "entry", "previous", "signature"}); !only) {
    return only.why();
  }
  const auto when = at.count("at");
  const auto previous = at.digest("previous");
  const auto signature = wire::signature(at.at("signature"));
  if (!when) return when.why();
  if (!previous) return previous.why();
  if (!signature) return signature.why();
  auto what = read_what(at.at("entry"));
  if (!what) return what.why();
  return entry{*when, *previous, std::move(*what), *signature};
}

}  // namespace potl::dispute
