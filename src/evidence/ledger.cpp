// SPDX-License-Identifier: Apache-2.0
#include <potl/evidence/detail/ledger.hpp>

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <potl/core/file.hpp>

namespace potl::transcript {
namespace {

constexpr std::uint64_t version = 1;
constexpr std::uint64_t max_ledger_bytes = std::uint64_t{64} << 20;

error damaged(const std::string& path, const std::string& why) {
  return {errc::usage, path + " is not a ledger: " + why,
          "restore it from a backup; without it, earlier challenges of this job are forgotten"};
}

result<file_handle> lock(const std::string& path, const std::function<void()>& interrupted) {
  const std::string name = path + ".lock";
  file_handle out(::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  int locked = -1;
  while (out && (locked = ::flock(out.get(), LOCK_EX)) != 0 && errno == EINTR) {
    if (interrupted) interrupted();
  }
  if (locked != 0) return error{errc::io, "cannot lock " + name + ": " + std::strerror(errno), ""};
  return out;
}

result<ledger_challenge> read_challenge(const json_cursor& at) {
  ledger_challenge out;
  const auto nonce = at.digest("nonce");
  if (!nonce) return nonce.why();
  const auto time = at.number("time");
  if (!time) return time.why();
  const auto count = at.at("checks").size();
  if (!count) return count.why();
  const json_value* document = at.at("document").get();
  if (document != nullptr && document->type() != json_value::kind::null) {
    const auto handed = at.digest("document");
    if (!handed) return handed.why();
    out.document = *handed;
  }
  out.nonce = *nonce;
  out.time = *time;
  for (std::size_t i = 0; i < *count; ++i) {
    const json_cursor pair = at.at("checks").at(i);
    const auto name = pair.at(std::size_t{0}).string();
    if (!name) return name.why();
    const json_value* options = pair.at(std::size_t{1}).get();
    if (options == nullptr || options->if_object() == nullptr) {
      return error{errc::malformed, pair.path() + " has no options", ""};
    }
    out.checks.emplace_back(*name, *options);
  }
  return out;
}

result<ledger_memory> read_ledger(const json_value& document) {
  ledger_memory out;
  const json_cursor root = document.root();
  const auto challenges = root.at("challenges").size();
  if (!challenges) return challenges.why();
  for (std::size_t i = 0; i < *challenges; ++i) {
    auto one = read_challenge(root.at("challenges").at(i));
    if (!one) return one.why();
    out.challenges.push_back(std::move(*one));
  }
  const auto commitments = root.at("commitments").size();
  if (!commitments) return commitments.why();
  for (std::size_t i = 0; i < *commitments; ++i) {
    auto one = root.at("commitments").at(i).string();
    if (!one) return one.why();
    out.commitments.push_back(std::move(*one));
  }
  return out;
}

json_value::array pairs_of(const ledger_challenge& what) {
  json_value::array out;
  for (const auto& [name, options] : what.checks) {
    out.emplace_back(json_value::array{json_value(name), options});
  }
  return out;
}

std::string format_ledger(const digest& job, const ledger_memory& what) {
  json_value::array challenges, commitments;
  for (const ledger_challenge& one : what.challenges) {
    challenges.push_back(json_value::of(
        {{"nonce", one.nonce.hex()},
         {"checks", pairs_of(one)},
         {"time", one.time},
         {"document", one.document ? json_value(one.document->hex()) : json_value(nullptr)}}));
  }
  for (const std::string& note : what.commitments) commitments.emplace_back(note);
  return canonical_json(json_value::of({{"version", version},
                                        {"job", job.hex()},
                                        {"challenges", std::move(challenges)},
                                        {"commitments", std::move(commitments)}}));
}

}  // namespace

bool ledger_challenge::asks_like(const ledger_challenge& other) const {
  // Canonical: 8 and 8.0 are one option.
  return nonce == other.nonce && document == other.document &&
         canonical_json(pairs_of(*this)) == canonical_json(pairs_of(other));
}

ledger_challenge challenge_of(const digest& nonce,
                              std::vector<std::pair<std::string, json_value>> checks) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {nonce, std::move(checks), std::chrono::duration<double>(now).count(), {}};
}

result<std::string> default_ledger(const digest& job) {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  // The specification has relative paths ignored; each folder would have memories of its own.
  std::string folder = state == nullptr || *state != '/' ? "" : state;
  if (folder.empty() && home != nullptr && *home != '\0') {
    folder = std::string(home) + "/.local/state";
  }
  if (folder.empty()) {
    return error{errc::usage, "there is neither XDG_STATE_HOME nor HOME to keep a ledger in",
                 "set one of them, or name a file (--ledger; in Python ledger=)"};
  }
  return folder + "/potl/jobs/" + job.hex() + ".json";
}

result<ledger_memory> recall(const std::string& path, const digest& job) {
  const auto text = read_file(path, max_ledger_bytes, links::follow);
  if (!text && text.why().code == errc::missing) return ledger_memory{};
  if (!text && text.why().code == errc::io) return text.why();
  if (!text) return damaged(path, text.why().message);
  json_limits limits;
  limits.max_bytes = max_ledger_bytes;
  limits.max_nodes = std::size_t{1} << 22;
  const auto document = parse_json(*text, limits);
  if (!document) return damaged(path, document.why().message);
  const json_cursor root = document->root();
  const auto of_job = root.digest("job");
  const auto written = root.count("version");
  if (!of_job || !written) return damaged(path, (of_job ? written.why() : of_job.why()).message);
  if (*written != version) {
    return error{errc::usage, path + " was written by another version of potl",
                 "verify with that version; an older one forgets what the ledger remembers"};
  }
  if (*of_job != job) {
    return error{errc::usage, path + " is the ledger of another job",
                 "leave the ledger out, or name one file per job"};
  }
  auto out = read_ledger(*document);
  if (!out) return damaged(path, out.why().message);
  return out;
}

result<ledger_memory> remember(const std::string& name, const digest& job,
                               const std::optional<std::string>& commitment,
                               const std::optional<ledger_challenge>& challenge,
                               const std::function<void()>& interrupted) {
  // A link stays one: it says where the memory is.
  std::error_code none;
  const auto target = std::filesystem::canonical(name, none);
  const std::string path = none ? name : target.string();
  const std::string folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) {
    if (status made = create_directory(folder); !made) return made.why();
  }
  const auto held = lock(path, interrupted);
  if (!held) return held.why();
  result<ledger_memory> before = recall(path, job);
  if (!before) return before;
  ledger_memory after = *before;
  bool news = false;
  auto& notes = after.commitments;
  if (commitment && std::find(notes.begin(), notes.end(), *commitment) == notes.end()) {
    notes.push_back(*commitment);
    news = true;
  }
  if (challenge && std::none_of(after.challenges.begin(), after.challenges.end(),
                                [&](const auto& one) { return one.asks_like(*challenge); })) {
    after.challenges.push_back(*challenge);
    news = true;
  }
  if (news) {
    const std::string text = format_ledger(job, after);
    if (status kept = write_file_atomically(path, as_bytes_view(text), access::owner); !kept)
      return kept.why();
  }
  return before;
}

}  // namespace potl::transcript
