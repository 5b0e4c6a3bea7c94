#include "launch/stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "base/file.h"
#include "launch/internal/symbols.h"

namespace espalier::launch {
namespace stacks_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

__attribute__((noinline)) void waits_for_a_peer(int) {
  sem_t never;
  sem_init(&never, 0, 0);
  while (sem_wait(&never) != 0) {
  }
  asm volatile("");  // no tail call
}

__attribute__((noinline)) void computes_for_ever(volatile int* number) {
  while (*number >= 0) *number = (*number + 1) % 1000;
  asm volatile("");
}

ThreadStack main_thread(std::vector<std::string> frames) { return {"main thread", std::move(frames)}; }

TEST(Stacks, AreGroupedByTheirFunctions) {
  const std::vector<std::string> waits = {"poll (libc.so.6)", "espalier::dist::Pending::wait (espalier-engine)",
                                          "main (e)"};
  const std::vector<RankStacks> ranks = {
      {.rank = 4, .pid = 100, .why_none = "", .threads = {main_thread(waits), {"thread pool", {"futex (libc.so.6)"}}}},
      {.rank = 5, .pid = 101, .why_none = "is stopped", .threads = {}},
      {.rank = 6, .pid = 102, .why_none = "", .threads = {main_thread({"espalier::nn::gelu (e)", "main (e)"})}},
      {.rank = 7,
       .pid = 103,
       .why_none = "",
       .threads = {main_thread(waits), {"thread pool", {"futex (libc.so.6)"}}, {"thread pool", {"futex (libc.so.6)"}}}},
  };
  EXPECT_EQ(stacks_text(ranks),
            "rank 5 (process 101) is stopped\n"
            "\n"
            "ranks 4, 7, main thread\n"
            "    poll (libc.so.6)\n"
            "    espalier::dist::Pending::wait (espalier-engine)\n"
            "    main (e)\n"
            "\n"
            "rank 6, main thread\n"
            "    espalier::nn::gelu (e)\n"
            "    main (e)\n"
            "\n"
            "ranks 4, 7, thread pool (3 threads)\n"
            "    futex (libc.so.6)\n"
            "\n");
  EXPECT_EQ(stacks_summary(ranks),
            "ranks 4, 7 in espalier::dist::Pending::wait (in poll); rank 6 in espalier::nn::gelu; rank 5 is stopped");
}

TEST(Stacks, OfProcessesThatWaitComputeAndAreStopped) {
  const WhereaboutsBoard board(4);
  std::vector<pid_t> pids;
  for (int64_t rank = 0; rank < 4; ++rank) {
    const std::string variable = board.variable(rank);
    const pid_t pid = fork();
    if (pid == 0) {
      setenv(kWhereaboutsVariable, variable.c_str(), 1);
      open_whereabouts();
      volatile int number = 0;
      if (rank == 0) computes_for_ever(&number);
      waits_for_a_peer(0);
      _exit(0);
    }
    pids.push_back(pid);
  }
  for (int64_t rank = 0; rank < 4; ++rank)
    while (!board.sight(rank).is_open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  kill(pids[2], SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::vector<RankStacks> stacks = collect_stacks(board, 8, pids, Threads::kMain);
  for (const pid_t pid : pids) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  const std::string summary = stacks_summary(stacks);
  EXPECT_THAT(summary, HasSubstr("ranks 9, 11 in espalier::launch::stacks_test::waits_for_a_peer (in "));
  EXPECT_THAT(summary, HasSubstr("rank 8 in espalier::launch::stacks_test::computes_for_ever"));
  EXPECT_THAT(summary, HasSubstr("rank 10 is stopped (SIGSTOP, or a debugger) and cannot answer"));
  EXPECT_THAT(stacks_text(stacks), HasSubstr("main (espalier_launch_test)"));

  char folder[] = "/tmp/espalier-stacks-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string first = write_stacks(folder, "for a test", stacks);
  const std::string second = write_stacks(folder, "for a test", stacks);
  EXPECT_NE(first, second);
  EXPECT_THAT(read_file(first), HasSubstr(": for a test\n\nrank 10 (process "));
  std::filesystem::remove_all(folder);
}

// One that waits, one that lets the signal wait, as a thread in an uninterruptible call of the kernel does, and one
// that lets none in because it serves.
TEST(Stacks, OfOtherThreadsThatAnswerAndThatDoNot) {
  const WhereaboutsBoard board(1);
  const std::string variable = board.variable(0);
  const pid_t pid = fork();
  if (pid == 0) {
    setenv(kWhereaboutsVariable, variable.c_str(), 1);
    open_whereabouts();
    const auto named = [](const char* name) { pthread_setname_np(pthread_self(), name); };
    std::thread waits([&] {
      named("waits");
      waits_for_a_peer(0);
    });
    std::thread deaf([&] {
      named("deaf");
      if (vfork() == 0) {  // holds this thread in the kernel until the child ends
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sleep(1000);
        _exit(0);
      }
    });
    std::thread serves([&] {
      named("serves");
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, nullptr);
      waits_for_a_peer(0);
    });
    waits_for_a_peer(0);
    _exit(0);
  }
  const auto has_thread = [&](const std::string& name) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task"))
      if (read_file(task.path() / "comm") == name + "\n") return true;
    return false;
  };
  for (const char* name : {"waits", "deaf", "serves"})
    while (!has_thread(name)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const std::vector<RankStacks> stacks = collect_stacks(board, 0, {pid}, Threads::kAll);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  const std::string text = stacks_text(stacks);
  EXPECT_THAT(text, HasSubstr("rank 0, main thread\n"));
  EXPECT_THAT(text, testing::ContainsRegex("rank 0, thread waits\n( .*\n)* .*waits_for_a_peer"));
  EXPECT_THAT(text, HasSubstr("rank 0, thread deaf\n    (waits for a disk or a file system and cannot answer)\n"));
  EXPECT_THAT(text, Not(HasSubstr("thread serves")));
}

TEST(Stacks, OfARankThatHasNotBegunOrHasEnded) {
  const WhereaboutsBoard board(2);
  const std::vector<RankStacks> stacks = collect_stacks(board, 0, {getpid(), -1}, Threads::kAll);
  ASSERT_EQ(stacks.size(), 1U);
  EXPECT_EQ(stacks_summary(stacks), "rank 0 has not begun: it has no stack yet");
}

TEST(Symbols, AreShortened) {
  EXPECT_EQ(internal::short_function("_ZN2at6native3addERKNS_6TensorES3_"), "at::native::add");
  EXPECT_EQ(internal::short_function("main"), "main");
  // std::vector<int>::push_back(int const&), espalier::(anonymous namespace)::step(int), operator<<
  EXPECT_EQ(internal::short_function("_ZNSt6vectorIiSaIiEE9push_backERKi"), "std::vector::push_back");
  EXPECT_EQ(internal::short_function("_ZN8espalier12_GLOBAL__N_14stepEi"), "espalier::(anonymous namespace)::step");
  EXPECT_EQ(internal::short_function("_ZN1alsERi"), "a::operator<<");
}

TEST(Symbols, OfWhatIsNoProgramAreNone) {
  EXPECT_EQ(internal::mangled_function("", 0), "");
  EXPECT_EQ(internal::mangled_function("\x7f"
                                       "ELF",
                                       0),
            "");
  const std::string own = read_file("/proc/self/exe");
  for (const size_t size : {size_t{16}, size_t{63}, size_t{64}, size_t{100}, size_t{4096}, own.size() / 2})
    EXPECT_NO_THROW(internal::mangled_function(std::string_view(own).substr(0, size), 64)) << size;
}

TEST(Symbols, MapsNameTheirFiles) {
  const auto mappings = internal::parse_mappings(
      "55d0c000-55d0d000 r--p 00000000 fe:01 12                         /usr/bin/a program\n"
      "55d0d000-55d0f000 r-xp 00001000 fe:01 12                         /usr/bin/a program\n"
      "7ffd1000-7ffd2000 rw-p 00000000 00:00 0 \n"
      "7ffd3000-7ffd4000 r-xp 00000000 00:00 0                          [vdso]\n"
      "nonsense\n");
  ASSERT_EQ(mappings.size(), 3U);
  EXPECT_EQ(mappings[1].begin, 0x55d0d000U);
  EXPECT_EQ(mappings[1].file_offset, 0x1000U);
  EXPECT_EQ(mappings[1].path, "/usr/bin/a program");
  internal::Symbols symbols;
  EXPECT_EQ(symbols.name(mappings, 0x55d0d010), "0x1010 (a program)");
  EXPECT_EQ(symbols.name(mappings, 0x7ffd3004), "0x4 ([vdso])");
  EXPECT_EQ(symbols.name(mappings, 0x1), "(no file)");
}

}  // namespace stacks_test
}  // namespace espalier::launch
