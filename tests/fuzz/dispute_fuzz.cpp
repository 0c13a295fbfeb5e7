// SPDX-License-Identifier: Apache-2.0
// Any bytes: no crash. A message or a line of a transcript that is read has one spelling, and what
// it claims to open is compared with digests that it does not choose.
#include <cstdlib>
#include <string_view>

#include <potl/dispute/entry.hpp>
#include <potl/dispute/message.hpp>

#include "fuzz.hpp"

POTL_FUZZ_TARGET(dispute_fuzz) {
  using namespace potl::dispute;
  const potl::bytes_view bytes(data, size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const potl::result<message> read = parse_message(bytes, size)) {
    if (format_message(*read) != text) std::abort();
    if (read->as_move().where != read->where()) std::abort();
    const auto* shown = std::get_if<opening>(&read->content);
    if (shown != nullptr && verify_opening(read->index, *shown, {}, {})) std::abort();
    const auto* claimed = std::get_if<claim>(&read->content);
    if (claimed != nullptr && verify_step_claim(*claimed, read->index, {})) std::abort();
  }
  if (const potl::result<entry> read = parse_entry(bytes)) {
    if (format_entry(*read) != text) std::abort();
    const auto* sent = std::get_if<received>(&read->what);
    if (sent != nullptr) return dispute_fuzz(sent->text.data(), sent->text.size());
  }
  return 0;
}
