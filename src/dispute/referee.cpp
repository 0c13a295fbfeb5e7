// SPDX-License-Identifier: Apache-2.0
#include <potl/dispute/referee.hpp>

#include <algorithm>
#include <utility>

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
  out.lines_ = {out.now_.head()};
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
  std::vector<digest> lines{read->head()};
  for (std::size_t from = end + 1; from < stored.size(); from = end + 1) {
    end = stored.find('\n', from);
    if (const status done = read->append(stored.substr(from, end - from)); !done) return done.why();
    lines.push_back(read->head());
  }
  referee out(std::move(*read), std::move(key));
  out.text_ = stored;
  out.lines_ = std::move(lines);
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
  lines_.push_back(now_.head());
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
  if (std::find(lines_.rbegin(), lines_.rend(), read->parent) == lines_.rend()) return {};
  return read->from;
}

}  // namespace potl::dispute
