// Events that cannot be written: a folder is in the way of their file.
#include "report/events.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
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
  EXPECT_TRUE(has_late_event(run_, {"epoch", "alert"}));
  EXPECT_FALSE(has_late_event(run_, {"epoch", "spike"}));
  EXPECT_FALSE(has_late_event(run_ / "other", {"alert"}));
  const double before = now();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  unblock();
  testing::internal::CaptureStderr();
  record_event(run_, "stop", 6, "");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("2 late records are in it"), std::string::npos);
  EXPECT_FALSE(has_late_event(run_, {"save failed", "alert", "stop"}));
  EXPECT_EQ(names(), (Names{"save failed", "alert", "stop"}));
  for (const auto& event : recorded()) EXPECT_EQ(event.value("late", false), event.at("event") != "stop") << event;
  EXPECT_LE(recorded()[1].at("time").get<double>(), before) << "when it happened";
  EXPECT_GT(recorded()[2].at("time").get<double>(), before);
  EXPECT_EQ(recorded()[1].at("detail"), "\"quoted\"");
}

TEST_F(Events, WhatWaitsIsWrittenWithoutAnotherEventAndOnce) {
  block();
  testing::internal::CaptureStderr();
  record_event(run_, "epoch", 7, "");
  write_late_events(Recorder::kOther);
  EXPECT_TRUE(has_late_event(run_, {"epoch"}));
  unblock();
  write_late_events(Recorder::kOther);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(names(), Names{"epoch"});
  write_late_events(Recorder::kOther);
  EXPECT_EQ(names(), Names{"epoch"});
}

TEST_F(Events, AFolderThatWasRemovedIsMadeAgainByItsRunAlone) {
  const auto end = [&](auto next) {
    block();
    record_event(run_, "failure", 7, "");
    fs::remove_all(run_);
    next();
    std::exit(fs::exists(run_) ? 4 : 3);
  };
  EXPECT_EXIT(end([] { write_late_events(Recorder::kOther); }), testing::ExitedWithCode(3),
              "' was removed: 1 event that waited to be recorded is lost .failure.");
  EXPECT_FALSE(fs::exists(run_)) << "nor is it at the end";
  fs::create_directory(run_);
  EXPECT_EXIT(end([] {}), testing::ExitedWithCode(3), "' was removed: 1 event");
  EXPECT_FALSE(fs::exists(run_)) << "nor is it at the end";
  fs::create_directory(run_);
  EXPECT_EXIT(end([] { write_late_events(Recorder::kRun); }), testing::ExitedWithCode(4), "1 late record is in it");
  EXPECT_EQ(names(), Names{"failure"});
}

// A pipe that nobody reads holds whoever opens it, as a file system does that does not answer.
TEST_F(Events, NobodyWaitsForAThreadThatAFileSystemHolds) {
  const fs::path pipe = run_ / "events.jsonl";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::atomic<bool> is_through = false;
  std::thread held([&] {
    record_event(run_, "alerted", 7, "");
    is_through = true;
  });
  for (int looks = 0; looks < 50; ++looks) {
    write_late_events(Recorder::kOther);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_FALSE(is_through);
  std::ifstream reader(pipe);
  held.join();
  std::string line;
  std::getline(reader, line);
  EXPECT_NE(line.find("\"alerted\""), std::string::npos) << line;
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
