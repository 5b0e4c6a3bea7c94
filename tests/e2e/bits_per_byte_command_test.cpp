// Bits per byte of an evaluation: the loss, in bits, over the bytes of the text that was predicted, whatever the
// tokenizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"

namespace espalier {
namespace bits_per_byte_command_test {

class BitsPerByteCommand : public Command {
 protected:
  std::string tokenizer() const {
    const std::string folder = root() + "/tests/data/gpt2-tiny/";
    return concat(" --tokenizer-type GPT2BPETokenizer --vocab-file ", folder, "vocab.json --merge-file ", folder,
                  "merges.txt ");
  }
  std::string train(const std::string& launch, const std::string& layout) const {
    return concat("espalier ", launch,
                  "train gpt --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 33 "
                  "--max-position-embeddings 33 --micro-batch-size 1 --global-batch-size 2 --train-iters 2 --lr 1e-3 "
                  "--split 80,20,0 --eval-iters 3 --eval-interval 2 --log-interval 1 --num-threads 1 --data-path text",
                  tokenizer(), layout);
  }
  // Documents of words of OpenWebText between the same word and twenty letters, with a blank between two words.
  std::vector<std::string> documents_of_words() const {
    std::vector<std::string> documents;
    std::istringstream lines(read_file(root() + "/tests/data/owt-20.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      std::string text = "the";
      std::istringstream words(nlohmann::json::parse(line).at("text").get<std::string>().substr(0, 700));
      for (std::string word; words >> word;)
        // What a decoder of words joins to its neighbour is left out.
        if (std::all_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; }) && word != "not")
          text += " " + word;
      for (int i = 0; i < 20; ++i) text += " a";
      documents.push_back(text);
    }
    return documents;
  }
  nlohmann::json first_evaluation(const std::string& run) const {
    std::istringstream lines(read_file(folder_ / "work" / run / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (nlohmann::json record = nlohmann::json::parse(line); record.contains("valid"))
        return record["valid"]["valid"];
    return {};
  }
};

// No end-of-document ids: every label is text, so that the mean loss and the bytes of the labels give the figure.
TEST_F(BitsPerByteCommand, IsTheLossOverTheBytesOfTheLabelsInEveryLayout) {
  const Outcome outcome = bash(concat(
      "set -e; export OMP_WAIT_POLICY=passive; espalier preprocess", tokenizer(), "--output-prefix text --input ",
      root(),
      "/tests/data/owt-20.jsonl 2>/dev/null; mv text_text_document.bin text.bin; mv text_text_document.idx text.idx; ",
      train("", "--save one --save-interval 2"), "; ",
      train("launch --nproc-per-node 2 ", "--save tp --save-interval 2 --tensor-model-parallel-size 2"), "; ",
      train("launch --nproc-per-node 2 ", "--save pp --save-interval 2 --pipeline-model-parallel-size 2"), "; ",
      train("launch --nproc-per-node 2 ", "--save dp --save-interval 2"),
      "; espalier data sample gpt --data-path text --split 80,20,0 --seq-length 33 --num-samples 4,12,6 --set valid "
      "--first 0 --count 6 --json",
      tokenizer(), "2>/dev/null >samples; grep ids samples"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const nlohmann::json pieces = nlohmann::json::parse(read_file(root() + "/tests/data/gpt2-tiny/vocab.json"));
  std::map<int64_t, std::string> piece_of;
  for (const auto& [piece, id] : pieces.items()) piece_of[id] = piece;
  int64_t bytes = 0, labels = 0;
  std::istringstream samples(read_file(folder_ / "work" / "samples"));
  for (std::string line; std::getline(samples, line);) {
    const auto ids = nlohmann::json::parse(line).at("ids").get<std::vector<int64_t>>();
    for (size_t at = 1; at < ids.size(); ++at, ++labels)
      for (const char c : piece_of.at(ids[at]))  // each character of a piece stands for a byte
        bytes += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }
  ASSERT_EQ(labels, 6 * 33);
  for (const char* run : {"one", "tp", "pp", "dp"}) {
    const nlohmann::json found = first_evaluation(run);
    const double expected =
        found.at("lm_loss").get<double>() * static_cast<double>(labels) / std::log(2.0) / static_cast<double>(bytes);
    EXPECT_NEAR(found.at("bits_per_byte").get<double>(), expected, 1e-6 * expected) << run;
  }
  EXPECT_NE(outcome.errors.find("| bits per byte: "), std::string::npos);
}

// Of a set that is evaluated once as a whole every token is a label but the first and those that do not fill a sample.
// All documents begin and end alike, so that their order does not matter, and the bytes are counted in the text.
TEST_F(BitsPerByteCommand, IsThatOfTheRawTextForEveryKindOfTokenizer) {
  const std::string folder = root() + "/tests/data/megatron_tokenizers/";
  const std::pair<const char*, std::string> kinds[] = {
      {"BPE", tokenizer()},
      {"SentencePiece",
       "--tokenizer-type GPTSentencePieceTokenizer --tokenizer-model " + folder + "unigram_bytes/spm.model"},
      {"SentencePiece's BPE",
       "--tokenizer-type GPTSentencePieceTokenizer --tokenizer-model " + folder + "bpe_llama2/spm.model"},
      {"WordPiece", "--tokenizer-type BertWordPieceLowerCase --vocab-file " + folder + "bert_lower/vocab.txt"}};
  const std::vector<std::string> documents = documents_of_words();
  std::string lines;
  for (const std::string& text : documents) lines += nlohmann::json{{"text", text}}.dump() + "\n";
  constexpr int64_t kLength = 16;
  for (const auto& [kind, options] : kinds) {
    SCOPED_TRACE(kind);
    write_file_atomically(folder_ / "work" / "in.jsonl", lines);
    const Outcome encoded = bash("espalier tokenizer encode --jsonl " + options + " <in.jsonl");
    ASSERT_EQ(encoded.exit_code, 0) << encoded.errors;
    std::vector<std::vector<int64_t>> ids;
    std::istringstream encodings(encoded.output);
    for (std::string line; std::getline(encodings, line);) ids.push_back(nlohmann::json::parse(line).at("ids"));
    ASSERT_EQ(ids.size(), documents.size());
    int64_t num_tokens = 0, num_bytes = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      num_tokens += static_cast<int64_t>(ids[i].size());
      num_bytes += static_cast<int64_t>(documents[i].size());
      EXPECT_EQ(ids[i][0], ids[0][0]);
    }
    const int64_t num_samples = (num_tokens - 1) / kLength;
    const auto num_left = static_cast<size_t>(num_tokens - 1 - num_samples * kLength);
    // The text of the first document without them, decoded, is what it begins with.
    std::string begin, first = concat(ids[0][0]);
    for (size_t at = 0; at + num_left < ids[0].size(); ++at) begin += concat(at == 0 ? "" : " ", ids[0][at]);
    const auto decode = [&](const std::string& some) {
      return concat("echo ", some, " | espalier tokenizer decode ", options, "; echo; ");
    };
    const Outcome decoded = bash("set -e; " + decode(begin) + decode(first));
    ASSERT_EQ(decoded.exit_code, 0) << decoded.errors;
    std::istringstream texts(decoded.output);
    std::getline(texts, begin), std::getline(texts, first);
    ASSERT_TRUE(documents[0].starts_with(begin) && documents[0].starts_with(first)) << begin << "\n" << first;
    num_bytes -= static_cast<int64_t>(documents[0].size() - begin.size() + first.size());

    const Outcome outcome = bash(concat(
        "set -e; rm -rf run words_*; espalier preprocess --input in.jsonl --output-prefix words ", options,
        "; espalier train gpt --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length ", kLength,
        " --max-position-embeddings ", kLength,
        " --micro-batch-size 1 --global-batch-size 1 --train-iters 3 --lr 1e-3 --num-threads 1 --save run "
        "--save-interval 3 --train-data-path words_text_document --valid-data-path words_text_document --eval-interval "
        "1000 --eval-iters ",
        num_samples, " ", options));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
    const nlohmann::json found = first_evaluation("run");
    const double expected = found.at("lm_loss").get<double>() * static_cast<double>(num_samples * kLength) /
                            std::log(2.0) / static_cast<double>(num_bytes);
    EXPECT_NEAR(found.at("bits_per_byte").get<double>(), expected, 1e-6 * expected);
  }
}

}  // namespace bits_per_byte_command_test
}  // namespace espalier
