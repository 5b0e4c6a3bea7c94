// `espalier replay`: a step again, to the bit, and what differs where something was changed on purpose.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "tests/support/command.h"

namespace espalier {
namespace replay_command_test {

using Json = nlohmann::json;

class ReplayCommand : public Command {
 protected:
  std::string data(const std::string& name) const { return root() + "/tests/data/" + name; }
  std::string train(const std::string& more) const {
    return concat(
        "train gpt --num-layers 2 --hidden-size 24 --num-attention-heads 3 --seq-length 33 "
        "--max-position-embeddings 33 --micro-batch-size 2 --global-batch-size 8 --train-samples 64 --lr 3e-3 "
        "--lr-decay-style constant --split 90,10,0 --eval-iters 1 --eval-interval 3 --num-threads 1 --seed 7 --save "
        "run "
        "--save-interval 4 --attention-dropout 0.1 --hidden-dropout 0.1 --log-level error --data-path ",
        data("owt-20_text_document"), " --vocab-file ", data("gpt2-tiny/vocab.json"), " --merge-file ",
        data("gpt2-tiny/merges.txt"), " ", more, "; ");
  }
  Json replay(const std::string& words) const {
    const Outcome outcome = bash("espalier replay --load run --json " + words);
    EXPECT_FALSE(outcome.output.empty()) << outcome.errors;
    return outcome.output.empty() ? Json() : Json::parse(outcome.output);
  }
};

TEST_F(ReplayCommand, RepeatsStepsToTheBitAndNamesTheFirstOperationThatDiffers) {
  ASSERT_EQ(
      bash("espalier launch --nproc-per-node 2 " + train("--skip-train-iteration-range 2-2 --zero-stage 1")).exit_code,
      0);
  const Json first = replay("--step 4");  // from the initialization, over a step that was skipped
  EXPECT_EQ(first["equal"], true) << first;
  EXPECT_EQ(first["from"], nullptr);
  EXPECT_EQ(first["layout"], "tp1pp1dp2");
  EXPECT_EQ(first["steps_compared"], 3);
  EXPECT_EQ(first["tensors_compared"], true);
  const Json second = replay("--step 6 --record six.rec");
  EXPECT_EQ(second["equal"], true) << second;
  EXPECT_EQ(second["from"], 4);
  EXPECT_EQ(second["steps_compared"], 2);
  const Json again = replay("--step 6 --compare six.rec");
  EXPECT_EQ(again["equal"], true) << again;
  EXPECT_GT(again["recording"]["compared"], 200);
  EXPECT_EQ(again["recording"]["equal"], again["recording"]["compared"]);

  // The first operation that the attention's dropout has a part in, of the first step from the checkpoint on.
  replay("--step 5 --record five.rec");
  const Json other = replay("--step 5 --compare five.rec -- --attention-dropout 0.2 --override attention_dropout");
  EXPECT_EQ(other["equal"], false);
  const Json& found = other["recording"]["first_different"]["here"];
  EXPECT_EQ(found["operation"], "layers.0.self_attention.attention") << found;
  EXPECT_EQ(found["pass"], "forward");
  EXPECT_EQ(found["first_sample"], 32);
  const Outcome text = bash(
      "espalier replay --load run --step 8 -- --attention-dropout 0.2 --override attention_dropout 2>log; echo $?");
  EXPECT_NE(text.output.find("are not those of run/step_00000008"), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("step 5: lm_loss "), std::string::npos) << text.output;
  EXPECT_NE(text.output.find("the first step that differs is 5"), std::string::npos) << text.output;
  EXPECT_TRUE(text.output.ends_with("\n1\n")) << text.output;
}

TEST_F(ReplayCommand, RepeatsInOtherLayoutsAboutTheSame) {
  ASSERT_EQ(bash("espalier " + train("--recompute-granularity full --recompute-method uniform")).exit_code, 0);
  const Json own = replay("--step 6 --record one.rec");
  EXPECT_EQ(own["equal"], true) << own;
  EXPECT_NE(read_file(folder_ / "work/one.rec").find("\"recomputed\""), std::string::npos);
  for (const std::string layout : {"pp2", "dp2zero1", "tp3sp"}) {
    const Json other = replay(concat("--step 6 --compare one.rec --layout ", layout));
    EXPECT_EQ(other["equal"], true) << layout << other;
    EXPECT_EQ(other["own_layout"], false);
    EXPECT_LT(other["distance"].get<double>(), 1e-5);
    EXPECT_GT(other["recording"]["compared"], 0) << layout;
  }
}

// Chunks, sequence parallelism and the like are the run's layout, not the other's.
TEST_F(ReplayCommand, AnotherLayoutKeepsNothingOfTheRuns) {
  ASSERT_EQ(
      bash("espalier launch --nproc-per-node 2 " +
           train("--num-layers 4 --bf16 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 "
                 "--use-distributed-optimizer"))
          .exit_code,
      0);
  const Json own = replay("--step 8");
  EXPECT_EQ(own["equal"], true) << own;
  for (const std::string layout : {"tp1", "dp2"}) {
    const Json other = replay("--step 5 --layout " + layout);
    EXPECT_EQ(other["layout"].get<std::string>().find(layout == "tp1" ? "tp1pp1dp1" : "tp1pp1dp2"), 0u) << other;
    EXPECT_LT(other["distance"].get<double>(), 1e-2) << other;
  }
}

// A learning rate that makes the second step overflow: no checkpoint of it, no finite loss.
TEST_F(ReplayCommand, NamesTheFirstValueThatIsNotFiniteWithItsDocuments) {
  const Outcome trained = bash("espalier " + train("--lr 1e30 --save-interval 1"));
  ASSERT_EQ(trained.exit_code, 17) << trained.errors;
  const Outcome text = bash("espalier replay --load run --step 2 2>log; espalier data who --run run --step 2");
  const size_t begin =
      text.output.find("first value that is not finite: forward pass of samples 8 to 9 (micro-batch 0, ");
  ASSERT_NE(begin, std::string::npos) << text.output;
  const Json found = replay("--step 2")["not_finite"];
  const int64_t row = found["what"]["first_not_finite"].get<int64_t>() / found["what"]["shape"][2].get<int64_t>() % 2;
  const Json who =
      Json::parse(bash(concat("espalier data who --run run --step 2 --json | sed -n ", row + 1, "p")).output);
  ASSERT_EQ(found["documents"].size(), who["pieces"].size()) << found;
  for (size_t piece = 0; piece < who["pieces"].size(); ++piece)
    EXPECT_TRUE(found["documents"][piece].get<std::string>().starts_with(
        concat("document ", who["pieces"][piece]["document"].get<int64_t>(), " of ")))
        << found;
}

TEST_F(ReplayCommand, SaysWhatCannotBeRepeated) {
  ASSERT_EQ(bash("espalier " + train("")).exit_code, 0);
  const Outcome outcome = bash(
      "espalier replay --load nowhere --step 1; echo $?; espalier replay --load run --step 9; echo $?; "
      "espalier replay --load run --step 0; echo $?; echo x >bad; "
      "espalier replay --load run --step 5 --compare bad; echo $?; "
      "espalier replay --load run --step 5 --record bad; echo $?; cmp bad <(echo x); espalier replay --load run --step "
      "5 --layout tp5; "
      "echo $?; sed -i 's/\"lm_loss\":8/\"lm_loss\":9/' run/metrics.jsonl; espalier replay --load run --step 5; echo "
      "$?");
  EXPECT_TRUE(outcome.output.starts_with("66\n2\n2\n65\n2\n2\n")) << outcome.output << outcome.errors;
  EXPECT_TRUE(outcome.output.ends_with("\n1\n")) << outcome.output;
  EXPECT_NE(outcome.output.find(" replayed, 9."), std::string::npos) << outcome.output;
  for (const char* part : {"'nowhere' does not exist. Give the run's --save folder",
                           "--step 9: the run in 'run' has 8 steps", "--record: 'bad' exists and is not a recording",
                           "expected what 'espalier replay --record' wrote of step 5, found another file"})
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << " in\n" << outcome.errors;
}

}  // namespace replay_command_test
}  // namespace espalier
