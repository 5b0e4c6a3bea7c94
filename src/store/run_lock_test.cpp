// The lock of a run where the file system has no flock; with it: run_folder_test.cpp.
#include "store/run_lock.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <random>
#include <thread>

#include "base/file.h"
#include "store/internal/owner_file.h"
#include "store/internal/test_folder.h"
#include "store/internal/test_system.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using test::error_of;
using test::write_text;

class LockWithoutFlock : public test::TestFolder {
 protected:
  void TearDown() override {
    test::system_calls() = {};
    TestFolder::TearDown();
  }

  // A process that takes the lock and keeps it until it is killed.
  pid_t start_holder() {
    int ready[2];
    if (::pipe(ready) != 0) return -1;
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const RunLock lock(folder_);
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte;
    const bool started = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
    return started ? child : -1;
  }

  fs::path owner() const { return folder_ / ".lock.owner"; }
};

// As Lustre (mounted without flock), other network file systems and NFS without its lock service answer.
TEST_F(LockWithoutFlock, IsTakenNamedRefusedAndFreedAsWithIt) {
  for (const int error : {ENOSYS, EOPNOTSUPP, ENOLCK}) {
    test::system_calls().flock_error = error;
    const pid_t holder = start_holder();
    ASSERT_GT(holder, 0);
    EXPECT_FALSE(RunLock::take_if_free(folder_)) << std::strerror(error);
    const std::string message = error_of([&] { RunLock lock(folder_); });
    EXPECT_EQ(message.find(concat("'", folder_.string(), "' is in use by process ", holder, " on ")), 0u) << message;
    EXPECT_NE(message.find("UTC. Wait for that run, stop it, or use another --save."), std::string::npos) << message;
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
    {
      const RunLock lock(folder_);  // at once: the process is seen to be gone
      EXPECT_FALSE(RunLock::take_if_free(folder_));
    }
    EXPECT_FALSE(fs::exists(owner())) << "let go, it leaves nothing after";
    RunLock first(folder_);
    const RunLock moved = std::move(first);
    EXPECT_FALSE(RunLock::take_if_free(folder_));
  }
}

TEST_F(LockWithoutFlock, OtherErrorsAreTold) {
  test::system_calls().flock_error = EIO;
  EXPECT_EQ(error_of([&] { RunLock lock(folder_); }),
            "cannot lock '" + (folder_ / ".lock").string() + "': Input/output error");
}

// A process number that was given to another process since.
TEST_F(LockWithoutFlock, AnotherProcessOfTheSameNumberIsNotTheHolder) {
  OwnerRecord record = OwnerRecord::of_this_process("process 1 on host, since long ago");
  record.process_start = "1";
  write_text(owner(), record.to_text());
  EXPECT_NE(OwnerFile::take_if_free(owner(), "me"), nullptr);
}

TEST_F(LockWithoutFlock, AHolderOnAnotherMachineKeepsItAsLongAsItRenewsIt) {
  OwnerRecord record = OwnerRecord::of_this_process("process 17 on elsewhere, since 2026");
  record.boot = "another";
  const OwnerTimes times{.renew = milliseconds(50), .patience = milliseconds(1500)};
  write_text(owner(), record.to_text());
  std::atomic<bool> ending = false;
  std::thread renewing([&] {
    while (!ending) {
      std::this_thread::sleep_for(milliseconds(20));
      fs::last_write_time(owner(), fs::file_time_type::clock::now());
    }
  });
  EXPECT_EQ(OwnerFile::take_if_free(owner(), "me", times), nullptr);
  ending = true;
  renewing.join();
  EXPECT_EQ(read_file(owner()), record.to_text());
  EXPECT_NE(OwnerFile::take_if_free(owner(), "me", times), nullptr) << "not renewed, it is nobody's";
}

// A file cut off by a full disk, or of another program.
TEST_F(LockWithoutFlock, AFileWithoutAHolderIsTakenWhenNobodyRenewsIt) {
  for (const char* content : {"", "boot", "rubbish\n\n"}) {
    write_text(owner(), content);
    EXPECT_NE(OwnerFile::take_if_free(owner(), "me", {.renew = milliseconds(10), .patience = milliseconds(100)}),
              nullptr)
        << content;
  }
}

TEST_F(LockWithoutFlock, ItsHolderRenewsIt) {
  const auto lock = OwnerFile::take_if_free(owner(), "me", {.renew = milliseconds(20)});
  ASSERT_NE(lock, nullptr);
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(owner(), long_ago);
  for (int i = 0; i < 500 && fs::last_write_time(owner()) == long_ago; ++i)
    std::this_thread::sleep_for(milliseconds(20));
  EXPECT_NE(fs::last_write_time(owner()), long_ago);
}

TEST_F(LockWithoutFlock, OfManyThatFindADeadHolderOneGetsIt) {
  for (int round = 0; round < 20; ++round) {
    OwnerRecord record = OwnerRecord::of_this_process("process 1 on host, since long ago");
    record.process_start = "1";
    write_text(owner(), record.to_text());
    constexpr int kTakers = 8;
    int results[2], go[2];
    ASSERT_EQ(::pipe(results), 0);
    ASSERT_EQ(::pipe(go), 0);
    std::vector<pid_t> takers;
    for (int i = 0; i < kTakers; ++i) {
      takers.push_back(::fork());
      if (takers.back() != 0) continue;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      char byte;
      ::close(go[1]);
      if (::read(go[0], &byte, 1) != 0) ::_exit(1);
      // Whoever is slow between two steps must not undo what a faster one has done.
      test::system_calls().before_move = [random = std::minstd_rand(static_cast<unsigned>(::getpid()))]() mutable {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      };
      const auto lock = OwnerFile::take_if_free(owner(), concat("taker ", i));
      if (::write(results[1], lock == nullptr ? "-" : "+", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(go[1]);
    std::string all;
    for (char byte; all.size() < kTakers && ::read(results[0], &byte, 1) == 1;) all += byte;
    for (const pid_t taker : takers) ::kill(taker, SIGKILL), ::waitpid(taker, nullptr, 0);
    for (const int end : {results[0], results[1], go[0]}) ::close(end);
    EXPECT_EQ(std::count(all.begin(), all.end(), '+'), 1) << all;
    fs::remove(owner());
  }
}

// Killed at each of its steps, a taker leaves a lock that the next one gets, and no file of its own.
TEST_F(LockWithoutFlock, OneThatWasKilledWhileItTookItHoldsNothing) {
  for (int last_step = 1; last_step <= 3; ++last_step) {
    OwnerRecord record = OwnerRecord::of_this_process("process 1 on host, since long ago");
    record.process_start = "1";
    write_text(owner(), record.to_text());
    const pid_t taker = ::fork();
    if (taker == 0) {
      test::system_calls().before_move = [step = 0, last_step]() mutable {
        if (++step == last_step) ::_exit(0);
      };
      OwnerFile::take_if_free(owner(), "one that is killed");
      ::_exit(1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(taker, &status, 0), taker);
    EXPECT_EQ(status, 0) << "took fewer than " << last_step << " steps";
    auto lock = OwnerFile::take_if_free(owner(), "the next");
    ASSERT_NE(lock, nullptr) << last_step;
    EXPECT_EQ(OwnerRecord::parse(read_file(owner())).text, "the next");
    lock.reset();
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(name.find(".new-") != std::string::npos) << name;  // of no bytes to speak of
      fs::remove(entry.path());
    }
  }
}

}  // namespace
}  // namespace espalier::store
