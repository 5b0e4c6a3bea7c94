#include "report/log_tail.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace espalier::report {
namespace {

namespace fs = std::filesystem;

class LogTail : public testing::Test {
 protected:
  LogTail() : file_(fs::temp_directory_path() / ("log_tail_" + std::to_string(::getpid()))) { fs::remove(file_); }
  ~LogTail() override { fs::remove(file_); }
  void add(const std::string& text) const { std::ofstream(file_, std::ios::app) << text; }

  fs::path file_;
};

TEST_F(LogTail, EveryLineComesOnceAndOnlyWhole) {
  add("one\ntwo\nthr");
  LogPiece piece = read_log_tail(file_, {}, 1000);
  EXPECT_TRUE(piece.anew);
  EXPECT_EQ(piece.text, "one\ntwo\n");
  add("ee\nfour\n");
  piece = read_log_tail(file_, piece.end, 1000);
  EXPECT_FALSE(piece.anew);
  EXPECT_EQ(piece.text, "three\nfour\n");
  piece = read_log_tail(file_, piece.end, 1000);
  EXPECT_FALSE(piece.anew);
  EXPECT_EQ(piece.text, "");
}

TEST_F(LogTail, OfMuchTheLastWholeLines) {
  for (int line = 0; line < 100; ++line) add("line " + std::to_string(1000 + line) + "\n");  // 10 bytes each
  const LogPiece first = read_log_tail(file_, {}, 35);
  EXPECT_EQ(first.text, "line 1097\nline 1098\nline 1099\n");
  for (int line = 100; line < 110; ++line) add("line " + std::to_string(1000 + line) + "\n");
  const LogPiece more = read_log_tail(file_, first.end, 35);
  EXPECT_TRUE(more.anew);
  EXPECT_EQ(more.text, "line 1107\nline 1108\nline 1109\n");
}

TEST_F(LogTail, ALogThatIsBegunAnewIsReadFromItsStart) {
  add("a long line of the old one\n");
  const LogPiece old = read_log_tail(file_, {}, 1000);
  const fs::path kept = file_.string() + ".1";
  fs::rename(file_, kept);  // as keep_log does; the name is of another file then
  add("new and longer than what was read of the old one\n");
  const LogPiece piece = read_log_tail(file_, old.end, 1000);
  EXPECT_TRUE(piece.anew);
  EXPECT_EQ(piece.text, "new and longer than what was read of the old one\n");
  fs::remove(kept);
}

TEST_F(LogTail, NoFileIsNoText) {
  const LogPiece piece = read_log_tail(file_, {}, 1000);
  EXPECT_FALSE(piece.anew);
  EXPECT_EQ(piece.text, "");
  EXPECT_EQ(piece.end, LogPlace{});
}

TEST_F(LogTail, ALineLongerThanAPieceIsNotWaitedFor) {
  add(std::string(100, 'x'));
  EXPECT_EQ(read_log_tail(file_, {}, 40).text, std::string(40, 'x'));
}

}  // namespace
}  // namespace espalier::report
