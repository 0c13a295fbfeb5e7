// SPDX-License-Identifier: Apache-2.0
// What follows outputs and is compared with nothing: forms, histories, and whose repeats come
// first.
#include "catch.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "replay_scene.hpp"

using namespace potl;
using namespace potl::checks;
using namespace replay_scene;

TEST_CASE("a form that follows outputs neither accuses nor passes, whatever repeats show") {
  scene one;
  tensor_distance form;
  form.path = "state/own/kept (its length, type or text)";
  form.count = form.l2 = form.excess = 1;
  form.judged = judged_as::codes;
  one.differs(3, {});
  one.noise(3, {});
  one.measured[3].distances[3].tensors = {form};
  CHECK(one.verdict() == "inconclusive");
  for (auto& repeat : one.measured[3].noise) repeat[3].tensors = {form};
  CHECK(one.verdict() == "inconclusive");
  one.options.tolerance = "exact";
  CHECK(one.verdict() == "rejected");
}

TEST_CASE("what no repeat decides takes none from what one convicts") {
  scene one;
  tensor_distance form;
  form.path = "state/own/kept (its length, type or text)";
  form.count = form.l2 = form.excess = 1;
  form.judged = judged_as::codes;
  for (std::size_t at = 1; at < one.measured.size(); ++at) one.differs(at, {form});
  CHECK(one.more().empty());
  CHECK(one.verdict() == "inconclusive");
  const std::string said =
      "state/own/kept has another length, type or text than in the replay, and "
      "honest machines may differ there: ";
  const auto found = one.judge();
  CHECK(std::any_of(found.begin(), found.end(), [&](const finding& each) {
    return each.reason.substr(0, said.size()) == said;
  }));
  const std::size_t last = one.measured.size() - 1;
  for (const bool before : {false, true}) {
    auto both = std::vector{form, tensor("w", 0.9, 500)};
    if (before) std::swap(both[0], both[1]);
    one.differs(last, both);
    const auto more = one.more();
    const auto asks = [&](std::size_t at) {
      return std::any_of(more.begin(), more.end(), [&](const segment_request& asked) {
        return asked.start == one.measured[at].request.start;
      });
    };
    CHECK(asks(last));
    CHECK_FALSE(asks(last - 1));
    one.noise(last, {tensor("w", 0.001, 500)});
    CHECK(one.verdict() == "rejected");
    one.measured[last].noise.clear();
  }
}

TEST_CASE("a history that is a step further on another machine accuses nobody") {
  const auto verdict = [](const std::string& kept, const std::string& count) {
    scene one;
    tensor_distance iterations = tensor(count, 1, 1), history = tensor(kept, 0.9, 500);
    iterations.judged = judged_as::codes;
    one.differs(3, {});
    one.noise(3, {});
    one.measured[3].distances[2].tensors = {iterations, history};
    return one.verdict();
  };
  const std::string of_first = "optimizers/0/state/0/", form = " (its length, type or text)";
  CHECK(verdict(of_first + "old_dirs/7", of_first + "n_iter") == "inconclusive");
  CHECK(verdict(of_first + "prev_flat_grad", of_first + "ro" + form) == "inconclusive");
  CHECK(verdict(of_first + "/7", of_first + "n_iter") == "inconclusive");  // under an empty name
  // Of as many steps, but of others: no count differs.
  CHECK(verdict(of_first + "old_dirs/7", of_first + "old_dirs/8") == "inconclusive");
  // Averages are none, and neither is what another object keeps.
  CHECK(verdict(of_first + "exp_avg", of_first + "step") == "rejected");
  CHECK(verdict("ema/shadow/0", "ema/n") == "rejected");
  CHECK(verdict("optimizers/0/state/1/exp_avg", "optimizers/0/state/0" + form) == "rejected");
  CHECK(verdict("optimizers/0/state/0/exp_avg", "optimizers/0/k") == "rejected");
  CHECK(verdict("optimizers/1/state/0/prev_flat_grad", of_first + "n_iter") == "rejected");
}

TEST_CASE("a history that is of another length in a repeat accuses nobody") {
  const auto verdict = [](const std::string& kept, const std::string& list, bool rough) {
    scene one;
    tensor_distance form = tensor(list + " (its length, type or text)", 1, 1);
    form.judged = judged_as::codes;
    one.differs(3, {});
    one.noise(3, {});
    one.measured[3].distances[2].tensors = {tensor(kept, 0.9, 500)};
    if (rough) one.measured[3].rough = one.measured[3].noise;
    auto& repeats = rough ? one.measured[3].rough : one.measured[3].noise;
    repeats.at(0)[2].tensors = {form};
    return one.verdict();
  };
  const std::string of_first = "optimizers/0/state/0/";
  for (const bool rough : {false, true}) {
    CHECK(verdict(of_first + "old_dirs/7", of_first + "old_dirs", rough) == "inconclusive");
    CHECK(verdict(of_first + "prev_flat_grad", of_first + "ro", rough) == "inconclusive");
    CHECK(verdict("optimizers/1/state/0/prev_flat_grad", of_first + "ro", rough) == "rejected");
    CHECK(verdict("optimizers/0/state/1/exp_avg", "optimizers/0/state/0", rough) == "rejected");
  }
}

TEST_CASE("segments that may accuse are repeated before a prover's own integers") {
  const auto asked = [](const std::vector<tensor_distance>& everywhere) {
    scene one;
    const std::size_t last = one.measured.size() - 1;
    for (std::size_t at = 1; at < last; ++at) one.differs(at, everywhere);
    one.differs(last, {tensor("w", 0.9, 500)});
    const auto more = one.more();
    REQUIRE(more.size() > 2);
    REQUIRE(more.size() < last);
    return more.at(1).start == one.measured[last].request.start;  // behind the first segment
  };
  CHECK(asked(codes(1e9, 16, 0, 0)));
  CHECK(asked(codes(1e9, 1e6, 0, 0)));
  CHECK(asked({tensor("kept", 4, 10, 10)}));
}

TEST_CASE("a skip that a prover made up is repeated before what differs elsewhere") {
  scene one;
  const std::size_t last = one.measured.size() - 1;
  for (std::size_t at = 1; at < last; ++at) one.differs(at, codes(1e9, 1e6, 0, 0));
  one.differs(last, {});
  one.measured[last].skipped[2] = true;
  const auto more = one.more();
  REQUIRE(more.size() > 2);
  REQUIRE(more.size() < last);
  CHECK(more.at(1).start == one.measured[last].request.start);
}
