// A Retro in the layouts that it has: the training of one process, and the same bits after a stop.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/format.h"
#include "base/log.h"
#include "config/parity_request.h"
#include "dist/local_ranks.h"
#include "families/retro/config.h"
#include "retrieval/chunk_embeddings.h"
#include "retrieval/neighbors.h"
#include "tests/e2e/run_fixture.h"
#include "train/parity.h"

namespace espalier::test {
namespace parallel_retro_test {

constexpr int64_t kRetroSteps = 3, kChunk = 8, kChunks = 3;

class ParallelRetro : public ::testing::Test {
 protected:
  // In a process of its own: this one runs nothing with OpenMP before it forks.
  ParallelRetro() {
    write_token_files(folder_ / "data", 60, 11);
    dist::run_ranks({}, [&](const dist::Grid& grid) {
      const ParsedRun run(run_flags() + Words{"--retro-without-neighbors"}, grid, families::retro_family());
      const data::GptDataSets sets = data::GptDataSets::open(config::data_sets(run.config));
      find_neighbors_of(*sets.train);
      return std::string();
    });
  }

  void find_neighbors_of(const data::GptDataset& samples) const {
    retrieval::build_chunks({.folder = folder_ / "work",
                             .chunk_length = kChunk,
                             .end_of_document = 4999,
                             .parts = {{folder_ / "data", samples.parts()[0].documents}}});
    const retrieval::ChunkDatabase chunks(folder_ / "work");
    const retrieval::NgramEmbedder embedder(32);
    retrieval::ChunkEmbeddings source(chunks, embedder, 1);
    retrieval::build_index(source, {.folder = folder_ / "index"});
    const retrieval::QuerySource queries{.name = "ngrams", .read = [&](int64_t first, int64_t count, float* rows) {
                                           std::vector<int64_t> ids(static_cast<size_t>(samples.sequence_length()) + 1);
                                           for (int64_t query = 0; query < count * kChunks; ++query, rows += 32) {
                                             samples.sample(first + query / kChunks, ids);
                                             embedder.embed({ids.data() + query % kChunks * kChunk, kChunk}, rows);
                                           }
                                         }};
    retrieval::find_neighbors(
        {.folder = retrieval::neighbor_folder(folder_ / "work", "train", "train"), .num_saved = 2}, chunks,
        retrieval::read_index(folder_ / "index"), samples, queries);
  }

  Words run_flags() const {
    return tiny_run(folder_ / "data") +
           split_blanks(
               "--position-embedding-type absolute --num-layers 9 --hidden-size 32 --num-attention-heads 4 "
               "--seq-length 24 --max-position-embeddings 32 --micro-batch-size 1 --global-batch-size 4 "
               "--train-samples 12 --lr-decay-samples 12 --lr-warmup-samples 0 --num-threads 1 --split 100,0,0 "
               "--eval-iters 0 --retro-add-retriever --retro-chunk-length 8") +
           Words{"--retro-workdir", folder_ / "work"};
  }

  train::ParityRun parity_run(const std::string& name, const Words& more) const {
    const config::ParityRequest request{.family = &families::retro_family(),
                                        .layouts = {},
                                        .num_steps = kRetroSteps,
                                        .json = false,
                                        .arguments = run_flags() + more + Words{"--layouts", name}};
    config::RunConfig config;
    OptionTable table("espalier parity retro", "");
    Problems problems;
    const plan::Layout layout = config::read_parity_layout(request, name, config, table, problems);
    problems.raise();
    const auto texts = dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      set_log_level(LogLevel::kQuiet);
      return train::to_text(train::run_for_parity(config, table, kRetroSteps, grid));
    });
    return train::parity_run_from_text(texts[0]);
  }

  void expect_same_in(const Words& layouts, const Words& more) const {
    const train::ParityRun one = parity_run("tp1pp1dp1", more);
    ASSERT_EQ(one.losses.size(), static_cast<size_t>(kRetroSteps));
    for (const std::string& layout : layouts) {
      SCOPED_TRACE(layout);
      const train::ParityComparison found = train::compare(parity_run(layout, more), one);
      std::printf("%-16s first loss %.1e, first norm %.1e, losses %.1e, weights' norm %.1e\n", layout.c_str(),
                  found.first_loss, found.first_norm, found.largest_loss, found.params_norm);
      EXPECT_TRUE(found.weights_equal) << "the first weights differ";
      EXPECT_TRUE(found.samples_equal);
      EXPECT_EQ(found.num_replica_differences, 0u);
      EXPECT_LE(found.first_loss, 1e-6);
      EXPECT_LE(found.first_norm, 1e-5);
      EXPECT_LE(found.largest_loss, 1e-5);
      EXPECT_LE(found.params_norm, 1e-6);
    }
  }

  void run(const std::string& name, const std::string& save, const Words& more) const {
    const plan::Layout layout = plan::parse_layout(name);
    const Words words = run_flags() + split_blanks("--save-interval 1000 --log-level error") +
                        plan::layout_flags(layout, 9) + Words{"--save", folder_ / save} + more;
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid, families::retro_family());
      return std::string();
    });
  }

  TemporaryFolder folder_;
};

TEST_F(ParallelRetro, TrainsTheSameModelAsOneProcess) {
  expect_same_in({"tp2pp1dp1", "tp4pp1dp1", "tp1pp1dp2", "tp1pp1dp4zero1", "tp1pp1dp2zero2", "tp1pp1dp2zero3",
                  "tp2pp1dp2zero1", "tp2pp1dp2zero3"},
                 {});
}

TEST_F(ParallelRetro, StoppedAndResumedHasTheSameBits) {
  for (const std::string layout : {"tp1", "tp2", "dp2zero3"}) {
    run(layout, layout + "straight", {"--bf16"});
    run(layout, layout + "stopped", {"--bf16", "--exit-interval", "1"});
    run(layout, layout + "stopped", {"--bf16", "--load", folder_ / (layout + "stopped")});
    EXPECT_EQ(
        different_tensors(folder_ / (layout + "straight/step_00000003"), folder_ / (layout + "stopped/step_00000003")),
        Words());
  }
}

TEST_F(ParallelRetro, GoesOnFromAnyLayoutInAnyOther) {
  run("tp1", "one", {});
  run("tp2", "many", {"--exit-interval", "1"});
  run("dp2zero3", "many", {"--load", folder_ / "many", "--exit-interval", "2"});
  run("tp2dp2zero1", "many", {"--load", folder_ / "many"});
  const auto one = step_records(folder_ / "one"), many = step_records(folder_ / "many");
  ASSERT_EQ(one.size(), 3u);
  ASSERT_EQ(one.size(), many.size());
  for (size_t step = 0; step < one.size(); ++step)
    EXPECT_NEAR(many[step].at("lm_loss").get<double>() / one[step].at("lm_loss").get<double>(), 1, 1e-6)
        << "step " << step + 1;
}

}  // namespace parallel_retro_test
}  // namespace espalier::test
