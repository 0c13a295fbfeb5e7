// SPDX-License-Identifier: Apache-2.0
#include <potl/dispute/proceedings.hpp>

namespace potl::dispute {
namespace {

/// What the referee decided in this line by computing. Nothing where it decided nothing, or could
/// not decide.
std::optional<decision> decision_in(const entry& one) {
  if (const auto* inner = std::get_if<inner_bisection>(&one.what)) return *inner;
  if (const auto* asked = std::get_if<question>(&one.what)) return *asked;
  const auto* ruled = std::get_if<ruling>(&one.what);
  if (ruled == nullptr || ruled->why == reason::referee) return std::nullopt;
  return *ruled;
}

}  // namespace

result<judged> judge_again(const setting& known, std::string_view transcript,
                           const recomputation& again) {
  std::optional<proceedings> read;
  judged out;
  while (!transcript.empty()) {
    const std::size_t end = transcript.find('\n');
    if (end == std::string_view::npos) {
      return error{errc::malformed, "dispute: the last line has no end", ""};
    }
    const std::string_view line = transcript.substr(0, end);
    transcript.remove_prefix(end + 1);
    if (!read) {
      result<proceedings> begun = proceedings::begin(known, line);
      if (!begun) return begun.why();
      read.emplace(std::move(*begun));
      continue;
    }
    // Nobody computes on the word of somebody else: the line is the referee's, and fits.
    std::optional<proceedings> before;
    std::optional<decision> made;
    if (const result<entry> one = parse_entry(as_bytes_view(line))) made = decision_in(*one);
    if (made && again) before = *read;
    if (const status done = read->append(line); !done) return done.why();
    if (made && !again) ++out.believed;
    if (!before) continue;
    if (const status same = again(*before, *made); !same) return same.why();
  }
  if (!read || !read->state().decided()) {
    return error{errc::missing, "dispute: the transcript has no verdict", "it is cut off"};
  }
  out.outcome = *read->state().decided();
  out.step = read->step();
  return out;
}

}  // namespace potl::dispute
