// `espalier data who` and `data where` for BERT, T5 and packed pairs: against the samples as `data sample` shows them
// and the bytes of the token files.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/format.h"
#include "tests/support/command.h"

namespace espalier {
namespace data_who_families_command_test {

using Json = nlohmann::json;
using Ids = std::vector<int64_t>;

class DataWhoFamilies : public Command {
 protected:
  std::string data(const std::string& name) const { return root() + "/tests/data/" + name; }
  std::string words() const {
    return concat(" --tokenizer-type BertWordPieceLowerCase --vocab-file ",
                  data("megatron_tokenizers/bert_lower/vocab.txt"), " ");
  }
  std::string bpe() const {
    return concat(" --tokenizer-type GPT2BPETokenizer --vocab-file ", data("gpt2-tiny/vocab.json"), " --merge-file ",
                  data("gpt2-tiny/merges.txt"), " ");
  }
  std::string sentences() const {
    return concat("espalier preprocess --split-sentences --input ", data("owt-20.jsonl"), " --output-prefix owt",
                  words(), " 2>/dev/null; ");
  }
  // Four steps of 8 samples are trained, six are to come.
  std::string train(const std::string& family, const std::string& more) const {
    return concat("espalier train ", family,
                  " --num-layers 1 --hidden-size 16 --num-attention-heads 2 --max-position-embeddings 48 "
                  "--micro-batch-size 4 --global-batch-size 8 --train-iters 10 --exit-interval 4 --lr 1e-3 "
                  "--lr-decay-style constant --eval-iters 1 --split 90,10,0 --num-threads 1 --log-level error --seed 5 "
                  "--save run --save-interval 4 ",
                  more, "; ");
  }
  // Of all ten steps, in the order of the samples.
  std::vector<Json> who(const std::string& words = "") const {
    const Outcome outcome = bash(concat("for step in $(seq 1 10); do espalier data who --run run --step $step --json ",
                                        words, " || exit; done"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    const std::vector<Json> all = lines(outcome.output);
    EXPECT_EQ(all.size(), 80u);
    for (size_t number = 0; number < all.size(); ++number) {
      EXPECT_EQ(all[number]["sample"], number);
      EXPECT_EQ(all[number]["step"], number / 8 + 1);
      EXPECT_EQ(all[number]["micro_batch"], number % 8 / 4);
      EXPECT_EQ(all[number]["row"], number % 4);
    }
    return all;
  }
  static std::vector<Json> lines(const std::string& output) {
    std::vector<Json> all;
    std::istringstream stream(output);
    for (std::string line; std::getline(stream, line);) all.push_back(Json::parse(line));
    return all;
  }
  // The ids (uint16) that a piece says it has, from the bytes of its file.
  Ids ids_of(const Json& piece) const {
    std::string& bytes = files_[piece["file"]];
    if (bytes.empty()) bytes = read_file(folder_ / "work" / (piece["file"].get<std::string>() + ".bin"));
    Ids ids;
    const size_t begin = piece["byte"], end = begin + 2 * piece["length"].get<size_t>();
    for (size_t at = begin; at < end; at += 2)
      ids.push_back(static_cast<uint8_t>(bytes.at(at)) + 256 * static_cast<uint8_t>(bytes.at(at + 1)));
    return ids;
  }
  // What `where` has to say of a document, by a loop over what `who` said of every step.
  void expect_where(const std::vector<Json>& all, const std::string& question, int64_t document,
                    const std::vector<std::string>& files) const {
    std::vector<Json> expected, found;
    for (const Json& sample : all)
      for (const Json& piece : sample["pieces"]) {
        if (piece["document"] != document || std::find(files.begin(), files.end(), piece["file"]) == files.end())
          continue;
        Json one = {{"fate", sample["step"] > 4 ? "to come" : "trained"}};
        for (const char* key : {"step", "sample", "replica", "ranks", "micro_batch", "row"}) one[key] = sample[key];
        for (const char* key : {"file", "document", "sequence", "offset", "length", "at"}) one[key] = piece[key];
        expected.push_back(one);
      }
    const Outcome where = bash(concat("espalier data where --run run --json --document ", document, " ", question));
    EXPECT_EQ(where.exit_code, 0) << where.errors;
    for (const Json& one : lines(where.output)) found.push_back(one);
    EXPECT_EQ(Json(found), Json(expected)) << question << " " << document << where.errors;
  }

 private:
  mutable std::map<std::string, std::string> files_;
};

// A place of the text is a token of a document, or one that stands for it (masked), or [CLS] or [SEP].
TEST_F(DataWhoFamilies, SentencesOfBertAreInTheirPlaces) {
  ASSERT_EQ(
      bash(sentences() + train("bert", concat("--seq-length 48 --data-path owt_text_sentence ", words()))).exit_code,
      0);
  const Outcome shown =
      bash(concat("espalier data sample bert --data-path owt_text_sentence --split 90,10,0 ",
                  "--seq-length 48 --seed 5 --num-samples 80,8,8 --first 0 --count 80 --json ", words()));
  ASSERT_EQ(shown.exit_code, 0) << shown.errors;
  const std::vector<Json> samples = lines(shown.output), all = who();
  ASSERT_EQ(samples.size(), all.size());
  for (size_t number = 0; number < all.size(); ++number) {
    Ids text = samples[number]["text"];
    const Ids labels = samples[number]["labels"], used = samples[number]["padding_mask"];
    size_t num_used = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      if (labels[at] >= 0) text[at] = labels[at];
      num_used += used[at] == 1;
    }
    size_t num_found = 0;
    for (const Json& piece : all[number]["pieces"]) {
      const Ids ids = ids_of(piece);
      const auto place = text.begin() + piece["at"].get<int64_t>();
      EXPECT_EQ(ids, Ids(place, place + static_cast<int64_t>(ids.size()))) << piece;
      num_found += ids.size();
    }
    EXPECT_EQ(num_found + 3, num_used) << all[number];
  }
  for (const int64_t document : {0, 5, 11}) expect_where(all, "", document, {"owt_text_sentence"});
  const Outcome text = bash(
      "espalier data who --run run --step 2 --text 2>log; cat log; espalier data where --run run --document 5 "
      "2>/dev/null");
  EXPECT_NE(text.output.find("layout tp1pp1dp1"), std::string::npos) << text.output;
  EXPECT_NE(text.output.find(", sequence "), std::string::npos) << text.output;
  EXPECT_NE(text.output.find(": sequence "), std::string::npos) << text.output;
  // Another file under the name is told.
  const Outcome other = bash("espalier data where --run run --document 5 -- --seed 6");
  EXPECT_EQ(other.exit_code, 65) << other.errors;
  EXPECT_NE(other.errors.find("the seed was 5 and is 6"), std::string::npos) << other.errors;
}

// Pieces are the sample's text before runs of it go to the decoder.
TEST_F(DataWhoFamilies, SentencesOfT5AreTheirTextInOrder) {
  const std::string model = "--encoder-seq-length 48 --decoder-seq-length 32 --vocab-extra-ids 40 ";
  ASSERT_EQ(bash(sentences() + train("t5", concat(model, "--data-path owt_text_sentence ", words()))).exit_code, 0);
  const Outcome shown = bash(concat("espalier data sample t5 --data-path owt_text_sentence --split 90,10,0 ", model,
                                    "--seed 5 --num-samples 80,8,8 --first 0 --count 80 --json ", words()));
  ASSERT_EQ(shown.exit_code, 0) << shown.errors;
  const std::vector<Json> samples = lines(shown.output), all = who();
  ASSERT_EQ(samples.size(), all.size());
  for (size_t number = 0; number < all.size(); ++number) {
    Ids found, sorted;
    for (const Json& piece : all[number]["pieces"]) {
      EXPECT_EQ(piece["at"], found.size());
      const Ids ids = ids_of(piece);
      found.insert(found.end(), ids.begin(), ids.end());
    }
    // Of encoder and decoder, but for sentinels and what begins, ends and fills up (0 is no word of the files).
    for (const char* half : {"text_enc", "text_dec"})
      for (const int64_t id : samples[number][half].get<Ids>())
        if (id > 0 && id < 320) sorted.push_back(id);
    std::sort(sorted.begin(), sorted.end());
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found, sorted) << all[number];
  }
  for (const int64_t document : {0, 5, 11}) expect_where(all, "", document, {"owt_text_sentence"});
}

TEST_F(DataWhoFamilies, PairsAreFoundInBothFiles) {
  const std::string pairs =
      R"(awk 'BEGIN { srand(5); for (pair = 0; pair < 120; ++pair) { a = "in"; b = "out"
        for (n = rand() * 5; n > 0; --n) a = a " w" int(rand() * 50)
        for (n = rand() * 3; n > 0; --n) b = b " t" int(rand() * 50)
        printf "{\"inputs\": \"%s\", \"targets\": \"%s\"}\n", a, b } }' >pairs.jsonl; )";
  ASSERT_EQ(bash(concat(pairs, "espalier preprocess --input pairs.jsonl --json-keys inputs targets --append-eod ",
                        "--output-prefix p3", bpe(), "2>/dev/null; ",
                        train("gpt", concat("--objective multitask --seq-length 48 --data-path p3 ", bpe()))))
                .exit_code,
            0);
  const Outcome shown =
      bash(concat("espalier data sample gpt --objective multitask --data-path p3 --split 90,10,0 ",
                  "--seq-length 48 --seed 5 --num-samples 80,8,8 --first 0 --count 80 --json ", bpe()));
  ASSERT_EQ(shown.exit_code, 0) << shown.errors;
  const std::vector<Json> samples = lines(shown.output), all = who("--text");
  ASSERT_EQ(samples.size(), all.size());
  const std::vector<Json> records = lines(read_file(folder_ / "work/pairs.jsonl"));
  for (size_t number = 0; number < all.size(); ++number) {
    const Ids ids = samples[number]["ids"];
    size_t at = 0;
    for (const Json& piece : all[number]["pieces"]) {
      EXPECT_EQ(piece["at"], at);
      EXPECT_EQ(piece["offset"], 0);
      const Ids tokens = ids_of(piece);
      for (const int64_t id : tokens) EXPECT_EQ(ids.at(at++), id) << piece;
      const bool is_input = piece["file"] == "p3_inputs_document";
      const std::string text = records.at(piece["document"])[is_input ? "inputs" : "targets"];
      EXPECT_EQ(piece["text"].get<std::string>().find(text), 0U) << piece;
    }
    EXPECT_GT(at, 0u);
  }
  for (const int64_t pair : {0, 17, 80}) {
    expect_where(all, "", pair, {"p3_inputs_document", "p3_targets_document"});
    expect_where(all, "--file p3", pair, {"p3_inputs_document", "p3_targets_document"});
    expect_where(all, "--file p3_targets_document", pair, {"p3_targets_document"});
  }
  const Outcome none =
      bash("espalier data where --run run --document 119; espalier data where --run run --document 120");
  EXPECT_NE(none.errors.find("the training set reads documents 0 to 107 of that file"), std::string::npos)
      << none.errors;
  EXPECT_NE(none.errors.find("p3_inputs_document has 120 documents, numbered from 0"), std::string::npos)
      << none.errors;
}

}  // namespace data_who_families_command_test
}  // namespace espalier
