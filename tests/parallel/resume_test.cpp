// Stopped and resumed runs of several ranks: the same layout to the bit, another layout within rounding.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/cpu_isa.h"
#include "base/file.h"
#include "base/format.h"
#include "dist/local_ranks.h"
#include "plan/layout.h"
#include "store/manifest.h"
#include "store/run_folder.h"
#include "tests/e2e/run_fixture.h"

namespace espalier::test {
namespace {

class ParallelResume : public ::testing::TestWithParam<const char*> {
 protected:
  ParallelResume() { write_token_files(folder_ / "data", 200, 3); }

  Words words_of(const plan::Layout& layout) const {
    return tiny_run(folder_ / "data") +
           split_blanks(
               "--num-layers 4 --num-attention-heads 4 --seq-length 32 --micro-batch-size 1"
               " --max-position-embeddings 32 --make-vocab-size-divisible-by 1 --pad-vocab-size-to"
               " 5001 --num-threads 1 --save-interval 1000 --eval-iters 0 --log-level error") +
           plan::layout_flags(layout, 4);
  }
  void run(const std::string& layout_text, const std::string& save, const Words& more,
           const dist::LocalRanksOptions& options = {}) const {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words = words_of(layout) + Words{"--save", folder_ / save} + more;
    const auto rank = [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    };
    dist::run_ranks(layout.grid, rank, options);
  }
  std::string step(const std::string& save, int number) const {
    return folder_ / (save + format_printf("/step_%08d", number));
  }

  TemporaryFolder folder_;
};

TEST_P(ParallelResume, InTheSameLayoutHasTheSameBits) {
  run(GetParam(), "straight", {"--bf16"});
  run(GetParam(), "stopped", {"--bf16", "--exit-interval", "5"});
  run(GetParam(), "stopped", {"--bf16", "--load", folder_ / "stopped"});
  EXPECT_EQ(different_tensors(step("straight", 10), step("stopped", 10)), Words());
}

INSTANTIATE_TEST_SUITE_P(, ParallelResume,
                         ::testing::Values("tp2dp2zero1", "tp2pp2sp", "pp2vp2dp2", "dp4zero2", "dp2zero3", "pp4zb"),
                         [](const auto& info) { return std::string(info.param); });

using Transport = ParallelResume;

// Each adds in an order of its own: what was in force is in the checkpoint.
TEST_F(Transport, AndInstructionSetAreInTheCheckpoint) {
  dist::LocalRanksOptions gloo;
  gloo.shared_memory = false;
  run("dp2", "run", {"--exit-interval", "2"});
  run("dp2", "run", {"--load", folder_ / "run", "--exit-interval", "4"}, gloo);
  run("tp1", "run", {"--load", folder_ / "run", "--exit-interval", "6"});
  const auto state = [&](int number) { return store::read_manifest(step("run", number)).state; };
  EXPECT_EQ(state(2).transport, "shared memory");
  EXPECT_EQ(state(4).transport, "Gloo");
  EXPECT_EQ(state(6).transport, "none");
  const std::string isa = cpu_isa_name(cpu_isa());
  EXPECT_EQ(state(2).instruction_set.find(isa + "; libtorch "), 0u) << state(2).instruction_set;
}

using AnotherLayout = ParallelResume;

TEST_F(AnotherLayout, GoesOnAsOneProcessWould) {
  run("tp1", "one", {});
  run("tp2pp2", "many", {"--exit-interval", "4"});
  run("dp4zero1", "many", {"--load", folder_ / "many", "--exit-interval", "8"});
  run("tp4sp", "many", {"--load", folder_ / "many"});
  const auto one = step_records(folder_ / "one"), many = step_records(folder_ / "many");
  ASSERT_EQ(one.size(), many.size());
  for (size_t step = 0; step < one.size(); ++step) {
    const double wanted = one[step].at("lm_loss"), found = many[step].at("lm_loss");
    EXPECT_NEAR(found / wanted, 1, 1e-6) << "step " << step + 1;
    EXPECT_EQ(one[step].at("sample_hash"), many[step].at("sample_hash"));
  }
}

namespace fs = std::filesystem;

class OneRanksCopy : public ParallelResume {
 protected:
  // A run that has stopped after two steps, and a second copy of its folder, whose `damaged` has another last byte.
  void make_copies(const std::string& damaged) {
    write_sentence_files(folder_ / "data", 200, 3);  // ids that the tokenizer has
    const fs::path tokenizer = folder_ / "tokenizer";
    fs::create_directory(tokenizer);
    fs::copy("tests/data/tokenizers/gpt2/tokenizer.json", tokenizer);
    write_file_atomically(tokenizer / "tokenizer_config.json", "{}");
    tokenizer_ = {"--tokenizer-type", "PretrainedFromHF", "--tokenizer-name-or-path", tokenizer};
    run("dp2", "whole/run", tokenizer_ + Words{"--exit-interval", "2"});
    fs::remove(tokenizer / "tokenizer_config.json");  // the checkpoint's goes into the next one
    fs::copy(folder_ / "whole", folder_ / "other", fs::copy_options::recursive);
    const fs::path file = fs::path(folder_ / "other/run/step_00000002") / damaged;
    std::string content = read_file(file);
    content.back() ^= 1;
    write_file_atomically(file, content);
  }
  // What each of two ranks says, of which the second finds the other copy under the same name.
  Words load() const {
    const plan::Layout layout = plan::parse_layout("dp2");
    constexpr int kFolder = 400;  // of a number that each rank opens by itself
    const Words words = words_of(layout) + tokenizer_ + Words{"--load", concat("/proc/self/fd/", kFolder, "/run")};
    return dist::run_ranks(layout.grid, [&](const dist::Grid& grid) -> std::string {
      const int copy = ::open((folder_ / (grid.rank == 0 ? "whole" : "other")).c_str(), O_RDONLY | O_DIRECTORY);
      EXPECT_EQ(::dup2(copy, kFolder), kFolder);
      try {
        train(words, grid);
      } catch (const store::DamagedCheckpoint& damaged) {
        return damaged.what();
      } catch (const UserError& error) {
        return concat("another error: ", error.what());
      }
      return "no error";
    });
  }

  Words tokenizer_;
};

// What only one of them threw would leave the others waiting for it, and a restart could set nothing aside.
TEST_F(OneRanksCopy, OfTheManifestDamagedStopsAllWithItsReason) {
  make_copies("manifest.json");
  for (const std::string& said : load())
    EXPECT_EQ(said.substr(0, said.find(" the file says")),
              "/proc/self/fd/400/run/step_00000002/manifest.json: checksum:");
}

TEST_F(OneRanksCopy, OfAKeptFileDamagedStopsAllWithItsReason) {
  make_copies("tokenizer/tokenizer_config.json");
  for (const std::string& said : load())
    EXPECT_EQ(said.substr(0, said.find(" expected 2 bytes")),
              "/proc/self/fd/400/run/step_00000002/tokenizer/tokenizer_config.json:");
}

}  // namespace
}  // namespace espalier::test
