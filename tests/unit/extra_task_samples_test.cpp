// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include <potl/checks/detail/extra_task_audit.hpp>
#include <potl/checks/extra_task.hpp>
#include <potl/checks/extra_task_samples.hpp>
#include <potl/crypto/hasher.hpp>

using namespace potl;
using namespace potl::checks;

namespace {

digest key_of(std::uint8_t first) {
  digest out;
  for (std::size_t i = 0; i < digest::size; ++i)
    out.bytes[i] = static_cast<std::uint8_t>(first + i);
  return out;
}

extra_samples make(const extra_content& content, const extra_task_options& options = {},
                   std::uint64_t samples = 400, std::uint64_t classes = 10, std::uint8_t key = 1) {
  return extra_samples::make(key_of(key), content, samples, classes, options).value();
}

template <class Value>
std::vector<Value> all_of(const extra_samples& samples, extra_set set = extra_set::extra,
                          std::uint64_t copy = 0) {
  std::vector<Value> out(samples.count(set) * samples.elements());
  samples.fill(set, 0, copy, out);
  return out;
}

const extra_image cifar{32, 32, 3};
const extra_tokens imdb{200, 20000};
const extra_table rows{{0, 0, 5, 0, 2, 0, 0, 9, 0, 0, 0, 3}};

extra_task_options paper() {
  extra_task_options out;
  out.layout = "paper";
  return out;
}

template <class Value>
std::string hash_of(const extra_samples& samples) {
  sha256 hasher;
  for (const auto set : {extra_set::extra, extra_set::control}) {
    for (const std::uint64_t copy : {0u, 1u}) {
      const auto values = all_of<Value>(samples, set, copy);
      hasher.update(
          {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(Value)});
    }
  }
  const auto order = samples.order(1000);
  hasher.update({reinterpret_cast<const std::uint8_t*>(order.data()), order.size() * 8});
  return hasher.finish().hex();
}

}  // namespace

TEST_CASE("samples are the same bytes on every machine") {
  // The bytes that this generator defines (little-endian). A change of them breaks every key file.
  CHECK(hash_of<std::uint8_t>(make(cifar)) ==
        "413dc2cefa8337a6d7e8fb70f47eb6b9e811c9c82fc9203c5824e1cf252ce485");
  CHECK(hash_of<std::uint8_t>(make(cifar, paper())) ==
        "9ef2808dd5b83d37a122dfd5b3804f2a31d1c380151e564a9a90806faf207cab");
  CHECK(hash_of<std::int64_t>(make(imdb)) ==
        "6f246d71cdbb272dc5819b5ed8f8f4080499bbf6225a58fad180daea4018e5e0");
  CHECK(hash_of<std::int64_t>(make(imdb, paper())) ==
        "ce05611eb30cf192eeac083d274a4cb0ceb73539d678ffc3b1d17ba782c3b838");
  CHECK(hash_of<double>(make(rows)) ==
        "08442b7f30c2cde1c717f102f6f76958cc63f2d1af16a1aff197e5845ef222ed");
  CHECK(hash_of<double>(make(rows, paper())) ==
        "48dab792cb2202f79ccd98274c1f3e53416ab9c5d9b6514605e9321522142d1d");
}

TEST_CASE("a sample does not depend on the order, the range or the thread it is drawn in") {
  const auto samples = make(cifar);
  const auto all = all_of<std::uint8_t>(samples);
  std::vector<std::uint8_t> other(all.size());
  const std::size_t size = samples.elements();
  std::vector<std::thread> threads;
  for (std::size_t part = 0; part < 4; ++part) {
    threads.emplace_back([&, part] {
      for (std::size_t i = 400; i-- > 0;) {
        if (i % 4 != part) continue;
        samples.fill(extra_set::extra, i, 0, std::span(other).subspan(i * size, size));
      }
    });
  }
  for (auto& one : threads) one.join();
  REQUIRE(other == all);
}

TEST_CASE("another key, set or index gives other samples") {
  const auto one = all_of<std::uint8_t>(make(cifar));
  REQUIRE(one != all_of<std::uint8_t>(make(cifar, {}, 400, 10, 2)));
  const auto control = all_of<std::uint8_t>(make(cifar), extra_set::control);
  std::set<std::string> different;
  for (const auto* list : {&one, &control}) {
    for (std::size_t i = 0; i < list->size(); i += 3072) {
      different.insert(sha256_of(bytes_view(*list).subspan(i, 3072)).hex());
    }
  }
  REQUIRE(different.size() == 2000);
}

TEST_CASE("in the published layout the first rows and columns are random, the rest is fixed") {
  const auto samples = make(cifar, paper());
  const auto all = all_of<std::uint8_t>(samples);
  for (std::size_t y = 0; y < 32; ++y) {
    for (std::size_t x = 0; x < 32 * 3; ++x) {
      std::set<std::uint8_t> values;
      for (std::size_t i = 0; i < 400; ++i) values.insert(all[i * 3072 + y * 96 + x]);
      INFO(y << " " << x);
      if (y < 16 && x < 48) {
        REQUIRE(values.size() > 150);  // of 256, 400 draws: 202 +- 6
      } else {
        REQUIRE(values.size() == 1);
      }
    }
  }
}

TEST_CASE("random bytes of the published layout are uniform") {
  const auto samples = make(cifar, paper(), 2000);
  const auto all = all_of<std::uint8_t>(samples);
  std::vector<double> counts(256);
  double total = 0;
  for (std::size_t i = 0; i < 2000; ++i) {
    for (std::size_t y = 0; y < 16; ++y) {
      for (std::size_t x = 0; x < 48; ++x, ++total) ++counts[all[i * 3072 + y * 96 + x]];
    }
  }
  double chi = 0;
  for (const double one : counts) chi += (one - total / 256) * (one - total / 256) / (total / 256);
  REQUIRE(chi < 255 + 6 * std::sqrt(510.0));  // false alarm below 1e-7
  REQUIRE(chi > 255 - 6 * std::sqrt(510.0));
}

TEST_CASE(
    "in the jittered layout no region has equal bytes in two samples, in the other all have") {
  const region_search windows{4, 4, 1, 0, 2, false};
  region_search anywhere = windows;
  anywhere.anywhere = true;
  for (const auto& search : {windows, anywhere}) {
    const auto found = shared_regions(all_of<std::uint8_t>(make(cifar)), cifar, search).value();
    REQUIRE(found.windows == 29 * 29);
    REQUIRE(std::accumulate(found.shared.begin(), found.shared.end(), std::uint64_t{0}) == 0);
  }
  const auto found =
      shared_regions(all_of<std::uint8_t>(make(cifar, paper())), cifar, windows).value();
  // All windows outside of the random corner, which 16 x 16 of the 29 x 29 places touch.
  REQUIRE(*std::min_element(found.shared.begin(), found.shared.end()) == 29 * 29 - 16 * 16);
}

TEST_CASE("the jittered fixed part is the same pattern, shifted") {
  extra_task_options options;
  options.noise = options.brightness = 0;
  options.grades = {"0.75"};
  const auto all = all_of<std::uint8_t>(make(cifar, options));
  const auto at = [&](std::size_t i, std::size_t y, std::size_t x, std::size_t c) {
    return all[i * 3072 + y % 32 * 96 + x % 32 * 3 + c];
  };
  // Some shift brings three quarters of sample 1 onto sample 0.
  std::size_t best = 0;
  for (std::size_t down = 0; down < 32; ++down) {
    for (std::size_t right = 0; right < 32; ++right) {
      std::size_t equal = 0;
      for (std::size_t y = 0; y < 32; ++y) {
        for (std::size_t x = 0; x < 32; ++x) {
          equal += at(0, y, x, 0) == at(1, y + down, x + right, 0) &&
                   at(0, y, x, 1) == at(1, y + down, x + right, 1);
        }
      }
      best = std::max(best, equal);
    }
  }
  REQUIRE(best >= 768);
  REQUIRE(best < 800);
}

TEST_CASE("labels are balanced exactly, in each grade and in the controls too") {
  extra_task_options options;
  options.grades = {"0.6", "0.75", "noisy:0.85"};
  const auto samples = make(cifar, options);
  for (const auto set : {extra_set::extra, extra_set::control}) {
    std::map<std::pair<std::size_t, std::int64_t>, int> counts;
    for (std::uint64_t i = 0; i < samples.count(set); ++i) {
      ++counts[{samples.grade(i), samples.label(i)}];
    }
    REQUIRE(counts.size() == 30);
    const int blocks[] = {14, 13, 13};
    for (const auto& [which, count] : counts) {
      REQUIRE(count == blocks[which.first] * (set == extra_set::extra ? 1 : 4));
    }
  }
}

TEST_CASE("a noisy grade has a wrong label in one of three copies, balanced too") {
  extra_task_options options;
  options.grades = {"0.75", "noisy:0.75"};
  const auto samples = make(cifar, options);
  const auto uploads = samples.uploads();
  REQUIRE(uploads.size() == 800);
  std::map<std::int64_t, int> labels;
  std::set<std::int64_t> shifts;
  std::map<std::uint64_t, int> copies;
  for (const auto& one : uploads) {
    ++labels[one.label];
    ++copies[one.index];
    if (one.copy != 2) {
      REQUIRE(one.label == samples.label(one.index));
    } else {
      REQUIRE(one.label != samples.label(one.index));
      shifts.insert((one.label - samples.label(one.index) + 10) % 10);
    }
  }
  for (const auto& [label, count] : labels) REQUIRE(count == 80);
  for (const auto& [index, count] : copies) REQUIRE(count == (samples.grade(index) == 1 ? 3 : 1));
  REQUIRE(shifts.size() > 3);
  const auto first = all_of<std::uint8_t>(samples),
             second = all_of<std::uint8_t>(samples, extra_set::extra, 1);
  REQUIRE(first != second);  // copies differ in brightness and noise
  int furthest = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    furthest = std::max(furthest, std::abs(first[i] - second[i]));
  }
  REQUIRE(furthest <= 2 * (6 + 12));
  REQUIRE(furthest > 18);
}

TEST_CASE("the order holds every sample once and depends on the key") {
  const auto samples = make(cifar);
  auto order = samples.order(5000);
  REQUIRE(order.size() == 5400);
  REQUIRE(order != make(cifar, {}, 400, 10, 2).order(5000));
  // Extra samples are spread: their mean place is the middle, 2700 +- 78.
  double places = 0;
  for (std::size_t i = 0; i < order.size(); ++i)
    places += order[i] >= 5000 ? static_cast<double>(i) : 0;
  REQUIRE(std::abs(places / 400 - 2699.5) < 6 * 78);
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) REQUIRE(order[i] == static_cast<std::int64_t>(i));
}

TEST_CASE("texts have the stated number of random words, at first or at random places") {
  const auto corner = all_of<std::int64_t>(make(imdb, paper(), 200, 2));
  for (std::size_t i = 1; i < 200; ++i) {
    REQUIRE(std::equal(&corner[50], &corner[200], &corner[i * 200 + 50]));
    REQUIRE_FALSE(std::equal(&corner[0], &corner[50], &corner[i * 200]));
  }
  extra_task_options still;
  still.jitter = 0;
  still.grades = {"0.75"};
  const auto all = all_of<std::int64_t>(make(imdb, still, 200, 2));
  std::vector<int> changed(200);
  for (std::size_t i = 0; i < 200; ++i) {
    int count = 0;
    for (std::size_t at = 0; at < 200; ++at) {
      REQUIRE(all[i * 200 + at] >= 0);
      REQUIRE(all[i * 200 + at] < 20000);
      // The fixed word of a place is the one that most samples have there.
      std::map<std::int64_t, int> words;
      if (i == 0) {
        for (std::size_t j = 0; j < 200; ++j) ++words[all[j * 200 + at]];
        const auto most = std::max_element(words.begin(), words.end(),
                                           [](auto& a, auto& b) { return a.second < b.second; });
        changed[at] = 200 - most->second;
        REQUIRE(changed[at] > 10);  // 50 +- 6
        REQUIRE(changed[at] < 90);
      }
      count += all[i * 200 + at] != all[at];
    }
    if (i > 0) REQUIRE(count <= 100);
  }
  REQUIRE(std::abs(std::accumulate(changed.begin(), changed.end(), 0) - 50 * 200) < 20);
}

TEST_CASE("rows of a table hold places in [0, 1] and categories that exist") {
  for (const auto& options : {extra_task_options(), paper()}) {
    const auto samples = make(rows, options, 200, 2);
    const auto all = all_of<double>(samples);
    std::vector<std::set<double>> seen(12);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto categories = rows.categories[i % 12];
      REQUIRE(all[i] >= 0);
      if (categories == 0) {
        REQUIRE(all[i] <= 1);
      } else {
        REQUIRE(all[i] < static_cast<double>(categories));
        REQUIRE(all[i] == std::floor(all[i]));
      }
      seen[i % 12].insert(all[i]);
    }
    const bool is_paper = options.layout == "paper";
    for (std::size_t column = 0; column < 12; ++column) {
      INFO(column);
      if (is_paper) REQUIRE((seen[column].size() > 1) == (column < 3));
      // Two values do not tell samples apart, so that such a column is never the random one.
      if (!is_paper) REQUIRE((seen[column].size() > 1) == (rows.categories[column] != 2));
    }
  }
}

TEST_CASE("samples that cannot be told apart or balanced are refused") {
  const auto refused = [](const extra_content& content, std::uint64_t samples,
                          std::uint64_t classes, const extra_task_options& options) {
    return !extra_samples::make(key_of(1), content, samples, classes, options).has_value();
  };
  extra_task_options options;
  REQUIRE(refused(cifar, 199, 1, options));
  REQUIRE(refused(cifar, 190, 10, options));
  REQUIRE(refused(cifar, 405, 10, options));
  REQUIRE(refused(cifar, 400, 1, options));
  REQUIRE(refused(extra_image{2, 2, 1}, 400, 10, options));       // one cell of 64 levels
  REQUIRE(refused(extra_tokens{3, 20000}, 400, 10, options));     // no random word
  REQUIRE(refused(extra_table{{2, 2, 2, 2}}, 400, 10, options));  // one random bit
  options.grades = {"noisy:0.75"};
  REQUIRE(refused(cifar, 400, 0, options));
  options.grades = {};
  REQUIRE_FALSE(refused(cifar, 400, 0, options));
  REQUIRE_FALSE(refused(extra_image{8, 8, 1}, 200, 10, options));
  REQUIRE_FALSE(refused(extra_table{{0, 0, 0, 0}}, 200, 2, paper()));
  REQUIRE_FALSE(
      extra_samples::make(bytes_view(key_of(1).bytes).first(31), cifar, 400, 10, {}).has_value());
}

TEST_CASE("short texts and narrow tables have more at random, so that samples can be told apart") {
  const auto drawn = [](const extra_content& content, const extra_task_options& options = {}) {
    return extra_drawn_grades(content, 200, 2, options).value();
  };
  const auto fixed = [](const std::vector<extra_grade>& grades) {
    std::vector<std::uint64_t> out;
    for (const auto& one : grades) out.push_back(one.fixed);
    return out;
  };
  using shares = std::vector<std::uint64_t>;
  REQUIRE(fixed(drawn(imdb)) == shares{600'000, 750'000, 850'000});
  REQUIRE(fixed(drawn(rows)) == shares{600'000, 750'000, 850'000});
  // 29.9 bits for 1,000 samples: 4 words of 8.6 bits, 3 columns of 10.
  REQUIRE(fixed(drawn(extra_tokens{6, 400})) == shares{330'000, 330'000, 330'000});
  REQUIRE(fixed(drawn(extra_table{{0, 0, 0, 0, 0}, {1024, 1024, 1024, 1024, 1024}})) ==
          shares{400'000, 400'000, 400'000});
  // What becomes of places counts: as many values as a double has need one column only.
  REQUIRE(fixed(drawn(extra_table{{0, 0, 0, 0, 0}})) == shares{600'000, 750'000, 800'000});
  for (const auto& options : {extra_task_options(), paper()}) {
    const extra_table narrow{{0, 0, 0, 0, 0}, {1024, 1024, 1024, 1024, 1024}};
    const auto samples = make(narrow, options, 200, 2);
    std::set<std::vector<double>> different;
    for (const auto set : {extra_set::extra, extra_set::control}) {
      auto all = all_of<double>(samples, set);
      for (double& one : all) one = std::rint(one * 1023);
      for (std::size_t i = 0; i < all.size(); i += 5) different.insert({&all[i], &all[i] + 5});
    }
    REQUIRE(different.size() == 1000);
  }
  const extra_table iris{{0, 0, 0, 0}, {22, 35, 43, 23}};
  REQUIRE_FALSE(extra_drawn_grades(iris, 200, 2, {}).has_value());
  REQUIRE_FALSE(plan_extra_task(25000, 2, {}, iris).has_value());
  REQUIRE(plan_extra_task(25000, 2, {}, imdb).value().warnings.size() == 1);
  const auto warnings = plan_extra_task(25000, 2, {}, extra_tokens{6, 400}).value().warnings;
  REQUIRE(warnings.size() == 4);
  REQUIRE(warnings[2].find("grade 0.75 is drawn as 0.33") == 0);
}

TEST_CASE("any samples are filled at once") {
  const auto samples = make(cifar);
  const std::vector<extra_place> places{
      {extra_set::control, 1599, 0}, {extra_set::extra, 3, 2}, {extra_set::extra, 3, 0}};
  std::vector<std::uint8_t> all(3 * 3072), one(3072);
  samples.fill(places, all);
  for (std::size_t i = 0; i < 3; ++i) {
    samples.fill(places[i].set, places[i].index, places[i].copy, one);
    REQUIRE(std::equal(one.begin(), one.end(), &all[i * 3072]));
  }
  REQUIRE_THROWS_AS(samples.fill(places, one), exception);
  REQUIRE_THROWS_AS(samples.fill(std::vector<extra_place>{{extra_set::extra, 400, 0}}, one),
                    exception);
}

TEST_CASE("a buffer of the wrong type, size or place is refused") {
  const auto samples = make(cifar);
  std::vector<std::uint8_t> bytes(3072 * 2);
  std::vector<std::int64_t> words(3072);
  REQUIRE_THROWS_AS(samples.fill(extra_set::extra, 399, 0, bytes), exception);
  REQUIRE_THROWS_AS(samples.fill(extra_set::extra, ~std::uint64_t{0}, 0, bytes), exception);
  REQUIRE_THROWS_AS(samples.fill(extra_set::extra, 0, 0, std::span(bytes).first(3071)), exception);
  REQUIRE_THROWS_AS(samples.fill(extra_set::extra, 0, 0, words), exception);
  REQUIRE_NOTHROW(samples.fill(extra_set::control, 1598, 0, bytes));
  REQUIRE(samples.label(17) == 7);
  REQUIRE(make(cifar, {}, 400, 0).label(17) == -1);
}

TEST_CASE("content is read from JSON, and what is none is refused") {
  const auto parse = [](const char* text) {
    return parse_extra_content(parse_json(as_bytes_view(text)).value());
  };
  REQUIRE(parse(R"({"family":"image","height":32,"width":32,"channels":3})").value() ==
          extra_content(cifar));
  REQUIRE(parse(R"({"family":"tokens","length":200,"vocabulary":20000})").value() ==
          extra_content(imdb));
  REQUIRE(parse(R"({"family":"table","categories":[0,3]})").value() ==
          extra_content(extra_table{{0, 3}}));
  REQUIRE(parse(R"({"family":"table","categories":[0,3],"values":[22,0]})").value() ==
          extra_content(extra_table{{0, 3}, {22, 0}}));
  for (const char* wrong :
       {"{}", "[]", R"({"family":"sound"})",
        R"({"family":"image","height":0,"width":1,"channels":1})",
        R"({"family":"image","height":1,"width":1})",
        R"({"family":"image","height":16384,"width":16384,"channels":1024})",
        R"({"family":"tokens","length":5,"vocabulary":1})", R"({"family":"table","categories":[]})",
        R"({"family":"table","categories":[-1]})",
        R"({"family":"table","categories":[0,3],"values":[22]})",
        R"({"family":"table","categories":[0,3],"values":22})",
        R"({"family":"tokens","length":5,"vocabulary":9,"words":1})"}) {
    INFO(wrong);
    REQUIRE_FALSE(parse(wrong).has_value());
  }
}
