// SPDX-License-Identifier: Apache-2.0
// How fast the rules of a dispute are, and how many rounds they take. No signatures: they cost the
// same in every protocol. Of one thread, so processor time is that of a core.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <potl/core/detail/rng.hpp>
#include <potl/dispute/game.hpp>

#include "bench.hpp"

namespace {

using namespace potl;
using namespace potl::dispute;

const run_names run{};
const digest head{};

digest claim_of(party one, std::uint64_t level, std::uint64_t index, bool truly) {
  digest out;
  out.bytes[0] = truly ? 0 : one == party::trainer ? 1 : 2;
  out.bytes[1] = static_cast<std::uint8_t>(level);
  std::memcpy(&out.bytes[8], &index, sizeof(index));
  return out;
}

/// A dispute over steps, operators and chunks with a trainer that is wrong from one leaf on in
/// each. Returns its rounds of claims between steps.
std::uint64_t play(std::uint64_t steps, std::uint64_t operators, std::uint64_t chunks,
                   std::uint64_t seed) {
  const std::uint64_t sizes[] = {steps, operators, chunks};
  const level_kind kinds[] = {level_kind::steps, level_kind::operators, level_kind::chunks};
  std::uint64_t wrong[3], at = 1000, rounds = 0;
  for (std::uint64_t level = 0; level < 3; ++level) {
    wrong[level] = 1 + random_bits({seed, 1}, level) % sizes[level];
  }
  const auto claimed = [&](party one, std::uint64_t level, std::uint64_t index) {
    return claim_of(one, level, index, one == party::auditor || index < wrong[level]);
  };
  const auto ends = [&](std::uint64_t level) {
    return both<digest>{claimed(party::trainer, level, sizes[level]),
                        claimed(party::auditor, level, sizes[level])};
  };
  move made{run, head, {}, {}};
  game now({run, steps, {}, ends(0), 60'000}, at);
  while (!now.decided()) {
    ++at;
    const std::uint64_t level = now.bisections().size() - 1;
    if (now.expected().who) {
      const party one = *now.expected().who;
      made.where = now.expected().where;
      made.content = claimed(one, level, made.where.index);
      if (level == 0 && made.where.what == act::claim && one == party::trainer) ++rounds;
      now.play(one, made, head, at);
    } else if (level < 2) {
      now.next(kinds[level + 1], sizes[level + 1], ends(level + 1), at).value();
    } else {
      now.rule({true, false}, reason::value).value();
    }
  }
  if (now.decided()->winner() != party::auditor) std::abort();
  return rounds;
}

}  // namespace

int main() {
  constexpr std::uint64_t steps = 1'000'000, operators = 2'000, chunks = 64;
  std::uint64_t rounds = 0;
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    rounds = std::max(rounds, play(steps, operators, chunks, seed));
  }
  std::vector<double> speeds;
  for (int round = 0; round < 11; ++round) {
    constexpr std::uint64_t games = 20'000;
    const std::clock_t began = std::clock();
    for (std::uint64_t seed = 0; seed < games; ++seed) play(steps, operators, chunks, seed);
    speeds.push_back(games * double{CLOCKS_PER_SEC} / static_cast<double>(std::clock() - began));
  }
  potl::bench::outcome speed;
  speed.name = "dispute.statemachine";
  speed.value = potl::bench::median(speeds);
  speed.unit = "games/s";
  speed.baseline = "10^6 steps, 2,000 operators, 64 chunks; processor time of one core";
  speed.at_least = 200'000;
  potl::bench::outcome most;
  most.name = "dispute.rounds.1e6";
  most.value = static_cast<double>(rounds);
  most.unit = "rounds";
  most.baseline = "the most of 10,000 disputes over 10^6 steps";
  most.at_most = 20;
  potl::bench::report("dispute", {speed, most});
}
