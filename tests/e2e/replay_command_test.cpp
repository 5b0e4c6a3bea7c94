// `espalier replay`: a step again, to the bit, and what differs where something was changed on purpose.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "tests/support/command.h"
#include "tests/support/long_version.h"

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
  // One process, without more options.
  void make_plain_run() const { ASSERT_EQ(made_once("espalier " + train("")).exit_code, 0); }
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

// As another build or another processor computes: the instruction set is a lower one. It is told by whom the recording
// is; where anything differs, which operation did first, and by how much.
TEST_F(ReplayCommand, AgainstAnotherInstructionSetNamesTheFirstThatDiffersOrSaysEqual) {
  make_plain_run();
  ASSERT_EQ(replay("--step 6 --record here.rec")["equal"], true);
  int num_levels = 0;
  for (const std::string isa : {"generic", "avx2"}) {
    if (isa == "avx2" && !test::long_version()) continue;
    const Outcome outcome =
        bash(concat("ESPALIER_CPU_ISA=", isa, " espalier replay --load run --json --step 6 --compare here.rec"));
    if (outcome.errors.find("this machine reaches") != std::string::npos) continue;
    ++num_levels;
    const Json other = Json::parse(outcome.output);
    const Json& recording = other["recording"];
    const bool all = recording["equal"] == recording["compared"];
    std::printf("%s: %s of %s tensors are equal\n", isa.c_str(), recording["equal"].dump().c_str(),
                recording["compared"].dump().c_str());
    EXPECT_GT(recording["compared"], 200);
    EXPECT_LT(recording["largest_difference"], 1e-4) << recording;
    EXPECT_EQ(recording.contains("first_different"), !all) << recording;
    EXPECT_EQ(other["equal"], all && other["record_differences"].empty() && other["different_tensors"].empty());
    EXPECT_EQ(outcome.exit_code, other["equal"] == true ? 0 : 1);
    const Outcome text =
        bash(concat("ESPALIER_CPU_ISA=", isa, " espalier replay --load run --step 6 --compare here.rec"));
    EXPECT_NE(text.output.find("recording of espalier "), std::string::npos) << text.output;
    if (all) continue;
    const Json& first = recording["first_different"]["here"];
    EXPECT_EQ(first["pass"], "forward") << first;
    EXPECT_NE(text.output.find(
                  concat("first that differs: forward pass of samples ", first["first_sample"].get<int64_t>(), " to ",
                         first["first_sample"].get<int64_t>() + 1, " (micro-batch ",
                         first["micro_batch"].get<int64_t>(), ", rank 0): ", first["operation"].get<std::string>())),
              std::string::npos)
        << text.output;
  }
  if (num_levels == 0) GTEST_SKIP() << "this machine has no lower instruction set";
}

// With --canonical-reduction the number of replicas changes no bit: nothing less counts as equal.
TEST_F(ReplayCommand, OfACanonicalRunIsExactWithAnotherNumberOfReplicas) {
  ASSERT_EQ(bash("espalier launch --nproc-per-node 2 " + train("--canonical-reduction")).exit_code, 0);
  ASSERT_EQ(replay("--step 8 --record two.rec")["equal"], true);
  using Layouts = std::vector<std::string>;
  for (const std::string& layout :
       test::in_suite_or_all(Layouts{"dp1", "dp4zero1", "dp2zero2"}, Layouts{"dp1", "dp4", "dp4zero1", "dp2zero2"})) {
    const Json other = replay(concat("--step 8 --compare two.rec --layout ", layout));
    EXPECT_EQ(other["exact"], true) << layout;
    EXPECT_EQ(other["equal"], true) << layout << other;
    EXPECT_EQ(other["steps_compared"], 4) << layout;
    EXPECT_EQ(other["record_differences"], Json::array()) << layout << other;
    EXPECT_EQ(other["tensors_compared"], true) << layout;
    EXPECT_EQ(other["different_tensors"], Json::array()) << layout << other;
    EXPECT_EQ(other["recording"]["equal"], other["recording"]["compared"]) << layout << other;
    EXPECT_GT(other["recording"]["compared"], 100) << layout;
  }
  // One bit elsewhere is not equal any more.
  const Json other = replay("--step 8 --layout dp4 -- --adam-beta2 0.9990001 --override adam_beta2");
  EXPECT_EQ(other["equal"], false) << other;
  EXPECT_EQ(replay("--step 8 --layout pp2")["exact"], false);
}

// Of the first step from a checkpoint, whose weights are equal to the bit in every layout, one token of one sample is
// another: found in a layout that is not the run's, by layer, operation, rank and
// micro-batch. Which these are says espalier data who of the run's layout, and the order in which replicas take turns.
TEST_F(ReplayCommand, APlantedDifferenceIsNamedInAnotherLayout) {
  make_plain_run();
  replay("--step 5 --record one.rec");
  const Json who = Json::parse(bash("espalier data who --run run --step 5 --json | sed -n 6p").output);
  ASSERT_EQ(who["sample"], 37) << who;
  const Json* longest = &who["pieces"][0];
  for (const Json& piece : who["pieces"])
    if (piece["length"] > (*longest)["length"]) longest = &piece;
  ASSERT_GT((*longest)["length"], 4);
  const int64_t byte = (*longest)["byte"].get<int64_t>() + 2 * ((*longest)["length"].get<int64_t>() / 2);
  ASSERT_EQ(bash(concat("for end in bin idx; do cp ", data("owt-20_text_document"),
                        ".$end other.$end; done; printf "
                        "'\\7\\0' | dd of=other.bin bs=1 seek=",
                        byte, " conv=notrunc status=none; ! cmp -s other.bin ", data("owt-20_text_document"), ".bin"))
                .exit_code,
            0);
  // Samples 32 to 39, two in a micro-batch: of two replicas the first has 32, 33, 36 and 37.
  std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> layouts = {{"dp4", {2, 0}}, {"pp2", {0, 2}}};
  if (test::long_version()) {
    layouts.push_back({"tp1", {0, 2}});
    layouts.push_back({"dp2", {0, 1}});
  }
  for (const auto& [layout, place] : layouts) {
    const Json other =
        replay(concat("--step 5 --compare one.rec --layout ", layout, " -- --data-path other --override data_path"));
    const Json& here = other["recording"]["first_different"]["here"];
    EXPECT_EQ(here["pass"], "forward") << layout << here;
    EXPECT_EQ(here["operation"], "word_embeddings") << layout << here;
    EXPECT_EQ(here["first_sample"], 36) << layout << here;
    EXPECT_EQ(here["rank"], place.first) << layout << here;
    EXPECT_EQ(here["micro_batch"], place.second) << layout << here;
  }
  // An operation of another value in every layer and micro-batch: the first of them, of the first samples.
  for (const std::string layout : {"dp2", "pp2"}) {
    if (layout == "pp2" && !test::long_version()) continue;
    const Json other = replay(concat("--step 5 --compare one.rec --layout ", layout,
                                     " -- --attention-dropout 0.2 --override attention_dropout"));
    const Json& here = other["recording"]["first_different"]["here"];
    EXPECT_EQ(here["operation"], "layers.0.self_attention.attention") << layout << here;
    EXPECT_EQ(here["first_sample"], 32) << layout << here;
    EXPECT_EQ(here["rank"], 0) << layout << here;
    EXPECT_EQ(here["micro_batch"], 0) << layout << here;
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
  make_plain_run();
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
