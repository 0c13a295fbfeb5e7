// SPDX-License-Identifier: Apache-2.0
#include <potl/evidence/detail/ledger.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "run_fixture.hpp"

using namespace potl_test;

namespace {

digest counting() {
  digest out;
  for (std::uint8_t i = 0; i < digest::size; ++i) out.bytes[i] = i;
  return out;
}

ledger_challenge asked(std::uint8_t nonce) {
  ledger_challenge out;
  out.nonce.bytes.fill(nonce);
  out.checks.emplace_back("replay", json_value::of({{"samples", 12}, {"safety", 8}}));
  out.time = 2;
  return out;
}

const std::string job_hex = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

const std::string& document_hex = job_hex;

// As the Python package wrote it once.
const std::string by_python = R"({
 "version": 1,
 "job": ")" + job_hex + R"(",
 "challenges": [
  {
   "nonce": "0101010101010101010101010101010101010101010101010101010101010101",
   "checks": [
    [
     "replay",
     {
      "safety": 8.0,
      "samples": 12
     }
    ]
   ],
   "time": 1.5,
   "document": ")" + document_hex +
                              R"("
  }
 ],
 "commitments": [
  "a\n"
 ]
})";

}  // namespace

TEST_CASE("a ledger that Python wrote goes on, and keeps what it held", "[ledger]") {
  const temporary_directory root;
  const std::string path = root.file("ledger.json");
  overwrite(path, as_bytes_view(by_python));
  const ledger_memory known = recall(path, counting()).value();
  REQUIRE(known.challenges.size() == 1);
  CHECK(known.challenges[0].document == counting());
  CHECK(known.commitments == std::vector<std::string>{"a\n"});

  remember(path, counting(), "a\n", known.challenges[0]).value();
  const std::vector<std::uint8_t> same = bytes_of(path);
  CHECK(std::string(same.begin(), same.end()) == by_python);
  remember(path, counting(), "b\n", asked(2)).value();
  const std::vector<std::uint8_t> now = bytes_of(path);
  // tests/python/verify/test_ledger.py reads this text.
  CHECK(std::string(now.begin(), now.end()) ==
        R"({"challenges":[{"checks":[["replay",{"safety":8,"samples":12}]],"document":")" +
            document_hex +
            R"(",)"
            R"("nonce":"0101010101010101010101010101010101010101010101010101010101010101",)"
            R"("time":1.5},{"checks":[["replay",{"safety":8,"samples":12}]],"document":null,)"
            R"("nonce":"0202020202020202020202020202020202020202020202020202020202020202",)"
            R"("time":2}],"commitments":["a\n","b\n"],"job":")" +
            job_hex + R"(","version":1})");
}

TEST_CASE("the same challenge is kept once, however its numbers are spelled", "[ledger]") {
  const temporary_directory root;
  const std::string path = root.file("new/ledger.json");
  CHECK(remember(path, counting(), "a\n", asked(1))->challenges.empty());
  ledger_challenge other = asked(1);
  other.checks[0].second.set("safety", 8.0);
  other.time = 7;
  CHECK(remember(path, counting(), {}, other)->challenges.size() == 1);
  CHECK(recall(path, counting())->challenges.size() == 1);
  other.checks[0].second.set("safety", 9.0);
  remember(path, counting(), {}, other).value();
  CHECK(recall(path, counting())->challenges.size() == 2);
}

TEST_CASE("another nonce, check or handed-out challenge is another question", "[ledger]") {
  const ledger_challenge one = asked(1);
  CHECK(one.asks_like(asked(1)));
  CHECK_FALSE(one.asks_like(asked(2)));
  ledger_challenge other = asked(1);
  other.document = digest{};
  CHECK_FALSE(one.asks_like(other));
  other = asked(1);
  other.checks[0].first = "pev";
  CHECK_FALSE(one.asks_like(other));
  other = asked(1);
  other.time = 9;
  CHECK(one.asks_like(other));
}

TEST_CASE("a commitment is kept once, with or without a challenge", "[ledger]") {
  const temporary_directory root;
  const std::string path = root.file("ledger.json");
  CHECK(remember(path, counting(), "a\n", {})->commitments.empty());
  CHECK(remember(path, counting(), "a\n", {})->commitments.size() == 1);
  CHECK(remember(path, counting(), "b\n", asked(1))->challenges.empty());
  const ledger_memory now = recall(path, counting()).value();
  CHECK(now.commitments == std::vector<std::string>{"a\n", "b\n"});
  CHECK(now.challenges.size() == 1);
}

TEST_CASE("who remembers waits for whoever else does", "[ledger]") {
  const temporary_directory root;
  const std::string path = root.file("ledger.json");
  const int other = ::open((path + ".lock").c_str(), O_WRONLY | O_CREAT, 0666);
  REQUIRE(::flock(other, LOCK_EX) == 0);
  std::thread late([&] { remember(path, counting(), "a\n", {}).value(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK_FALSE(std::filesystem::exists(path));
  ::close(other);
  late.join();
  CHECK(recall(path, counting())->commitments.size() == 1);
}

TEST_CASE("a link to a ledger stays one", "[ledger]") {
  const temporary_directory root;
  const std::string path = root.file("link.json");
  std::filesystem::create_symlink(root.file("ledger.json"), path);
  overwrite(root.file("ledger.json"), as_bytes_view(by_python));
  REQUIRE(remember(path, counting(), "b\n", {}));
  CHECK(std::filesystem::is_symlink(path));
  CHECK(recall(root.file("ledger.json"), counting())->commitments.size() == 2);
}

TEST_CASE("a ledger that cannot be read is no empty memory", "[ledger]") {
  const temporary_directory root;
  std::filesystem::create_directory(root.file("folder"));
  CHECK_FALSE(recall(root.file("folder"), counting()));
  overwrite(root.file("another"), as_bytes_view(R"({"challenges":[],"commitments":[],"job":")" +
                                                job_hex + R"(","version":2})"));
  CHECK(recall(root.file("another"), counting()).why().message.find("another version of potl") !=
        std::string::npos);
}

TEST_CASE("a damaged ledger, or another job's, is no empty memory", "[ledger]") {
  const temporary_directory root;
  const std::string path = root.file("ledger.json");
  CHECK(recall(path, counting())->challenges.empty());
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), by_python.substr(1),
        std::string(R"({"version":1,"job":")") + job_hex + R"("})"}) {
    overwrite(path, as_bytes_view(text));
    CHECK(recall(path, counting()).why().code == errc::usage);
    CHECK(remember(path, counting(), "a\n", asked(1)).why().code == errc::usage);
    CHECK(bytes_of(path).size() == text.size());
  }
  overwrite(path, as_bytes_view(by_python));
  CHECK(recall(path, digest{}).why().message.find("another job") != std::string::npos);
}

TEST_CASE("a ledger lies in the user's state directory", "[ledger]") {
  ::setenv("XDG_STATE_HOME", "/somewhere", 1);
  CHECK(default_ledger(counting()).value() == "/somewhere/potl/jobs/" + job_hex + ".json");
  // A relative path is ignored: each folder would have memories of its own.
  ::setenv("XDG_STATE_HOME", "somewhere", 1);
  CHECK(default_ledger(counting()).value().front() == '/');
  ::unsetenv("XDG_STATE_HOME");
}
