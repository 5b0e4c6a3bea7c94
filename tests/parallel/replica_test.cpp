// Replica checks of a real training: what was changed on one rank is found, named and repaired; nothing else is.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <chrono>
#include <thread>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "dist/local_ranks.h"
#include "families/bert/config.h"
#include "families/t5/config.h"
#include "plan/layout.h"
#include "store/step_reader.h"
#include "tests/e2e/run_fixture.h"
#include "tests/support/flipped_bit.h"
#include "train/replica_check.h"

namespace espalier::test {
namespace {

constexpr int64_t kNumSteps = 6, kDamagedStep = 5;  // after the first three, which are always checked

// Turns over the lowest bit of an element in the middle.
void flip_bit(const at::Tensor& values) {
  const int64_t element = values.numel() / 2;
  static_cast<uint8_t*>(values.mutable_data_ptr())[element * values.element_size()] ^= 1;
}

void flip_bit_of(train::Job& job, const std::string& name) {
  for (const dist::Copy& copy : train::replicated_state(job))
    if (copy.name == name) return flip_bit(copy.values);
  throw std::runtime_error("this rank holds no " + name);
}

using Damage = std::function<void(train::Job&)>;

Damage bit_of(const std::string& name) {
  return [name](train::Job& job) { flip_bit_of(job, name); };
}

struct Case {
  std::string layout;
  int64_t rank;
  Damage damage;
  std::string expected;  // of the alert
  std::string flags = "";
  const config::Family* family = &families::gpt_family();
  std::string gradient = "";  // of this parameter, a bit of which turns over after the sum
};

std::vector<Case> cases() {
  const Damage one_more_step = [](train::Job& job) { job.optimizer().set_num_steps(job.optimizer().num_steps() + 1); };
  const Damage later_rate = [](train::Job& job) {
    plan::LrState state = job.state().lr.state();
    state.num_samples = 80;  // the end of the decay
    job.state().lr.restore(state);
  };
  const Damage one_more_sample = [](train::Job& job) { ++job.trainer().position().consumed_samples; };
  return {
      {"dp2", 1, bit_of("layers.1.mlp.dense_h_to_4h.weight"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): layers.1.mlp.dense_h_to_4h.weight"},
      {"dp4", 0, bit_of("layers.1.mlp.dense_h_to_4h.bias"),
       "rank 0 does not hold what ranks 1, 2, 3 hold (majority): layers.1.mlp.dense_h_to_4h.bias"},
      {"dp2", 1, bit_of("word_embeddings.weight.exp_avg_sq"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): word_embeddings.weight.exp_avg_sq"},
      {"dp2", 1, bit_of("final_layernorm.weight.master"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): final_layernorm.weight.master", "--bf16"},
      {"tp2", 1, bit_of("layers.0.input_layernorm.weight"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): layers.0.input_layernorm.weight"},
      {"tp2dp2", 0, bit_of("layers.0.mlp.dense_4h_to_h.bias"),
       "rank 0 does not hold what ranks 1, 2, 3 hold (majority): layers.0.mlp.dense_4h_to_h.bias"},
      {"tp2sp", 1, bit_of("layers.1.post_attention_layernorm.bias.exp_avg"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): "
       "layers.1.post_attention_layernorm.bias.exp_avg"},
      {"pp2", 1, bit_of("word_embeddings.weight"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): word_embeddings.weight"},
      {"cp2", 1, bit_of("layers.0.self_attention.query_key_value.weight"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): "
       "layers.0.self_attention.query_key_value.weight"},
      {"tp2dp2zero1", 2, bit_of("layers.0.mlp.dense_h_to_4h.weight"),
       "rank 2 does not hold what rank 0 holds (no majority, rank 0 counts): layers.0.mlp.dense_h_to_4h.weight"},
      {"tp2", 1, later_rate,
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): scheduler_samples (80, not 40), "
       "learning_rate (1e-04, not "},
      {"pp2", 1, one_more_step,
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): optimizer_steps (6, not 5)"},
      {"dp4", 2, one_more_sample,
       "rank 2 does not hold what ranks 0, 1, 3 hold (majority): consumed_train_samples (41, not 40)"},
  };
}

// What only other families have, and what they share over stages.
std::vector<Case> cases_of_other_families() {
  const auto* const bert = &families::bert_family();
  const auto* const t5 = &families::t5_family();
  return {
      {"tp2", 1, bit_of("pooler.dense.weight"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): pooler.dense.weight", "", bert},
      {"dp2zero1", 1, bit_of("lm_head.bias"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): lm_head.bias", "", bert},
      {"pp2", 1, bit_of("word_embeddings.weight.exp_avg"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): word_embeddings.weight.exp_avg", "", bert},
      {"dp2", 1, bit_of("decoder.layers.1.inter_attention.key_value.weight"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): "
       "decoder.layers.1.inter_attention.key_value.weight",
       "", t5},
      {"tp2sp", 1, bit_of("decoder.layers.0.post_inter_attention_layernorm.weight.exp_avg"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): "
       "decoder.layers.0.post_inter_attention_layernorm.weight.exp_avg",
       "", t5},
      {"tp2", 1, bit_of("encoder.final_layernorm.bias"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): encoder.final_layernorm.bias", "", t5},
      // Encoder, decoder, output: words are on all three stages, positions on two.
      {"pp3", 1, bit_of("word_embeddings.weight"),
       "rank 1 does not hold what ranks 0, 2 hold (majority): word_embeddings.weight", "", t5},
      {"pp3", 1, bit_of("position_embeddings.weight"),
       "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): position_embeddings.weight", "", t5},
  };
}

class Replicas : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    write_token_files(*folder_ / "data", 200, 11);
    write_sentence_files(*folder_ / "sentences", 200, 11);
  }
  static void TearDownTestSuite() { delete folder_; }

  static Words flags(const config::Family& family, const plan::Layout& layout, const std::string& save,
                     const std::string& more) {
    const std::string name = family.name, sentences = *folder_ / "sentences";
    const Words run = name == "gpt" ? tiny_run(*folder_ / "data")
                      : name == "bert"
                          ? tiny_bert_run(sentences)
                          : tiny_t5_run(sentences) + split_blanks("--encoder-seq-length 32 --decoder-seq-length 16");
    return run +
           split_blanks(
               "--hidden-size 48 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32"
               " --make-vocab-size-divisible-by 8 --train-samples 80 --num-threads 1 --eval-iters 0") +
           plan::layout_flags(layout, 2) + Words{"--save", save, "--save-interval", "1000"} + split_blanks(more);
  }

  // Trains kNumSteps steps and saves. What each rank throws, by rank; empty where it throws nothing.
  static Words run(const std::string& save, const Case& what, const std::string& more) {
    const plan::Layout layout = plan::parse_layout(what.layout);
    const Words words = flags(*what.family, layout, save, concat(what.flags, " ", more));
    dist::Grid shape;
    shape.shape = layout.grid;
    const auto rank = [&](const dist::Grid& grid) -> std::string {
      set_log_level(LogLevel::kQuiet);
      const ParsedRun run(words, grid, *what.family);
      train::Job job(run.config, run.table, grid);
      report::RunLog log(job.config().logging, job.config().checkpoint.save, run.table, grid.shape.num_ranks(), 0,
                         grid.rank == 0);
      train::ReplicaCheck check(job, log);
      try {
        for (int64_t step = 1; step <= kNumSteps; ++step) {
          std::optional<FlippedBit> flip;
          if (step == kDamagedStep && !what.gradient.empty() && grid.rank == what.rank)
            flip.emplace(what.gradient, tensor::Pass::kGradient, 1, 20);
          const report::StepReport report = job.trainer().step();
          if (step == kDamagedStep && what.damage && grid.rank == what.rank) what.damage(job);
          check.after_step(report);
        }
        check.before_save();
      } catch (const UserError& error) {
        return error.what();
      }
      job.save();
      for (; job.is_saving(); job.check_saving()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return "";
    };
    return dist::run_ranks(layout.grid, rank,
                           {.shared_stages = config::shared_stages(ParsedRun(words, shape, *what.family).config)});
  }

  // Every rank throws, an alert says what, and nothing is saved.
  static void expect_stopped(const Case& what, const std::string& save) {
    SCOPED_TRACE(concat(what.layout, ": ", what.expected));
    for (const std::string& error : run(save, what, "--check-replicas 5")) {
      EXPECT_NE(error.find("found after step 5"), std::string::npos) << error;
      EXPECT_NE(error.find(what.expected), std::string::npos) << error;
    }
    const Words found = alerts(save);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].find("step 5: replica check: " + what.expected), 0u) << found[0];
    EXPECT_NE(found[0].find("; the run stops"), std::string::npos) << found[0];
    EXPECT_FALSE(has_checkpoint(save));
  }

  static Words alerts(const std::string& save) {
    Words details;
    std::ifstream file(save + "/events.jsonl");
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json event = nlohmann::json::parse(line);
      if (event.at("event") == "alert")
        details.push_back(concat("step ", event.at("step"), ": ", std::string(event.at("detail"))));
    }
    return details;
  }

  static bool has_checkpoint(const std::string& save) { return std::filesystem::exists(step_folder(save)); }
  static std::string step_folder(const std::string& save) { return save + "/step_00000006"; }

  static std::vector<int64_t> numbers_of(const std::string& save) {
    const store::StepReader step(step_folder(save));
    const store::TrainingState& state = step.manifest().state;
    return {state.step, state.consumed_train_samples, state.scheduler_samples, state.optimizer_steps};
  }

  static TemporaryFolder* folder_;
};
TemporaryFolder* Replicas::folder_ = nullptr;

TEST_F(Replicas, DamageStopsAllRanksUnsaved) {
  int number = 0;
  for (const Case& what : cases()) expect_stopped(what, *folder_ / concat("stop", ++number));
}

TEST_F(Replicas, DamageOfOtherFamiliesStopsAllRanksUnsaved) {
  int number = 0;
  for (const Case& what : cases_of_other_families()) expect_stopped(what, *folder_ / concat("other", ++number));
}

// Before the sum it would be in all replicas alike, where only a replay finds it (tests/e2e/bit_flip_test.cpp).
TEST_F(Replicas, ABitOfAGradientAfterTheSumStopsAllRanksUnsaved) {
  Case what = {"dp2", 1, {}, "rank 1 does not hold what rank 0 holds (no majority, rank 0 counts): "};
  what.gradient = "layers.1.mlp.dense_h_to_4h.weight";
  expect_stopped(what, *folder_ / "gradient2");
  what.layout = "dp4", what.expected = "rank 1 does not hold what ranks 0, 2, 3 hold (majority): ";
  expect_stopped(what, *folder_ / "gradient4");
}

TEST_F(Replicas, RepairedRunEndsWithTheBitsOfAnUndisturbedOne) {
  int number = 0;
  std::map<std::string, std::string> undisturbed;
  std::vector<Case> all = cases();
  for (const Case& what : cases_of_other_families()) all.push_back(what);
  for (const Case& what : all) {
    SCOPED_TRACE(concat(what.layout, ": ", what.expected));
    std::string& reference = undisturbed[concat(what.family->name, what.layout, what.flags)];
    if (reference.empty()) {
      reference = *folder_ / concat("undisturbed", number);
      Case healthy = what;
      healthy.damage = {};
      run(reference, healthy, "");
      EXPECT_TRUE(alerts(reference).empty());
    }
    const std::string save = *folder_ / concat("repair", ++number);
    for (const std::string& error : run(save, what, "--check-replicas 5 --check-replicas-policy repair"))
      EXPECT_EQ(error, "");
    const Words found = alerts(save);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].find("step 5: replica check: " + what.expected), 0u) << found[0];
    EXPECT_NE(found[0].find("; repaired"), std::string::npos) << found[0];
    EXPECT_EQ(different_tensors(step_folder(reference), step_folder(save)), Words{});
    EXPECT_EQ(numbers_of(save), numbers_of(reference));
  }
}

// The default checks no step after the third, but what is saved.
TEST_F(Replicas, DamageIsFoundBeforeASave) {
  const Case what = cases()[0];
  const std::string save = *folder_ / "before_save";
  for (const std::string& error : run(save, what, "")) {
    EXPECT_NE(error.find("found after step 6"), std::string::npos) << error;
    EXPECT_NE(error.find(what.expected), std::string::npos) << error;
  }
  EXPECT_FALSE(has_checkpoint(save));
}

TEST_F(Replicas, HealthyRunRaisesNoAlert) {
  for (const std::string layout_text :
       {"tp2", "dp2", "pp2", "cp2", "tp2sp", "dp2zero1", "tp2dp2zero1", "dp2zero2", "dp2zero3", "tp2pp2dp2", "pp2zb"}) {
    SCOPED_TRACE(layout_text);
    const plan::Layout layout = plan::parse_layout(layout_text);
    // Under ZeRO in bf16, where masters and rounded weights are divided differently; else in fp32.
    const std::string precision = layout.zero_stage > 0 ? "--bf16" : "";
    const std::string save = *folder_ / ("healthy_" + layout_text);
    const Words words = flags(families::gpt_family(), layout, save,
                              concat("--check-replicas 1 --check-replicas-policy repair ", precision));
    dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
      train(words, grid);
      return std::string();
    });
    EXPECT_EQ(alerts(save), Words{});
    EXPECT_EQ(step_records(save).size(), 10u);
  }
}

}  // namespace
}  // namespace espalier::test
