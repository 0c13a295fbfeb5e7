// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/finite.hpp>
#include <potl/checks/model.hpp>

#include <algorithm>
#include <array>
#include <map>

#include <potl/core/file.hpp>
#include <potl/core/rules.hpp>
#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/crypto/hasher.hpp>

#include "checks/judging.hpp"

namespace potl::checks {
namespace {

using transcript::state_map;
using transcript::state_tensor;
using transcript::state_value;

const state_value* member(const state_value& of, std::string_view name) {
  const auto* map = std::get_if<state_map>(&of.content);
  if (map == nullptr) return nullptr;
  for (const auto& [key, value] : *map) {
    const auto* text = std::get_if<std::string>(&key);
    if (text != nullptr && *text == name) return &value;
  }
  return nullptr;
}

struct entry {
  const state_tensor* tensor = nullptr;
  bool alias = false;
  bool buffer = false;
};

// Names as in state_dict(), each with the tensor it stands for.
std::map<std::string, entry> tensors_of(const state_value& state) {
  std::map<std::string, entry> out;
  std::map<std::string, const state_tensor*> by_path;
  std::vector<std::pair<std::string, std::string>> aliases;
  const state_value* model = member(state, "model");
  if (model == nullptr) return out;
  for (const char* group : {"parameters", "buffers"}) {
    const state_value* tree = member(*model, group);
    const auto* map = tree == nullptr ? nullptr : std::get_if<state_map>(&tree->content);
    if (map == nullptr) continue;
    for (const auto& [key, value] : *map) {
      const auto* name = std::get_if<std::string>(&key);
      if (name == nullptr) continue;
      entry one;
      one.buffer = std::string_view(group) == "buffers";
      if (const auto* tensor = std::get_if<state_tensor>(&value.content)) {
        one.tensor = tensor;
        by_path.emplace(std::string("model/") + group + "/" + *name, tensor);
      } else if (const auto* alias = std::get_if<transcript::state_alias>(&value.content)) {
        one.alias = true;
        aliases.emplace_back(*name, alias->path);
      } else {
        continue;
      }
      out.emplace(*name, one);
    }
  }
  for (const auto& [name, path] : aliases) {
    const auto at = by_path.find(path);
    if (at != by_path.end()) out[name].tensor = at->second;
  }
  return out;
}

std::array<std::uint8_t, 8> little_endian(std::uint64_t value) {
  std::array<std::uint8_t, 8> out{};
  for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<std::uint8_t>(value >> (8 * i));
  return out;
}

void add_text(sha256& hash, std::string_view text) {
  hash.update(little_endian(text.size())).update(as_bytes_view(text));
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < 5; ++i) out += (i == 0 ? "" : ", ") + names[i];
  return names.size() > 5 ? out + ", ..." : out;
}

}  // namespace

digest model_digest(const state_value& state) {
  sha256 hash;
  hash.update(as_bytes_view(std::string_view("potl.model.v1\0", 14)));
  for (const auto& [name, one] : tensors_of(state)) {
    if (one.tensor == nullptr) continue;
    add_text(hash, name);
    add_text(hash, info(one.tensor->type).name);
    hash.update(little_endian(one.tensor->dims.size()));
    for (const std::uint64_t dim : one.tensor->dims) hash.update(little_endian(dim));
    hash.update(content_root(one.tensor->bytes));
  }
  return hash.finish();
}

namespace {

constexpr std::size_t piece_bytes = std::size_t{4} << 20;

// Whether a tensor of the file has the bytes of the recorded one: each is read once.
result<bool> same_bytes(const file_pieces& file, const safetensors_place& place,
                        bytes_view recorded, std::vector<std::uint8_t>& piece) {
  if (place.bytes != recorded.size()) return false;
  for (std::size_t at = 0; at < recorded.size(); at += piece.size()) {
    piece.resize(std::min(piece_bytes, recorded.size() - at));
    if (const status read = file.read(place.offset + at, piece); !read) return read.why();
    if (!std::equal(piece.begin(), piece.end(), recorded.begin() + static_cast<std::ptrdiff_t>(at)))
      return false;
  }
  return true;
}

result<std::string> what_differs(const state_tensor& recorded, const file_pieces& file,
                                 const safetensors_place& delivered,
                                 std::vector<std::uint8_t>& piece) {
  if (recorded.type != delivered.type) return std::string("dtype");
  if (recorded.dims != delivered.dims) return std::string("shape");
  const result<bool> same = same_bytes(file, delivered, recorded.bytes, piece);
  if (!same) return same.why();
  return std::string(*same ? "" : "values");
}

result<finding> compare_tensors(const state_value& state, const file_pieces& file,
                                const std::vector<safetensors_place>& delivered,
                                const optional_buffers& may_lack) {
  const auto recorded = tensors_of(state);
  const auto is_delivered = [&](const std::string& name) {
    return std::any_of(delivered.begin(), delivered.end(),
                       [&](const auto& tensor) { return tensor.name == name; });
  };
  std::vector<std::string> left_out, problems;
  std::vector<std::uint8_t> piece;
  bool any_name = delivered.empty();
  for (const safetensors_place& tensor : delivered) {
    const auto at = recorded.find(tensor.name);
    if (at == recorded.end() || at->second.tensor == nullptr) {
      problems.push_back("\"" + tensor.name + "\" is not in the last committed state");
      continue;
    }
    any_name = true;
    const auto differs = what_differs(*at->second.tensor, file, tensor, piece);
    if (!differs) return differs.why();
    if (!differs->empty()) problems.push_back("\"" + tensor.name + "\" has other " + *differs);
  }
  for (const auto& [name, one] : recorded) {
    if (one.alias || is_delivered(name)) continue;
    // A tied weight may be delivered under any of its names.
    const auto* memory = one.tensor;
    const bool elsewhere = std::any_of(recorded.begin(), recorded.end(), [&](const auto& other) {
      return other.second.alias && other.second.tensor == memory && is_delivered(other.first);
    });
    if (elsewhere) continue;
    const bool excused = one.buffer && (!may_lack || std::find(may_lack->begin(), may_lack->end(),
                                                               name) != may_lack->end());
    if (excused) {
      left_out.push_back(name);
    } else {
      problems.push_back("\"" + name + "\" is missing");
    }
  }
  finding out;
  if (!problems.empty()) {
    out = make_finding("model", "model.delivered", outcome::reject,
                       "the delivered model is not the last committed state: " + problems.front() +
                           (problems.size() > 1 ? " (and " + std::to_string(problems.size() - 1) +
                                                      " more differences)"
                                                : "") +
                           // As where a library saved the model in its own way.
                           (any_name ? ""
                                     : ". It has none of the names of that state: the file to "
                                       "deliver is the one that the run's export writes"));
  } else if (!left_out.empty() && !may_lack) {
    out = make_finding("model", "", outcome::inconclusive,
                       "whether the delivered model may lack the buffers " + joined(left_out) +
                           " is not known without a task");
  } else {
    out = make_finding("model", "model.delivered", outcome::pass,
                       "the delivered model is the last committed state, bit for bit");
    if (!left_out.empty()) {
      out.reason += " (non-persistent buffers " + joined(left_out) + " are not in the file)";
    }
  }
  out.statistic = static_cast<double>(problems.size());
  out.threshold = 0;
  out.details.emplace_back("delivered", true);
  return out;
}

// Replays that end in the recorded bits say nothing about a NaN that was there before.
std::vector<finding> judge_finite(const transcript::evidence& run, const state_value& last) {
  if (!rule_enabled("transcript.finite")) return {};
  const auto found = not_finite(run, last);
  if (!found) {
    return {make_finding("model", "", outcome::inconclusive,
                         "the last committed state has infinities, and the initial state, which "
                         "may have them too, cannot be read: " +
                             found.why().message)};
  }
  if (found.value().empty()) return {};
  return {make_finding("model", "transcript.finite", outcome::inconclusive,
                       "the last committed state is not finite: " + found.value())};
}

// No file of the last state's tensors, under all of their names, is larger.
std::uint64_t largest_file(const state_value& last) {
  std::uint64_t out = 8 + safetensors_limits{}.max_header;
  for (const auto& [name, one] : tensors_of(last)) {
    if (one.tensor != nullptr) out += one.tensor->bytes.size();
  }
  return out;
}

finding unreadable(const error& why) {
  return make_finding("model", "", outcome::inconclusive,
                      "the delivered model cannot be read: " + why.message);
}

finding not_the_last(const std::string& why) {
  return make_finding("model", "model.delivered", outcome::reject, "the delivered model is " + why);
}

finding compare_pieces(const state_value& last, const std::string& path, const file_pieces& file,
                       const optional_buffers& may_lack) {
  const result<safetensors_head> head = read_safetensors_head(file);
  if (!head) {
    if (head.why().code == errc::io) return unreadable(head.why());
    // Nobody has signed it: it may be cut on the way, or another file than the one delivered.
    return make_finding("model", "", outcome::inconclusive,
                        "nothing is known of the delivered model: " + path +
                            " is no valid safetensors file: " + head.why().message);
  }
  const std::uint64_t most = largest_file(last);
  if (file.size() > most) {
    return not_the_last("larger than the last committed state: " + std::to_string(file.size()) +
                        " bytes where at most " + std::to_string(most) + " are accepted");
  }
  result<finding> out = compare_tensors(last, file, head->tensors, may_lack);
  if (!out) return unreadable(out.why());
  const result<digest> whole = sha256_of_file(file);
  if (!whole) return unreadable(whole.why());
  out->details.emplace_back("sha256", whole->hex());
  return *std::move(out);
}

}  // namespace

finding compare_model_file(const state_value& last, const std::string& path,
                           const optional_buffers& may_lack) {
  const result<file_pieces> file = file_pieces::open(path, links::follow);
  if (!file && file.why().code == errc::missing) throw exception(file.why());
  finding out = file ? compare_pieces(last, path, *file, may_lack) : unreadable(file.why());
  out.details.emplace_back("model_digest", model_digest(last).hex());
  return out;
}

namespace {

// Nothing is vouched for where the last state cannot be opened.
std::vector<finding> judge_unopened(const error& why, bool committed, bool compared) {
  const bool withheld = why.code == errc::missing;
  // The run may still be going on, and few steps store their state. Of one that is closed, the
  // audit of its files has said it.
  if (withheld && !committed) {
    return {make_finding("model", "", outcome::inconclusive,
                         "there is no model to judge: the last step that is recorded has no stored "
                         "state, and nobody has committed to it")};
  }
  const std::string reason = "the last committed state cannot be opened: " + why.message;
  if (withheld || why.code == errc::mismatch || why.code == errc::malformed) {
    const char* rule = withheld ? "transcript.withheld" : "transcript.checkpoint";
    if (rule_enabled(rule)) return {make_finding("model", rule, outcome::reject, reason)};
    if (!compared) return {};
  }
  return {make_finding("model", "", outcome::inconclusive, reason)};
}

}  // namespace

std::vector<finding> judge_model(const transcript::evidence& run,
                                 const std::optional<std::string>& path,
                                 const optional_buffers& may_lack) {
  if (run.steps().empty()) return {};
  const auto last = run.load_state(run.steps().back().step);
  if (!last) {
    return judge_unopened(last.why(), run.committed(), path && rule_enabled("model.delivered"));
  }
  std::vector<finding> out = judge_finite(run, last->root());
  if (!path) {
    const std::string vouched = model_digest(last->root()).hex();
    finding note = make_finding("model", "", outcome::note,
                                "no delivered model was given: what is said here is about the "
                                "model with digest " +
                                    vouched + " alone");
    note.details.emplace_back("model_digest", vouched);
    out.push_back(std::move(note));
  } else if (rule_enabled("model.delivered")) {
    out.push_back(compare_model_file(last->root(), *path, may_lack));
  }
  return out;
}

}  // namespace potl::checks
