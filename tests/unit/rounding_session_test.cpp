// SPDX-License-Identifier: Apache-2.0
// A trainer and an auditor that add in different orders. Fixed seeds: outcomes do not vary.
#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <potl/numeric/detail/rounding_session.hpp>

#include "rounding_simulation.hpp"

namespace {

using namespace potl::numeric;
using simulation::product;

struct one_step {
  step_log log;
  std::vector<std::vector<float>> results;
};

one_step train(const std::vector<product>& calls, int bits, std::uint64_t order) {
  rounding_session session({log_role::trainer, bits, order});
  session.begin_step(1);
  one_step out;
  for (const product& call : calls) {
    auto& c = out.results.emplace_back();
    const auto ties = simulation::multiply(call, bits, order, c);
    session.apply("matmul", c, ties, matrix_operands(call.left(), call.right()));
  }
  out.log = session.end_step();
  return out;
}

struct audited {
  step_audit audit;
  std::vector<std::vector<float>> results;
};

audited audit(const std::vector<product>& calls, int bits, std::uint64_t order,
              const std::vector<std::uint8_t>& log, std::optional<potl::digest> committed) {
  rounding_session session({log_role::auditor, bits, order});
  session.begin_step(1, log, committed);
  audited out;
  for (const product& call : calls) {
    auto& c = out.results.emplace_back();
    const auto ties = simulation::multiply(call, bits, order, c);
    session.apply("matmul", c, ties, matrix_operands(call.left(), call.right()));
  }
  out.audit = session.end_audit();
  return out;
}

audited audit(const std::vector<product>& calls, int bits, std::uint64_t order,
              const rounding_log& log) {
  const auto bytes = encode_rounding_log(log);
  return audit(calls, bits, order, bytes, rounding_log_digest(bytes));
}

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  }
  return a.size() == b.size();
}

std::vector<product> draw_calls(int kind, std::mt19937_64& random) {
  std::vector<product> out;
  for (const std::int64_t terms : {1, 5, 64, 300, 1000}) {
    out.push_back(simulation::draw(kind, 20, terms, 30, random));
  }
  return out;
}

/// What a third party knows: it has the operands.
referee_facts facts_of(const std::vector<product>& calls, int bits, const rounding_log& log) {
  referee_facts out;
  out.committed = rounding_log_digest(encode_rounding_log(log));
  out.bits = bits;
  for (const product& call : calls) {
    out.values += static_cast<std::uint64_t>(call.rows * call.columns);
  }
  out.bind = [&calls](const fraud_element& element) -> potl::status {
    std::uint64_t at = element.position;
    for (const product& call : calls) {
      const auto size = static_cast<std::uint64_t>(call.rows * call.columns);
      if (at < size) {
        std::vector<float> a, b;
        matrix_operands(call.left(), call.right())(at, a, b);
        if (a == element.a && b == element.b) return potl::unit{};
        break;
      }
      at -= size;
    }
    return potl::error{potl::errc::mismatch, "other operands", ""};
  };
  return out;
}

}  // namespace

TEST_CASE("an auditor with another order of summation follows an honest log to the same bits") {
  std::mt19937_64 random(11);
  std::uint64_t corrections = 0, ties = 0;
  bool differs = false;
  for (int kind = 0; kind < 3; ++kind) {
    for (const int bits : {23, 26, 29, 32}) {
      for (std::uint64_t order = 1; order <= 4; ++order) {
        auto calls = draw_calls(kind, random);
        calls.push_back(simulation::near_ties(100, bits, random, 0.05));
        const one_step trained = train(calls, bits, 0);
        const audited seen = audit(calls, bits, order, trained.log.bytes, trained.log.content);
        INFO("kind " << kind << " bits " << bits << " order " << order << " "
                     << (seen.audit.rejections.empty() ? "" : seen.audit.rejections[0].message));
        REQUIRE(seen.audit.accepted());
        REQUIRE(same_bits(trained.results, seen.results));
        CHECK(seen.audit.entries == trained.log.entries);
        corrections += seen.audit.corrections;
        ties += seen.audit.own_ties;
        std::vector<std::vector<float>> unaided;
        for (const product& call : calls) {
          simulation::multiply(call, bits, order, unaided.emplace_back());
        }
        differs = differs || !same_bits(trained.results, unaided);
      }
    }
  }
  INFO(corrections << " corrections, " << ties << " ties");
  CHECK(corrections > 0);
  CHECK(differs);
}

TEST_CASE("exact ties follow the definition: nothing is logged and nobody is accused") {
  std::mt19937_64 random(12);
  // Averages over 2x2 of numbers with 24 bits: a fifth of the sums are ties.
  product pool{64, 4, 64, {}, std::vector<float>(4 * 64, 0.25F)};
  for (int i = 0; i < 64 * 4; ++i) {
    pool.a.push_back(static_cast<float>(std::uniform_real_distribution<>(0.5, 1)(random)));
  }
  std::vector<float> c;
  int ties = 0;
  for (std::int64_t i = 0; i < 64; ++i) {
    const exact_sum sum =
        exact_dot({4, &pool.a[static_cast<std::size_t>(4 * i)], 1, pool.b.data(), 64});
    ties += sum.nearest_tie(32).distance == 0;
  }
  CHECK(ties > 5);
  const one_step trained = train({pool}, 32, 0);
  CHECK(trained.log.entries == 0);
  const audited seen = audit({pool}, 32, 3, trained.log.bytes, trained.log.content);
  CHECK(seen.audit.accepted());
  CHECK(same_bits(trained.results, seen.results));
}

TEST_CASE("equal rows near a tie are no bias: they count once") {
  std::mt19937_64 random(13);
  product p = simulation::draw(0, 400, 300, 4, random);
  for (std::size_t i = 300; i < p.a.size(); ++i) p.a[i] = p.a[i - 300];
  // A column for which every row is near a tie, all on one side.
  const int bits = 23;
  std::vector<float> c;
  bool found = false;
  for (int trial = 0; trial < 20000 && !found; ++trial) {
    for (auto& value : p.b) value = static_cast<float>(std::normal_distribution<>()(random));
    product first = p;
    first.rows = 1;
    first.a.resize(300);
    p.b[0] = 0;
    first.b[0] = 0;
    const exact_sum rest = exact_dot({300, first.a.data(), 1, first.b.data(), 4});
    const tie nearest = rest.nearest_tie(bits);
    // Move column 0 next to the tie through its first term.
    p.b[0] = static_cast<float>((nearest.midpoint - rest.to_odd()) / p.a[0]);
    first.b[0] = p.b[0];
    found = !simulation::multiply(first, bits, 0, c).empty();
  }
  REQUIRE(found);
  const one_step trained = train({p}, bits, 0);
  REQUIRE(trained.log.entries >= 400);
  CHECK(audit({p}, bits, 1, trained.log.bytes, trained.log.content).audit.accepted());
}

TEST_CASE("flips outside of the window are rejected, each with a proof that stands alone") {
  std::mt19937_64 random(14);
  int rejected = 0, cases = 0;
  for (const int bits : {26, 32}) {
    for (const std::size_t flips : {std::size_t{1}, std::size_t{10}, std::size_t{12000}}) {
      for (int trial = 0; trial < 5; ++trial) {
        const std::vector<product> calls{simulation::draw(0, 100, 300, 120, random)};
        rounding_log log = *decode_rounding_log(train(calls, bits, 0).log.bytes);
        // An adversary logs elements that are not near a tie, against their rounding.
        std::vector<std::uint64_t> chosen(log.values);
        std::iota(chosen.begin(), chosen.end(), 0);
        std::shuffle(chosen.begin(), chosen.end(), random);
        std::vector<char> taken(log.values, 0);
        for (const log_entry& entry : log.entries) taken[entry.position] = 1;
        std::size_t added = 0;
        for (const std::uint64_t at : chosen) {
          if (added == flips) break;
          if (taken[at]) continue;
          std::vector<float> a, b;
          matrix_operands(calls[0].left(), calls[0].right())(at, a, b);
          const exact_sum sum = exact_dot({300, a.data(), 1, b.data(), 1});
          log.entries.push_back({at, sum.round_to(bits) == sum.nearest_tie(bits).lower});
          ++added;
        }
        std::sort(log.entries.begin(), log.entries.end(),
                  [](const log_entry& x, const log_entry& y) { return x.position < y.position; });
        ++cases;
        const audited seen = audit(calls, bits, 2, log);
        if (seen.audit.accepted()) continue;
        ++rejected;
        REQUIRE(seen.audit.rejections[0].fault == log_fault::outside_window);
        const fraud_proof& proof = seen.audit.rejections[0].proof.value();
        const auto sent = decode_fraud_proof(encode(proof));
        REQUIRE(sent.has_value());
        REQUIRE(*sent == proof);
        const referee_facts facts = facts_of(calls, bits, log);
        REQUIRE(referee(*sent, facts));
        // The flips had no effect, and a flood costs one exact dot product beyond own ties and
        // those beside a power of two, where an entry could have one.
        CHECK(same_bits(seen.results, train(calls, bits, 0).results));
        const auto beside =
            std::count_if(log.entries.begin(), log.entries.end(), [&](const log_entry& one) {
              int exponent = 0;
              const float result = seen.results[0][one.position];
              const double size = std::frexp(std::fabs(static_cast<double>(result)), &exponent);
              const double reach = std::ldexp(2.0, 8 - bits);
              return size - reach < 0.5 || size + reach >= 1;
            });
        CHECK(seen.audit.exact_dots <=
              seen.audit.own_ties + 1 + static_cast<std::uint64_t>(beside));

        fraud_proof other = *sent;  // invented operands, an honest element, no binding
        other.elements[0].a[0] += 1;
        CHECK_FALSE(referee(other, facts));
        other = *sent;
        other.fault = log_fault::missing_entry;
        CHECK_FALSE(referee(other, facts));
        other = *sent;
        other.log = train(calls, bits, 0).log.bytes;
        CHECK_FALSE(referee(other, facts));
        referee_facts unbound = facts;
        unbound.bind = nullptr;
        CHECK_FALSE(referee(*sent, unbound));
      }
    }
  }
  CHECK(rejected == cases);
}

TEST_CASE("a wrong direction beyond the trainer's own error is rejected, within it followed") {
  std::mt19937_64 random(15);
  const int bits = 32;
  const product p = simulation::near_ties(400, bits, random, 0.9);
  const one_step trained = train({p}, bits, 0);
  rounding_log log = *decode_rounding_log(trained.log.bytes);
  REQUIRE(log.entries.size() > 300);
  std::size_t within = 0, beyond = 0;
  for (std::size_t i = 0; i < log.entries.size(); ++i) {
    rounding_log forged = log;
    forged.entries[i].up = !forged.entries[i].up;
    std::vector<float> a, b;
    matrix_operands(p.left(), p.right())(log.entries[i].position, a, b);
    const element_ruling honest = rule_on({300, a.data(), 1, b.data(), 1}, bits, log.entries[i].up);
    if (honest.flipped) continue;
    const audited seen = audit({p}, bits, 5, forged);
    if (honest.distance < 0.499 * honest.window) {
      ++within;
      REQUIRE(seen.audit.accepted());
      REQUIRE(seen.audit.corrections >= 1);
      CHECK(seen.audit.moved_l2 > 0);
      CHECK(seen.audit.moved_l2 <= seen.audit.reachable_l2);
      CHECK(seen.audit.reachable_linf >= honest.step);
    } else if (honest.distance > 0.501 * honest.window) {
      ++beyond;
      REQUIRE_FALSE(seen.audit.accepted());
      REQUIRE(seen.audit.rejections[0].fault == log_fault::wrong_direction);
      REQUIRE(referee(*seen.audit.rejections[0].proof, facts_of({p}, bits, forged)));
    }
  }
  INFO(within << " within, " << beyond << " beyond");
  CHECK(within > 50);
  CHECK(beyond > 50);
}

TEST_CASE("an entry that is left out is rejected where every honest trainer makes it") {
  std::mt19937_64 random(16);
  const int bits = 32;
  const product p = simulation::near_ties(300, bits, random, 0.45);
  const one_step trained = train({p}, bits, 0);
  const rounding_log log = *decode_rounding_log(trained.log.bytes);
  REQUIRE(log.entries.size() > 250);
  for (std::size_t i = 0; i < log.entries.size(); i += 10) {
    rounding_log forged = log;
    forged.entries.erase(forged.entries.begin() + static_cast<std::ptrdiff_t>(i));
    const audited seen = audit({p}, bits, 5, forged);
    REQUIRE_FALSE(seen.audit.accepted());
    REQUIRE(seen.audit.rejections[0].fault == log_fault::missing_entry);
    REQUIRE(referee(*seen.audit.rejections[0].proof, facts_of({p}, bits, forged)));
    REQUIRE_FALSE(referee(*seen.audit.rejections[0].proof, facts_of({p}, bits, log)));
  }
  rounding_log empty{bits, log.values, {}};
  CHECK(audit({p}, bits, 5, empty).audit.rejected == 300);
}

TEST_CASE("ties that everybody rounds the same way accuse nobody") {
  std::mt19937_64 random(17);
  const int bits = 32, columns = 300;
  product p{1, 3, columns, {1, 1, 1}, std::vector<float>(3 * columns)};
  std::uniform_int_distribution<int> digits(0, (1 << 22) - 1);
  for (std::size_t j = 0; j < columns; ++j) {
    p.b[j] = 1 + static_cast<float>(2 * digits(random)) * 0x1p-23F;
    p.b[columns + j] = 1 + static_cast<float>(2 * digits(random) + 1) * 0x1p-23F;
    p.b[2 * columns + j] = (1 + static_cast<float>(digits(random)) * 0x1p-23F) * 0x1p-51F;
  }
  for (const std::uint64_t order : {0U, 3U}) {
    const one_step trained = train({p}, bits, order);
    const rounding_log log = *decode_rounding_log(trained.log.bytes);
    REQUIRE(log.entries.size() == columns);
    for (const log_entry& entry : log.entries) REQUIRE(entry.up);
    const audited seen = audit({p}, bits, 5, log);
    CHECK(seen.audit.accepted());
    CHECK(same_bits(seen.results, trained.results));
  }
}

TEST_CASE("late, foreign, malformed and misfit logs are rejected; the step goes on exactly") {
  std::mt19937_64 random(18);
  const std::vector<product> calls{simulation::near_ties(300, 32, random, 0.9)};
  const one_step trained = train(calls, 32, 0);
  const auto& bytes = trained.log.bytes;
  rounding_log log = *decode_rounding_log(bytes);
  referee_facts facts = facts_of(calls, 32, log);

  const audited late = audit(calls, 32, 5, bytes, std::nullopt);
  CHECK(late.audit.rejections.at(0).fault == log_fault::not_committed);
  CHECK(late.audit.rejected == 1);
  CHECK_FALSE(referee(*late.audit.rejections[0].proof, facts));
  facts.committed.reset();
  CHECK(referee(*late.audit.rejections[0].proof, facts));
  // Every near tie was decided by its exact value.
  for (std::uint64_t at = 0; at < 300; ++at) {
    std::vector<float> a, b;
    matrix_operands(calls[0].left(), calls[0].right())(at, a, b);
    REQUIRE(late.results[0][at] == exact_dot({300, a.data(), 1, b.data(), 1}, 32));
  }

  const audited other = audit(calls, 32, 5, bytes, potl::digest{});
  CHECK(other.audit.rejections.at(0).fault == log_fault::other_log);

  auto spoilt = bytes;
  spoilt.push_back(0);
  const audited malformed = audit(calls, 32, 5, spoilt, rounding_log_digest(spoilt));
  CHECK(malformed.audit.rejections.at(0).fault == log_fault::malformed);
  facts = facts_of(calls, 32, log);
  CHECK_FALSE(referee(*malformed.audit.rejections[0].proof, facts));
  facts.committed = rounding_log_digest(spoilt);
  CHECK(referee(*malformed.audit.rejections[0].proof, facts));

  log.values += 1;
  const audited longer = audit(calls, 32, 5, log);
  CHECK(longer.audit.rejections.at(0).fault == log_fault::wrong_size);
  facts = facts_of(calls, 32, log);
  CHECK(referee(*longer.audit.rejections[0].proof, facts));
  log.values -= 1;
  log.bits = 31;
  CHECK(audit(calls, 32, 5, log).audit.rejections.at(0).fault == log_fault::wrong_size);
}

TEST_CASE("misuse of a session throws") {
  rounding_session trainer({log_role::trainer, 32, 0});
  std::vector<float> y(4);
  CHECK_THROWS_AS(trainer.apply("x", y, {}, {}), potl::exception);
  CHECK_THROWS_AS(trainer.begin_step(1, {}, std::nullopt), potl::exception);
  trainer.begin_step(1);
  CHECK_THROWS_AS(trainer.begin_step(2), potl::exception);
  const std::vector<near_tie> beyond{{4, 1.0, 1e-9}};
  CHECK_THROWS_AS(trainer.apply("x", y, beyond, {}), potl::exception);
  CHECK_THROWS_AS(trainer.end_audit(), potl::exception);
  trainer.cancel_step();
  CHECK_THROWS_AS(trainer.end_step(), potl::exception);
  CHECK_THROWS_AS(rounding_session({log_role::trainer, 22, 0}), potl::exception);
  rounding_session none{session_options{}};
  none.apply("x", y, {}, {});
  CHECK(none.counts().empty());
}
