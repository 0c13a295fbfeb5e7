// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

#include <potl/checks/telemetry.hpp>
#include <potl/checks/telemetry_sampler.hpp>

#include "fake_run.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

std::string sample(double t, const std::string& fields) {
  std::ostringstream out;
  out << "{\"kind\":\"sample\",\"t\":" << t << fields << "}\n";
  return out.str();
}

std::string mark(double t, int epoch, int first, int last) {
  std::ostringstream out;
  out << "{\"kind\":\"step\",\"t\":" << t << ",\"epoch\":" << epoch << ",\"first\":" << first
      << ",\"last\":" << last << "}\n";
  return out.str();
}

const std::string header =
    "{\"kind\":\"header\",\"version\":1,\"t\":0,\"source\":\"nvml\",\"mig\":false}\n";

/// 100 steps, busy throughout, memory settled after the first sample.
std::string ordinary() {
  std::string out = header + sample(0, ",\"util\":0.1,\"memory\":100");
  for (int i = 1; i <= 40; ++i) {
    out += sample(
        i, ",\"util\":0.9,\"memory\":1000,\"power\":200,\"energy\":" + std::to_string(200 * i));
  }
  return out + mark(20, 0, 1, 50) + mark(40, 1, 51, 100);
}

std::vector<finding> judged(const std::string& text, const telemetry_options& options = {}) {
  fake_run run;
  run.telemetry = text;
  run.link();
  return judge_telemetry(run.view, options);
}

std::vector<telemetry_sample> samples(const std::vector<double>& utilisation) {
  std::vector<telemetry_sample> out;
  for (std::size_t i = 0; i < utilisation.size(); ++i) {
    telemetry_sample one;
    one.t = static_cast<double>(i);
    one.utilisation = utilisation[i];
    out.push_back(one);
  }
  return out;
}

}  // namespace

TEST_CASE("telemetry of an ordinary run fits") {
  const auto findings = judged(ordinary());
  REQUIRE(count(findings, outcome::reject) == 0);
  REQUIRE(count(findings, outcome::inconclusive) == 0);
  REQUIRE(count(findings, outcome::pass) == 4);
}

TEST_CASE("no telemetry, damaged telemetry and none but a header are inconclusive") {
  REQUIRE(count(judged(""), outcome::inconclusive) == 1);
  REQUIRE(count(judged("{"), outcome::inconclusive) == 1);
  REQUIRE(count(judged(header), outcome::inconclusive) == 1);
}

TEST_CASE("with its rule off telemetry says nothing") {
  const rule_off off("telemetry.consistent");
  REQUIRE(judged("").empty());
}

TEST_CASE("missing, repeated and foreign step marks do not fit") {
  const auto marks = [&](const std::string& text) {
    fake_run run;
    const auto log = parse_telemetry(as_bytes_view(text)).value();
    return wrong_sequence(run.view, log.steps);
  };
  REQUIRE(marks(mark(1, 0, 1, 50) + mark(2, 1, 51, 100)).empty());
  REQUIRE_FALSE(marks(mark(1, 0, 1, 50)).empty());
  REQUIRE_FALSE(marks(mark(1, 0, 1, 50) + mark(2, 1, 52, 100)).empty());
  REQUIRE_FALSE(marks(mark(1, 0, 1, 50) + mark(2, 1, 50, 100)).empty());
  REQUIRE_FALSE(marks(mark(1, 0, 1, 50) + mark(2, 1, 51, 101)).empty());
  REQUIRE_FALSE(marks(mark(1, 0, 1, 50) + mark(2, 2, 51, 100)).empty());
  REQUIRE_FALSE(marks("").empty());
}

TEST_CASE("marks may go back once for each resume") {
  fake_run run;
  const auto text = mark(1, 0, 1, 46) + mark(2, 0, 41, 50) + mark(3, 1, 51, 100);
  const auto log = parse_telemetry(as_bytes_view(text)).value();
  REQUIRE_FALSE(wrong_sequence(run.view, log.steps).empty());
  run.resumed(40);
  REQUIRE(wrong_sequence(run.view, log.steps).empty());
}

TEST_CASE("marks may lack what a crash took, before a resume and at the end") {
  const auto wrong = [](const std::string& text, std::uint64_t from) {
    fake_run run;
    run.resumed(from);
    return wrong_sequence(run.view, parse_telemetry(as_bytes_view(text))->steps);
  };
  const std::string lost = mark(1, 0, 1, 46) + mark(2, 1, 51, 100);
  REQUIRE(wrong(lost, 50).empty());
  REQUIRE_FALSE(wrong(lost, 40).empty());
  REQUIRE(wrong(mark(1, 0, 1, 50) + mark(2, 1, 51, 97), 100).empty());
  REQUIRE_FALSE(wrong(mark(1, 0, 1, 50) + mark(2, 1, 51, 97), 90).empty());
}

namespace {

/// An ordinary run that begins `later` seconds later, with a counter that starts from `counter`.
std::string ordinary_again(double later, int counter) {
  std::string out = sample(later, ",\"util\":0,\"memory\":100");
  for (int i = 1; i <= 30; ++i) {
    out += sample(later + i, ",\"util\":0.9,\"memory\":1000,\"power\":200,\"energy\":" +
                                 std::to_string(counter + 200 * i));
  }
  return out;
}

}  // namespace

TEST_CASE("a run that waited to be resumed fits: nobody knows what the device did meanwhile") {
  REQUIRE(count(judged(ordinary() + header + ordinary_again(36'000, 900'000)), outcome::reject) ==
          0);
}

TEST_CASE("a resume after a reboot fits: the counter is another") {
  REQUIRE(count(judged(ordinary() + header + ordinary_again(300, 0)), outcome::reject) == 0);
}

TEST_CASE("a machine that slept for an hour fits, and a clock that was set back") {
  for (const int jump : {3'600, -30}) {
    std::string text = ordinary();
    for (int i = 41; i <= 70; ++i) {
      text += sample(jump + i, ",\"util\":0.9,\"memory\":1000,\"power\":200,\"energy\":" +
                                   std::to_string(200 * i));
    }
    INFO(jump);
    REQUIRE(count(judged(text), outcome::reject) == 0);
  }
}

TEST_CASE("after a gap load, memory and energy still have to fit") {
  std::string idle = ordinary() + header, growing = idle;
  std::string other = ordinary() + header + ordinary_again(36'000, 0);
  for (int i = 0; i < 400; ++i) {
    idle += sample(36'000 + i, ",\"util\":0,\"memory\":5");
    growing += sample(36'000 + i, ",\"util\":1,\"memory\":" + std::to_string(100 + 100 * i));
  }
  other += sample(36'031, ",\"util\":0.9,\"memory\":1000,\"power\":200,\"energy\":20000");
  REQUIRE(count(judged(idle), outcome::reject) == 1);
  REQUIRE(count(judged(growing), outcome::reject) == 1);
  REQUIRE(count(judged(other), outcome::reject) == 1);
}

TEST_CASE("the published share of samples above their mean fails a device that is always busy") {
  REQUIRE(share_above_mean(std::vector<double>(10, 1.0)) == 0);
  // Ten times 0.1 add up to less than 1, so the mean is below every sample: rounding decides.
  REQUIRE(share_above_mean(std::vector<double>(10, 0.1)) == 1);
}

TEST_CASE("the published share passes an idle device: 60 % of the samples at 0, 40 % at 1 %") {
  REQUIRE(share_above_mean(std::vector<double>{0, 0, 0, 0, 0, 0, .01, .01, .01, .01}) == 0.4);
}

TEST_CASE("the robust rule does the opposite on both") {
  std::string busy = header, idle = header;
  for (int i = 0; i < 50; ++i) {
    busy += sample(i, ",\"util\":1,\"memory\":5");
    idle += sample(i, i % 5 < 3 ? ",\"util\":0,\"memory\":5" : ",\"util\":0.01,\"memory\":5");
  }
  const std::string marks = mark(49, 0, 1, 50) + mark(50, 1, 51, 100);
  REQUIRE(count(judged(busy + marks), outcome::reject) == 0);
  REQUIRE(count(judged(idle + marks), outcome::reject) == 1);
}

TEST_CASE("a share of time weighs samples by the time that they stand for") {
  auto some = samples({0, 1, 0, 1});
  REQUIRE(busy_share_of_time(some, 0.5) == Approx(2.0 / 3));
  some[3].t = 10;  // eight seconds busy
  REQUIRE(busy_share_of_time(some, 0.5) == Approx(9.0 / 10));
}

TEST_CASE("few idle samples prove nothing") {
  const std::string few = header + sample(0, ",\"util\":0") + sample(1, ",\"util\":0") +
                          sample(2, ",\"util\":0") + mark(2, 0, 1, 50) + mark(2, 1, 51, 100);
  REQUIRE(count(judged(few), outcome::reject) == 0);
}

TEST_CASE("a slice of a device without utilisation is inconclusive") {
  std::string text = header + mark(40, 0, 1, 50) + mark(41, 1, 51, 100);
  text.replace(text.find("false"), 5, "true");
  for (int i = 0; i < 10; ++i) text += sample(i, ",\"util\":null,\"memory\":5");
  const auto findings = judged(text);
  REQUIRE(count(findings, outcome::inconclusive) == 1);
  REQUIRE(count(findings, outcome::reject) == 0);
}

TEST_CASE("memory that rises late does not fit, though it settles") {
  std::string text = header;
  for (int i = 0; i < 40; ++i) {
    text += sample(i, std::string(",\"util\":0.9,\"memory\":") + (i < 15 ? "100" : "1000"));
  }
  text += mark(20, 0, 1, 50) + mark(40, 1, 51, 100);
  REQUIRE(count(judged(text), outcome::reject) == 1);
}

TEST_CASE("memory that goes on growing does not fit") {
  std::string text = header + mark(40, 0, 1, 50) + mark(41, 1, 51, 100);
  for (int i = 0; i < 40; ++i) {
    text += sample(i, ",\"util\":1,\"memory\":" + std::to_string(100 + 100 * i));
  }
  REQUIRE(count(judged(text), outcome::reject) == 1);
}

TEST_CASE("load and memory of a process never look forged, its step marks may") {
  std::string idle = "{\"kind\":\"header\",\"version\":1,\"t\":0,\"source\":\"process\"}\n";
  for (int i = 0; i <= 40; ++i) {
    idle += sample(i, ",\"util\":0.01,\"memory\":" + std::to_string(100 + 10 * i));
  }
  const auto honest = judged(idle + mark(40, 0, 1, 50) + mark(40, 1, 51, 100));
  CHECK(count(honest, outcome::reject) == 0);
  CHECK(count(honest, outcome::inconclusive) == 2);
  CHECK(count(judged(idle + mark(40, 0, 1, 50)), outcome::reject) == 1);
}

TEST_CASE("an energy counter that contradicts the power does not fit") {
  std::string text = ordinary();
  REQUIRE(count(judged(text), outcome::reject) == 0);
  text += sample(41, ",\"util\":0.9,\"memory\":1000,\"power\":200,\"energy\":20000");
  REQUIRE(count(judged(text), outcome::reject) == 1);
}

TEST_CASE("steps faster than the hardware do not fit") {
  telemetry_options options;
  options.flops_per_step = 1e9;
  options.peak_flops = 1e12;  // a millisecond, which is what the steps took
  REQUIRE(count(judged(ordinary(), options), outcome::reject) == 0);
  options.peak_flops = 1e11;
  REQUIRE(count(judged(ordinary(), options), outcome::reject) == 1);
}

TEST_CASE("the published rules pass an ordinary run whose load varies") {
  telemetry_options options;
  options.mode = "apex";
  std::string text = header + mark(40, 0, 1, 50) + mark(41, 1, 51, 100) +
                     sample(0, ",\"util\":0.1,\"memory\":100");
  for (int i = 1; i <= 40; ++i) {
    text +=
        sample(i, i % 2 == 0 ? ",\"util\":0.8,\"memory\":1000" : ",\"util\":0.9,\"memory\":1000");
  }
  REQUIRE(count(judged(text, options), outcome::reject) == 0);
  REQUIRE(count(judged(text, options), outcome::pass) == 4);
}

TEST_CASE("the published count is epochs times iterations") {
  telemetry_options options;
  options.mode = "apex";
  const auto findings = judged(ordinary() + mark(41, 1, 100, 100), options);
  REQUIRE(findings.front().result == outcome::reject);
}

TEST_CASE("lines that are no telemetry are refused by their number") {
  for (const char* line :
       {"{}\n", "[]\n", "{\"kind\":\"other\",\"t\":1}\n", "{\"kind\":\"sample\"}\n",
        "{\"kind\":\"sample\",\"t\":-1}\n", "{\"kind\":\"sample\",\"t\":1,\"util\":2}\n",
        "{\"kind\":\"step\",\"t\":1,\"epoch\":0,\"first\":2,\"last\":1}\n",
        "{\"kind\":\"step\",\"t\":1,\"epoch\":0,\"first\":0,\"last\":1}\n",
        "{\"kind\":\"header\",\"version\":2,\"t\":1,\"source\":\"nvml\"}\n",
        "{\"kind\":\"sample\",\"t\":1}"}) {
    INFO(line);
    const std::string text = header + line;
    const auto refused = parse_telemetry(as_bytes_view(text));
    REQUIRE_FALSE(refused.has_value());
    REQUIRE(refused.why().message.find("line 2") != std::string::npos);
  }
}

TEST_CASE("a line that is too long is refused without being parsed") {
  const std::string text = "{\"kind\":\"" + std::string(100'000, 'x') + "\"}\n";
  REQUIRE(parse_telemetry(as_bytes_view(text)).why().code == errc::limit);
}

TEST_CASE("the sampler writes what the parser reads, and marks every step once") {
  const std::string path = "telemetry_test.log";
  std::remove(path.c_str());
  {
    std::ofstream torn(path);
    torn << header << "{\"kind\":\"sam";  // a crash
  }
  telemetry_sampler sampler(path, 0.005);
  REQUIRE(sampler.start().has_value());
  REQUIRE(sampler.start().why().code == errc::usage);
  for (std::uint64_t step = 1; step <= 100; ++step) sampler.mark_step(step, (step - 1) / 50);
  REQUIRE(sampler.stop().has_value());
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto log = parse_telemetry(as_bytes_view(text));
  std::remove(path.c_str());
  REQUIRE(log.has_value());
  REQUIRE(log->headers.size() == 2);
  REQUIRE(log->samples.size() >= 2);
  REQUIRE(wrong_sequence(fake_run().view, log->steps).empty());
  REQUIRE(log->samples.back().memory > 0.0);
}

TEST_CASE("the sampler goes on in a file of any size, behind its last whole line") {
  const std::string path = "telemetry_long_test.log";
  std::remove(path.c_str());
  std::ofstream(path) << header;
  REQUIRE(truncate(path.c_str(), 3 * std::int64_t{telemetry_max_bytes}) == 0);  // zeros, as after
  telemetry_sampler sampler(path, 60);                                          // a power cut
  REQUIRE(sampler.start().has_value());
  REQUIRE(sampler.stop().has_value());
  const auto text = read_file(path, telemetry_max_bytes);
  std::remove(path.c_str());
  REQUIRE(text.has_value());
  REQUIRE(parse_telemetry(*text)->headers.size() == 2);
}

TEST_CASE("a process that was forked does not wait for the sampler's thread") {
  const std::string path = "telemetry_forked_test.log";
  std::remove(path.c_str());
  auto sampler = std::make_unique<telemetry_sampler>(path, 60);
  REQUIRE(sampler->start().has_value());
  sampler->mark_step(1, 0);
  const pid_t forked = ::fork();
  REQUIRE(forked >= 0);
  if (forked == 0) {
    ::alarm(60);
    sampler->mark_step(2, 0);
    const bool stopped = sampler->stop().has_value();
    sampler.reset();
    ::_exit(stopped ? 0 : 1);
  }
  int ended = -1;
  REQUIRE(::waitpid(forked, &ended, 0) == forked);
  CHECK(ended == 0);
  REQUIRE(sampler->stop().has_value());
  const auto text = read_file(path, telemetry_max_bytes);
  std::remove(path.c_str());
  REQUIRE(text.has_value());
  const auto log = parse_telemetry(*text);
  REQUIRE(log->steps.size() == 1);
  CHECK(log->steps[0].last == 1);
}

TEST_CASE("a sampler that cannot open its file says so") {
  telemetry_sampler sampler("/dev/null/telemetry.log");
  REQUIRE_FALSE(sampler.start().has_value());
}
