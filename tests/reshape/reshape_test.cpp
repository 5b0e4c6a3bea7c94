// Any checkpoint loads in any layout, to the bit: every ordered pair of thirteen layouts, read in one process; six
// pairs read by as many processes as the layout has; and saves that go wrong on one rank of eight.
//
// The parent process runs nothing with libtorch: the ranks are its forked children.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ATen/ATen.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "ckpt/loader.h"
#include "ckpt/writer.h"
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
    std::string name = info->name();
    std::replace(name.begin(), name.end(), '/', '_');
    folder_ = fs::temp_directory_path() / concat("espalier_reshape_", ::getpid(), "_", name);
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

// Loads with all ranks together and compares every element. Returns the bytes that this rank read.
int64_t load_together(const fs::path& step, const Layout& layout, const dist::Group& world) {
  LoadedCheckpoint checkpoint(step);
  const auto requests = test::requests_of(layout, world.rank());
  checkpoint.load_together(requests, LoadedCheckpoint::Part::kAll, world);
  test::Seen seen;
  test::check_loaded(requests, seen);
  return checkpoint.bytes_read();
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

// What a checkpoint of `from` gives in every layout, in one process: the loader is a function of layout and rank.
std::string check_loads(const fs::path& step, const Layout& from) {
  if (const auto problems = store::verify_step(step, 1, false); !problems.empty())
    throw std::runtime_error(problems[0]);
  LoadedCheckpoint checkpoint(step);
  if (checkpoint.manifest().state.layout != plan::to_string(from))
    throw std::runtime_error(checkpoint.manifest().state.layout);
  const int64_t checkpoint_bytes = checkpoint.manifest().tensor_bytes();
  for (const std::string& to : test::all_layouts()) {
    try {
      const int64_t bytes = load_and_check(checkpoint, plan::parse_layout(to));
      // One process reads every byte once.
      if (to == "tp1pp1dp1" && bytes != checkpoint_bytes) throw std::runtime_error(concat(bytes, " bytes read"));
    } catch (const std::exception& error) {
      throw std::runtime_error(concat("to ", to, ": ", error.what()));
    }
  }
  return std::to_string(checkpoint_bytes);
}

// Blocks of 100 bytes are cut across rows, shards and exchanges; the long ones hold whole tensors.
TEST_F(Reshape, EveryPairOfLayoutsGivesTheSameBits) {
  const std::vector<std::string>& layouts = test::all_layouts();
  ASSERT_EQ(layouts.size(), 13u);
  dist::LocalRanksOptions options;
  options.timeout_seconds = 300;  // a second on a machine that is free, minutes on a busy one
  std::set<std::string> sizes;
  for (size_t from = 0; from < layouts.size(); ++from) {
    SCOPED_TRACE("from " + layouts[from]);
    const Layout layout = plan::parse_layout(layouts[from]);
    const fs::path run = folder_ / layouts[from];
    const auto save_all = [&](const dist::Grid& grid) {
      save(run, layout, grid.world, from % 2 == 0 ? 100 : store::kBlockBytes);
      return std::string();
    };
    dist::run_ranks(layout.grid, save_all, options);
    const fs::path step = store::find_checkpoint(run, {}, "")->folder;
    sizes.insert(dist::run_ranks(
        {}, [&](const dist::Grid&) { return check_loads(step, layout); }, options)[0]);
    // Once together: into the next layout of the list.
    const Layout next = plan::parse_layout(layouts[(from + 1) % layouts.size()]);
    const auto load_all = [&](const dist::Grid& grid) { return std::to_string(load_together(step, next, grid.world)); };
    dist::run_ranks(next.grid, load_all, options);
  }
  EXPECT_EQ(sizes.size(), 1u) << "checkpoints of different sizes";
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
  const fs::path step = folder_ / "step_00000001";
  EXPECT_EQ(store::verify_step(step, 2, false), std::vector<std::string>{});
  const auto bytes_read = dist::run_ranks(
      to.grid, [&](const dist::Grid& grid) { return std::to_string(load_together(step, to, grid.world)); });
  // Together they read every byte once, in nearly equal shares.
  int64_t total = 0, most = 0, least = std::numeric_limits<int64_t>::max();
  for (const std::string& text : bytes_read) {
    const int64_t bytes = std::stoll(text);
    total += bytes, most = std::max(most, bytes), least = std::min(least, bytes);
  }
  EXPECT_EQ(total, store::read_manifest(step).tensor_bytes());
  EXPECT_LE(most - least, 2 * 1000);
}

INSTANTIATE_TEST_SUITE_P(SixPairs, RealRanks,
                         testing::Values(Pair{"tp2pp2dp2zero1", "dp3zero1"}, Pair{"dp3zero1", "pp2dp2"},
                                         Pair{"pp4", "tp4"}, Pair{"pp2vp2", "tp1pp1dp1"}, Pair{"tp8", "dp5zero3"},
                                         Pair{"dp8zero2", "tp2pp2vp2dp2zero1"}));

// Saves step after step; after the first, one rank kills itself at a random moment of the next saves.
[[noreturn]] void save_until_killed(CheckpointWriter& writer, const Layout& layout, int64_t rank, int64_t first,
                                    std::optional<double> saves_to_live) {
  const auto state = test::state_of(layout, rank);
  const auto start = std::chrono::steady_clock::now();
  writer.save(manifest_of(layout, first), state);
  writer.wait();
  const std::chrono::duration<double> save_time = std::chrono::steady_clock::now() - start;
  std::thread killer;
  if (saves_to_live)
    killer = std::thread([&] {
      std::this_thread::sleep_for(save_time * *saves_to_live);
      std::raise(SIGKILL);
    });
  for (int64_t step = first + 1;; ++step) writer.save(manifest_of(layout, step), state);
}

// What was complete for one is complete for all.
TEST_F(Reshape, ARankKilledWhileEightSaveLeavesOneNewestCompleteStep) {
  const Layout layout = plan::parse_layout("tp2pp2dp2zero1");
  std::mt19937 random(5);
  int64_t newest = 0;
  for (int round = 0; round < 4; ++round) {
    const auto victim = static_cast<int64_t>(random() % 8);
    const double saves_to_live = 2.0 * static_cast<double>(random()) / static_cast<double>(random.max());
    const auto save_for_ever = [&](const dist::Grid& grid) -> std::string {
      CheckpointWriter writer(folder_, {}, grid.world, 500);
      save_until_killed(writer, layout, grid.rank, newest + 1,
                        grid.rank == victim ? std::optional(saves_to_live) : std::nullopt);
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
  ASSERT_GE(newest, 4);
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

TEST_F(Reshape, WhatOneRankCannotReadStopsAllWithItsReason) {
  const Layout layout = plan::parse_layout("tp2pp2dp2zero1");
  dist::run_ranks({}, [&](const dist::Grid& grid) {
    save(folder_, plan::parse_layout("tp1pp1dp1"), grid.world, 1000);
    return std::string();
  });
  const auto load = [&](const std::string& more) {
    return dist::run_ranks(layout.grid, [&](const dist::Grid& grid) -> std::string {
      LoadedCheckpoint checkpoint(folder_ / "step_00000001");
      auto requests = test::requests_of(layout, grid.rank);
      if (!more.empty() && grid.rank == 2) requests.push_back({more, at::zeros({1})});
      try {
        checkpoint.load_together(requests, LoadedCheckpoint::Part::kAll, grid.world);
      } catch (const UserError& error) {
        return error.what();
      }
      return "no error";
    });
  };
  for (const std::string& error : load("")) EXPECT_EQ(error, "no error");
  for (const std::string& error : load("a tensor of rank 2"))
    EXPECT_EQ(error, "checkpoint step_00000001 has no 'a tensor of rank 2'");

  const fs::path file = folder_ / "step_00000001" / store::optimizer_file("00002");
  std::string content = read_file(file);
  content.back() ^= 1;
  std::ofstream(file, std::ios::binary) << content;
  for (const std::string& error : load(""))
    EXPECT_EQ(error.substr(0, error.find(" (bytes")),
              file.string() + ": tensor 'layers.2.mlp.dense_4h_to_h.bias.exp_avg_sq', block 1 of 1");
  fs::remove(file);
  for (const std::string& error : load(""))
    EXPECT_EQ(error, file.string() + ": expected by manifest.json, cannot be opened: No such file or directory.");
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
    EXPECT_NE(error.find("step_00000001' already exists, and a checkpoint is never rewritten."), std::string::npos)
        << error;
  }
}

}  // namespace
}  // namespace espalier
