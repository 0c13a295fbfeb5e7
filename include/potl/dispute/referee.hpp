// SPDX-License-Identifier: Apache-2.0
// The referee's desk: what comes in is weighed, what counts becomes a signed line.
//
// Claims: what a party sent changes the dispute exactly as it will when the transcript is judged
// again, because both go the same way. Repeated messages and those out of turn leave no line.
// Assumes: the transport knows who sends (a token or a certificate per party), since what is not
// signed convicts the party that it came from. One that cannot know drops whatever `author` does
// not name; then garbage is silence.
// Cost: two signatures per line. A crash loses nothing if each line is made durable before it is
// sent on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/signature.hpp>
#include <potl/dispute/proceedings.hpp>

namespace potl::dispute {

/// Nothing: what happened changes nothing. Else the line to store and to send to both.
using new_line = std::optional<std::string>;

/// Weighs what arrives, and writes the transcript.
class referee {
 public:
  /// Opens a dispute. usage: the key is not the setting's; mismatch: a commitment is not one.
  static result<referee> open(const setting& known, const terms& agreed, signing_key key,
                              std::uint64_t at);
  /// Goes on with stored lines, each with its newline. The party whose turn it is gets its whole
  /// time again, by a line behind the others; a last line that was cut off is left out.
  static result<referee> resume(const setting& known, std::string_view stored, signing_key key,
                                std::uint64_t at);

  const proceedings& now() const noexcept { return now_; }
  /// All lines, each with its newline.
  const std::string& transcript() const noexcept { return text_; }

  /// What `from` sent. What comes after the deadline is not read: it is the silence of whoever was
  /// to move.
  new_line receive(party from, bytes_view text, std::uint64_t at);
  /// Looks at the clock.
  new_line tick(std::uint64_t at);
  /// The referee's decisions. mismatch: it is not the time for it, or it does not fit what was
  /// opened; then nothing changes.
  result<std::string> decide(const decision& made, std::uint64_t at);

  /// Who signed a text for this dispute; nobody when it is no such message. One that names a parent
  /// which is not a line of this transcript was signed for another dispute, and who has it from
  /// there may be anybody.
  std::optional<party> author(bytes_view text) const;

 private:
  referee(proceedings now, signing_key key) : now_(std::move(now)), key_(std::move(key)) {}
  result<new_line> write(entry one);

  proceedings now_;
  signing_key key_;
  std::string text_;
  std::vector<digest> lines_;  // of each line; a party may repeat a message as often as it likes
};

}  // namespace potl::dispute
