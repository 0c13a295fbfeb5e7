// SPDX-License-Identifier: Apache-2.0
#include <set>

#include <potl/encoding/json.hpp>

#include "run_fixture.hpp"

using namespace potl_test;

namespace {

// The small job with one member replaced, as text.
std::string with(std::string_view member, json_value value) {
  const std::string text = small_job().text;
  json_value document = parse_json(as_bytes_view(text)).value();
  document.set(member, std::move(value));
  return canonical_json(document);
}

bool accepted(const std::string& text) { return parse_job(as_bytes_view(text)).has_value(); }

}  // namespace

TEST_CASE("a job survives being written and read", "[job]") {
  const job one = small_job();
  const job again = parse_job(as_bytes_view(one.text)).value();
  CHECK(again.id() == one.id());
  CHECK(again.steps_per_epoch() == 3);
  CHECK(again.rates_at(6)->front() == rate);
  CHECK(again.rates_at(7) == nullptr);
  CHECK(again.rates_at(0) == nullptr);
}

TEST_CASE("an epoch visits every sample once, in an order of its own", "[job]") {
  const job one = small_job();
  std::vector<std::vector<std::int64_t>> orders;
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::int64_t> order;
    for (std::uint64_t step = 1; step <= 3; ++step) {
      const auto ids = one.sample_ids(epoch * 3 + step);
      CHECK(ids.size() == (step == 3 ? 2 : 4));
      order.insert(order.end(), ids.begin(), ids.end());
    }
    CHECK(std::set<std::int64_t>(order.begin(), order.end()).size() == 10);
    orders.push_back(order);
  }
  CHECK(orders[0] != orders[1]);
}

TEST_CASE("a run keeps twenty states, or two gigabytes of them", "[job]") {
  for (const std::uint64_t state_bytes : {0U, 1U, 10'000'000U, 100'000'001U, 500'000'000U}) {
    const std::uint64_t most =
        state_bytes == 0 ? 2'000'000'000 : std::max<std::uint64_t>(20, 2'000'000'000 / state_bytes);
    for (const std::uint64_t segments : {1U, 2U, 19U, 20U, 38U, 39U, 199U, 200U, 1000U}) {
      CAPTURE(state_bytes, segments);
      // The ends at every multiple and the last, and the state at step 0.
      const auto states = [&](std::uint64_t stride) {
        return (segments + stride - 1) / stride + 1;
      };
      const std::uint64_t stride = affordable_stride(segments, state_bytes);
      CHECK(states(stride) <= most);
      if (stride > 1) CHECK(states(stride - 1) > most);
    }
  }
  CHECK(affordable_stride(200, 500'000'000) == 11);
}

TEST_CASE("an epoch without its last batch leaves samples out", "[job]") {
  const job one = small_job([](job& what) {
    what.drop_last = true;
    what.steps = 4;
    what.rates = {{4, {rate}}};
  });
  CHECK(one.steps_per_epoch() == 2);
  CHECK(one.epoch_of(3) == 1);
  CHECK(one.sample_ids(2).size() == 4);
}

TEST_CASE("leaving the last batch out moves none of the others", "[job]") {
  const job whole = small_job();
  const job cut = small_job([](job& what) {
    what.drop_last = true;
    what.steps = 4;
    what.rates = {{4, {rate}}};
  });
  REQUIRE(cut.steps_per_epoch() < whole.steps_per_epoch());
  for (std::uint64_t step = 1; step <= cut.steps_per_epoch(); ++step) {
    CHECK(cut.sample_ids(step) == whole.sample_ids(step));
  }
}

TEST_CASE("a step that the job does not have has no samples", "[job]") {
  CHECK_THROWS_AS(small_job().sample_ids(0), exception);
  CHECK_THROWS_AS(small_job().sample_ids(7), exception);
}

TEST_CASE("values out of range are refused and named", "[job]") {
  const json_value zero = 0;
  for (const char* member :
       {"steps", "epochs", "batch_size", "accumulate", "checkpoint_every", "max_segment"}) {
    const result<job> got = parse_job(as_bytes_view(with(member, zero)));
    REQUIRE_FALSE(got);
    CHECK(got.why().message.find(member) != std::string::npos);
  }
  CHECK_FALSE(accepted(with("seed", -1)));
  CHECK(accepted(with("seed", json_max_integer)));
  CHECK_FALSE(accepted(with("steps", 7)));
  CHECK_FALSE(accepted(with("accumulate", 5)));
  CHECK_FALSE(accepted(with("max_segment", 1)));
  CHECK_FALSE(accepted(with("tolerance_cap", 0)));
  CHECK_FALSE(accepted(with("tolerance_cap", 1.5)));
  CHECK_FALSE(accepted(with("trainer", "00")));
  CHECK_FALSE(accepted(with("task", json_value::array{})));
  CHECK_FALSE(accepted(with("format", "potl-job-v2")));
  CHECK_FALSE(accepted(with("surprise", 1)));
}

TEST_CASE("a job of an unbounded number of samples is refused", "[job]") {
  const json_value data =
      json_value::of({{"count", std::int64_t{1} << 41}, {"root", digest{}.hex()}});
  CHECK_FALSE(accepted(with("data", data)));
}

TEST_CASE("learning rates cover every step and are finite", "[job]") {
  const auto table = [](std::uint64_t steps, const char* bits) {
    return with("learning_rates",
                json_value::array{json_value::of(
                    {{"steps", steps}, {"rates", json_value::array{json_value(bits)}}})});
  };
  CHECK(accepted(table(6, "3fb999999999999a")));
  CHECK(accepted(with("learning_rates", nullptr)));
  CHECK_FALSE(accepted(table(5, "3fb999999999999a")));
  CHECK_FALSE(accepted(table(7, "3fb999999999999a")));
  CHECK_FALSE(accepted(table(6, "7ff0000000000000")));
  CHECK_FALSE(accepted(table(6, "3FB999999999999A")));
  CHECK_FALSE(accepted(table(6, "3fb9")));
}

TEST_CASE("a job that is not canonical JSON is refused", "[job]") {
  const std::string text = small_job().text;
  CHECK_FALSE(accepted(text + "\n"));
  CHECK_FALSE(accepted(" " + text));
  CHECK_FALSE(accepted(text.substr(0, text.size() - 1)));
  CHECK_FALSE(parse_job(as_bytes_view(text + "\n")).why().remedy.empty());
}

TEST_CASE("every flipped bit of a job is refused or another job", "[job]") {
  const job one = small_job();
  for (std::size_t bit = 0; bit < one.text.size() * 8; ++bit) {
    std::string changed = one.text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    const result<job> got = parse_job(as_bytes_view(changed));
    if (got) CHECK(got->id() != one.id());
  }
}

TEST_CASE("checkpoints belong to multiples of the interval, the start and the end", "[job]") {
  const job one = small_job([](job& what) {
    what.steps = 5;
    what.rates = {{5, {rate}}};
  });
  std::vector<std::uint64_t> steps;
  for (std::uint64_t step = 0; step <= 7; ++step) {
    if (one.is_checkpoint(step)) steps.push_back(step);
  }
  CHECK(steps == std::vector<std::uint64_t>{0, 2, 4, 5});
}

TEST_CASE("segments are as long as the client allows, in whole checkpoints", "[job]") {
  const auto boundaries = [](std::uint64_t longest) {
    const job one = small_job([&](job& what) { what.max_segment = longest; });
    std::vector<std::uint64_t> out;
    for (std::uint64_t step = 0; step <= 7; ++step) {
      if (one.is_boundary(step)) out.push_back(step);
      CHECK((!one.is_boundary(step) || one.is_checkpoint(step)));
    }
    CHECK(one.segments() + 1 == out.size());
    CHECK(one.max_gap() == one.segment_steps());
    return out;
  };
  CHECK(boundaries(2) == std::vector<std::uint64_t>{0, 2, 4, 6});
  CHECK(boundaries(3) == std::vector<std::uint64_t>{0, 2, 4, 6});
  CHECK(boundaries(5) == std::vector<std::uint64_t>{0, 4, 6});
  CHECK(boundaries(max_job_steps) == std::vector<std::uint64_t>{0, 6});
}

TEST_CASE("a job may have states derived on demand where bits are the same everywhere", "[job]") {
  const job one = small_job([](job& what) {
    what.arithmetic = "ord32";
    what.store_every = 4;
  });
  CHECK(one.store_every == 4);
  CHECK(one.max_gap() == 4);
  std::vector<std::uint64_t> stored, boundaries;
  for (std::uint64_t step = 0; step <= 7; ++step) {
    if (one.is_checkpoint(step)) stored.push_back(step);
    if (one.is_boundary(step)) boundaries.push_back(step);
  }
  CHECK(stored == std::vector<std::uint64_t>{0, 4, 6});
  CHECK(boundaries == std::vector<std::uint64_t>{0, 2, 4, 6});

  job other = one;
  other.arithmetic = "stock";
  const result<std::string> stock = format_job(other);
  REQUIRE_FALSE(stock);
  CHECK(stock.why().message.find("needs a reproducible arithmetic") != std::string::npos);
  for (const std::uint64_t wrong : {1U, 2U, 3U, 5U}) {
    other = one;
    other.store_every = wrong;
    CHECK_FALSE(format_job(other));
  }
  other = one;
  other.max_segment = 4;
  CHECK_FALSE(format_job(other));
  // Absent, not 0: one agreement has one id.
  CHECK_FALSE(accepted(with("store_every", 0)));
  CHECK(small_job().text.find("store_every") == std::string::npos);
}

TEST_CASE("the digest of an order never changes", "[job]") {
  const std::vector<std::int64_t> first{0, 1}, second{2};
  order_digest order;
  order.add(digest_of_ids(first));
  order.add(digest_of_ids(second));
  CHECK(order.finish().hex() == "b8977a8bf216253d5ef6c7230aec16436132e9bbd84667853e34b1924c217f0d");
}
