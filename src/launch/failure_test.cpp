#include "launch/failure.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "launch/error_file.h"

namespace espalier::launch {
namespace {

Failure failed(int64_t rank, double time, int exit_code, int signal = 0) {
  Failure failure;
  failure.rank = failure.local_rank = rank;
  failure.host = "alpha";
  failure.pid = 1000 + rank;
  failure.time = time;
  failure.exit_code = exit_code;
  failure.signal = signal;
  return failure;
}

TEST(Failure, TheFirstToFailIsTheCause) {
  std::vector<Failure> failures = {failed(0, 103, 1), failed(1, 101, 65), failed(2, 102, 1)};
  sort_by_cause(failures);
  EXPECT_EQ(failures[0].rank, 1);
  EXPECT_EQ(failures[2].rank, 0);
  EXPECT_EQ(exit_code_of(failures[0]), 65);
}

TEST(Failure, ALostPeerIsAConsequenceAndAKilledRankACause) {
  std::vector<Failure> failures = {failed(0, 100.0, 69), failed(1, 100.1, 1), failed(2, 100.2, 0, 9)};
  sort_by_cause(failures);
  EXPECT_EQ(failures[0].rank, 2) << "noticed last, but by a signal";
  EXPECT_EQ(failures[2].rank, 0) << "it lost a peer";
  EXPECT_EQ(exit_code_of(failures[0]), 137);
}

TEST(Failure, MachinesTellEachOtherEverything) {
  Failure failure = failed(3, 1234.5, 66);
  failure.message = "two\nlines \"quoted\"";
  failure.error_file = "/tmp/e";
  failure.last_lines = "last";
  const Failure back = failures_from_json(to_json({failure})).at(0);
  EXPECT_EQ(failure_report("p", {back}), failure_report("p", {failure}));
}

TEST(Failure, TheReportHasTorchrunsForm) {
  setenv("TZ", "UTC", 1);
  Failure cause = failed(1, 1769880458, 0, 9), other = failed(0, 1769880459, 1);
  other.message = "lost rank 1";
  other.error_file = "/tmp/error.json";
  EXPECT_EQ(failure_report("espalier train gpt", {cause, other}),
            "============================================================\n"
            "espalier train gpt FAILED\n"
            "------------------------------------------------------------\n"
            "Failures:\n"
            "[1]:\n"
            "  time      : 2026-01-31_17:27:39\n"
            "  host      : alpha\n"
            "  rank      : 0 (local_rank: 0)\n"
            "  exitcode  : 1 (pid: 1000)\n"
            "  error_file: /tmp/error.json\n"
            "  traceback : lost rank 1\n"
            "------------------------------------------------------------\n"
            "Root Cause (first observed failure):\n"
            "[0]:\n"
            "  time      : 2026-01-31_17:27:38\n"
            "  host      : alpha\n"
            "  rank      : 1 (local_rank: 1)\n"
            "  exitcode  : -9 (pid: 1001)  (SIGKILL)\n"
            "  error_file: <N/A>\n"
            "  traceback : Signal 9 (SIGKILL) received by PID 1001\n"
            "============================================================\n");
  EXPECT_NE(failure_report("p", {cause}).find("Failures:\n  <NO_OTHER_FAILURES>\n"), std::string::npos);
}

TEST(ErrorFile, IsTorchrunsAndReadsBack) {
  const std::string path = testing::TempDir() + "espalier_error.json";
  std::filesystem::remove(path);
  EXPECT_FALSE(read_error_file(path));
  leave_error_for_launcher("nobody asked", 1);
  setenv(kErrorFileVariable, path.c_str(), 1);
  leave_error_for_launcher("not\nenough \xff", 69);
  unsetenv(kErrorFileVariable);
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text.find(R"({"message":{"extraInfo":{"exit_code":69,"py_callstack":)"), 0u) << text;
  EXPECT_NE(text.find(R"("timestamp":")"), std::string::npos) << "text, not a number: " << text;
  EXPECT_EQ(read_error_file(path)->message, "not\nenough \xef\xbf\xbd");
  EXPECT_EQ(read_error_file(path)->exit_code, 69);
}

TEST(ErrorFile, AlsoTheShortFormAndNoNonsense) {
  const std::string path = testing::TempDir() + "espalier_error.json";
  std::ofstream(path) << R"({"message":"plain","timestamp":"17"})";
  EXPECT_EQ(read_error_file(path)->message, "plain");
  std::ofstream(path) << "{";
  EXPECT_FALSE(read_error_file(path));
  std::ofstream(path) << "[1]";
  EXPECT_FALSE(read_error_file(path));
}

// What is there when a rank has ended is the rank's doing, and the launcher has others to stop.
TEST(ErrorFile, OneThatCannotBeReadIsNone) {
  const std::string path = testing::TempDir() + "espalier_error_folder.json";
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  EXPECT_FALSE(read_error_file(path)) << "a folder";
  std::filesystem::remove_all(path);
  std::ofstream(path) << R"({"message":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_FALSE(read_error_file(path)) << "lists without end";
  std::ofstream(path) << "{\"message\":\"\xff\"}";
  EXPECT_FALSE(read_error_file(path)) << "no UTF-8";
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace espalier::launch
