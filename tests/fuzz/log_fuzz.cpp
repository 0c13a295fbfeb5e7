// SPDX-License-Identifier: Apache-2.0
// Any bytes as a log: no crash, and the history that is read is in order. Frames are repaired
// first, because no fuzzer finds a SHA-256.
#include <cstdlib>
#include <vector>

#include "fuzz.hpp"
#include "transcript/history.hpp"

namespace {

using namespace potl::transcript;

void check(potl::bytes_view log, chain_rule rule) {
  history_options options;
  options.chain = rule;
  options.roots_at = {1, 3, 1'000'000};
  const potl::result<history> run = read_history(log, options);
  if (!run) return;
  std::uint64_t before = 0;
  for (const step_record& one : run->steps) {
    if (one.step <= before) std::abort();
    before = one.step;
  }
  if (run->steps.size() != run->branches.size()) std::abort();
  if (run->superseded.size() != run->superseded_branches.size()) std::abort();
  if (run->bytes > log.size()) std::abort();
}

}  // namespace

POTL_FUZZ_TARGET(log_fuzz) {
  const potl::bytes_view input(data, size);
  check(input, chain_rule::required);
  check(input, chain_rule::ignored);
  // The input as records: u8 length (in units of 2 bytes), bytes.
  std::vector<std::uint8_t> log = log_header();
  potl::digest chain = log_chain_start();
  for (std::size_t at = 0; at < size;) {
    const std::size_t length = std::min<std::size_t>(std::size_t{2} * data[at], size - at - 1);
    const potl::result<record> one = decode(input.subspan(at + 1, length));
    if (one) append_frame(*one, chain, log);
    at += 1 + length;
  }
  check(log, chain_rule::required);
  return 0;
}
