#include "watch/verified.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

namespace espalier::watch {
namespace verified_test {

namespace fs = std::filesystem;

constexpr double kDay = 86400;

class VerifiedCheckpoints : public testing::Test {
 protected:
  VerifiedCheckpoints() { fs::create_directories(run_); }
  ~VerifiedCheckpoints() override { fs::remove_all(run_); }

  // A step whose files were written so many days ago.
  store::StepEntry write(int64_t step, double days_ago) const {
    const store::StepEntry entry{step, run_ / store::step_folder_name(step)};
    fs::create_directories(entry.folder);
    for (const char* name : {"manifest.json", "weights.safetensors"}) {
      write_file_atomically(entry.folder / name, "{}");
      age(entry.folder / name, days_ago);
    }
    return entry;
  }
  static void age(const fs::path& file, double days_ago) {
    fs::last_write_time(file,
                        fs::file_time_type::clock::now() - std::chrono::duration_cast<fs::file_time_type::duration>(
                                                               std::chrono::duration<double>(days_ago * kDay)));
  }
  int64_t next() const { return next_to_verify(run_)->entry.step; }
  bool is_due(double days) const { return watch::is_due(*next_to_verify(run_), days * kDay, now_); }

  const fs::path run_ = fs::temp_directory_path() / concat("espalier_verified_test_", ::getpid());
  const double now_ = wall_clock();
};

TEST_F(VerifiedCheckpoints, TheOneThatWasReadOrWrittenLongestAgoIsNext) {
  EXPECT_FALSE(next_to_verify(run_));
  const store::StepEntry one = write(1, 9), two = write(2, 20), three = write(3, 1);
  EXPECT_EQ(next(), 2);
  EXPECT_TRUE(is_due(7));
  ASSERT_TRUE(note_verified(run_, two, now_ - 8 * kDay, {}));
  EXPECT_EQ(next(), 1);
  ASSERT_TRUE(note_verified(run_, one, now_ - 2 * kDay, {}));
  EXPECT_EQ(next(), 2);
  ASSERT_TRUE(note_verified(run_, two, now_, {}));
  EXPECT_EQ(next(), 1);
  EXPECT_FALSE(is_due(7));
  EXPECT_TRUE(is_due(1.5));
  EXPECT_TRUE(damaged_checkpoints(run_).empty());
}

TEST_F(VerifiedCheckpoints, AClockThatWasWrongKeepsNothingFromBeingRead) {
  const store::StepEntry one = write(1, 9);
  ASSERT_TRUE(note_verified(run_, one, now_ + 1000 * kDay, {}));
  EXPECT_TRUE(is_due(7));
}

TEST_F(VerifiedCheckpoints, ADamagedOneIsToldUntilItIsReplacedOrGone) {
  const store::StepEntry one = write(1, 9);
  write(2, 9);
  ASSERT_TRUE(note_verified(run_, one, now_ - 3 * kDay, {"a is wrong", "b", "c", "d"}));
  const std::vector<Trouble> troubles = damaged_checkpoints(run_);
  ASSERT_EQ(troubles.size(), 1u);
  EXPECT_EQ(troubles[0].incident, "damaged checkpoint: step_00000001");
  EXPECT_NE(troubles[0].detail.find("a is wrong; b; c (4 problems in all)"), std::string::npos) << troubles[0].detail;
  EXPECT_EQ(next(), 2);
  // A file of it was brought back: it is read at once.
  age(one.folder / "weights.safetensors", 1);
  EXPECT_EQ(next(), 1);
  EXPECT_TRUE(is_due(7));
  EXPECT_EQ(damaged_checkpoints(run_).size(), 1u);
  ASSERT_TRUE(note_verified(run_, one, now_, {}));
  EXPECT_TRUE(damaged_checkpoints(run_).empty());
  // Of a step that was replaced, or removed, while it was read, nothing is known.
  EXPECT_FALSE(note_verified(run_, write(1, 1), now_ - 2 * kDay, {"rubbish"}));
  fs::remove_all(one.folder);
  EXPECT_FALSE(note_verified(run_, one, now_, {"gone"}));
  EXPECT_TRUE(damaged_checkpoints(run_).empty());
}

}  // namespace verified_test
}  // namespace espalier::watch
