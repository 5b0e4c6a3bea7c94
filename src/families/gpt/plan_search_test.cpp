#include "plan/time/search.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/memory.h"
#include "plan/run_plan.h"
#include "tests/support/gpt_options.h"

namespace espalier::plan {
namespace {

constexpr int64_t kDevices = 8, kBatch = 48, kLayers = 12;

const std::string kSearched =
    "--num-layers 12 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --lr 1e-3 "
    "--train-iters 10 --global-batch-size 48 --bf16 --pad-vocab-size-to 512 --position-embedding-type alibi "
    "--zero-stage 1 ";

// The run, if its flags are legal.
std::optional<RunShape> run_of(const SearchPoint& point, std::string& why_not) {
  test::Parsed parsed(concat(kSearched, "--tensor-model-parallel-size ", point.tensor,
                             " --pipeline-model-parallel-size ", point.pipeline, " --micro-batch-size ",
                             point.micro_batch_size, point.tensor > 1 ? " --sequence-parallel" : ""),
                      kDevices);
  if (!parsed.messages().empty()) {
    why_not = parsed.messages().front();
    return std::nullopt;
  }
  config::set_vocabulary(parsed.config, 512);
  return config::run_shape(parsed.config);
}

SearchSpace space_of(double memory) {
  return {.num_devices = kDevices,
          .num_layers = kLayers,
          .global_batch_size = kBatch,
          .memory_bytes = memory,
          .make_run = run_of};
}

double whole_peak(const RunShape& run) {
  return plan_memory(run, make_partition(run), default_products(run.precision)).largest().peak();
}

// Every legal combination, each timed whole, by loops of the test's own.
struct Tried {
  double seconds = 0, peak = 0;
};
std::vector<Tried> all_by_hand(const Machine& machine) {
  std::vector<Tried> all;
  const auto add = [&](RunShape run, int64_t chunks, ScheduleKind schedule) {
    run.num_chunks = chunks;
    run.schedule = schedule;
    for (const Recompute& recompute : {Recompute{}, Recompute{.kind = Recompute::Kind::kUniform, .num_layers = 1}}) {
      run.recompute = recompute;
      all.push_back({StepClock(run, machine).at().seconds, whole_peak(run)});
    }
  };
  for (const int64_t tensor : {1, 2, 4, 8})
    for (const int64_t pipeline : {1, 2, 4, 8})
      for (const int64_t micro : {1, 2, 4, 8, 16}) {
        if (tensor * pipeline > kDevices || kBatch % (micro * (kDevices / tensor / pipeline)) != 0) continue;
        std::string why_not;
        const auto run = run_of({.tensor = tensor, .pipeline = pipeline, .micro_batch_size = micro}, why_not);
        if (!run) continue;
        add(*run, 1, ScheduleKind::k1F1B);
        if (pipeline > 1) add(*run, 1, ScheduleKind::kZeroBubble);
        for (const int64_t chunks : {2, 3, 4, 6, 8})
          if (pipeline > 1 && kLayers % (pipeline * chunks) == 0 && run->num_micro_batches() % pipeline == 0)
            add(*run, chunks, ScheduleKind::kInterleaved);
      }
  return all;
}

TEST(Search, FindsTheFastestOfAllThatFit) {
  const Machine machine = find_machine("a100-80gb");
  const std::vector<Tried> all = all_by_hand(machine);
  ASSERT_GT(all.size(), 50U);
  std::vector<double> peaks;
  for (const Tried& tried : all) peaks.push_back(tried.peak);
  std::sort(peaks.begin(), peaks.end());
  for (const double memory : {1e12, peaks[peaks.size() / 2], peaks[3]}) {
    double fastest = 1e30;
    for (const Tried& tried : all)
      if (tried.peak <= memory) fastest = std::min(fastest, tried.seconds);
    const SearchResult result = search_layouts(space_of(memory), machine, 10);
    ASSERT_FALSE(result.best.empty());
    EXPECT_NEAR(result.best[0].step.seconds, fastest, 1e-9 * fastest) << memory;
    for (size_t at = 0; at < result.best.size(); ++at) {
      EXPECT_LE(result.best[at].peak_bytes, memory);
      if (at > 0) {
        EXPECT_LE(result.best[at - 1].step.seconds, result.best[at].step.seconds);
      }
    }
    int64_t lost = 0;
    for (const auto& [reason, loss] : result.losses) lost += loss.count;
    EXPECT_EQ(result.num_tried, result.num_fitting + lost) << "each is accounted for";
  }
}

TEST(Search, SaysWhyOthersFellOut) {
  const Machine machine = find_machine("a100-80gb");
  const SearchResult result = search_layouts(space_of(1e12), machine, 3);
  EXPECT_EQ(result.best.size(), 3U);
  // Tensor 8 of four heads; a batch of 48 over 8 replicas with micro-batches of 4 and more; 12 layers over 8 stages
  // twice; nothing has to be recomputed.
  EXPECT_NE(result.losses.at("options").detail.find("does not divide --num-attention-heads 4"), std::string::npos);
  EXPECT_EQ(result.losses.at("batch").detail, "the batch of 48 is not a multiple of 4 * 8 data-parallel ranks");
  EXPECT_FALSE(result.losses.contains("memory"));
  EXPECT_GE(result.losses.at("not needed").count, result.num_fitting);
  const SearchResult none = search_layouts(space_of(1), machine, 3);
  EXPECT_TRUE(none.best.empty());
  EXPECT_EQ(none.num_fitting, 0);
  EXPECT_GT(none.losses.at("memory").count, 0);
  const std::string text = search_text(none, space_of(1));
  for (const char* part : {"ways to use 8 devices of 1 ", ": 0 fit", "do not fit; nearest: tensor", "needs "})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

// A step of 96 micro-batches is timed by a straight line, and listed by its own clock.
TEST(Search, LongStepsAreRankedAsTheyAre) {
  const Machine machine = find_machine("a100-80gb");
  SearchSpace space = space_of(1e12);
  space.global_batch_size = 4800;
  space.make_run = [](const SearchPoint& point, std::string& why_not) {
    std::optional<RunShape> run = run_of(point, why_not);
    if (run) run->global_batch_size = 4800;
    return run;
  };
  const SearchResult result = search_layouts(space, machine, 200);
  ASSERT_GT(result.best.size(), 20U);
  for (const SearchChoice& choice : result.best) {
    std::string why_not;
    RunShape run = *run_of(choice.point, why_not);
    run.global_batch_size = 4800;
    run.schedule = choice.point.schedule;
    run.num_chunks = choice.point.num_chunks;
    EXPECT_DOUBLE_EQ(choice.step.seconds, StepClock(run, machine).at().seconds) << to_string(choice.point);
    EXPECT_NEAR(choice.peak_bytes / whole_peak(run), 1, 1e-9) << to_string(choice.point);
  }
}

}  // namespace
}  // namespace espalier::plan
