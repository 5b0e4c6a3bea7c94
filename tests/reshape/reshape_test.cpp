// Any checkpoint loads in any layout, to the bit: every ordered pair of thirteen layouts in one process, six pairs with
// real ones, and saves that go wrong on one rank of eight.
//
// The parent process runs nothing with libtorch: the ranks are its forked children.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ATen/ATen.h>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <numeric>
#include <random>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/error.h"
#include "ckpt/loader.h"
#include "ckpt/writer.h"
#include "dist/backend.h"
#include "dist/local_ranks.h"
#include "store/run_folder.h"
#include "tests/reshape/layout_state.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using ckpt::CheckpointWriter;
using ckpt::LoadedCheckpoint;
using plan::Layout;

class Reshape : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / concat("espalier_reshape_", ::getpid(), "_", info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

store::Manifest manifest_of(const Layout& layout, int64_t step) {
  store::Manifest manifest;
  manifest.state.step = step;
  manifest.state.layout = plan::to_string(layout);
  return manifest;
}

void save(const fs::path& folder, const Layout& layout, const dist::Group& world, int64_t block_bytes) {
  CheckpointWriter writer(folder, {{"tokenizer/vocab.json", "{}"}}, world, block_bytes);
  writer.save(manifest_of(layout, 1), test::state_of(layout, world.rank()));
  writer.wait();
}

// One thread stands for each rank; they meet in a store in memory and exchange through Gloo.
void save_with_threads(const fs::path& folder, const Layout& layout, int64_t block_bytes) {
  const int64_t size = layout.grid.num_ranks();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<int64_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<std::future<void>> threads;
  for (const int64_t rank : ranks)
    threads.push_back(std::async(std::launch::async, [&, rank] {
      const dist::BackendOptions options{.loopback = true};
      const dist::Group world =
          size == 1 ? dist::Group() : dist::Group("world", ranks, rank, dist::make_gloo(store, rank, size, options));
      save(folder, layout, world, block_bytes);
      world.barrier();
    }));
  for (std::future<void>& thread : threads) thread.get();
}

// Loads every rank's part and compares every element. Returns the bytes that were read.
int64_t load_and_check(LoadedCheckpoint& checkpoint, const Layout& layout) {
  test::Seen seen;
  const int64_t before = checkpoint.bytes_read();
  for (int64_t rank = 0; rank < layout.grid.num_ranks(); ++rank) {
    const auto requests = test::requests_of(layout, rank);
    checkpoint.load(requests, LoadedCheckpoint::Part::kAll, test::all_names());
    test::check_loaded(requests, seen);
  }
  test::check_whole(seen);
  return checkpoint.bytes_read() - before;
}

// Blocks of 100 bytes are cut across rows, shards and exchanges; the long ones hold whole tensors.
std::string check_all_pairs(const fs::path& folder) {
  int64_t num_pairs = 0, checkpoint_bytes = 0;
  for (size_t from = 0; from < test::all_layouts().size(); ++from) {
    const Layout layout = plan::parse_layout(test::all_layouts()[from]);
    const fs::path run = folder / test::all_layouts()[from];
    save_with_threads(run, layout, from % 2 == 0 ? 100 : store::kBlockBytes);
    const auto step = store::find_checkpoint(run, {}, "");
    if (const auto problems = store::verify_step(step->folder, 1, false); !problems.empty())
      throw std::runtime_error(problems[0]);
    LoadedCheckpoint checkpoint(step->folder);
    const store::Manifest& manifest = checkpoint.manifest();
    if (manifest.state.layout != plan::to_string(layout)) throw std::runtime_error(manifest.state.layout);
    if (checkpoint_bytes != 0 && manifest.tensor_bytes() != checkpoint_bytes)
      throw std::runtime_error(concat(manifest.tensor_bytes(), " bytes"));
    checkpoint_bytes = manifest.tensor_bytes();
    for (const std::string& to : test::all_layouts()) {
      try {
        const int64_t bytes = load_and_check(checkpoint, plan::parse_layout(to));
        // One process reads every byte once.
        if (to == "tp1pp1dp1" && bytes != checkpoint_bytes) throw std::runtime_error(concat(bytes, " bytes read"));
      } catch (const std::exception& error) {
        throw std::runtime_error(concat(test::all_layouts()[from], " to ", to, ": ", error.what()));
      }
      ++num_pairs;
    }
  }
  return std::to_string(num_pairs);
}

TEST_F(Reshape, EveryPairOfLayoutsGivesTheSameBits) {
  const auto pairs = dist::run_ranks({}, [&](const dist::Grid&) { return check_all_pairs(folder_); });
  EXPECT_EQ(pairs[0], "169");
}

struct Pair {
  const char* from;
  const char* to;
};

class RealRanks : public Reshape, public testing::WithParamInterface<Pair> {};

TEST_P(RealRanks, SaveInOneLayoutAndLoadInAnother) {
  const Layout from = plan::parse_layout(GetParam().from), to = plan::parse_layout(GetParam().to);
  dist::run_ranks(from.grid, [&](const dist::Grid& grid) {
    save(folder_, from, grid.world, 1000);
    return std::string();
  });
  EXPECT_EQ(store::verify_step(folder_ / "step_00000001", 2, false), std::vector<std::string>{});
  dist::run_ranks(to.grid, [&](const dist::Grid& grid) {
    LoadedCheckpoint checkpoint(folder_ / "step_00000001");
    const auto requests = test::requests_of(to, grid.rank);
    checkpoint.load(requests, LoadedCheckpoint::Part::kAll, test::all_names());
    test::Seen seen;
    test::check_loaded(requests, seen);
    return std::string();
  });
}

INSTANTIATE_TEST_SUITE_P(SixPairs, RealRanks,
                         testing::Values(Pair{"tp2pp2dp2zero1", "dp3zero1"}, Pair{"dp3zero1", "pp2dp2"},
                                         Pair{"pp4", "tp4"}, Pair{"pp2vp2", "tp1pp1dp1"}, Pair{"tp8", "dp5zero3"},
                                         Pair{"dp8zero2", "tp2pp2vp2dp2zero1"}));

// Saves step after step; one rank kills itself at a random moment. What was complete for one is there for all.
TEST_F(Reshape, ARankKilledWhileEightSaveLeavesOneNewestCompleteStep) {
  const Layout layout = plan::parse_layout("tp2pp2dp2zero1");
  std::mt19937 random(5);
  int64_t newest = 0;
  for (int round = 0; round < 6; ++round) {
    const int64_t victim = static_cast<int64_t>(random() % 8), milliseconds = static_cast<int64_t>(random() % 400);
    const auto save_for_ever = [&](const dist::Grid& grid) -> std::string {
      CheckpointWriter writer(folder_, {}, grid.world, 500);
      const auto state = test::state_of(layout, grid.rank);
      writer.reserve(state);
      std::thread killer;
      if (grid.rank == victim)
        killer = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
          std::raise(SIGKILL);
        });
      for (int64_t step = newest + 1;; ++step) writer.save(manifest_of(layout, step), state);
    };
    std::string error;
    try {
      dist::run_ranks(layout.grid, save_for_ever);
    } catch (const UserError& caught) {
      error = caught.what();
    }
    EXPECT_NE(error, "") << "all ranks ended by themselves";
    const store::RunListing listing = store::list_steps(folder_);
    for (const store::StepEntry& entry : listing.complete) {
      EXPECT_EQ(store::verify_step(entry.folder, 2, false), std::vector<std::string>{}) << entry.folder;
      newest = std::max(newest, entry.step);
    }
  }
  ASSERT_GT(newest, 0);
  dist::run_ranks({}, [&](const dist::Grid&) {
    LoadedCheckpoint checkpoint(folder_ / store::step_folder_name(newest));
    load_and_check(checkpoint, layout);
    return std::string();
  });
}

// A file-size limit on rank 3 stands for a disk that is full for it.
TEST_F(Reshape, WhatOneRankCannotWriteIsToldToAllByTheNextSave) {
  const Layout layout = plan::parse_layout("tp2pp2dp2zero1");
  const auto errors = dist::run_ranks(layout.grid, [&](const dist::Grid& grid) -> std::string {
    CheckpointWriter writer(folder_, {}, grid.world);
    const auto state = test::state_of(layout, grid.rank);
    writer.save(manifest_of(layout, 1), state);
    writer.wait();
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit none = {1, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
    if (grid.rank == 3) ::setrlimit(RLIMIT_FSIZE, &none);
    writer.save(manifest_of(layout, 2), state);
    std::string error = "no error";
    try {
      writer.save(manifest_of(layout, 3), state);
    } catch (const UserError& caught) {
      error = caught.what();
    }
    ::setrlimit(RLIMIT_FSIZE, &all);
    writer.save(manifest_of(layout, 4), state);
    writer.wait();
    return error;
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error, errors[0]);
    EXPECT_NE(error.find("step_00000002' was not saved: rank 3: cannot write '"), std::string::npos) << error;
    EXPECT_NE(error.find("': File too large. Checkpoints saved earlier are untouched."), std::string::npos) << error;
  }
  const store::RunListing listing = store::list_steps(folder_);
  EXPECT_EQ(listing.complete.size(), 2u);
  EXPECT_TRUE(listing.partial.empty());
  for (const auto& entry : listing.complete) EXPECT_TRUE(store::verify_step(entry.folder, 1, false).empty());
}

TEST_F(Reshape, AStepThatExistsIsRefusedOnAllRanks) {
  const Layout layout = plan::parse_layout("tp3");
  const auto errors = dist::run_ranks(layout.grid, [&](const dist::Grid& grid) -> std::string {
    CheckpointWriter writer(folder_, {}, grid.world);
    const auto state = test::state_of(layout, grid.rank);
    writer.save(manifest_of(layout, 1), state);
    try {
      writer.save(manifest_of(layout, 1), state);
    } catch (const UserError& caught) {
      return caught.what();
    }
    return "no error";
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error, errors[0]);
    EXPECT_NE(error.find("step_00000001' is already there, and a checkpoint is never rewritten."), std::string::npos)
        << error;
  }
}

}  // namespace
}  // namespace espalier
