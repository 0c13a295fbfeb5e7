// SPDX-License-Identifier: Apache-2.0
#include <potl/dispute/player.hpp>

#include <algorithm>
#include <utility>

#include <potl/crypto/hasher.hpp>

namespace potl::dispute {

result<player> player::join(const setting& known, party self, signing_key key, knowledge knows,
                            std::string_view first) {
  if (!(key.verifier() == known.key_of(self))) {
    return error{errc::usage, "this is not the party's key", ""};
  }
  result<proceedings> begun = proceedings::begin(known, first);
  if (!begun) return begun.why();
  player out(std::move(*begun), self, std::move(key), std::move(knows));
  out.lines_.push_back(out.now_.head());
  return out;
}

status player::follow(std::string_view line) {
  const digest name = sha256_of(as_bytes_view(line));
  if (std::find(lines_.begin(), lines_.end(), name) != lines_.end()) return unit{};
  const status done = now_.append(line);
  if (done) lines_.push_back(name);
  return done;
}

std::optional<std::string> player::next_message() {
  const turn& expected = now_.state().expected();
  if (now_.state().decided() || expected.who != self_ || moved_ == expected.where) return {};
  message out{self_, now_.run(), now_.parent(), expected.where.level, expected.where.index, {}, {}};
  switch (expected.where.what) {
    case act::claim: out.content = knows_.claim_at(now_); break;
    case act::opening: out.content = knows_.opening_at(now_); break;
    case act::answer: out.content = knows_.answer_to(now_); break;
  }
  moved_ = expected.where;
  return sign_message(out, key_);
}

}  // namespace potl::dispute
