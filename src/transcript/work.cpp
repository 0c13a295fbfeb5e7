// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/work.hpp>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include <potl/crypto/challenge.hpp>
#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/crypto/hasher.hpp>
#include <potl/crypto/merkle.hpp>

#include "transcript/little_endian.hpp"

namespace potl::transcript {
namespace {

// With their zero bytes.
constexpr std::string_view nonce_domain{"potl.work.nonce.v1\0", 19};
constexpr std::string_view draw_domain{"potl.work.draw.v1\0", 18};
constexpr std::string_view code_domain{"potl.work.code.v1\0", 18};
constexpr std::string_view work_magic{"potl.work.v1\0\0\0\0", 16};
constexpr std::string_view work_origin = "potl-work/v1/";
constexpr std::string_view work_nonce_line = "nonce ";
constexpr std::string_view work_commitment_line = "commitment ";

error no_codes(const std::string& why) { return {errc::malformed, "codes of work: " + why, ""}; }
error other_codes(const std::string& why) { return {errc::mismatch, "codes of work: " + why, ""}; }

struct work_place {
  const state_tensor* tensor;
  std::uint64_t chunk;
};

bytes_view work_chunk(bytes_view bytes, std::uint64_t chunk) {
  const auto at = static_cast<std::size_t>(chunk) * content_chunk_bytes;
  return bytes.subspan(at, std::min(content_chunk_bytes, bytes.size() - at));
}

bool same_bytes(bytes_view a, bytes_view b) {
  return a.data() == b.data() || std::memcmp(a.data(), b.data(), a.size()) == 0;
}

std::vector<work_place> changed_chunks(const state& before, const state& after) {
  std::unordered_map<std::string_view, bytes_view> old;
  for (const state_tensor* one : before.tensors()) old.emplace(one->path, one->bytes);
  std::vector<work_place> out;
  for (const state_tensor* one : after.tensors()) {
    const auto known = old.find(one->path);
    const bool comparable = known != old.end() && known->second.size() == one->bytes.size();
    for (std::uint64_t i = 0; i < content_chunks(one->bytes.size()); ++i) {
      if (comparable && same_bytes(work_chunk(known->second, i), work_chunk(one->bytes, i)))
        continue;
      out.push_back({one, i});
    }
  }
  return out;
}

}  // namespace

digest work_nonce_hash(const digest& nonce) {
  return sha256_of(as_bytes_view(nonce_domain), nonce);
}

work_code code_of_work(const digest& nonce, const digest& job_id, std::uint64_t step,
                       const state& before, const state& after) {
  const std::vector<work_place> changed = changed_chunks(before, after);
  const auto message_of = [&](std::string_view domain) {
    std::vector<std::uint8_t> out;
    field_writer to(out);
    to.raw(as_bytes_view(domain));
    to.raw(job_id);
    to.u64(step);
    return out;
  };
  const digest seed = hmac_sha256(nonce, message_of(draw_domain));
  const auto drawn =
      draw_sorted(seed, changed.size(), std::min<std::uint64_t>(work_chunks, changed.size()))
          .value();
  std::vector<std::uint8_t> message = message_of(code_domain);
  message.reserve(message.size() + drawn.size() * (content_chunk_bytes + max_state_path + 16));
  field_writer to(message);
  to.u64(changed.size());
  for (const std::uint64_t index : drawn) {
    const auto& [tensor, chunk] = changed[index];
    const bytes_view bytes = work_chunk(tensor->bytes, chunk);
    to.u32(static_cast<std::uint32_t>(tensor->path.size()));
    to.raw(as_bytes_view(tensor->path));
    to.u64(chunk);
    to.u32(static_cast<std::uint32_t>(bytes.size()));
    to.raw(bytes);
  }
  return {hmac_sha256(nonce, message), changed.size()};
}

std::vector<std::uint8_t> work_file_header(const digest& job_id, const digest& nonce) {
  std::vector<std::uint8_t> out;
  field_writer to(out);
  to.raw(as_bytes_view(work_magic));
  to.raw(job_id);
  to.raw(work_nonce_hash(nonce));
  return out;
}

result<std::vector<digest>> read_work_file(bytes_view file, const digest& job_id,
                                           const digest& nonce, std::uint64_t max_steps) {
  if (file.size() < work_header_bytes || (file.size() - work_header_bytes) % digest::size != 0) {
    return no_codes("the file ends too early");
  }
  const auto begins = [&](std::size_t at, bytes_view with) {
    return std::equal(with.begin(), with.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
  };
  if (!begins(0, as_bytes_view(work_magic))) return no_codes("the file is another one");
  if (!begins(16, job_id)) return other_codes("they are of another job");
  if (!begins(16 + digest::size, work_nonce_hash(nonce))) {
    return other_codes("they were made under another nonce");
  }
  const std::uint64_t steps = (file.size() - work_header_bytes) / digest::size;
  if (steps > max_steps) {
    return error{errc::limit, "codes of work: there are more of them than steps", ""};
  }
  std::vector<digest> out(steps);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::memcpy(out[i].bytes.data(), &file[work_header_bytes + i * digest::size], digest::size);
  }
  return out;
}

digest work_root(const std::vector<digest>& codes) {
  merkle_frontier tree;
  for (const digest& one : codes) tree.append(leaf_hash(one));
  return tree.root();
}

result<std::string> sign_work_note(const digest& job_id, const digest& nonce,
                                   const std::optional<digest>& commitment,
                                   const std::vector<digest>& codes, const signing_key& key) {
  checkpoint_note note{std::string(work_origin) + job_id.hex(), codes.size(), work_root(codes), {}};
  note.extensions.push_back(std::string(work_nonce_line) + work_nonce_hash(nonce).hex());
  if (commitment) note.extensions.push_back(std::string(work_commitment_line) + commitment->hex());
  return sign_note(note, key);
}

result<work_note> parse_work_note(std::string_view text) {
  result<signed_note> note = parse_note(as_bytes_view(text));
  if (!note) return note.why();
  const checkpoint_note& what = note->note;
  const auto hex_after = [](std::string_view line, std::string_view prefix) -> result<digest> {
    if (!line.starts_with(prefix)) return no_codes("the note has another form");
    return digest::from_hex(line.substr(prefix.size()));
  };
  if (what.extensions.empty() || what.extensions.size() > 2) {
    return no_codes("the note has one or two lines more");
  }
  work_note out;
  const result<digest> job_id = hex_after(what.origin, work_origin);
  if (!job_id) return job_id.why();
  const result<digest> nonce = hex_after(what.extensions[0], work_nonce_line);
  if (!nonce) return nonce.why();
  if (what.extensions.size() == 2) {
    const result<digest> commitment = hex_after(what.extensions[1], work_commitment_line);
    if (!commitment) return commitment.why();
    out.commitment = *commitment;
  }
  out.job_id = *job_id;
  out.nonce_hash = *nonce;
  out.note = std::move(*note);
  return out;
}

status verify_work_note(const work_note& note, const digest& job_id, const digest& nonce,
                        const std::vector<digest>& codes, const public_key& key) {
  if (note.job_id != job_id) return other_codes("the note is of another job");
  if (note.nonce_hash != work_nonce_hash(nonce)) return other_codes("the note is of another nonce");
  if (status is_signed = verify_note(note.note, key); !is_signed) return is_signed;
  if (note.note.note.size != codes.size() || note.note.note.root != work_root(codes)) {
    return other_codes("they are not those that were signed");
  }
  return unit{};
}

}  // namespace potl::transcript
