// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "run_fixture.hpp"

using namespace potl_test;

namespace {

digest filled(std::uint8_t value) {
  digest out;
  out.bytes.fill(value);
  return out;
}

step_record some_step() {
  step_record out;
  out.job_id = filled(1);
  out.step = 42;
  out.epoch = 3;
  out.sample_ids = filled(2);
  out.loss = 0.25;
  out.rates = {0.1, 0.01};
  out.random_draws = 17;
  out.flags = static_cast<std::uint32_t>(step_flag::checkpoint);
  out.duration_ns = 1'000'000;
  out.state = filled(3);
  return out;
}

std::vector<record> one_of_each() {
  resume_record resume{filled(1), 10, 12, 1, 14, filled(4), filled(5), {}};
  resume.signature.fill(6);
  step_record rounded = some_step();
  rounded.rounding = rounding_reference{filled(10), 1234};
  return {header_record{filled(1), filled(7), "potl 0.1.0"},
          initial_record{filled(1), filled(8)},
          some_step(),
          resume,
          close_record{filled(1), 42, filled(3), filled(9)},
          rounded};
}

}  // namespace

TEST_CASE("every record decodes to itself", "[record]") {
  for (const record& one : one_of_each()) {
    const std::vector<std::uint8_t> bytes = encode(one);
    const result<record> again = decode(bytes);
    REQUIRE(again);
    CHECK(again->index() == one.index());
    CHECK(encode(*again) == bytes);
  }
}

TEST_CASE("a flipped bit of a record is another record or none", "[record]") {
  for (const record& one : one_of_each()) {
    const std::vector<std::uint8_t> bytes = encode(one);
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::vector<std::uint8_t> changed = bytes;
      changed[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
      const result<record> got = decode(changed);
      if (got) CHECK(encode(*got) == changed);
      CHECK(leaf_hash(changed) != leaf_hash(bytes));
    }
  }
}

TEST_CASE("a record that is cut or continued is refused", "[record]") {
  for (const record& one : one_of_each()) {
    std::vector<std::uint8_t> bytes = encode(one);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      CHECK_FALSE(decode(bytes_view(bytes).first(size)));
    }
    bytes.push_back(0);
    CHECK_FALSE(decode(bytes));
  }
}

TEST_CASE("the bits of a loss are kept, NaN payloads included", "[record]") {
  step_record step = some_step();
  for (const std::uint64_t bits :
       {std::uint64_t{0x7ff8000000000123}, std::uint64_t{0xfff0000000000001},
        std::uint64_t{0x8000000000000000}, std::uint64_t{0x0000000000000001}}) {
    step.loss = std::bit_cast<double>(bits);
    const record again = decode(encode(step)).value();
    CHECK(std::bit_cast<std::uint64_t>(std::get<step_record>(again).loss) == bits);
  }
}

TEST_CASE("a declared number of rates is compared with the bytes before memory is taken",
          "[record]") {
  std::vector<std::uint8_t> bytes = encode(some_step());
  const std::size_t count_at = bytes.size() - 2 * 8 - 4;
  for (std::size_t i = 0; i < 4; ++i) bytes[count_at + i] = 0xff;
  CHECK(decode(bytes).why().code == errc::malformed);
}

TEST_CASE("a step of more parameter groups than are allowed is refused", "[record]") {
  step_record step = some_step();
  step.rates.assign(max_rates, 0.1);
  CHECK(decode(encode(step)));
  step.rates.push_back(0.1);
  CHECK_FALSE(decode(encode(step)));
}

TEST_CASE("a step of one parameter group takes at most 200 bytes of the log", "[record]") {
  step_record step = some_step();
  step.rates = {0.1};
  std::vector<std::uint8_t> out;
  digest chain = log_chain_start();
  append_frame(step, chain, out);
  CHECK(out.size() <= 200);
}

TEST_CASE("a signature of a resume covers every field", "[record]") {
  const auto signed_bytes = [](const resume_record& what) { return resume_message(what); };
  const auto original = std::get<resume_record>(one_of_each()[3]);
  std::vector<resume_record> changed(7, original);
  changed[0].job_id = filled(11);
  changed[1].from_step++;
  changed[2].last_step++;
  changed[3].number++;
  changed[4].log_size++;
  changed[5].log_root = filled(11);
  changed[6].state = filled(11);
  for (const resume_record& one : changed) CHECK(signed_bytes(one) != signed_bytes(original));
}

TEST_CASE("a step that binds a rounding log has a version of its own, of bounded size",
          "[record]") {
  step_record step = some_step();
  CHECK(encode(step)[1] == 1);
  const std::size_t plain = encode(step).size();
  step.rounding = rounding_reference{filled(10), 1};
  std::vector<std::uint8_t> bytes = encode(step);
  CHECK(bytes[1] == 2);
  CHECK(bytes.size() == plain + 40);
  CHECK(std::get<step_record>(decode(bytes).value()).rounding == step.rounding);
  bytes[1] = 1;
  CHECK_FALSE(decode(bytes));
  for (const std::uint64_t size : {std::uint64_t{0}, max_rounding_log_bytes + 1}) {
    step.rounding->bytes = size;
    CHECK_FALSE(decode(encode(step)));
  }
  std::vector<std::uint8_t> other = encode(initial_record{filled(1), filled(8)});
  other[1] = 2;
  CHECK(decode(other).why().code == errc::unsupported);
}
