#include "report/journal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

namespace espalier::report {
namespace journal_test {

namespace fs = std::filesystem;

class Journals : public testing::Test {
 protected:
  Journals() { fs::create_directories(folder_); }
  ~Journals() override { fs::remove_all(folder_); }
  void start(double time, int64_t step) { event(time, "start", step, "of 20 steps"); }
  void event(double time, const char* name, int64_t step, const char* detail) {
    events_ +=
        concat("{\"time\":", time, ",\"event\":\"", name, "\",\"step\":", step, ",\"detail\":\"", detail, "\"}\n");
  }
  // Steps [first, last], of two seconds each.
  static std::string steps(int64_t first, int64_t last) {
    std::string lines;
    for (int64_t step = first; step <= last; ++step)
      lines += concat("{\"step\":", step, ",\"consumed_samples\":8,\"lm_loss\":1.5,\"step_seconds\":2}\n");
    return lines;
  }
  report::Run written() const {
    write_file_atomically(folder_ / "events.jsonl", events_);
    write_file_atomically(folder_ / "metrics.jsonl", metrics_);
    write_file_atomically(folder_ / "metrics.superseded.jsonl", superseded_);
    report::Run run = read_run(folder_);
    run.changed.reset();  // the time of this test
    return run;
  }
  const fs::path folder_ = fs::temp_directory_path() / concat("espalier_journal_test_", ::getpid());
  std::string events_, metrics_, superseded_;
};

TEST_F(Journals, CountWhatWasTrainedTwiceAndTheTimeBetweenAttempts) {
  start(1000, 0);
  metrics_ += steps(1, 4);
  superseded_ += "{\"step\":5,\"valid\":{}}\n" + steps(5, 10);
  event(1030, "failure", -1, "rank 1 on alpha failed");
  start(1040, 4);  // ends before a step
  event(1041, "failure", -1, "rank 1 on alpha failed");
  start(1051, 4);
  metrics_ += "{\"step\":4,\"valid\":{\"wiki\":{\"lm_loss\":1.5}}}\n";
  metrics_ += steps(5, 12);
  event(1070, "alert", 9, "spike");
  event(1075, "stop", 12, "SIGTERM");
  start(1080, 12);
  metrics_ += steps(13, 20);
  event(1100, "end", 20, "all steps done");
  const report::Run run = written();
  const Journal journal = read_journal(run);
  ASSERT_EQ(journal.attempts.size(), 4u);
  const std::vector<std::pair<int64_t, int64_t>> expected = {{0, 10}, {4, 4}, {4, 12}, {12, 20}};
  for (size_t at = 0; at < 4; ++at) {
    EXPECT_EQ(journal.attempts[at].first_step, expected[at].first) << at;
    EXPECT_EQ(journal.attempts[at].last_step, expected[at].second) << at;
  }
  EXPECT_EQ(journal.steps_kept, 20);
  EXPECT_EQ(journal.steps_lost, 6);
  EXPECT_EQ(journal.seconds_down, 10 + 10 + 5);
  EXPECT_EQ(journal.median_step_seconds, 2);
  EXPECT_EQ(journal.effective_share(), 40.0 / 100);
  const std::string text = journal_text(run, journal);
  for (const char* part :
       {"From 1970-01-01 00:16:40 to 1970-01-01 00:18:20 UTC", "4 attempts, 20 steps kept", "(40.0 %)", "(12.0 %)",
        "(25.0 %)", "(23.0 %)", "## Attempt 3, 1970-01-01 00:17:31", "- 00:17:50, alert at step 9: spike",
        "- 00:17:10, failure: rank 1", "Its end cost 6 steps done again, 10 s down.", "Its end cost 5.00 s down."})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST_F(Journals, OfRunsThatRecordedNothing) {
  EXPECT_TRUE(read_journal(written()).attempts.empty());
  metrics_ += steps(1, 3);
  EXPECT_TRUE(read_journal(written()).attempts.empty());
  start(1000, 0);
  metrics_.clear();
  const report::Run run = written();
  const Journal journal = read_journal(run);
  EXPECT_EQ(journal.steps_kept, 0);
  EXPECT_FALSE(journal.effective_share());
  EXPECT_NE(journal_text(run, journal).find("1 attempt, 0 steps kept."), std::string::npos)
      << journal_text(run, journal);
}

}  // namespace journal_test
}  // namespace espalier::report
