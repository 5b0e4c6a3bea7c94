#include "base/work_profile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace espalier {
namespace work_profile_test {

using namespace std::chrono_literals;

void attention() {
  const WorkSpan span(Work::kAttention, "forward");
  std::this_thread::sleep_for(10ms);
  for (int head = 0; head < 3; ++head) {
    const WorkSpan product(Work::kProduct, "forward", {7, 33, 1});
    std::this_thread::sleep_for(10ms);
  }
}

TEST(WorkProfile, TimeOfASpanIsWithoutThatOfTheSpansInside) {
  WorkProfile profile;
  attention();  // before the start: it does not count
  profile.start();
  attention();
  { const WorkSpan other(Work::kProduct, "forward", {7, 33, 2}); }
  std::thread(attention).join();  // another thread's
  profile.stop();
  attention();
  const std::vector<WorkProfile::Row> rows = profile.rows();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].work, Work::kProduct);
  EXPECT_EQ(rows[0].shape, (ProductShape{7, 33, 1}));
  EXPECT_EQ(rows[0].calls, 3);
  EXPECT_GE(rows[0].seconds, 0.030);
  EXPECT_EQ(rows[1].work, Work::kAttention);
  EXPECT_EQ(rows[1].calls, 1);
  EXPECT_GE(rows[1].seconds, 0.010);
  EXPECT_EQ(rows[2].calls, 1);
  double sum = 0;
  for (const WorkProfile::Row& row : rows) sum += row.seconds;
  EXPECT_LE(sum, profile.seconds());
  EXPECT_GE(profile.seconds(), 0.080);  // with the other thread, which was waited for
  EXPECT_LE(sum, profile.seconds() - 0.040);
}

// Advances by 1, 2, 4, ... s with each mark, so that every sum of times tells its parts.
class CountingTimer : public WorkProfile::Timer {
 public:
  size_t mark() override {
    const double last = marks_.empty() ? 0 : marks_.back();
    marks_.push_back(last + static_cast<double>(uint64_t{1} << marks_.size()));
    return marks_.size() - 1;
  }
  void finish() override { finished_ = true; }
  double seconds(size_t from, size_t to) const override {
    EXPECT_TRUE(finished_);
    return marks_[to] - marks_[from];
  }
  void clear() override { marks_.clear(), finished_ = false; }

 private:
  bool finished_ = false;
  std::vector<double> marks_;
};

TEST(WorkProfile, WithADeviceSpansOfAllThreadsCountByItsTimer) {
  CountingTimer timer;
  WorkProfile profile(nullptr, &timer);
  for (int round = 0; round < 2; ++round) {
    profile.start();  // mark 0
    {
      const WorkSpan attention(Work::kAttention, "forward");  // mark 1
      const WorkSpan product(Work::kProduct, "forward");      // mark 2; ends with 3, attention with 4
    }
    std::thread([] { const WorkSpan norm(Work::kNorm, "backward"); }).join();  // marks 5 and 6
    profile.stop();                                                            // mark 7
    const std::vector<WorkProfile::Row> rows = profile.rows();
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_EQ(rows[0].work, Work::kNorm);
    EXPECT_EQ(rows[0].seconds, 64);
    EXPECT_EQ(rows[1].work, Work::kAttention);
    EXPECT_EQ(rows[1].seconds, 4 + 8 + 16 - 8);
    EXPECT_EQ(rows[2].work, Work::kProduct);
    EXPECT_EQ(rows[2].seconds, 8);
    EXPECT_EQ(profile.seconds(), 2 + 4 + 8 + 16 + 32 + 64 + 128);
  }
  { const WorkSpan after(Work::kNorm, "backward"); }  // counts nowhere
  EXPECT_EQ(profile.rows()[0].calls, 1);
}

TEST(WorkProfile, AListenerHearsOfEverySpanInOrder) {
  struct Names : WorkProfile::Listener {
    void begin(const std::string& name) override { heard += name + "("; }
    void end() override { heard += ")"; }
    std::string heard;
  } names;
  WorkProfile profile(&names);
  profile.start();
  {
    const WorkSpan loss(Work::kLoss, "forward");
    const WorkSpan product(Work::kProduct, "input gradient", {1, 2, 3});
  }
  profile.stop();
  EXPECT_EQ(names.heard, "loss forward(product input gradient 1x2x3())");
}

TEST(WorkProfile, AnExceptionEndsItsSpans) {
  WorkProfile profile;
  profile.start();
  try {
    const WorkSpan span(Work::kData, "read");
    throw 1;
  } catch (int) {
  }
  profile.stop();
  ASSERT_EQ(profile.rows().size(), 1U);
  EXPECT_EQ(profile.rows()[0].calls, 1);
}

}  // namespace work_profile_test
}  // namespace espalier
