// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include <potl/checks/pev.hpp>

#include "fake_run.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

struct scene {
  fake_run run;
  pev_options options;

  pev_plan plan() const { return plan_pev(run.view, options, nonce_of(1)).value(); }

  std::vector<loss_measurement> honest() const {
    std::vector<loss_measurement> out;
    const pev_plan asked = plan();
    for (const auto& request : asked.losses) {
      loss_measurement one;
      one.request = request;
      one.loss = run.view.step(request.step)->loss;
      out.push_back(one);
    }
    return out;
  }

  std::vector<finding> judge(const std::vector<loss_measurement>& losses) const {
    return judge_pev(run.view, options, nonce_of(1), losses, {}).value();
  }
  std::vector<finding> judge(const std::vector<subset_loss_measurement>& subsets) const {
    return judge_pev(run.view, options, nonce_of(1), {}, subsets).value();
  }

  std::vector<subset_loss_measurement> honest_subsets() const {
    std::vector<subset_loss_measurement> out;
    const pev_plan asked = plan();
    for (const auto& request : asked.subsets) {
      subset_loss_measurement one;
      one.request = request;
      double sum = 0, count = 0;
      for (const auto& record : run.records) {
        if (record.epoch != run.view.step(request.step)->epoch) continue;
        sum += record.loss;
        ++count;
      }
      one.mean = sum / count;
      one.standard_deviation = 0.01;
      out.push_back(one);
    }
    return out;
  }
};

}  // namespace

TEST_CASE("at least two steps after checkpoints are recomputed in every epoch") {
  const scene one;
  std::map<std::uint64_t, int> epochs;
  const pev_plan plan = one.plan();
  for (const auto& request : plan.losses) {
    REQUIRE((request.step - 1) % 10 == 0);
    ++epochs[one.run.view.step(request.step)->epoch];
  }
  REQUIRE(epochs == std::map<std::uint64_t, int>{{0, 2}, {1, 2}});
}

TEST_CASE("a fraction of one recomputes the step after every checkpoint") {
  scene one;
  one.options.fraction = 1;
  REQUIRE(one.plan().losses.size() == 10);
}

TEST_CASE("a share of the checkpoints is rounded up") {
  scene one;
  one.options.fraction = 0.5;  // of five an epoch
  REQUIRE(one.plan().losses.size() == 6);
  one.options.fraction = 0.4;
  REQUIRE(one.plan().losses.size() == 4);
}

TEST_CASE("an epoch with one checkpoint gives one step") {
  scene one;
  one.run.view.agreed.data_count = 10 * one.run.view.agreed.batch_size;
  one.run.view.agreed.epochs = 10;
  REQUIRE(one.plan().losses.size() == 10);
}

TEST_CASE("losses that equal the logged ones pass") {
  const scene one;
  const auto findings = one.judge(one.honest());
  REQUIRE(count(findings, outcome::pass, "loss.recomputed") == 1);
  REQUIRE(findings.size() == 1);
}

TEST_CASE("an invented loss rejects, and only while its rule is on") {
  scene one;
  const auto measured = one.honest();
  double& logged = one.run.records[measured[1].request.step - 1].loss;
  logged += 0.01;  // a unit of a low precision, which honest machines may differ by
  REQUIRE(count(one.judge(measured), outcome::reject) == 0);
  REQUIRE(count(one.judge(measured), outcome::inconclusive, "loss.recomputed") == 1);
  one.run.view.agreed.arithmetic = "ord32";
  REQUIRE(count(one.judge(measured), outcome::reject, "loss.recomputed") == 1);
  one.run.view.agreed.arithmetic = "stock";
  logged += 1;
  REQUIRE(count(one.judge(measured), outcome::reject, "loss.recomputed") == 1);
  const rule_off off("loss.recomputed");
  REQUIRE(count(one.judge(measured), outcome::reject) == 0);
}

TEST_CASE("the difference that honest repeats show is tolerated") {
  const scene one;
  auto measured = one.honest();
  measured[1].loss += 0.001;
  REQUIRE(count(one.judge(measured), outcome::inconclusive) == 1);
  measured[0].noise = {measured[0].loss - 0.0005};
  REQUIRE(count(one.judge(measured), outcome::inconclusive) == 0);
}

TEST_CASE("noise beyond the cap does not buy an acceptance") {
  const scene one;
  auto measured = one.honest();
  measured[1].loss += 0.5;
  measured[0].noise = {measured[0].loss + 100};
  REQUIRE(count(one.judge(measured), outcome::inconclusive) == 1);
  REQUIRE(count(one.judge(measured), outcome::pass) == 0);
}

TEST_CASE("in an exact arithmetic noise excuses no loss") {
  scene one;
  one.run.view.agreed.arithmetic = "ord32";
  auto measured = one.honest();
  measured[1].loss = std::nextafter(measured[1].loss, 0);
  measured[0].noise = {measured[0].loss + 1};
  measured[1].noise = {std::numeric_limits<double>::quiet_NaN()};
  const auto found = one.judge(measured);
  REQUIRE(count(found, outcome::reject, "loss.recomputed") == 1);
  // Nobody reads that a number is not itself.
  const std::string& said = found.front().reason;
  const auto logged = said.find("logged loss ") + 12, own = said.find("recomputed ") + 11;
  REQUIRE(said.substr(logged, said.find(',') - logged) !=
          said.substr(own, said.find(", tolerance") - own));
}

TEST_CASE("a recomputed loss that is not finite rejects, and only while its rule is on") {
  const scene one;
  auto measured = one.honest();
  measured[1].loss = std::numeric_limits<double>::quiet_NaN();
  REQUIRE(count(one.judge(measured), outcome::reject, "transcript.finite") == 1);
  const rule_off off("transcript.finite");
  REQUIRE(count(one.judge(measured), outcome::reject) == 0);
}

TEST_CASE("a loss that some honest repeats have finite, and others not, accuses nobody") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  scene one;
  auto measured = one.honest();
  measured[1].loss = nan;
  measured[1].noise = {measured[0].loss};
  REQUIRE(count(one.judge(measured), outcome::reject) == 0);
  REQUIRE(count(one.judge(measured), outcome::inconclusive, "transcript.finite") == 1);
  measured[1].noise = {nan};
  REQUIRE(count(one.judge(measured), outcome::reject, "transcript.finite") == 1);
  one.run.view.agreed.arithmetic = "ord32";
  measured[1].noise = {measured[0].loss};
  REQUIRE(count(one.judge(measured), outcome::reject, "transcript.finite") == 1);
}

TEST_CASE("a skipped step whose loss overflows on both sides accuses nobody") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  scene one;
  auto losses = one.honest();
  auto& record = one.run.records.at(losses[0].request.step - 1);
  record.loss = inf;
  losses[0].loss = std::nan("");
  REQUIRE(one.judge(losses)[0].result == outcome::inconclusive);
  record.flags |= static_cast<std::uint32_t>(transcript::step_flag::skipped);
  REQUIRE(one.judge(losses)[0].result == outcome::pass);
  losses[0].loss = 1;  // it did not overflow
  REQUIRE(one.judge(losses)[0].result == outcome::reject);

  // What was compared at no step is not said to agree.
  for (loss_measurement& loss : losses) {
    auto& same = one.run.records.at(loss.request.step - 1);
    same.flags = record.flags;
    same.loss = loss.loss = inf;
  }
  REQUIRE(one.judge(losses)[0].result == outcome::inconclusive);
}

TEST_CASE("a withheld checkpoint rejects, and only while its rule is on") {
  const scene one;
  auto measured = one.honest();
  measured[1].status = measured::withheld;
  REQUIRE(count(one.judge(measured), outcome::reject, "transcript.withheld") == 1);
  const rule_off off("transcript.withheld");
  REQUIRE(count(one.judge(measured), outcome::reject) == 0);
}

TEST_CASE("a loss that was asked for and is not there is inconclusive") {
  const scene one;
  auto measured = one.honest();
  measured.pop_back();
  REQUIRE(count(one.judge(measured), outcome::inconclusive) == 1);
}

TEST_CASE("in an exact arithmetic any other loss rejects, however small") {
  scene one;
  one.run.view.agreed.arithmetic = "ord32";
  auto losses = one.honest();
  REQUIRE(count(one.judge(losses), outcome::pass, "loss.recomputed") == 1);
  losses[1].loss += 1e-9;
  REQUIRE(count(one.judge(losses), outcome::reject, "loss.recomputed") == 1);
}

TEST_CASE("the published rule asks for N percent of the data at each epoch's last checkpoint") {
  scene one;
  one.options.mode = "apex";
  const pev_plan plan = one.plan();
  REQUIRE(plan.losses.empty());
  REQUIRE(plan.subsets.size() == 2);
  REQUIRE(plan.subsets[0].step == 50);
  REQUIRE(plan.subsets[1].step == 100);
  REQUIRE(plan.subsets[0].sample_ids.size() == 20);
  REQUIRE(plan.subsets[0].sample_ids != plan.subsets[1].sample_ids);
}

TEST_CASE("a job that the prover wrote does not say how many samples are drawn") {
  scene one;
  one.options.mode = "apex";
  one.run.view.agreed.data_count = std::uint64_t{1} << 40;
  REQUIRE(plan_pev(one.run.view, one.options, nonce_of(1)).why().code == errc::limit);
}

TEST_CASE("the published tolerance is 100 sigma over N percent, ten sigma at ten percent") {
  scene one;
  one.options.mode = "apex";
  auto measured = one.honest_subsets();
  REQUIRE(count(one.judge(measured), outcome::pass) == 1);
  measured[0].mean += 0.099;
  REQUIRE(count(one.judge(measured), outcome::pass) == 1);
  measured[0].mean += 0.002;
  REQUIRE(count(one.judge(measured), outcome::inconclusive, "loss.recomputed") == 1);
}

TEST_CASE("the published comparison accuses nobody: honest means may differ by more") {
  scene one;
  one.options.mode = "apex";
  auto measured = one.honest_subsets();
  measured[0].standard_deviation = 0;  // of one sample, or of losses that are all equal
  REQUIRE(count(one.judge(measured), outcome::pass) == 1);
  measured[0].mean += 1e-3;
  const auto found = one.judge(measured);
  REQUIRE(count(found, outcome::pass) + count(found, outcome::reject) == 0);
  REQUIRE(count(found, outcome::inconclusive, "loss.recomputed") == 1);
  const rule_off off("loss.recomputed");
  REQUIRE(count(one.judge(measured), outcome::pass) == 1);
}

TEST_CASE("a published comparison with what is no number is inconclusive") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  scene one;
  one.options.mode = "apex";
  auto measured = one.honest_subsets();
  measured[0].mean = nan;
  measured[1].standard_deviation = nan;
  REQUIRE(count(one.judge(measured), outcome::inconclusive, "loss.recomputed") == 2);
}

TEST_CASE("which steps and samples are looked at depends on the nonce") {
  scene one;
  std::set<std::vector<std::uint64_t>> steps;
  std::set<std::vector<std::int64_t>> samples;
  for (std::uint8_t seed = 1; seed <= 20; ++seed) {
    std::vector<std::uint64_t> drawn;
    const auto plan = plan_pev(one.run.view, one.options, nonce_of(seed)).value();
    for (const auto& request : plan.losses) {
      drawn.push_back(request.step);
    }
    steps.insert(drawn);
    pev_options published = one.options;
    published.mode = "apex";
    samples.insert(
        plan_pev(one.run.view, published, nonce_of(seed)).value().subsets.front().sample_ids);
  }
  REQUIRE(steps.size() > 5);
  REQUIRE(samples.size() == 20);
}

TEST_CASE("a run without a step at which to look is not said to agree") {
  scene one;
  one.run.view.steps = {};
  const auto found = one.judge(std::vector<loss_measurement>{});
  REQUIRE(count(found, outcome::pass) == 0);
  REQUIRE(count(found, outcome::inconclusive) == 1);
}

TEST_CASE("a recomputation at a state that is not finite is undecided though the loss is right") {
  scene one;
  auto losses = one.honest();
  losses[1].not_finite = "model/parameters/w holds NaN";
  REQUIRE(count(one.judge(losses), outcome::inconclusive, "transcript.finite") == 1);
  const rule_off off("transcript.finite");
  REQUIRE(count(one.judge(losses), outcome::inconclusive) == 0);
}

TEST_CASE("noise of a loss that is no number is inconclusive") {
  scene one;
  auto losses = one.honest();
  losses[1].noise = {losses[1].loss, std::numeric_limits<double>::quiet_NaN()};
  const auto found = one.judge(losses);
  REQUIRE(count(found, outcome::reject) == 0);
  REQUIRE(count(found, outcome::inconclusive, "transcript.finite") > 0);
  const rule_off off("transcript.finite");
  REQUIRE(count(one.judge(losses), outcome::inconclusive) == 0);
}
