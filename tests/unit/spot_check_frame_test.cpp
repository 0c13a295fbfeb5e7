// SPDX-License-Identifier: Apache-2.0
// Frames of a spot-checked training: what passes came from the other side, now and in order.
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <potl/checks/detail/spot_check_frame.hpp>
#include <potl/crypto/challenge.hpp>

#include "catch.hpp"

using namespace potl;
using checks::spot_check_chain;
using checks::spot_check_expected;
using checks::spot_check_frame;
using checks::spot_check_kind;
using checks::spot_check_side;

namespace {

using bytes = std::vector<std::uint8_t>;

const digest key = sha256_of(as_bytes_view("key"));
const digest job = sha256_of(as_bytes_view("job"));
const digest session = sha256_of(as_bytes_view("session"));

spot_check_chain trusted() { return {key, job, session, spot_check_side::trusted}; }
spot_check_chain worker() { return {key, job, session, spot_check_side::worker}; }

spot_check_frame ask(std::uint64_t step) { return {spot_check_kind::step, step, "{}", 0}; }
spot_check_frame report(std::uint64_t step) {
  return {spot_check_kind::report, step, "{\"loss\":0.5}", 400};
}

result<spot_check_frame> deliver(const bytes& frame, spot_check_chain& to,
                                 const spot_check_expected& expected) {
  const bytes_view all(frame);
  const std::size_t head = std::min(all.size(), checks::spot_check_header_bytes);
  const auto header = checks::parse_spot_check_header(all.first(head));
  if (!header) return header.why();
  return to.open(*header, all.first(head), all.subspan(head), expected);
}

/// Two sides that have exchanged `steps` steps.
struct pair {
  spot_check_chain left = trusted(), right = worker();
  bytes asked, answered;

  explicit pair(std::uint64_t steps) {
    for (std::uint64_t step = 1; step <= steps; ++step) {
      asked = left.seal(ask(step));
      REQUIRE(deliver(asked, right, {spot_check_kind::step, step, 0}));
      answered = right.seal(report(step));
      REQUIRE(deliver(answered, left, {spot_check_kind::report, step, 400}));
    }
  }
};

}  // namespace

TEST_CASE("frames arrive as they were sent, in turn", "[spot_check]") {
  auto left = trusted(), right = worker();
  for (std::uint64_t step = 1; step < 20; ++step) {
    const auto asked = deliver(left.seal(ask(step)), right, {spot_check_kind::step, step, 0});
    CHECK(*asked == ask(step));
    const auto got = deliver(right.seal(report(step)), left, {spot_check_kind::report, step, 400});
    CHECK(*got == report(step));
  }
  CHECK(left.sequence() == 38);
  CHECK(right.sequence() == 38);
}

TEST_CASE("no bit of a frame can be changed", "[spot_check]") {
  pair sides(3);
  sides.left.seal(ask(4));
  // Twins at the same place of the chain, because a refused frame does not move it.
  pair twins(3);
  const bytes asked = twins.left.seal(ask(4));
  REQUIRE(deliver(asked, twins.right, {spot_check_kind::step, 4, 0}));
  const bytes answer = twins.right.seal(report(4));
  for (std::size_t bit = 0; bit < 8 * answer.size(); ++bit) {
    bytes broken = answer;
    broken[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
    if (deliver(broken, sides.left, {spot_check_kind::report, 4, 400})) FAIL("bit " << bit);
  }
  CHECK(deliver(answer, sides.left, {spot_check_kind::report, 4, 400}));
}

TEST_CASE("repeated, reordered, reflected and foreign frames are refused, each for its reason",
          "[spot_check]") {
  const auto reason = [](const bytes& frame, spot_check_chain& to, spot_check_expected expected) {
    const auto got = deliver(frame, to, expected);
    REQUIRE_FALSE(got.has_value());
    CHECK(got.why().code == errc::mismatch);
    return got.why().message;
  };
  using Catch::Matchers::Contains;
  pair sides(3);
  const bytes old_answer = sides.answered;
  const bytes asked = sides.left.seal(ask(4));
  const spot_check_expected next{spot_check_kind::report, 4, 400};
  CHECK_THAT(reason(old_answer, sides.left, next), Contains("frame 5 came where frame 7"));
  CHECK_THAT(reason(asked, sides.left, next), Contains("came back to who sent it"));
  const auto from = [&](const digest& with, const digest& of, const digest& in) {
    spot_check_chain other(with, of, in, spot_check_side::worker);
    spot_check_chain asker(with, of, in, spot_check_side::trusted);
    REQUIRE(deliver(asker.seal(ask(4)), other, {spot_check_kind::step, 4, 0}));
    return other.seal(report(4));
  };
  CHECK_THAT(reason(from(job, job, session), sides.left, next),
             Contains("not sealed with the key"));
  CHECK_THAT(reason(from(key, key, session), sides.left, next), Contains("another job"));
  CHECK_THAT(reason(from(key, job, key), sides.left, next), Contains("another session"));
  // The right place and key, but the answer to a frame that was never sent.
  pair fork(3);
  spot_check_frame other_question = ask(4);
  other_question.body = "{\"clip\":0.5}";
  REQUIRE(deliver(fork.left.seal(other_question), fork.right, {spot_check_kind::step, 4, 0}));
  CHECK_THAT(reason(fork.right.seal(report(4)), sides.left, next),
             Contains("answers another frame"));
}

TEST_CASE("the code of tensors is of their frame alone, and the next frame names it",
          "[spot_check]") {
  const auto code = [](spot_check_chain& of) {
    return of.payload_code().update(as_bytes_view("a gradient")).finish();
  };
  const spot_check_expected next{spot_check_kind::step, 4, 0};
  pair sides(3), twins(3);
  const one_time_code::value good = code(sides.right);
  CHECK(code(sides.left) == good);
  CHECK(code(twins.right) == good);
  // As docs/format/spot_check.md has it: with the key, after the code of the frame.
  bytes message;
  for (const bytes_view part : {as_bytes_view("potl spot-check payload key v1"),
                                bytes_view(sides.answered).subspan(152, digest::size)}) {
    message.insert(message.end(), part.begin(), part.end());
  }
  one_time_code by_hand(hmac_sha256(key, message));
  CHECK(by_hand.update(as_bytes_view("a gradient")).finish() == good);
  // Of another step, session and key.
  const bytes asked = sides.left.seal(ask(4));
  CHECK(code(sides.left) != good);
  for (const auto& [with, in] : {std::pair(job, session), std::pair(key, job)}) {
    spot_check_chain left(with, job, in, spot_check_side::trusted);
    left.seal(ask(1));
    spot_check_chain right = worker();
    REQUIRE(deliver(trusted().seal(ask(1)), right, {spot_check_kind::step, 1, 0}));
    CHECK(code(left) != code(right));
  }
  // The next frame names the code that passed, and none that did not.
  const auto answered = [&](pair& both, const one_time_code::value& said) {
    pair other(3);
    other.left.payload_passed(said);
    both.right.payload_passed(good);
    return deliver(other.left.seal(ask(4)), both.right, next);
  };
  one_time_code::value wrong = good;
  wrong[15] ^= 1;
  const auto refused = answered(twins, wrong);
  REQUIRE_FALSE(refused);
  CHECK(refused.why().message.find("answers another frame") != std::string::npos);
  CHECK(answered(twins, good));
  // After a frame without tensors it names none.
  pair last(3), same(3);
  last.left.payload_passed(good);
  last.right.payload_passed(good);
  REQUIRE(deliver(last.left.seal(ask(4)), last.right, next));
  const bytes answer = last.right.seal(report(4));
  const auto header =
      checks::parse_spot_check_header(bytes_view(answer).first(checks::spot_check_header_bytes));
  CHECK(header->previous_payload == one_time_code::value{});
  CHECK(deliver(answer, last.left, {spot_check_kind::report, 4, 400}));
}

TEST_CASE("a report of another step or size is not what was expected", "[spot_check]") {
  using Catch::Matchers::Contains;
  const auto answer = [](const spot_check_frame& frame) {
    pair sides(3);
    REQUIRE(deliver(sides.left.seal(ask(4)), sides.right, {spot_check_kind::step, 4, 0}));
    const auto got =
        deliver(sides.right.seal(frame), sides.left, {spot_check_kind::report, 4, 400});
    return got ? std::string() : got.why().message;
  };
  CHECK(answer(report(4)).empty());
  CHECK_THAT(answer(report(3)), Contains("step 3, expected was \"report\" of step 4"));
  spot_check_frame other = report(4);
  other.kind = spot_check_kind::stopped;
  CHECK_THAT(answer(other), Contains("\"stopped\" of step 4"));
  other = report(4);
  other.payload_bytes = std::uint64_t{1} << 63;
  CHECK_THAT(answer(other), Contains("this task has 400"));
}

TEST_CASE("headers that nobody writes are malformed", "[spot_check]") {
  auto left = trusted();
  const bytes good = left.seal(ask(1));
  const auto code = [&](const std::function<void(bytes&)>& edit) {
    bytes frame(good.begin(), good.begin() + checks::spot_check_header_bytes);
    edit(frame);
    const auto got = checks::parse_spot_check_header(frame);
    return got ? errc::internal : got.why().code;
  };
  CHECK(code([](bytes&) {}) == errc::internal);
  CHECK(code([](bytes& f) { f.pop_back(); }) == errc::malformed);
  CHECK(code([](bytes& f) { f.clear(); }) == errc::malformed);
  CHECK(code([](bytes& f) { f[0] = 'P'; }) == errc::malformed);
  CHECK(code([](bytes& f) { f[8] = 0; }) == errc::malformed);
  CHECK(code([](bytes& f) { f[8] = 7; }) == errc::malformed);
  CHECK(code([](bytes& f) { f[9] = 1; }) == errc::malformed);
  CHECK(code([](bytes& f) { f[10] = 1; }) == errc::malformed);
  CHECK(code([](bytes& f) { f[15] = 255; }) == errc::limit);
  CHECK(code([](bytes& f) { f[14] = 1, f[12] = 0; }) == errc::internal);  // 64 KiB
  CHECK(code([](bytes& f) { f[14] = 1, f[12] = 1; }) == errc::limit);
}

TEST_CASE("who sends out of turn, or too much, made a mistake", "[spot_check]") {
  auto left = trusted(), right = worker();
  CHECK_THROWS_AS(right.seal(report(1)), exception);
  spot_check_frame large = ask(1);
  large.body.resize(checks::spot_check_body_limit + 1);
  CHECK_THROWS_AS(left.seal(large), exception);
  large.body.resize(checks::spot_check_body_limit);
  CHECK(deliver(left.seal(large), right, {spot_check_kind::step, 1, 0}));
  CHECK_THROWS_AS(left.seal(ask(2)), exception);
  pair sides(1);
  CHECK_THROWS_AS(deliver(sides.answered, sides.left, {spot_check_kind::report, 2, 400}),
                  exception);
}
