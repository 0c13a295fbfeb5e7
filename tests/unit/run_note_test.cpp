// SPDX-License-Identifier: Apache-2.0
// Notes that somebody signed, and that are none of a run.
#include "catch.hpp"

#include <array>
#include <string>

#include <potl/crypto/hasher.hpp>
#include <potl/transcript/commitment.hpp>

using namespace potl;
using namespace potl::transcript;

namespace {

const digest id = sha256_of(as_bytes_view(std::string("job")));

std::string signed_by_somebody(const checkpoint_note& note) {
  std::array<std::uint8_t, 32> seed{};
  return sign_note(note, signing_key::from_seed(seed).value()).value();
}

checkpoint_note commitment() {
  return {note_origin(id), 7, sha256_of(as_bytes_view(std::string("root"))), {"final " + id.hex()}};
}

errc refused(const checkpoint_note& note) {
  return parse_run_note(signed_by_somebody(note)).why().code;
}

}  // namespace

TEST_CASE("a commitment is a note with one line, which names the final state") {
  const run_note parsed = parse_run_note(signed_by_somebody(commitment())).value();
  REQUIRE(parsed.job_id == id);
  REQUIRE(parsed.final_state == id);
}

TEST_CASE("a note with a line too many is none of a run") {
  checkpoint_note note = commitment();
  note.extensions.push_back(note.extensions[0]);
  REQUIRE(refused(note) == errc::malformed);
}

TEST_CASE("a note of another program is none of a run") {
  checkpoint_note note = commitment();
  note.origin = "else/v1/" + id.hex();
  REQUIRE(refused(note) == errc::malformed);
  note.origin = std::string(note_origin(id).size() - 64, 'x') + id.hex();
  REQUIRE(refused(note) == errc::malformed);
}

TEST_CASE("a note with a line that nobody knows is none of a run") {
  checkpoint_note note = commitment();
  note.extensions[0] = "fanal " + id.hex();
  REQUIRE(refused(note) == errc::malformed);
}
