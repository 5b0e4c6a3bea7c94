#include "base/kept_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <regex>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace espalier {
namespace kept_log_test {

namespace fs = std::filesystem;

class KeptLog : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    testing::internal::CaptureStderr();
  }
  void TearDown() override {
    keep_log("");
    testing::internal::GetCapturedStderr();
    fs::remove_all(folder_);
  }
  const fs::path folder_ = fs::temp_directory_path() / concat("espalier_kept_log_test_", ::getpid());
};

TEST_F(KeptLog, HasWhatWasSaidWithTheTime) {
  log_info("before");
  keep_log(folder_ / "log.txt");
  log_info("step 1");
  log_line(LogLevel::kDebug, "not said");
  log_warning("little room");
  keep_log("");
  log_info("after");
  const std::string stamp = R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d )";
  const std::string text = read_file(folder_ / "log.txt");
  EXPECT_TRUE(std::regex_match(text, std::regex(stamp + "step 1\n" + stamp + "warning: little room\n"))) << text;
}

TEST_F(KeptLog, StaysSmall) {
  keep_log(folder_ / "log.txt", /*most_bytes=*/1000);
  for (int number = 0; number < 500; ++number) log_info("line ", number);
  EXPECT_LT(file_size_bytes(folder_ / "log.txt"), 1040);
  EXPECT_LT(file_size_bytes(folder_ / "log.1.txt"), 1040);
  EXPECT_GE(file_size_bytes(folder_ / "log.1.txt"), 1000);
  EXPECT_NE(read_file(folder_ / "log.txt").find("line 499\n"), std::string::npos);
}

TEST_F(KeptLog, TroubleIsSaidOnceAndEndsNothing) {
  fs::create_directories(folder_ / "away" / "log.txt");
  keep_log(folder_ / "away" / "log.txt");
  log_info("a");
  log_info("b");
  const std::string said = testing::internal::GetCapturedStderr();
  testing::internal::CaptureStderr();
  EXPECT_NE(said.find("a\nwarning: cannot keep what is said in"), std::string::npos) << said;
  EXPECT_EQ(said.find("cannot keep"), said.rfind("cannot keep")) << said;
  fs::remove_all(folder_ / "away");
  log_info("c");
  EXPECT_FALSE(fs::exists(folder_ / "away"));
  fs::create_directories(folder_ / "away");
  log_info("d");
  EXPECT_NE(read_file(folder_ / "away" / "log.txt").find(" d\n"), std::string::npos);
}

}  // namespace kept_log_test
}  // namespace espalier
