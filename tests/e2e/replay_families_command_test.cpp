// `espalier replay` of BERT, T5 and packed pairs: runs that were killed and went on, to the bit; and what it says where
// a bit of a checkpoint or a token of a document was changed on purpose.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/hash.h"
#include "store/manifest.h"
#include "tests/support/command.h"
#include "tests/support/long_version.h"

namespace espalier {
namespace replay_families_command_test {

using Json = nlohmann::json;

class ReplayFamilies : public Command {
 protected:
  std::string data(const std::string& name) const { return root() + "/tests/data/" + name; }
  std::string words() const {
    return concat(" --tokenizer-type BertWordPieceLowerCase --vocab-file ",
                  data("megatron_tokenizers/bert_lower/vocab.txt"), " ");
  }
  std::string sentences() const {
    return concat("espalier preprocess --split-sentences --input ", data("owt-20.jsonl"), " --output-prefix owt",
                  words(), " 2>/dev/null; ");
  }
  // "train FAMILY ..." of 30 steps with dropout, saved every five.
  std::string train(const std::string& family_and_more) const {
    return concat(
        "train ", family_and_more,
        " --num-layers 2 --hidden-size 24 --num-attention-heads 3 --max-position-embeddings 48 "
        "--micro-batch-size 2 --global-batch-size 8 --train-iters 30 --lr 3e-3 --lr-decay-style constant "
        "--split 90,10,0 --eval-iters 1 --eval-interval 7 --num-threads 1 --seed 7 --save run --save-interval 5 "
        "--attention-dropout 0.1 --hidden-dropout 0.1 --log-level error ");
  }
  std::string train_bert() const {
    return train(concat("bert --seq-length 48 --data-path owt_text_sentence ", words()));
  }
  Json replay(const std::string& more) const {
    const Outcome outcome = bash("espalier replay --load run --json " + more);
    EXPECT_FALSE(outcome.output.empty()) << outcome.errors;
    return outcome.output.empty() ? Json() : Json::parse(outcome.output);
  }
  // A run of BERT to a tenth step.
  void make_bert_run() const {
    ASSERT_EQ(made_once(concat(sentences(), "espalier ", train_bert(), "--exit-interval 10")).exit_code, 0);
  }
  // Steps before, at and after checkpoints, one from the initialization; the last two compare tensors. Without `all`,
  // one before a checkpoint and the last, and with ESPALIER_TEST_ALL all the same.
  void expect_equal(const std::string& layout, bool all = true) const {
    for (const auto& [step, from, compared] :
         {std::tuple(3, Json(), 3), {9, Json(5), 4}, {16, Json(15), 1}, {20, Json(15), 5}, {30, Json(25), 5}}) {
      if (!all && step != 9 && step != 30 && !test::long_version()) continue;
      const Json found = replay(concat("--step ", step));
      EXPECT_EQ(found["equal"], true) << found;
      EXPECT_EQ(found["layout"], layout);
      EXPECT_EQ(found["from"], from);
      EXPECT_EQ(found["steps_compared"], compared) << found;
      EXPECT_EQ(found["tensors_compared"], step >= 20);
    }
  }
  // In another layout sums run in another order.
  void expect_close(const std::string& layout) const {
    const Json found = replay("--step 17 --layout " + layout);
    EXPECT_EQ(found["equal"], true) << found;
    EXPECT_EQ(found["own_layout"], false);
    EXPECT_LT(found["distance"].get<double>(), 1e-5);
  }

  // Flips a bit of a tensor in a checkpoint of the run: of its element `number`, a float. `as_saved`: the checksum says
  // so too, as if the bit had been another one when the tensor was saved.
  void flip(int step, const std::string& name, int64_t number, int bit, bool as_saved) const {
    const fs::path folder = folder_ / concat("work/run/", format_printf("step_%08d", step));
    store::Manifest manifest = store::read_manifest(folder);
    for (store::StoredTensor& tensor : manifest.tensors) {
      if (tensor.name != name) continue;
      ASSERT_EQ(tensor.blocks.size(), 1u);
      const fs::path file = folder / tensor.file;
      std::string bytes = read_file(file);
      uint64_t header = 0;
      std::memcpy(&header, bytes.data(), sizeof header);
      const size_t begin =
          8 + header + Json::parse(bytes.substr(8, header)).at(name).at("data_offsets").at(0).get<size_t>();
      bytes[begin + static_cast<size_t>(4 * number + bit / 8)] ^= static_cast<char>(1 << bit % 8);
      if (as_saved) tensor.blocks[0].checksum = hash64(&bytes[begin], static_cast<size_t>(tensor.blocks[0].bytes));
      write_file_atomically(file, bytes);
      write_file_atomically(folder / store::kManifestName, store::to_json(manifest));
      return;
    }
    FAIL() << name;
  }
};

// One process, killed once there is a checkpoint.
TEST_F(ReplayFamilies, ABertThatWasKilledIsRepeatedToTheBit) {
  const Outcome outcome = bash(concat(sentences(), "espalier ", train_bert(), R"(& P=$!
    until [ -d run/step_00000005 ]; do sleep 0.01; done; kill -9 $P; wait $P
    espalier )",
                                      train_bert(), "--load run"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  expect_equal("tp1pp1dp1");
  if (test::long_version()) expect_close("tp3");
  expect_close("pp2dp2");
}

// Two ranks, one of which is killed: the launcher starts them again.
TEST_F(ReplayFamilies, AT5WhoseRankWasKilledIsRepeatedToTheBit) {
  const Outcome outcome = bash(concat(sentences(), "espalier launch --nproc-per-node 2 --max-restarts 3 ",
                                      train(concat("t5 --encoder-seq-length 48 --decoder-seq-length 32 ",
                                                   "--vocab-extra-ids 40 --data-path owt_text_sentence ", words())),
                                      R"(--load run & launcher=$!
    until [ -d run/step_00000005 ]; do sleep 0.01; done
    for pid in $(cat /proc/$launcher/task/*/children); do
      tr '\0' '\n' </proc/$pid/environ | grep -qx RANK=1 && kill -9 $pid
    done
    wait $launcher)"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  expect_equal("tp1pp1dp2", /*all=*/false);
  if (test::long_version()) expect_close("tp1");
  expect_close("tp3");
}

TEST_F(ReplayFamilies, PackedPairsThatWereStoppedAreRepeatedToTheBit) {
  const std::string bpe = concat(" --tokenizer-type GPT2BPETokenizer --vocab-file ", data("gpt2-tiny/vocab.json"),
                                 " --merge-file ", data("gpt2-tiny/merges.txt"), " ");
  const std::string run = train(concat("gpt --objective multitask --seq-length 48 --data-path p3 ", bpe));
  const Outcome outcome = bash(concat(
      R"(awk 'BEGIN { srand(5); for (pair = 0; pair < 200; ++pair)
        printf "{\"inputs\": \"in w%d w%d\", \"targets\": \"out %d\"}\n", rand() * 50, rand() * 50, rand() * 9 }' >pairs.jsonl
      )",
      "espalier preprocess --input pairs.jsonl --json-keys inputs targets --append-eod --output-prefix p3", bpe,
      "2>/dev/null; espalier ", run, "--exit-interval 8; espalier ", run, "--load run"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const Json found = replay("--step 10");
  EXPECT_EQ(found["equal"], true) << found;
  EXPECT_EQ(found["from"], 8) << found;  // stopped there
  EXPECT_EQ(found["tensors_compared"], true);
  EXPECT_EQ(replay("--step 3")["equal"], true);
  EXPECT_EQ(replay("--step 30")["equal"], true);
  if (test::long_version()) expect_close("tp3");
  expect_close("dp2");
}

TEST_F(ReplayFamilies, ABitThatWasFlippedIsNamedByRecordAndTensor) {
  make_bert_run();
  // In what the step has made: the record is right, the tensor is not.
  flip(10, "layers.0.mlp.dense_h_to_4h.weight", 17, 3, /*as_saved=*/true);
  const Json after = replay("--step 10");
  EXPECT_EQ(after["equal"], false);
  EXPECT_EQ(after["record_differences"], Json::array()) << after;
  EXPECT_EQ(after["different_tensors"], Json::array({"layers.0.mlp.dense_h_to_4h.weight"})) << after;
  // In what it began from: the first operation that has the weight.
  replay("--step 6 --record six.rec");
  flip(5, "layers.1.self_attention.query_key_value.weight", 30, 25, /*as_saved=*/true);
  const Json before = replay("--step 6 --compare six.rec");
  EXPECT_EQ(before["equal"], false);
  EXPECT_EQ(before["record_differences"][0].get<std::string>().find("step 6: "), 0U) << before;
  const Json& first = before["recording"]["first_different"]["here"];
  EXPECT_EQ(first["operation"], "layers.1.self_attention.query_key_value") << first;
  EXPECT_EQ(first["pass"], "forward");
  const Outcome text = bash("espalier replay --load run --step 6 --compare six.rec 2>/dev/null");
  EXPECT_NE(text.output.find("first that differs: forward pass of samples 40 to 41 (micro-batch 0, rank 0): "
                             "layers.1.self_attention.query_key_value"),
            std::string::npos)
      << text.output;
  // On the disk, after it was saved: refused, by name.
  flip(5, "layers.0.mlp.dense_4h_to_h.weight", 2, 9, /*as_saved=*/false);
  const Outcome damaged = bash("espalier replay --load run --step 6");
  EXPECT_EQ(damaged.exit_code, 65) << damaged.errors;
  EXPECT_NE(damaged.errors.find("layers.0.mlp.dense_4h_to_h.weight"), std::string::npos) << damaged.errors;
}

TEST_F(ReplayFamilies, ATokenThatWasChangedIsNamedByRecordAndTensor) {
  make_bert_run();
  replay("--step 8 --record eight.rec");
  // A token in the middle of the third sample of the step.
  const Json who = Json::parse(bash("espalier data who --run run --step 8 --json 2>/dev/null | sed -n 3p").output);
  const Json& piece = who["pieces"][who["pieces"].size() / 2];
  const auto byte = piece["byte"].get<size_t>();
  const fs::path file = folder_ / "work/owt_text_sentence.bin";
  std::string bytes = read_file(file);
  bytes[byte] = bytes[byte] == 20 ? 21 : 20;
  write_file_atomically(file, bytes);
  const Json found = replay("--step 8 --compare eight.rec");
  EXPECT_EQ(found["equal"], false);
  EXPECT_NE(found["record_differences"].dump().find("step 8: sample_hash "), std::string::npos) << found;
  const Json& first = found["recording"]["first_different"]["here"];
  EXPECT_NE(first["operation"].get<std::string>().find("embedding"), std::string::npos) << first;
  EXPECT_EQ(first["first_sample"], 58) << first;  // samples 58 and 59: the third is 58
}

// A retriever's loss is over a micro-batch of all replicas.
TEST_F(ReplayFamilies, ARetrieverIsRepeatedOnlyWithAsManyBlocksToChooseFrom) {
  const std::string make =
      concat(R"(awk 'BEGIN { srand(3); n = split("and arger aus brown adwjj ajvse apje", words, " ")
    for (d = 0; d < 60; ++d) {
      text = ""
      for (s = 0; s < 5; ++s) text = text "The " words[int(rand() * n) + 1] " " words[int(rand() * n) + 1] ". "
      printf "{\"text\": \"%s\", \"title\": \"%s\"}\n", text, words[d % n + 1] } }' >texts.jsonl; )",
             "for key in text title; do espalier preprocess --input texts.jsonl --json-keys $key ",
             "--output-prefix d $([ $key = text ] && echo --split-sentences)", words(), "2>/dev/null || exit; done; ");
  const Outcome outcome = bash(concat(make, "espalier ",
                                      train(concat("ict --seq-length 32 --data-path d_text_sentence --titles-data-path "
                                                   "d_title_document ",
                                                   words())),
                                      "--micro-batch-size 4 --eval-iters 0 --split 100,0,0"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(replay("--step 20")["equal"], true);
  const Outcome other = bash("espalier replay --load run --step 17 --layout dp2");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(
      other.errors.find("which were 4 (4 on each of 1) and would be 8 (4 on each of 2): that is another loss. Give "
                        "-- --micro-batch-size 2."),
      std::string::npos)
      << other.errors;
  const Json found = replay("--step 17 --layout dp2 -- --micro-batch-size 2");
  EXPECT_EQ(found["equal"], true) << found;
  EXPECT_LT(found["distance"].get<double>(), 1e-5);
}

}  // namespace replay_families_command_test
}  // namespace espalier
