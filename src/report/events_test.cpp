// Events that cannot be written: a folder is in the way of their file.
#include "report/events.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

namespace espalier::report {
namespace events_test {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class Events : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "espalier-events-XXXXXX").string();
    run_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(run_); }
  void block() const { fs::create_directory(run_ / "events.jsonl"); }
  void unblock() const { fs::remove(run_ / "events.jsonl"); }
  std::vector<nlohmann::json> recorded() const {
    std::vector<nlohmann::json> events;
    std::ifstream file(run_ / "events.jsonl");
    for (std::string line; std::getline(file, line);) events.push_back(nlohmann::json::parse(line));
    return events;
  }
  Names names() const {
    Names names;
    for (const auto& event : recorded()) names.push_back(event.at("event"));
    return names;
  }
  fs::path run_;
};

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

TEST_F(Events, WhatCannotBeWrittenWaitsAndComesBeforeWhatFollows) {
  record_event(run_, "start", 1, "");
  fs::remove(run_ / "events.jsonl");
  block();
  testing::internal::CaptureStderr();
  record_event(run_, "save failed", 4, "no room");
  record_event(run_, "alert", 5, "\"quoted\"");
  const std::string said = testing::internal::GetCapturedStderr();
  const size_t trouble = said.find("events.jsonl': Is a directory");
  ASSERT_NE(trouble, std::string::npos) << said;
  EXPECT_EQ(said.find("Is a directory", trouble + 20), std::string::npos) << "once\n" << said;
  EXPECT_NE(said.find("this event waits to be recorded: save failed at step 4: no room"), std::string::npos) << said;
  EXPECT_TRUE(has_late_events(run_));
  EXPECT_FALSE(has_late_events(run_ / "other"));
  const double before = now();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  unblock();
  testing::internal::CaptureStderr();
  record_event(run_, "stop", 6, "");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("2 late records are in it"), std::string::npos);
  EXPECT_FALSE(has_late_events(run_));
  EXPECT_EQ(names(), (Names{"save failed", "alert", "stop"}));
  EXPECT_LE(recorded()[1].at("time").get<double>(), before) << "when it happened";
  EXPECT_GT(recorded()[2].at("time").get<double>(), before);
  EXPECT_EQ(recorded()[1].at("detail"), "\"quoted\"");
}

TEST_F(Events, WhatWaitsIsWrittenWithoutAnotherEventAndOnce) {
  block();
  testing::internal::CaptureStderr();
  record_event(run_, "epoch", 7, "");
  write_late_events();
  EXPECT_TRUE(has_late_events(run_));
  unblock();
  write_late_events();
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(names(), Names{"epoch"});
  write_late_events();
  EXPECT_EQ(names(), Names{"epoch"});
}

TEST_F(Events, TheEndOfTheProcessTriesOnceMore) {
  const auto end = [&](bool is_free) {
    record_event(run_, "error", 7, "");
    if (is_free) unblock();
    std::exit(3);
  };
  block();
  EXPECT_EXIT(end(false), testing::ExitedWithCode(3), "1 record of .* could not be written and is lost");
  EXPECT_EXIT(end(true), testing::ExitedWithCode(3), "waits to be recorded");
  EXPECT_EQ(names(), Names{"error"});
}

}  // namespace events_test
}  // namespace espalier::report
