// SPDX-License-Identifier: Apache-2.0
// Codes of work: each binds the nonce, the job, the step and bytes that the step changed.
#include <potl/transcript/work.hpp>

#include <set>

#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/crypto/hasher.hpp>

#include "catch.hpp"
#include "state_tree.hpp"

using namespace potl;
using namespace potl::transcript;

namespace {

constexpr std::size_t per_chunk = content_chunk_bytes / sizeof(float);

digest named(const char* name) { return sha256_of(as_bytes_view(std::string_view(name))); }

const digest nonce = named("nonce"), job_id = named("job");

struct model : tree {
  std::vector<std::vector<float>> tensors;
};

state with(std::size_t chunks, const std::vector<std::pair<std::size_t, std::size_t>>& touched,
           float to = 1, std::size_t count = 2) {
  auto owner = std::make_shared<model>();
  owner->tensors.assign(count, std::vector<float>(chunks * per_chunk));
  for (const auto& [tensor, at] : touched) owner->tensors[tensor][at] = to;
  std::vector<std::pair<std::string, tree::value>> members;
  for (std::size_t i = 0; i < count; ++i) {
    members.emplace_back("t" + std::to_string(i), owner->floats(owner->tensors[i]));
  }
  return state::make(tree::dict(std::move(members)), owner).value();
}

signing_key a_key(std::uint8_t first = 0) {
  std::array<std::uint8_t, 32> seed{first};
  return signing_key::from_seed(seed).value();
}

}  // namespace

TEST_CASE("a code is that of its nonce, job, step and bytes", "[work]") {
  const state before = with(3, {}), after = with(3, {{0, 5}, {1, per_chunk}});
  const work_code code = code_of_work(nonce, job_id, 4, before, after);
  CHECK(code.changed == 2);
  CHECK(code_of_work(nonce, job_id, 4, with(3, {}), with(3, {{0, 5}, {1, per_chunk}})).code ==
        code.code);
  std::set<digest> codes{code.code};
  codes.insert(code_of_work(named("other"), job_id, 4, before, after).code);
  codes.insert(code_of_work(nonce, named("other"), 4, before, after).code);
  codes.insert(code_of_work(nonce, job_id, 5, before, after).code);
  // Another byte of a chunk that changed, another place, another tensor, a chunk more.
  codes.insert(code_of_work(nonce, job_id, 4, before, with(3, {{0, 6}, {1, per_chunk}})).code);
  codes.insert(code_of_work(nonce, job_id, 4, before, with(3, {{0, 5}, {1, 2 * per_chunk}})).code);
  codes.insert(code_of_work(nonce, job_id, 4, before, with(3, {{1, 5}, {0, per_chunk}})).code);
  codes.insert(
      code_of_work(nonce, job_id, 4, before, with(3, {{0, 5}, {1, 0}, {1, per_chunk}})).code);
  codes.insert(code_of_work(nonce, job_id, 4, before, with(3, {{0, 5}, {1, per_chunk}}, 2)).code);
  CHECK(codes.size() == 9);
}

TEST_CASE("the same bytes in another tensor have another code", "[work]") {
  const state before = with(3, {});
  CHECK(code_of_work(nonce, job_id, 4, before, with(3, {{0, 5}})).code !=
        code_of_work(nonce, job_id, 4, before, with(3, {{1, 5}})).code);
}

TEST_CASE("what a step leaves as it was is in no code", "[work]") {
  const std::vector<std::pair<std::size_t, std::size_t>> step{{1, 7}};
  auto frozen = with(3, {{0, 1}}), moved = with(3, {{0, 1}, {1, 7}});
  // The first tensor has other bytes, but the step does not change them.
  CHECK(code_of_work(nonce, job_id, 1, frozen, moved).code ==
        code_of_work(nonce, job_id, 1, with(3, {}), with(3, step)).code);
  CHECK(code_of_work(nonce, job_id, 1, frozen, frozen).changed == 0);
}

TEST_CASE("a tensor that was not there, or had another size, has changed as a whole", "[work]") {
  CHECK(code_of_work(nonce, job_id, 1, with(3, {}, 1, 1), with(3, {}, 1, 2)).changed == 3);
  CHECK(code_of_work(nonce, job_id, 1, with(2, {}), with(3, {})).changed == 6);
  CHECK(code_of_work(nonce, job_id, 1, with(3, {}), with(2, {})).changed == 4);
}

TEST_CASE("of many chunks a few make the code, others at each step", "[work]") {
  constexpr std::size_t chunks = 200;
  std::vector<std::pair<std::size_t, std::size_t>> all;
  for (std::size_t i = 0; i < chunks; ++i) all.emplace_back(0, i * per_chunk);
  const state before = with(chunks, {}, 1, 1), after = with(chunks, all, 1, 1);
  // How many codes a change of one chunk moves, of 200: of each step, as many as are drawn.
  const auto seen = [&](std::uint64_t step) {
    const digest code = code_of_work(nonce, job_id, step, before, after).code;
    std::set<std::size_t> out;
    for (std::size_t i = 0; i < chunks; ++i) {
      auto other = all;
      other.emplace_back(0, i * per_chunk + 1);
      const state lie = with(chunks, other, 1, 1);
      if (code_of_work(nonce, job_id, step, before, lie).code != code) out.insert(i);
    }
    return out;
  };
  const auto first = seen(1), second = seen(2);
  CHECK(first.size() == work_chunks);
  CHECK(second.size() == work_chunks);
  CHECK(first != second);
}

TEST_CASE("a file of codes is read whole, or refused", "[work]") {
  const std::vector<digest> codes{named("1"), named("2"), named("3")};
  std::vector<std::uint8_t> file = work_file_header(job_id, nonce);
  REQUIRE(file.size() == work_header_bytes);
  CHECK(read_work_file(file, job_id, nonce, 0).value().empty());
  for (const digest& one : codes) file.insert(file.end(), one.bytes.begin(), one.bytes.end());
  CHECK(read_work_file(file, job_id, nonce, 3).value() == codes);
  CHECK(read_work_file(file, job_id, nonce, 2).why().code == errc::limit);
  CHECK(read_work_file(file, named("other"), nonce, 3).why().code == errc::mismatch);
  CHECK(read_work_file(file, job_id, named("other"), 3).why().code == errc::mismatch);
  for (std::size_t size = 0; size < file.size(); ++size) {
    const bool whole = size >= work_header_bytes && (size - work_header_bytes) % 32 == 0;
    CHECK(static_cast<bool>(read_work_file(bytes_view(file).first(size), job_id, nonce, 3)) ==
          whole);
  }
  file[0] ^= 1;
  CHECK(read_work_file(file, job_id, nonce, 3).why().code == errc::malformed);
}

TEST_CASE("a note is of its codes, job, nonce and key alone", "[work]") {
  const std::vector<digest> codes{named("1"), named("2"), named("3")};
  const signing_key key = a_key();
  for (const std::optional<digest>& commitment : {std::optional<digest>{}, {named("note")}}) {
    const std::string text = sign_work_note(job_id, nonce, commitment, codes, key).value();
    const work_note note = parse_work_note(text).value();
    CHECK(note.commitment == commitment);
    CHECK(verify_work_note(note, job_id, nonce, codes, key.verifier()));
    auto less = codes, more = codes, other = codes;
    less.pop_back();
    more.push_back(named("4"));
    other[1].bytes[31] ^= 1;
    for (const auto& false_codes : {less, more, other}) {
      CHECK(verify_work_note(note, job_id, nonce, false_codes, key.verifier()).why().code ==
            errc::mismatch);
    }
    CHECK(!verify_work_note(note, named("x"), nonce, codes, key.verifier()));
    CHECK(!verify_work_note(note, job_id, named("x"), codes, key.verifier()));
    CHECK(verify_work_note(note, job_id, nonce, codes, a_key(1).verifier()).why().code ==
          errc::missing);
  }
}

TEST_CASE("notes of another form are none of codes", "[work]") {
  const auto refused = [](const checkpoint_note& note) {
    return parse_work_note(sign_note(note, a_key()).value()).why().code;
  };
  const std::string origin = "potl-work/v1/" + job_id.hex(), line = "nonce " + nonce.hex();
  REQUIRE(parse_work_note(sign_note({origin, 1, nonce, {line}}, a_key()).value()));
  CHECK(refused({"potl/v1/" + job_id.hex(), 1, nonce, {line}}) == errc::malformed);
  CHECK(refused({origin + "0", 1, nonce, {line}}) == errc::malformed);
  CHECK(refused({origin, 1, nonce, {}}) == errc::malformed);
  CHECK(refused({origin, 1, nonce, {"commitment " + nonce.hex()}}) == errc::malformed);
  CHECK(refused({origin, 1, nonce, {line, line}}) == errc::malformed);
  CHECK(refused({origin, 1, nonce, {line, "commitment " + nonce.hex(), "x"}}) == errc::malformed);
  CHECK(refused({origin, 1, nonce, {line + "0"}}) == errc::malformed);
}
