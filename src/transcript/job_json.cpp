// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>

#include <potl/encoding/json.hpp>
#include <potl/transcript/detail/record.hpp>
#include <potl/transcript/job.hpp>

namespace potl::transcript {
namespace {

constexpr std::string_view format_name = "potl-job-v1";
constexpr json_limits limits{.max_bytes = max_job_bytes, .max_nodes = std::size_t{1} << 20};
constexpr std::uint64_t max_samples = std::uint64_t{1} << 40;  // of a permutation
constexpr std::uint64_t max_batch = std::uint64_t{1} << 32;
constexpr std::uint64_t max_integer = static_cast<std::uint64_t>(json_max_integer);

error refused(std::string_view field, const std::string& why) {
  return {errc::malformed, "job: " + std::string(field) + " " + why, ""};
}

// Reads fields until the first that is wrong, which it keeps.
class reader {
 public:
  explicit reader(const json_value& document) : root_(document.root()) {}

  void count(std::string_view name, std::uint64_t& out, std::uint64_t low, std::uint64_t high) {
    count(root_.at(name), out, low, high);
  }
  void count(const json_cursor& at, std::uint64_t& out, std::uint64_t low, std::uint64_t high) {
    if (!take(at.count(), out)) return;
    if (out < low || out > high) {
      fail(refused(at.path(),
                   "is not between " + std::to_string(low) + " and " + std::to_string(high)));
    }
  }
  template <class Value>
  bool take(result<Value> got, Value& out) {
    if (problem_) return false;
    if (!got) {
      fail(error{errc::malformed, "job: " + got.why().message, got.why().remedy});
      return false;
    }
    out = std::move(*got);
    return true;
  }
  void only(const json_cursor& at, std::initializer_list<std::string_view> names) {
    unit ignored;
    take(at.only(names), ignored);
  }
  void object(std::string_view name) {
    const json_cursor at = root_.at(name);
    if (at.get() == nullptr || at.get()->if_object() == nullptr) {
      fail(refused(name, "is not an object"));
    }
  }
  void fail(error what) {
    if (!problem_) problem_ = std::move(what);
  }
  const json_cursor& root() const { return root_; }
  bool failed() const { return problem_.has_value(); }
  const error& why() const { return *problem_; }

 private:
  json_cursor root_;
  std::optional<error> problem_;
};

bool is_null(const json_cursor& at) {
  return at.get() != nullptr && at.get()->type() == json_value::kind::null;
}

void read_rate(reader& in, const json_cursor& at, double& out) {
  std::string text;
  if (!in.take(at.string(), text)) return;
  std::uint64_t bits = 0;
  bool good = text.size() == 16;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    good = good && (digit || (c >= 'a' && c <= 'f'));
    bits = bits << 4 | static_cast<std::uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  out = std::bit_cast<double>(bits);
  if (!good || !std::isfinite(out)) {
    in.fail(refused(at.path(), "is not the 16 hexadecimal digits of a finite double"));
  }
}

void read_rates(reader& in, job& out) {
  const json_cursor table = in.root().at("learning_rates");
  if (is_null(table)) return;
  std::size_t runs = 0;
  if (!in.take(table.size(), runs)) return;
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < runs && !in.failed(); ++i) {
    const json_cursor at = table.at(i);
    in.only(at, {"steps", "rates"});
    rate_run run;
    in.count(at.at("steps"), run.steps, 1, max_job_steps);
    std::size_t groups = 0;
    if (!in.take(at.at("rates").size(), groups)) return;
    if (groups == 0 || groups > max_rates || (i != 0 && groups != out.rates[0].rates.size())) {
      in.fail(refused(at.path(), "has a wrong number of rates"));
    }
    for (std::size_t j = 0; j < groups && !in.failed(); ++j) {
      read_rate(in, at.at("rates").at(j), run.rates.emplace_back());
    }
    last += run.steps;
    if (last > out.steps) in.fail(refused("learning_rates", "covers more steps than there are"));
    out.rates.push_back(std::move(run));
    out.rate_ends.push_back(last);
  }
  if (last != out.steps) in.fail(refused("learning_rates", "does not cover every step"));
}

void read_trainer(reader& in, job& out) {
  const json_cursor at = in.root().at("trainer");
  if (is_null(at)) return;
  digest key;
  if (in.take(at.digest(), key)) out.trainer = key;
}

void read_initial_state(reader& in, job& out) {
  const json_cursor at = in.root().at("initial_state");
  in.only(at, {"digest", "source"});
  in.take(at.digest("digest"), out.initial_state);
  std::string source;
  in.take(at.string("source"), source);
  if (source != "seed" && source != "file") {
    in.fail(refused("initial_state.source", "is neither \"seed\" nor \"file\""));
  }
  out.initial_state_from_seed = source == "seed";
}

void read_sizes(reader& in, job& out) {
  in.count("seed", out.seed, 0, max_integer);
  in.count("steps", out.steps, 1, max_job_steps);
  in.count("epochs", out.epochs, 1, max_job_steps);
  in.count("batch_size", out.batch_size, 1, max_batch);
  in.count("accumulate", out.accumulate, 1, max_batch);
  in.take(in.root().boolean("drop_last"), out.drop_last);
  in.count("checkpoint_every", out.checkpoint_every, 1, max_job_steps);
  in.count("max_segment", out.max_segment, 1, max_job_steps);
  if (in.root().at("store_every").get() != nullptr) {
    in.count("store_every", out.store_every, 1, max_job_steps);
  }
  const json_cursor data = in.root().at("data");
  in.only(data, {"count", "root"});
  in.count(data.at("count"), out.data_count, 1, max_samples);
  in.take(data.digest("root"), out.data_root);
  if (const json_cursor order = in.root().at("order"); order.get() != nullptr) {
    in.only(order, {"samples", "steps"});
    own_order own;
    in.count(order.at("samples"), own.samples, 1, max_samples);
    in.take(order.digest("steps"), own.steps);
    out.order = own;
  }
  const json_cursor bounds = in.root().at("limits");
  in.only(bounds, {"max_resumes", "max_superseded"});
  in.count(bounds.at("max_resumes"), out.max_resumes, 0, max_integer);
  in.count(bounds.at("max_superseded"), out.max_superseded, 0, max_integer);
}

// One spelling for one agreement: the member is there only where it says something.
void check_storing(reader& in, const job& what) {
  if (in.root().at("store_every").get() == nullptr) return;
  if (!what.is_exact()) {
    in.fail(refused("store_every",
                    "needs a reproducible arithmetic: in stock arithmetic a trainer cannot derive "
                    "a state again with certainty"));
  }
  if (what.store_every <= what.checkpoint_every || what.store_every % what.checkpoint_every != 0) {
    in.fail(refused("store_every", "is not a multiple of checkpoint_every above it"));
  }
  if (what.max_segment != what.checkpoint_every) {
    in.fail(refused("store_every", "and max_segment above checkpoint_every exclude each other"));
  }
}

void check_consistency(reader& in, const job& what) {
  if (in.failed()) return;
  if (what.accumulate > what.batch_size) {
    in.fail(refused("accumulate", "exceeds batch_size: a micro-batch would be empty"));
  }
  if (what.steps_per_epoch() == 0) {
    return in.fail(refused("batch_size", "exceeds data.count, so that no batch is complete"));
  }
  // Division, because the product may not fit.
  if ((what.steps - 1) / what.steps_per_epoch() >= what.epochs) {
    in.fail(refused("steps", "exceeds epochs times the batches of an epoch"));
  }
  if (what.max_segment < std::min(what.checkpoint_every, what.steps)) {
    in.fail(refused("max_segment", "is smaller than checkpoint_every"));
  }
  check_storing(in, what);
  if (!(what.tolerance_cap > 0 && what.tolerance_cap <= 1)) {
    in.fail(refused("tolerance_cap", "is not above 0 and at most 1"));
  }
  if (what.arithmetic.empty() || what.arithmetic.size() > 64) {
    in.fail(refused("arithmetic", "is empty or too long"));
  }
}

std::string hex_of(double rate) {
  std::string out(16, '0');
  const auto bits = std::bit_cast<std::uint64_t>(rate);
  for (unsigned i = 0; i < 16; ++i) out[i] = "0123456789abcdef"[bits >> (60 - 4 * i) & 15];
  return out;
}

json_value rates_of(const job& what) {
  if (what.rates.empty()) return nullptr;
  json_value::array runs;
  for (const rate_run& run : what.rates) {
    json_value::array rates;
    for (const double rate : run.rates) rates.emplace_back(hex_of(rate));
    runs.push_back(json_value::of({{"steps", run.steps}, {"rates", std::move(rates)}}));
  }
  return runs;
}

}  // namespace

result<job> parse_job(bytes_view text) {
  const result<json_value> document = parse_canonical_json(text, limits);
  if (!document) {
    return error{document.why().code, "job: " + document.why().message,
                 "use the file as potl wrote it; for other terms make another job"};
  }
  job out;
  reader in(*document);
  in.only(in.root(), {"format",        "seed",           "steps",      "epochs",
                      "batch_size",    "accumulate",     "drop_last",  "checkpoint_every",
                      "max_segment",   "store_every",    "data",       "order",
                      "initial_state", "learning_rates", "arithmetic", "tolerance_cap",
                      "limits",        "trainer",        "task",       "environment"});
  std::string format;
  in.take(in.root().string("format"), format);
  if (format != format_name) in.fail(refused("format", "is not \"potl-job-v1\""));
  read_sizes(in, out);
  read_initial_state(in, out);
  in.take(in.root().string("arithmetic"), out.arithmetic);
  in.take(in.root().number("tolerance_cap"), out.tolerance_cap);
  read_trainer(in, out);
  in.object("task");
  in.object("environment");
  if (!in.failed()) read_rates(in, out);
  check_consistency(in, out);
  if (in.failed()) return in.why();
  out.text.assign(text.begin(), text.end());
  return out;
}

json_value job::document() const { return parse_json(as_bytes_view(text), limits).value(); }

result<std::string> format_job(const job& what, std::string_view task,
                               std::string_view environment) {
  const result<json_value> task_value = parse_json(as_bytes_view(task), limits);
  if (!task_value) return task_value.why();
  const result<json_value> environment_value = parse_json(as_bytes_view(environment), limits);
  if (!environment_value) return environment_value.why();
  json_value document = json_value::of({
      {"format", format_name},
      {"seed", what.seed},
      {"steps", what.steps},
      {"epochs", what.epochs},
      {"batch_size", what.batch_size},
      {"accumulate", what.accumulate},
      {"drop_last", what.drop_last},
      {"checkpoint_every", what.checkpoint_every},
      {"max_segment", what.max_segment},
      {"data", json_value::of({{"count", what.data_count}, {"root", what.data_root.hex()}})},
      {"initial_state",
       json_value::of({{"digest", what.initial_state.hex()},
                       {"source", what.initial_state_from_seed ? "seed" : "file"}})},
      {"learning_rates", rates_of(what)},
      {"arithmetic", what.arithmetic},
      {"tolerance_cap", what.tolerance_cap},
      {"limits", json_value::of(
                     {{"max_resumes", what.max_resumes}, {"max_superseded", what.max_superseded}})},
      {"trainer", what.trainer ? json_value(what.trainer->hex()) : json_value(nullptr)},
      {"task", *task_value},
      {"environment", *environment_value},
  });
  if (what.store_every != 0) document.set("store_every", what.store_every);
  if (what.order) {
    document.set("order", json_value::of({{"samples", what.order->samples},
                                          {"steps", what.order->steps.hex()}}));
  }
  std::string text = canonical_json(document);
  if (const result<job> check = parse_job(as_bytes_view(text)); !check) {
    return error{errc::usage, check.why().message, check.why().remedy};
  }
  return text;
}

}  // namespace potl::transcript
