// SPDX-License-Identifier: Apache-2.0
// Any bytes: no crash. A run's note that is accepted says one thing only: its parts give the note
// again.
#include <cstdlib>

#include <potl/transcript/commitment.hpp>

#include "fuzz.hpp"

POTL_FUZZ_TARGET(commitment_fuzz) {
  using namespace potl::transcript;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const potl::result<run_note> got = parse_run_note(text);
  if (!got) return 0;
  if (got->note.note.origin != note_origin(got->job_id)) std::abort();
  const std::string line = got->final_state ? "final " + got->final_state->hex() : "open";
  if (got->note.note.extensions != std::vector{line}) std::abort();
  if (potl::format_note(got->note).value() != text) std::abort();
  return 0;
}
