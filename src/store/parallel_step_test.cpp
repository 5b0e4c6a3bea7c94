// Eight processes write one step together: the same checkpoint as from one; all of it or nothing, whatever happens to
// one of them.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "store/internal/test_folder.h"
#include "store/internal/test_system.h"
#include "store/run_folder.h"
#include "store/step_reader.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;
using test::content_of;
using test::SmallCheckpoint;
using ParallelStep = test::TestFolder;
using Lines = std::vector<std::string>;

constexpr int64_t kNumRanks = 8;

// What the processes of a test see of each other.
struct Shared {
  std::atomic<int64_t> begun{0};               // the step that rank 0 has begun
  std::atomic<int64_t> saved[kNumRanks] = {};  // the last step that this rank was told to be complete
  char errors[kNumRanks][1024] = {};
};

class Ranks {
 public:
  Ranks() {
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (memory) Shared;
  }
  ~Ranks() {
    kill_all();
    ::munmap(shared_, sizeof(Shared));
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Starts `run(rank)` in a process of its own for every rank; what it throws is kept as its error.
  void start(const std::function<void(int64_t)>& run) {
    for (int64_t rank = 0; rank < kNumRanks; ++rank) {
      processes_[rank] = ::fork();
      ASSERT_GE(processes_[rank], 0);
      if (processes_[rank] != 0) continue;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        run(rank);
      } catch (const std::exception& error) {
        std::strncpy(shared_->errors[rank], error.what(), sizeof shared_->errors[rank] - 1);
      }
      ::_exit(0);
    }
  }
  void wait() {
    for (pid_t& process : processes_)
      if (process > 0) ::waitpid(std::exchange(process, -1), nullptr, 0);
  }
  void kill(int64_t rank) { ::kill(processes_[rank], SIGKILL); }
  void kill_all() {
    for (const pid_t process : processes_)
      if (process > 0) ::kill(process, SIGKILL);
    wait();
  }
  Shared& shared() { return *shared_; }

 private:
  Shared* shared_;
  pid_t processes_[kNumRanks] = {};
};

std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
  return files;
}

// Blocks of 33 and 5000 bytes: many writers in a page, and ranges of many pages with ends inside one.
TEST_F(ParallelStep, EightWritersMakeTheSameFilesAsOne) {
  for (const int64_t block_bytes : {33, 5000}) {
    const SmallCheckpoint checkpoint(3, /*rows=*/2000);
    const fs::path together = folder_ / concat("together", block_bytes), alone = folder_ / concat("alone", block_bytes);
    begin_step(together, 7);
    Ranks ranks;
    ranks.start([&](int64_t rank) {
      const Writers writers{.rank = rank, .count = kNumRanks};
      write_step(together, content_of(checkpoint, 7, block_bytes, writers), writers);
    });
    ranks.wait();
    for (const char* error : ranks.shared().errors) EXPECT_STREQ(error, "");
    begin_step(alone, 7);
    write_step(alone, content_of(checkpoint, 7, block_bytes, {}), {});
    EXPECT_EQ(files_of(together / "step_00000007"), files_of(alone / "step_00000007")) << block_bytes;
    EXPECT_EQ(verify_step(together / "step_00000007", 2, false), Lines{});
    EXPECT_FALSE(fs::exists(together / "step_00000007.partial"));
  }
}

// On NFS the page caches of two machines that both write a page overwrite each other's part of it.
TEST_F(ParallelStep, EachPageOfAFileIsWrittenByOneProcess) {
  for (const int64_t block_bytes : {33, 5000, 9000}) {
    const SmallCheckpoint checkpoint(3, /*rows=*/2000);
    const fs::path run = folder_ / concat("run", block_bytes);
    begin_step(run, 7);
    Ranks ranks;
    ranks.start([&](int64_t rank) {
      std::ofstream log(folder_ / concat("log-", rank));
      std::mutex mutex;
      test::system_calls().on_write = [&](const std::string& path, int64_t offset, int64_t bytes) {
        const std::lock_guard lock(mutex);
        log << fs::path(path).filename().string() << ' ' << offset << ' ' << bytes << std::endl;
        return false;
      };
      const Writers writers{.rank = rank, .count = kNumRanks};
      write_step(run, content_of(checkpoint, 7, block_bytes, writers), writers);
    });
    ranks.wait();
    std::map<std::string, std::set<int64_t>> writers_of_page;
    for (int64_t rank = 0; rank < kNumRanks; ++rank) {
      EXPECT_STREQ(ranks.shared().errors[rank], "");
      std::istringstream log(read_file(folder_ / concat("log-", rank)));
      std::string file;
      for (int64_t offset, bytes; log >> file >> offset >> bytes;)
        for (int64_t page = offset / 4096; file.ends_with(".safetensors") && page * 4096 < offset + bytes; ++page)
          writers_of_page[concat(file, " page ", page)].insert(rank);
    }
    std::set<int64_t> all;
    for (const auto& [page, ranks_of_page] : writers_of_page) {
      EXPECT_EQ(ranks_of_page.size(), 1u) << page;
      all.insert(ranks_of_page.begin(), ranks_of_page.end());
    }
    EXPECT_EQ(writers_of_page.size(), 7u + 28u + 1u) << "28,014, 112,000 and 2 bytes, each after a short header";
    EXPECT_EQ(all.size() > 1, block_bytes > 4096) << "whole pages are written by those who have them";
    EXPECT_EQ(verify_step(run / "step_00000007", 2, false), Lines{});
  }
}

// What the disk of one rank loses is found by that rank, in its block or in a page that rank 0 wrote for it.
TEST_F(ParallelStep, WhatDoesNotReadBackIsNotSaved) {
  for (const int64_t lying_rank : {0, 3}) {
    for (const int64_t block_bytes : {33, 9000}) {
      const SmallCheckpoint checkpoint(3, /*rows=*/2000);
      const bool writes_any = lying_rank == 0 || block_bytes > 8192;
      const fs::path run = folder_ / concat("run", lying_rank, "_", block_bytes);
      begin_step(run, 7);
      Ranks ranks;
      ranks.start([&](int64_t rank) {
        std::atomic<bool> lied = false;
        if (rank == lying_rank)
          test::system_calls().on_write = [&](const std::string& path, int64_t, int64_t) {
            return path.ends_with(optimizer_file("00000")) && !lied.exchange(true);
          };
        const Writers writers{.rank = rank, .count = kNumRanks};
        write_step(run, content_of(checkpoint, 7, block_bytes, writers), writers);
      });
      ranks.wait();
      for (const std::string error : ranks.shared().errors) {
        if (!writes_any) {
          EXPECT_EQ(error, "");
          continue;
        }
        EXPECT_NE(error.find("was not saved: rank "), std::string::npos) << error;
        EXPECT_NE(error.find("does not hold what was written to it: "), std::string::npos) << error;
      }
      EXPECT_EQ(fs::exists(run / "step_00000007"), !writes_any);
      EXPECT_FALSE(fs::exists(run / "step_00000007.partial"));
    }
  }
}

// A file-size limit on rank 3 simulates a disk that is full for one of them.
TEST_F(ParallelStep, WhenOneRankCannotWriteAllAreToldWhyAndNothingIsLeft) {
  SmallCheckpoint().save(folder_, 1);
  begin_step(folder_, 2);
  const SmallCheckpoint checkpoint(3, /*rows=*/2000);
  Ranks ranks;
  ranks.start([&](int64_t rank) {
    const Writers writers{.rank = rank, .count = kNumRanks};
    if (rank == 3) {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit small = {4096, RLIM_INFINITY};
      ::setrlimit(RLIMIT_FSIZE, &small);
    }
    write_step(folder_, content_of(checkpoint, 2, 9000, writers), writers);
  });
  ranks.wait();
  const std::string start =
      concat("checkpoint '", (folder_ / "step_00000002").string(), "' was not saved: rank 3: cannot write '",
             (folder_ / "step_00000002.partial").string());
  const std::string end = ".safetensors': File too large. Checkpoints saved earlier are untouched.";
  for (const std::string error : ranks.shared().errors) {
    EXPECT_EQ(error.substr(0, start.size()), start);
    EXPECT_EQ(error.substr(error.size() - std::min(error.size(), end.size())), end) << error;
  }
  EXPECT_FALSE(fs::exists(folder_ / "step_00000002.partial"));
  EXPECT_EQ(list_steps(folder_).complete.size(), 1u);
  EXPECT_EQ(verify_step(folder_ / "step_00000001", 1, false), Lines{});
}

TEST_F(ParallelStep, ARankThatSaysNothingIsNamed) {
  begin_step(folder_, 2);
  const SmallCheckpoint checkpoint;
  Ranks ranks;
  ranks.start([&](int64_t rank) {
    if (rank == 5) return;
    const Writers writers{
        .rank = rank, .count = kNumRanks, .patience = std::chrono::milliseconds(rank == 0 ? 1500 : 60000)};
    write_step(folder_, content_of(checkpoint, 2, 100, writers), writers);
  });
  ranks.wait();
  for (int64_t rank = 0; rank < kNumRanks; ++rank) {
    const std::string error = ranks.shared().errors[rank];
    if (rank == 5) continue;
    EXPECT_NE(error.find("was not saved: rank 0: nothing heard for "), std::string::npos) << error;
    EXPECT_NE(error.find(" of rank 5, which writes a part of the checkpoint"), std::string::npos) << error;
  }
  EXPECT_FALSE(fs::exists(folder_ / "step_00000002.partial"));
}

TEST_F(ParallelStep, AProcessThatEndsWaitsForOthersOnlyBriefly) {
  begin_step(folder_, 2);
  const SmallCheckpoint checkpoint;
  const std::atomic<bool> leaving = true;
  const Writers writers{.rank = 1, .count = 2, .leaving = &leaving};
  const std::string error =
      test::error_of([&] { write_step(folder_, content_of(checkpoint, 2, 100, writers), writers); });
  EXPECT_NE(error.find("rank 1: the run ended while this process waited for rank 0"), std::string::npos) << error;
}

// Saves step after step as a training job does, until killed.
void save_for_ever(const fs::path& folder, int64_t first, int64_t rank, Shared& shared) {
  for (int64_t step = first;; ++step) {
    const Writers writers{.rank = rank, .count = kNumRanks};
    if (rank == 0) {
      begin_step(folder, step);
      shared.begun = step;
    }
    while (shared.begun < step) std::this_thread::sleep_for(std::chrono::microseconds(100));
    const SmallCheckpoint checkpoint(static_cast<uint32_t>(step), /*rows=*/700);
    write_step(folder, content_of(checkpoint, step, 3000, writers), writers);
    shared.saved[rank] = step;
  }
}

TEST_F(ParallelStep, OneOfEightKilledAtAnyMomentAllAgreeOnTheNewestCompleteStep) {
  std::mt19937_64 random(11);
  int64_t newest = 0, num_partial = 0;
  for (int round = 0; round < 200 && (round < 15 || num_partial < 8 || newest < 10); ++round) {
    Ranks ranks;
    const int64_t first = newest + 1;
    ranks.start([&](int64_t rank) { save_for_ever(folder_, first, rank, ranks.shared()); });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300'000));
    ranks.kill(static_cast<int64_t>(random() % kNumRanks));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 10'000));
    ranks.kill_all();  // as the launcher does

    const RunListing listing = list_steps(folder_);
    num_partial += static_cast<int64_t>(listing.partial.size());
    newest = listing.complete.empty() ? 0 : listing.complete.back().step;
    ASSERT_GE(newest, first - 1);
    for (int64_t rank = 0; rank < kNumRanks; ++rank) {
      EXPECT_STREQ(ranks.shared().errors[rank], "");
      EXPECT_LE(ranks.shared().saved[rank], newest) << "rank " << rank << " was told of a step that is not there";
      EXPECT_GE(std::max(ranks.shared().saved[rank] + 1, first), newest) << "rank " << rank << " fell behind";
    }
    for (const StepEntry& entry : listing.complete) {
      EXPECT_EQ(verify_step(entry.folder, 2, false), Lines{}) << entry.folder;
      const SmallCheckpoint expected(static_cast<uint32_t>(entry.step), 700);
      const SafetensorsFile file(entry.folder / weights_file("00000"));
      const TensorData& tensor = expected.tensors()[0];
      EXPECT_EQ(std::memcmp(file.data(*file.find(tensor.name)), tensor.data, size_t{700} * 7 * 2), 0) << entry.folder;
      if (entry.step < newest) fs::remove_all(entry.folder);
    }
  }
  EXPECT_GE(num_partial, 8) << "too few kills came in the middle of a save; the test proves little";
  EXPECT_GE(newest, 10) << "too few saves came to their end";
}

}  // namespace
}  // namespace espalier::store
