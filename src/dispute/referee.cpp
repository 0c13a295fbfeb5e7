// SPDX-License-Identifier: Apache-2.0
#include <potl/dispute/referee.hpp>

#include <algorithm>
#include <utility>

#include <potl/crypto/hasher.hpp>

namespace potl::dispute {
namespace {

status own_key(const setting& known, const signing_key& key) {
  if (key.verifier() == known.referee) return unit{};
  return error{errc::usage, "this is not the key of the dispute's referee", ""};
}

}  // namespace

result<referee> referee::open(const setting& known, const terms& agreed, signing_key key,
                              std::uint64_t at) {
  if (const status own = own_key(known, key); !own) return own.why();
  const std::string line = sign_entry({at, {}, agreed, {}}, key);
  result<proceedings> begun = proceedings::begin(known, line);
  if (!begun) return begun.why();
  referee out(std::move(*begun), std::move(key));
  out.text_ = line + "\n";
  return out;
}

result<referee> referee::resume(const setting& known, std::string_view stored, signing_key key,
                                std::uint64_t at) {
  if (const status own = own_key(known, key); !own) return own.why();
  const std::size_t whole = stored.rfind('\n');
  if (whole == std::string_view::npos) {
    return error{errc::missing, "dispute: no line was stored", "open it again"};
  }
  stored = stored.substr(0, whole + 1);
  std::size_t end = stored.find('\n');
  result<proceedings> read = proceedings::begin(known, stored.substr(0, end));
  if (!read) return read.why();
  for (std::size_t from = end + 1; from < stored.size(); from = end + 1) {
    end = stored.find('\n', from);
    if (const status done = read->append(stored.substr(from, end - from)); !done) return done.why();
  }
  referee out(std::move(*read), std::move(key));
  out.text_ = stored;
  const result<new_line> restart =
      out.write({std::max(at, out.now_.last_at()), {}, restarted{}, {}});
  if (!restart) return restart.why();
  return out;
}

result<new_line> referee::write(entry one) {
  one.previous = now_.head();
  const result<effect> done = now_.apply(one);
  if (!done) return done.why();
  if (*done == effect::ignored) return new_line{};
  std::string line = sign_entry(one, key_);
  now_.follow(line, one);
  text_ += line + "\n";
  return new_line(std::move(line));
}

new_line referee::tick(std::uint64_t at) {
  return write({std::max(at, now_.last_at()), {}, silence{}, {}}).value();
}

new_line referee::receive(party from, bytes_view text, std::uint64_t at) {
  at = std::max(at, now_.last_at());
  if (new_line late = tick(at)) return late;
  const bool is_its_turn = now_.state().expected().who == from;
  if (is_its_turn && text.size() > now_.message_bytes()) {
    return write({at, {}, oversized{from, text.size()}, {}}).value();
  }
  return write({at, {}, received{from, {text.begin(), text.end()}}, {}}).value();
}

result<std::string> referee::decide(const decision& made, std::uint64_t at) {
  entry one{std::max(at, now_.last_at()), {}, {}, {}};
  std::visit([&](const auto& what) { one.what = what; }, made);
  result<new_line> line = write(std::move(one));
  if (!line) return line.why();
  if (!*line) return error{errc::mismatch, "dispute: it is over", ""};
  return std::move(**line);
}

std::optional<party> referee::author(bytes_view text) const {
  const result<message> read = parse_message(text, line_limit());
  if (!read || read->run != now_.run() || !read->is_from(now_.known_.key_of(read->from))) return {};
  // The last line first: it is the parent of what is new. Only a party can make it look further.
  for (std::size_t end = text_.size(); end > 0;) {
    const std::size_t before = end < 2 ? std::string::npos : text_.rfind('\n', end - 2);
    const std::size_t from = before == std::string::npos ? 0 : before + 1;
    const std::string_view line = std::string_view(text_).substr(from, end - 1 - from);
    if (sha256_of(as_bytes_view(line)) == read->parent) return read->from;
    end = from;
  }
  return {};
}

}  // namespace potl::dispute
