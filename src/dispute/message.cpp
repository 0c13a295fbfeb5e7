// SPDX-License-Identifier: Apache-2.0
#include <potl/dispute/message.hpp>

#include <algorithm>
#include <utility>

#include <potl/transcript/detail/record.hpp>

#include "dispute/wire.hpp"

namespace potl::dispute {
namespace {

using wire::malformed;

constexpr std::string_view message_format = "potl-dispute-message-v1";
constexpr std::string_view message_domain = "potl.dispute.message.v1";

/// All of a message but leaf, record and answer: names, digests, and two proofs of 64 hashes.
constexpr std::size_t frame_bytes = 16 * 1024;

constexpr std::size_t base64_bytes(std::size_t bytes) noexcept { return (bytes + 2) / 3 * 4; }

json_value content_of(const claim& one) {
  json_value out = json_value::of({{"digest", one.value.hex()}});
  if (one.record) {
    out.set("record", json_value::of({{"bytes", wire::bytes(one.record->record)},
                                      {"index", one.record->index},
                                      {"proof", wire::proof(one.record->proof)}}));
  }
  return out;
}

json_value content_of(const opening& one) {
  return json_value::of({{"leaf", wire::bytes(one.leaf)}, {"proof", wire::proof(one.proof)}});
}

json_value content_of(const answer& one) {
  return json_value::of({{"bytes", wire::bytes(one.bytes)}});
}

json_value content_of(const message& what) {
  return std::visit([](const auto& one) { return content_of(one); }, what.content);
}

json_value body_of(const message& what) {
  return json_value::of({{"auditor", what.run.auditor.hex()},
                         {"content", content_of(what)},
                         {"format", message_format},
                         {"from", to_string(what.from)},
                         {"index", what.index},
                         {"job", what.run.job.hex()},
                         {"level", what.level},
                         {"parent", what.parent.hex()},
                         {"trainer", what.run.trainer.hex()},
                         {"what", to_string(what.where().what)}});
}

result<committed_record> read_record(const json_cursor& at) {
  if (const status only = at.only({"bytes", "index", "proof"}); !only) return only.why();
  const auto index = at.count("index");
  if (!index) return index.why();
  auto record = wire::bytes(at.at("bytes"));
  if (!record) return record.why();
  auto proof = wire::proof(at.at("proof"));
  if (!proof) return proof.why();
  return committed_record{*index, std::move(*record), std::move(*proof)};
}

result<claim> read_claim(const json_cursor& at) {
  if (const status only = at.only({"digest", "record"}); !only) return only.why();
  const auto value = at.digest("digest");
  if (!value) return value.why();
  claim out{*value, {}};
  if (at.at("record").get() != nullptr) {
    auto record = read_record(at.at("record"));
    if (!record) return record.why();
    out.record = std::move(*record);
  }
  return out;
}

result<opening> read_opening(const json_cursor& at) {
  if (const status only = at.only({"leaf", "proof"}); !only) return only.why();
  auto leaf = wire::bytes(at.at("leaf"));
  if (!leaf) return leaf.why();
  if (leaf->size() > max_leaf_bytes) return malformed("a leaf is too long");
  auto proof = wire::proof(at.at("proof"));
  if (!proof) return proof.why();
  return opening{std::move(*leaf), std::move(*proof)};
}

result<answer> read_answer(const json_cursor& at) {
  if (const status only = at.only({"bytes"}); !only) return only.why();
  auto bytes = wire::bytes(at.at("bytes"));
  if (!bytes) return bytes.why();
  return answer{std::move(*bytes)};
}

/// Puts what was read into the message, or says why nothing was.
template <class Content>
status put(result<Content> read, message& out) {
  if (!read) return read.why();
  out.content = std::move(*read);
  return unit{};
}

status read_content(act what, const json_cursor& at, message& out) {
  switch (what) {
    case act::claim: return put(read_claim(at), out);
    case act::opening: return put(read_opening(at), out);
    case act::answer: return put(read_answer(at), out);
  }
  return malformed("unknown kind of message");
}

}  // namespace

move message::as_move() const {
  const auto* claimed = std::get_if<claim>(&content);
  return {run, parent, where(),
          claimed != nullptr ? claimed->value
                             : sha256_of(as_bytes_view(canonical_json(content_of(*this))))};
}

bool message::is_from(const public_key& key) const {
  return key.verify(as_bytes_view(wire::signed_bytes(message_domain, body_of(*this))), signature)
      .has_value();
}

std::string sign_message(const message& what, const signing_key& key) {
  const json_value body = body_of(what);
  return wire::signed_text(body, key.sign(as_bytes_view(wire::signed_bytes(message_domain, body))));
}

std::string format_message(const message& what) {
  return wire::signed_text(body_of(what), what.signature);
}

result<message> parse_message(bytes_view text, std::size_t max_bytes) {
  const json_limits limits{max_bytes, 4, 256, max_bytes};
  const auto read = parse_canonical_json(text, limits);
  if (!read) return read.why();
  const json_cursor at = read->root();
  if (const status only = at.only({"auditor", "content", "format", "from", "index", "job", "level",
                                   "parent", "signature", "trainer", "what"});
      !only) {
    return only.why();
  }
  const auto format = at.string("format");
  if (!format) return format.why();
  if (*format != message_format) return malformed("no message of a dispute");
  const auto from = wire::side(at.at("from"));
  const auto what = wire::named(at.at("what"), {act::claim, act::opening, act::answer});
  const auto job = at.digest("job"), trainer = at.digest("trainer"), auditor = at.digest("auditor"),
             parent = at.digest("parent");
  const auto level = at.count("level"), index = at.count("index");
  const auto signature = wire::signature(at.at("signature"));
  if (!from) return from.why();
  if (!what) return what.why();
  for (const auto* one : {&job, &trainer, &auditor, &parent}) {
    if (!*one) return one->why();
  }
  for (const auto* one : {&level, &index}) {
    if (!*one) return one->why();
  }
  if (!signature) return signature.why();
  message out{*from, {*job, *trainer, *auditor}, *parent, *level, *index, {}, *signature};
  if (const status content = read_content(*what, at.at("content"), out); !content) {
    return content.why();
  }
  return out;
}

std::size_t message_limit(std::size_t asked) noexcept {
  static_assert(max_leaf_bytes >= transcript::max_record_bytes);
  return frame_bytes + base64_bytes(std::max(asked, max_leaf_bytes));
}

result<digest> root_after(std::uint64_t index, const opening& shown) {
  return root_from_inclusion(index, index + 1, leaf_hash(shown.leaf), shown.proof);
}

status verify_opening(std::uint64_t index, const opening& shown, const digest& before,
                      const digest& after) {
  const auto root = root_after(index, shown);
  if (!root) return root.why();
  // The proof of the last leaf consists of the roots of all complete subtrees before it, the
  // smallest first: they give the root without the leaf, too.
  digest without = shown.proof.empty() ? empty_root() : shown.proof.front();
  for (std::size_t i = 1; i < shown.proof.size(); ++i) {
    without = node_hash(shown.proof[i], without);
  }
  if (without != before) {
    return error{errc::mismatch, "the opening does not continue what both agreed on", ""};
  }
  if (*root != after) return error{errc::mismatch, "the opening does not lead to the claim", ""};
  return unit{};
}

status verify_step_claim(const claim& one, std::uint64_t step, const transcript::run_note& note) {
  const auto mismatch = [](const char* what) { return error{errc::mismatch, what, ""}; };
  if (!one.record) return mismatch("a claim about a step needs its record");
  const committed_record& shown = *one.record;
  const checkpoint_note& committed = note.note.note;
  const auto decoded = transcript::decode(shown.record);
  if (!decoded) return decoded.why();
  const auto* record = std::get_if<transcript::step_record>(&*decoded);
  if (record == nullptr || record->step != step) return mismatch("the record is of another step");
  if (record->job_id != note.job_id) return mismatch("the record is of another job");
  if (record->state != one.value) return mismatch("the record holds another state");
  return verify_inclusion(shown.index, committed.size, leaf_hash(shown.record), shown.proof,
                          committed.root);
}

// Each record has one step, so how far two records lie apart says whether a resume lies between.
result<std::optional<transcript::rounding_reference>> last_rounding(
    const std::vector<committed_record>& shown, std::uint64_t step, std::uint64_t steps,
    const transcript::run_note& note) {
  const auto mismatch = [](const char* what) { return error{errc::mismatch, what, ""}; };
  const checkpoint_note& committed = note.note.note;
  std::optional<transcript::rounding_reference> out;
  std::uint64_t at = 0, last = 0;  // the record of step `last` lies at `at`
  for (const committed_record& one : shown) {
    if (status held = verify_inclusion(one.index, committed.size, leaf_hash(one.record), one.proof,
                                       committed.root);
        !held) {
      return held.why();
    }
    const auto decoded = transcript::decode(one.record);
    if (!decoded) return decoded.why();
    if (&one == &shown.front()) {
      const auto* record = std::get_if<transcript::step_record>(&*decoded);
      if (record == nullptr || record->step != step || record->job_id != note.job_id) {
        return mismatch("the record is of another step");
      }
      out = record->rounding;
      last = step;
    } else {
      const auto* resume = std::get_if<transcript::resume_record>(&*decoded);
      if (resume == nullptr || resume->job_id != note.job_id || resume->from_step < step ||
          resume->last_step < last || one.index <= at ||
          one.index - at != resume->last_step - last + 1) {
        return mismatch("the step was recorded again, or not all resumes are shown");
      }
      last = resume->from_step;
    }
    at = one.index;
  }
  // Behind the last step lies the record that closes the log.
  if (shown.empty() || last > steps || committed.size - at != steps - last + 2) {
    return mismatch("the step was recorded again, or not all resumes are shown");
  }
  return out;
}

}  // namespace potl::dispute
