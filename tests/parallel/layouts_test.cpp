// The same training, whatever the layout: runs on forked ranks, compared with one process.
//
// ESPALIER_TEST_ALL=1 (scripts/test --all) takes every layout of at most 8 processes instead of the list.
#include <gtest/gtest.h>

#include <set>

#include "families/gpt/config.h"
#include "tests/parallel/layout_list.h"
#include "tests/parallel/parity_runs.h"
#include "tests/support/long_version.h"

namespace espalier::test {
namespace {

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
  // What can be together; resolve() refuses the rest by name.
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
    return parity_run(families::gpt_family(), run_flags() + more + recompute_flags(one.recompute),
                      to_string(one.layout));
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

TEST_F(Layouts, TrainTheSameModelAsOneProcess) {
  const train::ParityRun one = run({});
  ASSERT_EQ(one.losses.size(), static_cast<size_t>(kParitySteps));
  const bool all = long_version();
  for (const Combination& combination : all ? all_combinations() : listed_combinations())
    expect_same_training(to_string(combination.layout), run(combination), one);
}

// Groups of two query heads, of which a rank has whole ones; norms of heads, whose gradients are parts on every tensor
// rank; gates beside what they gate; positions of the whole sequence where ranks hold a part of it.
TEST_F(Layouts, TrainTheSameLlamaAsOneProcess) {
  const Words llama = split_blanks(
      "--position-embedding-type rotary --normalization rmsnorm --swiglu --ffn-hidden-size 40 --disable-bias-linear "
      "--num-key-value-heads 4 --qk-layernorm --window-size 11 --untie-embeddings-and-output-weights --num-layers 4");
  const train::ParityRun one = run({}, llama);
  ASSERT_EQ(one.losses.size(), static_cast<size_t>(kParitySteps));
  for (const char* layout : {"tp2pp1dp1", "tp2pp1dp1sp", "tp1pp2dp1", "tp2cp2pp1dp1", "tp1pp1dp2zero1"}) {
    const Combination combination{plan::parse_layout(layout), RecomputeChoice::kNone};
    expect_same_training(layout, run(combination, llama), one);
  }
}

}  // namespace
}  // namespace espalier::test
