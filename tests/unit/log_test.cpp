// SPDX-License-Identifier: Apache-2.0
#include "run_fixture.hpp"

using namespace potl_test;

namespace {

struct sample_log {
  std::vector<std::uint8_t> bytes = log_header();
  std::vector<std::size_t> ends{log_header_bytes};
};

sample_log make_log(std::uint64_t steps) {
  sample_log out;
  digest chain = log_chain_start();
  const auto add = [&](const record& what) {
    append_frame(what, chain, out.bytes);
    out.ends.push_back(out.bytes.size());
  };
  digest id;
  id.bytes.fill(1);
  add(header_record{id, {}, "test"});
  add(initial_record{id, {}});
  for (std::uint64_t step = 1; step <= steps; ++step) {
    step_record one;
    one.job_id = id;
    one.step = step;
    one.rates = {0.1};
    add(one);
  }
  return out;
}

struct outcome_of {
  std::size_t records = 0;
  std::uint64_t position = 0;
  log_tail tail = log_tail::clean;
};

outcome_of scan(bytes_view bytes) {
  log_reader reader = log_reader::open(bytes).value();
  outcome_of out;
  while (reader.next()) ++out.records;
  out.position = reader.position();
  out.tail = reader.tail();
  return out;
}

}  // namespace

TEST_CASE("a log that is cut anywhere yields the complete frames before the cut", "[log]") {
  const sample_log log = make_log(5);
  for (std::size_t size = log_header_bytes; size <= log.bytes.size(); ++size) {
    const outcome_of got = scan(bytes_view(log.bytes).first(size));
    const auto next = std::upper_bound(log.ends.begin(), log.ends.end(), size);
    const auto whole = static_cast<std::size_t>(next - log.ends.begin()) - 1;
    CHECK(got.records == whole);
    CHECK(got.position == log.ends[whole]);
    CHECK(got.tail == (log.ends[whole] == size ? log_tail::clean : log_tail::torn));
  }
}

TEST_CASE("a flipped bit before the last frame is damage and not a torn tail", "[log]") {
  const sample_log log = make_log(4);
  for (std::size_t bit = log.ends[0] * 8; bit < log.ends[log.ends.size() - 2] * 8; ++bit) {
    std::vector<std::uint8_t> bytes = log.bytes;
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    const outcome_of got = scan(bytes);
    CHECK(got.tail == log_tail::damage);
    CHECK(got.position <= bit / 8);
  }
}

TEST_CASE("zeros in the place of frames are damage when frames follow", "[log]") {
  const sample_log log = make_log(6);
  std::vector<std::uint8_t> bytes = log.bytes;
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(log.ends[3]),
            bytes.begin() + static_cast<std::ptrdiff_t>(log.ends[5]), 0);
  const outcome_of got = scan(bytes);
  CHECK(got.tail == log_tail::damage);
  CHECK(got.records == 3);
}

TEST_CASE("a frame that is longer than a record can be is damage, however much follows", "[log]") {
  sample_log log = make_log(2);
  const std::size_t at = log.ends[2];
  const std::uint32_t length = max_record_bytes + 1;
  for (std::size_t i = 0; i < 4; ++i) {
    log.bytes[at + i] = static_cast<std::uint8_t>(length >> (8 * i));
  }
  log.bytes.resize(at + 2 * max_record_bytes);
  log_reader reader = log_reader::open(log.bytes).value();
  while (reader.next()) {
  }
  CHECK(reader.problem().find("longer than a record") != std::string::npos);
}

TEST_CASE("zeros after the last frame are a torn tail", "[log]") {
  sample_log log = make_log(3);
  log.bytes.resize(log.bytes.size() + 5000);
  CHECK(scan(log.bytes).tail == log_tail::torn);
}

TEST_CASE("a flipped bit of the file header is refused", "[log]") {
  const sample_log log = make_log(1);
  for (std::size_t bit = 0; bit < log_header_bytes * 8; ++bit) {
    std::vector<std::uint8_t> bytes = log.bytes;
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    CHECK_FALSE(log_reader::open(bytes));
  }
}

TEST_CASE("looking for frames in hostile bytes is bounded work", "[log]") {
  // Every 40 bytes something that looks like a long frame: hashing all of them would be quadratic.
  sample_log log = make_log(1);
  digest id;
  id.bytes.fill(1);
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t at = log.bytes.size();
    log.bytes.resize(at + 40);
    log.bytes[at + 2] = 1;  // 65536 bytes
    log.bytes[at + 4] = 3;
    log.bytes[at + 5] = 1;
    std::copy(id.bytes.begin(), id.bytes.end(), log.bytes.begin() + static_cast<long>(at) + 6);
  }
  CHECK(scan(log.bytes).tail == log_tail::damage);
}
