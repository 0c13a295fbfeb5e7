// SPDX-License-Identifier: Apache-2.0
// Each tensor against its own noise, its own rounding and its own update.
#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "replay_scene.hpp"

using namespace potl;
using namespace potl::checks;
using namespace replay_scene;

TEST_CASE("a tensor within its own noise passes, near it is inconclusive, far from it rejected") {
  for (const auto& [off, verdict] : {std::pair{0.0079, "accepted"},
                                     {0.0081, "inconclusive"},
                                     {0.0639, "inconclusive"},
                                     {0.69, "inconclusive"},
                                     {0.71, "rejected"}}) {
    scene one;
    one.differs(3, {tensor("w", off, 500)});
    one.noise(3, {tensor("w", 0.001, 500)});
    CAPTURE(off);
    REQUIRE(one.verdict() == verdict);
  }
}

TEST_CASE("what rough sums turn excuses a difference of that segment") {
  scene one;
  for (const std::size_t at : {3UL, 4UL}) {
    one.differs(at, {tensor("w", 0.02, 500)});
    one.noise(at, {tensor("w", 0.001, 500)});
  }
  one.rough(3, {tensor("w", 0, 500)});
  one.rough(3, {tensor("w", 0.003, 500)});
  REQUIRE(one.verdict() == "inconclusive");  // because of the other
  one.measured[4].digest_equal = true;
  REQUIRE(one.verdict() == "accepted");
  one.differs(3, {tensor("w", 0.025, 500)});
  REQUIRE(one.verdict() == "inconclusive");
}

TEST_CASE("the noise of a segment speaks for the others, unless it was superseded") {
  for (const bool superseded : {false, true}) {
    scene one;
    one.differs(3, {tensor("w", 0.05, 500)});
    one.noise(3, {tensor("w", 0.001, 500)});
    segment_measurement loud = one.measured[4];
    loud.request.superseded = superseded;
    loud.request.branch = 1;
    loud.noise.assign(2, parameters({tensor("w", 0.01, 500)}));
    loud.noise_losses.assign(2, loud.losses);
    if (superseded) {
      one.measured.push_back(loud);
    } else {
      one.measured[4] = loud;
    }
    CAPTURE(superseded);
    REQUIRE(one.verdict() == (superseded ? "inconclusive" : "accepted"));
  }
}

TEST_CASE("rough sums excuse nothing in another tensor, and nothing beyond the cap") {
  scene one;
  one.noise(3, {tensor("w", 0.001, 500), tensor("v", 0.001, 500)});
  one.rough(3, {tensor("w", 0.3, 500)});
  one.differs(3, {tensor("w", 0.09, 500), tensor("v", 0.007, 500)});
  REQUIRE(one.verdict() == "accepted");
  one.differs(3, {tensor("w", 0.09, 500), tensor("v", 0.009, 500)});
  REQUIRE(one.verdict() == "inconclusive");
  one.differs(3, {tensor("w", 0.11, 500)});
  REQUIRE(one.verdict() == "inconclusive");
}

TEST_CASE("rough sums make no accusation harder") {
  scene one;
  one.differs(3, {tensor("w", 0.71, 500)});
  one.noise(3, {tensor("w", 0.001, 500)});
  one.rough(3, {tensor("w", 0.5, 500)});
  REQUIRE(one.verdict() == "rejected");
}

TEST_CASE("rough sums that are not finite excuse nothing, and forbid nothing") {
  scene one;
  one.noise(3, {tensor("w", 0.001, 500)});
  one.rough(3, {tensor("w", std::nan(""), 500)});
  one.differs(3, {tensor("w", 0.007, 500)});
  REQUIRE(one.verdict() == "accepted");
  one.differs(3, {tensor("w", 0.009, 500)});
  REQUIRE(one.verdict() == "inconclusive");
}

TEST_CASE("what hardly moves is rejected beyond the margin of its noise and rounding") {
  for (const auto& [off, verdict] : {std::pair{0.0639, "inconclusive"}, {0.065, "rejected"}}) {
    scene one;
    one.differs(3, {tensor("w", off, 500, 0.01)});
    one.noise(3, {tensor("w", 0.001, 500, 0.01)});
    CAPTURE(off);
    REQUIRE(one.verdict() == verdict);
  }
}

TEST_CASE("the noise of one tensor is none of another") {
  scene one;
  one.differs(3, {tensor("loud", 0.01, 300), tensor("still", 0.01, 300, 0.012)});
  one.noise(3, {tensor("loud", 0.01, 300)});
  REQUIRE(one.verdict() == "rejected");
}

TEST_CASE("noise below the cap excuses nothing beyond it") {
  scene one;
  one.differs(3, {tensor("w", 0.15, 10)});
  one.noise(3, {tensor("w", 0.09, 10)});
  REQUIRE(one.verdict() == "inconclusive");
  one.differs(3, {tensor("w", 0.09, 10)});
  REQUIRE(one.verdict() == "accepted");
}

TEST_CASE("a turned sign in a tensor accuses nobody, and all tensors together do") {
  scene one;
  one.noise(3, {tensor("a", 0.001, 300), tensor("b", 0.001, 300)});
  // The update of the group is 10.
  one.differs(3, {tensor("a", 3.4, 300, 5), tensor("b", 3.4, 300, 5)});
  REQUIRE(one.verdict() == "inconclusive");
  one.differs(3, {tensor("a", 3.6, 300, 5.2), tensor("b", 3.6, 300, 5.2)});
  REQUIRE(one.verdict() == "rejected");
}

TEST_CASE("what the record says of its own update moves no limit") {
  scene one;
  auto grown = tensor("w", 0.8, 500);
  grown.update_l2 = 100;
  one.differs(3, {grown});
  one.noise(3, {tensor("w", 0.001, 500)});
  REQUIRE(one.verdict() == "rejected");
}

TEST_CASE("nobody is accused before all repeats that were asked for were run") {
  scene one;
  one.differs(3, {tensor("w", 0.8, 500)});
  one.noise(3, {tensor("w", 0.001, 500)}, 1);
  REQUIRE(one.verdict() == "inconclusive");
  one.noise(3, {tensor("w", 0.001, 500)}, 2);
  REQUIRE(one.verdict() == "rejected");
}

TEST_CASE("nobody is accused by other thread counts alone") {
  scene one;
  one.differs(3, {tensor("w", 0.8, 500)});
  one.noise(3, {tensor("w", 0.001, 500)});
  REQUIRE(one.verdict() == "rejected");
  one.measured[3].other_arithmetic = false;
  REQUIRE(one.verdict() == "inconclusive");
}

TEST_CASE(
    "the noisiest measured segment speaks for one that was not measured, and more of them do "
    "not make it quieter") {
  scene one;
  one.differs(3, {tensor("w", 0.004, 500)});
  REQUIRE(one.verdict() == "inconclusive");
  one.noise(2, {tensor("w", 0.001, 500)}, 1);
  REQUIRE(one.verdict() == "accepted");
  for (const std::size_t quiet : {4u, 5u, 6u, 7u}) one.noise(quiet, {tensor("w", 1e-9, 500)}, 1);
  REQUIRE(one.verdict() == "accepted");
}

TEST_CASE("what another segment's noise explains is a share of the smaller of both updates") {
  scene one;
  auto small = tensor("w", 0.004, 500);
  small.update_l2 = 0.1;
  one.differs(3, {small});
  one.noise(2, {tensor("w", 0.001, 500)}, 1);
  REQUIRE(one.verdict() == "inconclusive");
}

TEST_CASE("a tensor that is noise from the first segment on is excused within that noise") {
  scene one;
  const auto bias = [](double off) { return tensor("bias", off, 100); };
  one.differs(3, {bias(5)});
  one.noise(3, {bias(0.9)});
  REQUIRE(one.verdict() == "inconclusive");  // a tenth of the group, and nothing says why
  one.noise(0, {bias(0.5)});
  REQUIRE(one.verdict() == "accepted");
  one.differs(3, {bias(7.3)});
  REQUIRE(one.verdict() == "inconclusive");
  one.differs(3, {bias(60)});
  REQUIRE(one.verdict() == "rejected");
}

TEST_CASE("codes and masks that are noise from the first segment on are not excused") {
  scene one;
  const auto codes = [](double off, double count = 2000) {
    tensor_distance out = tensor("codes", off, count);
    out.judged = judged_as::codes;
    return out;
  };
  one.noise(0, {codes(0.5), tensor("bias", 0.5, 100)});
  one.differs(3, {tensor("bias", 2, 100)});
  REQUIRE(one.verdict() == "accepted");
  one.differs(3, {codes(0.2)});
  REQUIRE(one.verdict() == "inconclusive");
  one.noise(3, {codes(0.9)});
  REQUIRE(one.verdict() == "inconclusive");
  one.differs(3, {codes(0.2, 10)});
  one.noise(3, {codes(0.9, 10)});
  REQUIRE(one.verdict() == "inconclusive");
  one.differs(3, {codes(0.09)});
  REQUIRE(one.verdict() == "accepted");
}

TEST_CASE("codes accuse by how many differ, and a few do not, however far they jump") {
  for (const auto& [many, moved, verdict] : {std::tuple{16.0, 0.0, "inconclusive"},
                                             {17.0, 0.0, "rejected"},
                                             {69.0, 100.0, "inconclusive"},
                                             {71.0, 100.0, "rejected"}}) {
    scene one;
    one.differs(3, codes(1e9, many, moved, 0));
    one.noise(3, {});
    CAPTURE(many);
    CHECK(one.verdict() == verdict);
  }
}

TEST_CASE("codes pass within what repeats show of how many and of how far, up to the cap") {
  for (const auto& [off, many, verdict] : {std::tuple{79.0, 16.0, "accepted"},
                                           {79.0, 17.0, "inconclusive"},
                                           {81.0, 16.0, "inconclusive"},
                                           {101.0, 1.0, "inconclusive"}}) {
    scene one;
    one.differs(3, codes(off, many, 17, 1000));
    one.noise(3, codes(off > 100 ? 100 : 10, 2, 17, 1000));
    CAPTURE(off, many);
    CHECK(one.verdict() == verdict);
  }
}

TEST_CASE("floats beside the weights may follow from what turned in their object") {
  const auto verdict = [](std::size_t group, const std::string& copy, std::string turned) {
    scene one;
    one.differs(3, {});
    one.noise(3, {});
    auto& tensors = one.measured[3].distances[group].tensors;
    tensors = {tensor(copy, 9, 100, 0)};
    one.measured[3].distances[group].l2 = one.measured[3].distances[group].excess_l2 = 9;
    for (tensor_distance each : codes(1, 1, 0, 0)) {
      each.path = turned + each.path.substr(5);
      if (!turned.empty()) tensors.push_back(each);
    }
    return one.verdict();
  };
  for (std::size_t group = 0; group < 4; ++group) {
    CAPTURE(group);
    const std::string excused = group % 2 == 0 ? "rejected" : "inconclusive";
    CHECK(verdict(group, "own.copy", "") == "rejected");
    CHECK(verdict(group, "own.copy", "own.patience") == excused);
    CHECK(verdict(group, "own.copies.0.weight", "own.patience") == excused);
    CHECK(verdict(group, "copy", "patience") == excused);
    CHECK(verdict(group, "other.copy", "own.patience") == "rejected");
    // These no output turns.
    CHECK(verdict(group, "own.running_mean", "own.num_batches_tracked") == "rejected");
    CHECK(verdict(group, "own.weight", "own.n_averaged") == "rejected");
  }
}

TEST_CASE("a first segment in which everything is noise excuses nothing") {
  scene one;
  one.differs(3, {tensor("w", 5, 501)});
  one.noise(3, {tensor("w", 0.9, 501)});
  one.noise(0, {tensor("w", 0.5, 501)});
  REQUIRE(one.verdict() == "inconclusive");
}

TEST_CASE("a first segment whose first repeat lacks the group excuses nothing of it") {
  scene one;
  one.differs(3, {tensor("bias", 5, 100)});
  one.noise(3, {tensor("bias", 0.9, 100)});
  one.noise(0, {tensor("bias", 0.5, 100)});
  REQUIRE(one.verdict() == "accepted");
  one.measured[0].noise[0].clear();
  REQUIRE(one.verdict() == "inconclusive");
}

TEST_CASE("tensors that become noise are excused while they are a fiftieth of the group together") {
  scene one;
  const auto biases = [](double off) {
    return std::vector{tensor("a", off, 10), tensor("b", off, 10)};
  };
  one.differs(3, biases(1.7));
  one.noise(3, biases(0.9));
  REQUIRE(one.verdict() == "accepted");
  auto more = biases(1.7);
  more.push_back(tensor("c", 1.7, 1));
  one.differs(3, more);
  one.noise(3, {tensor("a", 0.9, 10), tensor("b", 0.9, 10), tensor("c", 0.9, 1)});
  REQUIRE(one.verdict() == "inconclusive");
}

TEST_CASE("what a segment's own repeats alone call noise excuses little more than twice as much") {
  for (const auto& [off, verdict] :
       {std::pair{1.14, "accepted"}, std::pair{1.16, "inconclusive"}}) {
    scene one;
    one.differs(3, {tensor("bias", off, 20)});
    one.noise(3, {tensor("bias", 0.5, 20)});
    CAPTURE(off);
    REQUIRE(one.verdict() == verdict);
    one.options.safety = 1;
    REQUIRE(one.verdict() == "inconclusive");
    one.options.safety = 8;
    one.noise(0, {tensor("bias", 0.11, 20)});  // it is noise at first, too, of whatever size
    REQUIRE(one.verdict() == "accepted");
  }
  // Repeats say little of what has one element.
  scene one;
  one.noise(3, {tensor("scale", 0.5, 1)});
  one.differs(3, {tensor("scale", 3.9, 1)});
  REQUIRE(one.verdict() == "accepted");
  one.differs(3, {tensor("scale", 4.1, 1)});
  REQUIRE(one.verdict() == "inconclusive");
}

TEST_CASE("a tensor that is noise from the first segment on needs no noise of this one") {
  scene one;
  one.noise(0, {tensor("bias", 0.5, 100)});
  one.differs(3, {tensor("bias", 3.9, 100)});
  REQUIRE(one.verdict() == "accepted");
  one.differs(3, {tensor("bias", 4.1, 100)});
  REQUIRE(one.verdict() == "inconclusive");
}

TEST_CASE("noise excuses no difference that rounding explains in half precision") {
  scene one;
  auto bias = tensor("bias", 1, 20);
  bias.excess = 0;
  bias.rounding = 1;
  one.differs(3, {bias});
  one.noise(3, {});
  REQUIRE(one.verdict() == "inconclusive");
  one.noise(3, {tensor("bias", 0.43, 20)});
  REQUIRE(one.verdict() == "inconclusive");
  one.noise(3, {tensor("bias", 0.44, 20)});
  REQUIRE(one.verdict() == "accepted");
}

TEST_CASE("a part that is no noise is not excused with its tensor") {
  scene one;
  one.noise(0, {tensor("bias", 0.5, 100)});
  auto part = tensor("bias where it is no noise", 0.9, 60);
  part.judged = judged_as::steady;
  one.differs(3, {tensor("bias", 1, 100), part});
  one.noise(3, {});
  REQUIRE(one.verdict() == "inconclusive");
  one.noise(3, {tensor("bias", 0.5, 100), part});
  REQUIRE(one.verdict() == "inconclusive");
  part.l2 = part.excess = 1e-9;
  one.noise(3, {tensor("bias", 0.5, 100), part});
  one.differs(3, {tensor("bias", 1, 100), part});
  REQUIRE(one.verdict() == "accepted");
}

TEST_CASE("a group that is excused altogether has no distance left") {
  // Rounding of the squares may leave less than nothing, which is no reason to accuse.
  for (int i = 1; i < 200; ++i) {
    scene one;
    one.noise(0, {tensor("a", 0.5, 50), tensor("b", 0.5, 50)});
    one.differs(3, {tensor("a", 0.01 * i, 50), tensor("b", 0.3, 50)});
    CAPTURE(i);
    REQUIRE(one.verdict() == "accepted");
  }
}

TEST_CASE("a tensor that hardly moves is excused within its rounding while it is small") {
  scene one;
  auto still = tensor("bias", 1e-8, 20);
  still.update_l2 = still.replayed_update_l2 = 0;
  still.rounding_only = true;
  one.differs(3, {still});
  one.noise(3, {});
  REQUIRE(one.verdict() == "accepted");
  still.rounding_only = false;
  one.differs(3, {still});
  REQUIRE(one.verdict() == "inconclusive");
  still.rounding_only = true;
  still.count = 21;
  one.differs(3, {still});
  REQUIRE(one.verdict() == "inconclusive");
}

TEST_CASE("a tensor that the record left where it was is not excused by its stillness") {
  scene one;
  auto frozen = tensor("bias", 1, 10);
  frozen.update_l2 = 0;
  one.differs(3, {frozen});
  one.noise(3, {tensor("bias", 1e-3, 10)});
  REQUIRE(one.verdict() == "rejected");
}

namespace {

/// Fifty tensors, each within its noise, and their norm beyond that of the group.
void many_small(scene& one) {
  std::vector<tensor_distance> off, noise;
  for (int i = 0; i < 50; ++i) {
    const std::string path = "w" + std::to_string(i);
    off.push_back(tensor(path, 0.007, 20));
    // Each is as loud in one segment, and all of them never at once.
    noise.push_back(tensor(path, 0.0001, 20));
  }
  one.differs(3, off);
  one.noise(3, noise);
  for (int i = 0; i < 6; ++i) {
    std::vector<tensor_distance> some = noise;
    for (int k = i * 9; k < (i + 1) * 9 && k < 50; ++k)
      some[static_cast<std::size_t>(k)].l2 = 0.001;
    one.noise(static_cast<std::size_t>(i < 3 ? i : i + 1), some);
  }
}

}  // namespace

TEST_CASE("many small differences add up in the norm of their group") {
  scene one;
  many_small(one);
  REQUIRE(one.verdict() != "accepted");
}

TEST_CASE("an excused counter takes nothing off a norm that it is not in") {
  scene one;
  many_small(one);
  auto counter = tensor("step", 5, 1);
  counter.judged = judged_as::alone;
  one.measured[3].distances[0].tensors.push_back(counter);
  counter.l2 = counter.excess = 0.9;
  for (auto& repeat : one.measured[3].noise) repeat[0].tensors.push_back(counter);
  REQUIRE(one.verdict() != "accepted");
}

TEST_CASE("a counter is not in the norm of what is left beside an excused tensor") {
  const auto counter = [](double off) {
    tensor_distance out = tensor("step", off, 1, 1000);
    out.judged = judged_as::alone;
    return out;
  };
  scene one;
  one.noise(0, {tensor("bias", 0.5, 100), counter(10)});
  one.differs(3, {tensor("bias", 2, 100), counter(40)});
  one.noise(3, {counter(10)});
  REQUIRE(one.verdict() == "accepted");
}

TEST_CASE("only some segments are repeated at first") {
  const scene one(1000);
  std::uint64_t repeats = 0;
  for (const auto& each : one.measured) repeats += each.request.noise_repeats;
  REQUIRE(one.measured.front().request.noise_repeats == 2);
  REQUIRE(one.measured.size() == 14);
  REQUIRE(repeats == 5);
}

TEST_CASE("what equals, or passes, is not repeated a second time") {
  scene one;
  REQUIRE(one.more().empty());
  one.differs(3, {tensor("w", 1e-9, 500)});
  one.measured[3].distances[0].tensors[0].excess = one.measured[3].distances[0].excess_l2 = 0;
  REQUIRE(one.verdict() == "accepted");
  REQUIRE(one.more().empty());
}

TEST_CASE("a doubtful segment is repeated in full, and so is the first") {
  scene one;
  one.differs(3, {tensor("w", 0.5, 500)});
  const auto more = one.more();
  REQUIRE(more.size() == 2);
  REQUIRE(more[0].start == 0);
  REQUIRE(more[1].start == one.measured[3].request.start);
  for (const auto& each : more) {
    REQUIRE(each.noise_repeats == 2);
    REQUIRE(each.noise_if_equal);
    REQUIRE(each.rough_repeats == 0);  // beyond the cap they excuse nothing
  }
  one.noise(3, {});
  one.noise(0, {});
  REQUIRE(one.more().empty());
}

TEST_CASE("doubtful segments that rough sums may excuse share six repeats with them") {
  scene one;
  one.noise(0, {tensor("w", 0.001, 500)});
  one.differs(0, {tensor("w", 0.05, 500)});
  for (const std::size_t segments : {1UL, 2UL}) {
    CAPTURE(segments);
    const auto more = one.more();
    REQUIRE(more.size() == segments);
    REQUIRE(more[0].start == 0);
    for (const auto& each : more) REQUIRE(each.rough_repeats == 6 / segments);
    one.differs(5, {tensor("w", 0.05, 500)});
  }
  one.differs(7, {tensor("w", 0.11, 500)});  // beyond the cap
  const auto more = one.more();
  REQUIRE(more.size() == 3);
  REQUIRE(more[0].rough_repeats == 0);
  REQUIRE(more[1].rough_repeats == 3);
  for (const auto& each : more) {
    for (auto& measured : one.measured) {
      if (measured.request.start == each.start) measured.request = each;
    }
  }
  for (const std::size_t at : {0UL, 5UL, 7UL}) one.noise(at, {tensor("w", 0.001, 500)});
  REQUIRE(one.more().empty());
}

TEST_CASE("a first segment that is doubtful itself is asked for once") {
  scene one;
  one.differs(0, {tensor("w", 0.05, 500)});
  REQUIRE(one.more().size() == 1);
}

TEST_CASE("repeats with rough sums are at most a quarter of the segments") {
  scene one(1000, 98);
  one.noise(0, {tensor("w", 0.001, 500)});
  one.differs(0, {tensor("w", 0.05, 500)});
  REQUIRE(one.more().at(0).rough_repeats == 25);
}

TEST_CASE("a loss that is off is a doubt too") {
  scene one;
  one.measured[3].losses[0] += 0.01;
  REQUIRE(one.more().size() == 2);
  REQUIRE(one.more()[1].rough_repeats == 6);
}

TEST_CASE("superseded segments, which may be long, get few repeats and no rough sums") {
  scene one;
  const std::uint64_t length = one.measured[3].request.steps(), last = 40 + 4 * length;
  one.run.ranges = {{0, 40, last, 0}};
  for (std::uint64_t step = 41; step <= last; ++step) {
    one.run.superseded.push_back(one.run.records[step - 1]);
  }
  one.run.link();
  segment_measurement branch = one.measured[3];
  branch.request.start = 40;
  branch.request.end = last;
  branch.request.superseded = true;
  branch.losses.clear();
  for (const auto& step : one.run.superseded) branch.losses.push_back(step.loss + 0.01);
  branch.rates.assign(branch.losses.size(), {0.1});
  branch.skipped.assign(branch.losses.size(), false);
  one.measured.push_back(branch);
  auto more = one.more();
  REQUIRE(more.size() == 2);
  REQUIRE(more[1].superseded);
  REQUIRE(more[1].rough_repeats == 0);
  one.differs(3, {tensor("w", 1e9, 500)});  // farther off
  more = one.more();
  REQUIRE(more.size() == 2);
  REQUIRE(more[1].start == one.measured[3].request.start);
  REQUIRE_FALSE(more[1].superseded);
}

TEST_CASE("a superseded segment longer than all repeats together is repeated alone") {
  scene one;
  one.run.ranges = {{0, 0, 100, 0}};
  one.run.superseded = one.run.records;
  one.run.link();
  segment_measurement branch = one.measured[3];
  branch.request.start = 0;
  branch.request.end = 100;
  branch.request.superseded = true;
  branch.losses.clear();
  for (const auto& step : one.run.superseded) branch.losses.push_back(step.loss + 0.01);
  branch.rates.assign(100, {0.1});
  branch.skipped.assign(100, false);
  one.measured.push_back(branch);
  REQUIRE(one.more().back().superseded);
}

TEST_CASE("what is repeated a second time is bounded, and the farthest come first") {
  const auto repeated = [](std::uint64_t samples) {
    scene one(1000, samples);
    for (std::size_t i = 0; i < one.measured.size(); ++i) {
      one.differs(i, {tensor("w", 0.1 * static_cast<double>(i + 1), 500)});
    }
    const auto more = one.more();
    REQUIRE(more[1].start == one.measured.back().request.start);
    return more.size();
  };
  REQUIRE(repeated(12) == 1 + 4);   // the first, and four of few
  REQUIRE(repeated(98) == 1 + 20);  // or a fifth of a hundred
}

TEST_CASE("a difference of structure needs no noise") {
  scene one;
  one.differs(3, {tensor("w", 0.5, 500)});
  one.measured[3].distances[2].structure_equal = false;
  REQUIRE(one.more().empty());
}

TEST_CASE("what is not finite, or judged by a published tolerance, needs no noise") {
  scene one;
  one.differs(3, {tensor("w", 0.5, 500)});
  REQUIRE_FALSE(one.more().empty());
  for (const char* published : {"d_ref", "mean_grad_norm"}) {
    one.options.tolerance = published;
    REQUIRE(one.more().empty());
  }
  one.options.tolerance = "auto";
  one.measured[3].distances[1].finite = false;
  REQUIRE(one.more().empty());
}

TEST_CASE("exact arithmetic needs no noise") {
  scene one;
  one.differs(3, {tensor("w", 0.5, 500)});
  one.options.tolerance = "exact";
  REQUIRE(one.more().empty());
}
