// The same training, whatever the layout: runs on forked ranks, compared with one process.
//
// ESPALIER_TEST_ALL=1 (scripts/test --all) takes every layout of at most 8 processes instead of the list.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/format.h"
#include "base/log.h"
#include "config/parity_request.h"
#include "dist/local_ranks.h"
#include "families/gpt/config.h"
#include "tests/e2e/run_fixture.h"
#include "tests/parallel/layout_list.h"
#include "train/parity.h"

namespace espalier::test {
namespace {

constexpr int64_t kSteps = 4;

Words recompute_flags(RecomputeChoice choice) {
  switch (choice) {
    case RecomputeChoice::kNone: return {};
    case RecomputeChoice::kUniform: return split_blanks("--checkpoint-activations --checkpoint-num-layers 2");
    case RecomputeChoice::kBlock:
      return split_blanks("--recompute-granularity full --recompute-method block --recompute-num-layers 1");
    case RecomputeChoice::kDistributed:
      return split_blanks("--checkpoint-activations --distribute-checkpointed-activations");
  }
  return {};
}

// A choice in one place of a layout, and a pair of them.
using Choice = std::pair<std::string, int64_t>;
using Pair = std::pair<Choice, Choice>;

struct Combination {
  plan::Layout layout;
  RecomputeChoice recompute = RecomputeChoice::kNone;

  std::vector<Choice> choices() const {
    const spec::GridShape& grid = layout.grid;
    return {{"tp", grid.tensor},        {"cp", grid.context},        {"pp", grid.pipeline},
            {"dp", grid.data},          {"vp", layout.num_chunks},   {"sp", layout.sequence_parallel},
            {"zb", layout.zero_bubble}, {"zero", layout.zero_stage}, {"recompute", static_cast<int64_t>(recompute)}};
  }
  // What can stand together; resolve() refuses the rest by name.
  bool is_legal() const {
    const spec::GridShape& grid = layout.grid;
    const bool stages = grid.pipeline > 1, chunks = layout.num_chunks > 1;
    const bool distributed = recompute == RecomputeChoice::kDistributed;
    if (grid.num_ranks() > 8 || (chunks && (!stages || layout.zero_bubble)) || (layout.zero_bubble && !stages))
      return false;
    if ((layout.zero_stage >= 2 && stages) || (layout.zero_stage > 0 && grid.data * grid.context == 1)) return false;
    if (grid.tensor == 1 && (layout.sequence_parallel || distributed)) return false;
    return !(layout.sequence_parallel && distributed);
  }
  void add_pairs(std::set<Pair>& pairs) const {
    const std::vector<Choice> all = choices();
    for (size_t a = 0; a < all.size(); ++a)
      for (size_t b = a + 1; b < all.size(); ++b) pairs.insert({all[a], all[b]});
  }
};

std::vector<Combination> all_combinations() {
  std::vector<Combination> all;
  for (const int64_t tp : {1, 2, 4})
    for (const int64_t cp : {1, 2})
      for (const int64_t pp : {1, 2, 4})
        for (const int64_t dp : {1, 2, 4})
          for (const int64_t vp : {1, 2})
            for (const bool sp : {false, true})
              for (const bool zb : {false, true})
                for (const int64_t zero : {0, 1, 2, 3})
                  for (const auto recompute : {RecomputeChoice::kNone, RecomputeChoice::kUniform,
                                               RecomputeChoice::kBlock, RecomputeChoice::kDistributed}) {
                    const Combination one{{{tp, cp, dp, pp}, vp, zero, sp, zb}, recompute};
                    if (one.is_legal()) all.push_back(one);
                  }
  return all;
}

std::vector<Combination> listed_combinations() {
  std::vector<Combination> all;
  for (const LayoutChoice& choice : kLayouts) all.push_back({plan::parse_layout(choice.layout), choice.recompute});
  return all;
}

class Layouts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    write_token_files(*folder_ / "data", 300, 11);
  }
  static void TearDownTestSuite() { delete folder_; }

  // Eight layers and heads; a vocabulary of which the last tensor ranks get fewer rows.
  static Words run_flags() {
    return tiny_run(*folder_ / "data") +
           split_blanks(
               "--num-layers 8 --hidden-size 32 --num-attention-heads 8 --seq-length 32 --max-position-embeddings 32"
               " --make-vocab-size-divisible-by 1 --pad-vocab-size-to 5003 --micro-batch-size 1"
               " --global-batch-size 16 --train-samples 64 --lr-decay-samples 64 --num-threads 1");
  }

  static train::ParityRun run(const Combination& one, const Words& more = {}) {
    const config::ParityRequest request{
        .family = &families::gpt_family(),
        .layouts = {},
        .num_steps = kSteps,
        .json = false,
        .arguments = run_flags() + more + recompute_flags(one.recompute) + Words{"--layouts", to_string(one.layout)}};
    config::RunConfig config;
    OptionTable table("espalier parity gpt", "");
    Problems problems;
    config::read_parity_layout(request, to_string(one.layout), config, table, problems);
    problems.raise();
    const auto texts = dist::run_ranks(one.layout.grid, [&](const dist::Grid& grid) {
      set_log_level(LogLevel::kQuiet);
      return train::to_text(train::run_for_parity(config, table, kSteps, grid));
    });
    return train::parity_run_from_text(texts[0]);
  }

  static TemporaryFolder* folder_;
};
TemporaryFolder* Layouts::folder_ = nullptr;

TEST(LayoutList, HoldsEveryPairOfChoicesThatCanStandTogether) {
  std::set<Pair> wanted, found;
  for (const Combination& one : all_combinations()) one.add_pairs(wanted);
  for (const Combination& one : listed_combinations()) {
    EXPECT_TRUE(one.is_legal()) << to_string(one.layout);
    one.add_pairs(found);
  }
  EXPECT_EQ(found, wanted);
  EXPECT_LE(kLayouts.size(), 20u);
}

void expect_same(const Combination& combination, const train::ParityRun& run, const train::ParityRun& one) {
  SCOPED_TRACE(to_string(combination.layout));
  const train::ParityComparison found = train::compare(run, one);
  std::printf("%-22s first loss %.1e, first norm %.1e, losses %.1e, weights' norm %.1e\n",
              to_string(combination.layout).c_str(), found.first_loss, found.first_norm, found.largest_loss,
              found.params_norm);
  EXPECT_TRUE(found.weights_equal) << "the first weights differ";
  EXPECT_TRUE(found.samples_equal);
  EXPECT_EQ(found.num_replica_differences, 0u);
  EXPECT_LE(found.first_loss, 1e-6);
  EXPECT_LE(found.first_norm, 1e-5);
  EXPECT_LE(found.largest_loss, 1e-5);
  EXPECT_LE(found.params_norm, 1e-6);
}

TEST_F(Layouts, TrainTheSameModelAsOneProcess) {
  const train::ParityRun one = run({});
  ASSERT_EQ(one.losses.size(), static_cast<size_t>(kSteps));
  const bool all = std::getenv("ESPALIER_TEST_ALL") != nullptr;
  for (const Combination& combination : all ? all_combinations() : listed_combinations())
    expect_same(combination, run(combination), one);
}

// Groups of two query heads, of which a rank has whole ones; norms of heads, whose gradients are parts on every tensor
// rank; gates beside what they gate; positions of the whole sequence where ranks hold a part of it.
TEST_F(Layouts, TrainTheSameLlamaAsOneProcess) {
  const Words llama = split_blanks(
      "--position-embedding-type rotary --normalization rmsnorm --swiglu --ffn-hidden-size 40 --disable-bias-linear "
      "--num-key-value-heads 4 --qk-layernorm --window-size 11 --untie-embeddings-and-output-weights --num-layers 4");
  const train::ParityRun one = run({}, llama);
  ASSERT_EQ(one.losses.size(), static_cast<size_t>(kSteps));
  for (const char* layout : {"tp2pp1dp1", "tp2pp1dp1sp", "tp1pp2dp1", "tp2cp2pp1dp1", "tp1pp1dp2zero1"}) {
    const Combination combination{plan::parse_layout(layout), RecomputeChoice::kNone};
    expect_same(combination, run(combination, llama), one);
  }
}

}  // namespace
}  // namespace espalier::test
