// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/operator_trace.hpp>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <potl/core/file.hpp>
#include <potl/encoding/json.hpp>

#include "core/file_system.hpp"

namespace potl::transcript {
namespace {

constexpr std::string_view trace_format = "potl-operator-trace-v1";
constexpr const char* trace_folder = "traces";
constexpr json_limits trace_limits{
    .max_bytes = std::size_t{64} << 20, .max_nodes = std::size_t{1} << 22, .max_string = 256};

std::string trace_name(std::uint64_t step) { return "step-" + std::to_string(step) + ".json"; }

result<operator_trace> parse_trace(bytes_view text, std::uint64_t step) {
  const result<json_value> document = parse_json(text, trace_limits);
  if (!document) return document.why();
  const json_cursor root = document->root();
  const result<std::string> format = root.string("format");
  if (!format) return format.why();
  const result<std::uint64_t> written_step = root.count("step");
  if (!written_step) return written_step.why();
  if (*format != trace_format || *written_step != step) {
    return error{errc::malformed, "another format or step", ""};
  }
  operator_trace out;
  out.step = step;
  const result<digest> before = root.digest("before");
  if (!before) return before.why();
  out.before = *before;
  const json_cursor rows = root.at("operators");
  const result<std::size_t> size = rows.size();
  if (!size) return size.why();
  for (std::size_t i = 0; i < *size; ++i) {
    const result<std::string> name = rows.at(i).at(0).string();
    if (!name) return name.why();
    const result<digest> content = rows.at(i).at(1).digest();
    if (!content) return content.why();
    out.operators.push_back({*name, *content});
  }
  return out;
}

}  // namespace

bool returns_unset(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 3> beginnings{"aten.empty", "aten.new_empty",
                                                       "aten.resize"};
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view one) { return name.starts_with(one); });
}

std::optional<std::string> first_difference(const operator_trace& own,
                                            const operator_trace& other) {
  if (own.step != other.step || own.before != other.before) {
    throw exception({errc::usage, "the two traces do not start from the same state",
                     "trace the same step of one run"});
  }
  const std::size_t shared = std::min(own.operators.size(), other.operators.size());
  for (std::size_t i = 0; i < shared; ++i) {
    const traced_operator &mine = own.operators[i], &theirs = other.operators[i];
    if (mine == theirs) continue;
    const std::string renamed =
        mine.name == theirs.name ? "" : " (the other side calls " + theirs.name + ")";
    return "operator " + std::to_string(i + 1) + " of " + std::to_string(own.operators.size()) +
           ", " + mine.name + renamed;
  }
  if (own.operators.size() == other.operators.size()) return std::nullopt;
  return "operator " + std::to_string(shared + 1) + ": one side stops";
}

result<std::string> write_trace(const std::string& directory, const operator_trace& trace) {
  json_value::array rows;
  for (const traced_operator& one : trace.operators) {
    rows.emplace_back(json_value::array{one.name, one.result.hex()});
  }
  const std::string text = canonical_json(json_value::of({{"format", trace_format},
                                                          {"step", trace.step},
                                                          {"before", trace.before.hex()},
                                                          {"operators", std::move(rows)}}));
  // A link that somebody put there must not choose what is overwritten.
  const std::string folder = directory + "/" + trace_folder, name = trace_name(trace.step);
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    return detail::system_error_of(errno, "create", folder);
  }
  const file_handle place =
      detail::open_file(AT_FDCWD, folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK);
  if (!place) return detail::system_error_of(errno, "open", folder);
  std::string path = folder + "/" + name;
  const file_handle file = detail::open_file(
      place.get(), name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (!file) return detail::system_error_of(errno, "write", path);
  const status written = detail::write_all(file.get(), as_bytes_view(text), path);
  if (!written) return written.why();
  return path;
}

result<operator_trace> read_trace(const std::string& directory, std::uint64_t step) {
  const std::string name = std::string(trace_folder) + "/" + trace_name(step);
  const auto bytes = read_entry(directory, name, trace_limits.max_bytes);
  if (!bytes) return bytes.why();
  result<operator_trace> out = parse_trace(*bytes, step);
  if (out) return out;
  return error{errc::malformed,
               name + " is not a trace of step " + std::to_string(step) + ": " + out.why().message,
               ""};
}

}  // namespace potl::transcript
