// Records of a run on a disk that fails: none is lost in silence, none is there in half.
#include "report/appended_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/file.h"

namespace espalier::report {
namespace appended_file_test {

namespace fs = std::filesystem;

// A limit on the size of files is a disk that is full at that size.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  void (*handler_)(int);
};

class AppendedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "espalier-appended-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string content() const { return read_file(folder_ / "records"); }
  fs::path folder_;
};

TEST_F(AppendedFileTest, WhatAFullDiskRefusesIsWrittenInOrderWhenThereIsRoom) {
  AppendedFile file(folder_ / "records");
  const std::string first = std::string(5000, '1') + "\n";  // the limit leaves room for what is captured of stderr
  file.append(first);
  {
    const FileSizeLimit limit(static_cast<rlim_t>(first.size()) + 3);  // room for half of the next record
    testing::internal::CaptureStderr();
    file.append("second\n");
    file.append("third\n");
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("records': File too large"), std::string::npos) << said;
    EXPECT_EQ(said.find("File too large"), said.rfind("File too large")) << "once";
    EXPECT_EQ(content(), first);
    EXPECT_EQ(file.num_waiting(), 2u);
  }
  testing::internal::CaptureStderr();
  file.append("fourth\n");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("2 late records"), std::string::npos);
  EXPECT_EQ(content(), first + "second\nthird\nfourth\n");
}

TEST_F(AppendedFileTest, AFileThatIsRemovedBeginsAnewWithItsHeader) {
  AppendedFile file(folder_ / "deep/er/records", "header\n");
  file.append("first\n");
  fs::remove_all(folder_ / "deep");
  testing::internal::CaptureStderr();
  file.append("second\n");
  file.append("third\n");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("was removed or replaced"), std::string::npos);
  EXPECT_EQ(read_file(folder_ / "deep/er/records"), "header\nsecond\nthird\n");
}

TEST_F(AppendedFileTest, GoesOnWhereItEndedAndRefusesAtTheStartOnly) {
  AppendedFile(folder_ / "records", "header\n").append("first\n");
  AppendedFile(folder_ / "records", "header\n").append("second\n");
  EXPECT_EQ(content(), "header\nfirst\nsecond\n");
  EXPECT_THROW(AppendedFile(folder_ / "records/below"), UserError);
}

// Room that comes after the last record is used.
TEST_F(AppendedFileTest, WhatWaitsIsTriedOnceMoreAtTheEnd) {
  testing::internal::CaptureStderr();
  {
    AppendedFile file(folder_ / "records");
    {
      const FileSizeLimit limit(0);
      file.append("a\n");
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("lost"), std::string::npos);
  EXPECT_EQ(content(), "a\n");
}

// Where its folder was, there is a file to the end.
TEST_F(AppendedFileTest, RecordsThatCameToNothingAreCounted) {
  testing::internal::CaptureStderr();
  {
    AppendedFile file(folder_ / "deep/records");
    fs::remove_all(folder_ / "deep");
    std::ofstream(folder_ / "deep") << "in the way";
    file.append("a\n");
    file.append("b\n");
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("2 records of"), std::string::npos);
}

}  // namespace appended_file_test
}  // namespace espalier::report
