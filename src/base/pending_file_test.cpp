#include "base/pending_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>

#include "base/error.h"
#include "base/file.h"
#include "base/pending_tree.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

class PendingFileTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directory(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  const fs::path folder_ = fs::temp_directory_path() / concat("espalier_pending_", ::getpid()), path_ = folder_ / "a";
};

std::string pending_refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

size_t num_descriptors() {
  return static_cast<size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

TEST_F(PendingFileTest, TakesThePlaceOfNoPipe) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(pending_refusal([&] { write_file_atomically(path_, "new"); }),
            concat("'", path_.string(), "' is a pipe (FIFO), and a file would take its place. Give another name."));
  EXPECT_TRUE(fs::is_fifo(path_));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(PendingFileTest, AFileThatCannotBeWrittenKeepsItsContentAndLeavesNothingBeside) {
  write_file_atomically(path_, "old");
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{16, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string told = pending_refusal([&] { write_file_atomically(path_, std::string(33, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(told, concat("cannot write '", path_.string(), ".tmp': File too large"));
  EXPECT_EQ(read_file(path_), "old");
  EXPECT_FALSE(fs::exists(folder_ / "a.tmp"));
}

// Otherwise one of them would put into its place what the other has half written.
TEST_F(PendingFileTest, TwoDoNotWriteOneFileAtATime) {
  write_file_atomically(path_, "old");
  const PendingFile file(path_);
  write_synced(file, "half");
  EXPECT_EQ(pending_refusal([&] { write_file_atomically(path_, "other"); }),
            concat("'", path_.string(), ".tmp' is being written by another process. Wait until it has ended, or give ",
                   "another name for the output."));
  EXPECT_EQ(read_file(path_), "old");
  EXPECT_EQ(read_file(file.temporary()), "half");
}

// A seal represents whatever else may refuse to empty a file that can be opened.
TEST_F(PendingFileTest, WhatCannotBeEmptiedIsLetGo) {
  const int sealed = ::memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC);
  ASSERT_GE(sealed, 0);
  ASSERT_EQ(::write(sealed, "x", 1), 1);
  ASSERT_EQ(::fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  fs::create_symlink(concat("/proc/self/fd/", sealed), folder_ / "a.tmp");
  const size_t before = num_descriptors();
  EXPECT_EQ(pending_refusal([&] { PendingFile file(path_); }),
            concat("cannot write '", path_.string(), ".tmp': Operation not permitted"));
  EXPECT_EQ(num_descriptors(), before);
  ::close(sealed);
}

// What a program keeps in a folder while it runs, of somebody else's things there, and of what it had itself.
TEST_F(PendingFileTest, ATreeGoesAwayAndLeavesWhatWasThereBefore) {
  {
    const PendingTree tree(folder_ / "x" / "work");
    fs::create_directories(folder_ / "x" / "work" / "deep" / "er");
    write_file_atomically(folder_ / "x" / "work" / "deep" / "er" / "file", "x");
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  fs::create_directory(folder_ / "mine");
  { const PendingTree tree(folder_ / "mine"); }
  EXPECT_TRUE(fs::exists(folder_ / "mine")) << "made by somebody else";
  write_file_atomically(folder_ / "mine" / "thesis", "x");
  { const PendingTree tree(folder_ / "mine"); }
  EXPECT_EQ(read_file(folder_ / "mine" / "thesis"), "x");
}

TEST_F(PendingFileTest, ASignalRemovesTrees) {
  fs::create_directory(folder_ / "mine");
  write_file_atomically(folder_ / "mine" / "thesis", "x");
  const pid_t child = ::fork();
  if (child == 0) {
    clean_up_when_interrupted("gone");
    const PendingTree mine(folder_ / "mine"), tree(folder_ / "x" / "work");
    for (int number = 0; number < 300; ++number) {  // more than one read of a folder gives
      const fs::path inner = folder_ / "x" / "work" / concat("a folder with a long name ", number);
      fs::create_directory(inner);
      std::ofstream(inner / "file") << "x";
    }
    ::raise(SIGTERM);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  EXPECT_FALSE(fs::exists(folder_ / "x"));
  EXPECT_EQ(read_file(folder_ / "mine" / "thesis"), "x");
}

}  // namespace
}  // namespace espalier
