#include "text/bpe_trainer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer.h"
#include "text/tokenizer_writer.h"

namespace espalier::text {
namespace bpe_trainer_test {

using nlohmann::json;
using Documents = std::vector<std::string>;

TrainedBpe train(const Documents& documents, BpeTrainingOptions options) {
  if (options.spill_folder.empty()) options.spill_folder = testing::TempDir();
  size_t at = 0;
  return train_bpe(
      [&](std::string_view& text) {
        if (at == documents.size()) return false;
        text = documents[at++];
        return true;
      },
      options);
}

Documents merge_lines(const TrainedBpe& bpe) {
  Documents lines;
  for (const auto& [left, right] : bpe.merges) {
    lines.push_back(bpe.pieces[static_cast<size_t>(left)] + " " + bpe.pieces[static_cast<size_t>(right)]);
  }
  return lines;
}

PieceRule rule_named(const std::string& name) { return name == "bloom" ? PieceRule::kBloom : PieceRule::kGpt2; }

BpeTrainingOptions options_of(const json& settings) {
  BpeTrainingOptions options;
  options.vocab_size = settings.at("vocab_size");
  options.min_frequency = settings.at("min_frequency");
  options.special_tokens = settings.at("special_tokens").get<Documents>();
  options.rule = rule_named(settings.at("rule"));
  return options;
}

// What tests/oracle/bpe_training_oracle.py wrote.
json oracle_cases() {
  json cases = json::parse(read_file("tests/data/bpe_training/cases.json"));
  const char* const fresh = std::getenv("ESPALIER_FRESH_ORACLES");
  const auto fresh_file = std::filesystem::path(fresh != nullptr ? fresh : "") / "bpe_training" / "cases.json";
  if (std::filesystem::exists(fresh_file)) {
    for (json& settings : json::parse(read_file(fresh_file))) cases.push_back(std::move(settings));
  }
  return cases;
}

std::string one_of_each_language() {
  const json cases = oracle_cases();
  std::string text;
  for (const json& document : cases.at(0).at("documents")) text += document.get<std::string>();
  return text;
}

TEST(BpeTrainer, LearnsWhatTokenizersLearns) {
  for (const json& settings : oracle_cases()) {
    SCOPED_TRACE(settings.at("name").get<std::string>());
    const TrainedBpe bpe = train(settings.at("documents").get<Documents>(), options_of(settings));
    EXPECT_EQ(bpe.pieces, settings.at("pieces").get<Documents>());
    EXPECT_EQ(merge_lines(bpe), settings.at("merges").get<Documents>());
  }
}

TEST(BpeTrainer, WritesTheFilesOfTokenizersByteForByte) {
  const std::filesystem::path folder = testing::TempDir() + concat("espalier_bpe_", ::getpid());
  int num_files = 0;
  for (const json& settings : oracle_cases()) {
    if (!settings.contains("files")) continue;
    std::filesystem::create_directories(folder);
    const BpeTrainingOptions options = options_of(settings);
    const TrainedBpe bpe = train(settings.at("documents").get<Documents>(), options);
    TokenizerWriter(options.rule, folder).write(bpe, "");
    for (const auto& [name, content] : settings.at("files").items()) {
      EXPECT_EQ(read_file(folder / name), content.get<std::string>()) << settings.at("name") << " " << name;
      ++num_files;
    }
    EXPECT_EQ(std::filesystem::exists(folder / "vocab.json"), options.rule == PieceRule::kGpt2);
    std::filesystem::remove_all(folder);
  }
  EXPECT_EQ(num_files, 4);
}

TEST(BpeTrainer, BothTypesOfTokenizerLoadTheFilesAndKeepEveryByte) {
  const std::filesystem::path folder = testing::TempDir() + concat("espalier_bpe_", ::getpid());
  std::filesystem::create_directories(folder);
  const std::string text = one_of_each_language();
  const TrainedBpe bpe = train({text}, {.vocab_size = 450, .special_tokens = {"<pad>", "<|endoftext|>"}});
  ASSERT_EQ(bpe.pieces.size(), 450u);
  TokenizerWriter(PieceRule::kGpt2, folder).write(bpe, "<|endoftext|>");
  const auto from_hf = load_tokenizer({.type = "PretrainedFromHF", .name_or_path = folder});
  const auto from_gpt2 = load_tokenizer(
      {.type = "GPT2BPETokenizer", .vocab_file = folder / "vocab.json", .merge_file = folder / "merges.txt"});
  for (const Tokenizer* tokenizer : {from_hf.get(), from_gpt2.get()}) {
    EXPECT_EQ(tokenizer->vocab_size(), 450);
    EXPECT_EQ(tokenizer->eod(), 1);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    EXPECT_LT(tokenizer->encode(text).size(), text.size());
  }
  EXPECT_EQ(from_hf->encode(text), from_gpt2->encode(text));
  std::filesystem::remove_all(folder);
}

TEST(BpeTrainer, SpecialTokensWithBertsNamesAreNamed) {
  const std::filesystem::path folder = testing::TempDir() + concat("espalier_bpe_bert_", ::getpid());
  std::filesystem::create_directories(folder);
  const TrainedBpe bpe = train({one_of_each_language()},
                               {.vocab_size = 300, .special_tokens = {"[PAD]", "[CLS]", "[SEP]", "[MASK]", "<end>"}});
  TokenizerWriter(PieceRule::kGpt2, folder).write(bpe, "<end>");
  const NamedIds named = load_tokenizer({.type = "PretrainedFromHF", .name_or_path = folder})->named_ids();
  EXPECT_EQ(named.pad, 0);
  EXPECT_EQ(named.cls, 1);
  EXPECT_EQ(named.sep, 2);
  EXPECT_EQ(named.mask, 3);
  EXPECT_EQ(named.eos, 4);
  std::filesystem::remove_all(folder);
}

// Words that share letters, so that counts meet and part.
Documents random_documents(size_t count) {
  std::mt19937 draw(3);
  Documents documents(count);
  for (std::string& document : documents) {
    for (size_t word = draw() % 200; word > 0; --word) {
      for (size_t letter = 1 + draw() % 7; letter > 0; --letter) document += static_cast<char>('a' + draw() % 9);
      document += ' ';
    }
  }
  return documents;
}

// Just enough to learn, so that there is no room for the counts as well.
TrainedBpe train_with_least_memory(const Documents& documents) {
  for (int64_t memory_bytes = 1 << 20;; memory_bytes += memory_bytes / 20) {
    try {
      const TrainedBpe bpe = train(documents, {.vocab_size = 3000, .memory_bytes = memory_bytes, .workers = 7});
      EXPECT_GT(bpe.spilled_bytes, 0);
      return bpe;
    } catch (const UserError&) {
    }
  }
}

TEST(BpeTrainer, ResultDependsNeitherOnWorkersNorOnMemoryNorOnTheOrderOfDocuments) {
  Documents documents = random_documents(997);
  const TrainedBpe expected = train(documents, {.vocab_size = 3000});
  EXPECT_EQ(expected.spilled_bytes, 0);
  const auto expect_same = [&expected](const TrainedBpe& bpe, const char* what) {
    EXPECT_EQ(bpe.pieces, expected.pieces) << what;
    EXPECT_EQ(bpe.merges, expected.merges) << what;
    EXPECT_EQ(bpe.num_words, expected.num_words) << what;
    EXPECT_EQ(bpe.num_distinct_words, expected.num_distinct_words) << what;
    EXPECT_EQ(bpe.num_documents, 997) << what;
  };
  expect_same(train(documents, {.vocab_size = 3000, .workers = 2}), "2 workers");
  expect_same(train(documents, {.vocab_size = 3000, .workers = 7}), "7 workers");
  expect_same(train_with_least_memory(documents), "spilled");
  std::reverse(documents.begin(), documents.end());
  expect_same(train(documents, {.vocab_size = 3000}), "reversed");
}

TEST(BpeTrainer, SaysWhatMemoryTheWordsWouldNeed) {
  try {
    train(random_documents(300), {.memory_bytes = 100'000});
    FAIL() << "expected an error";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("but --memory is 97.66 KiB"), std::string::npos) << text;
    EXPECT_NE(text.find("--min-word-frequency"), std::string::npos) << text;
  }
}

TEST(BpeTrainer, RareWordsAreLeftOutWhenAskedFor) {
  // Without "xy", which occurs once, "q z" is as frequent as "x y".
  const Documents documents = {"xy xy xy xy qz qz qz"};
  EXPECT_EQ(merge_lines(train(documents, {.min_word_frequency = 1})).at(0), "x y");
  EXPECT_EQ(merge_lines(train(documents, {.min_word_frequency = 3})), (Documents{"q z", "x y", "Ġ qz", "Ġ xy"}));
}

TEST(BpeTrainer, InvalidBytesAreReplacedAndCounted) {
  const TrainedBpe bpe = train({"a\xff", "\xff\xfe", "b"}, {.vocab_size = 258, .min_frequency = 0});
  EXPECT_EQ(bpe.num_replaced, 3);
  // U+FFFD is EF BF BD; BF BD has the smaller ids.
  EXPECT_EQ(merge_lines(bpe), (Documents{"\u00bf \u00bd", "\u00ef \u00bf\u00bd"}));
}

TEST(BpeTrainer, ErrorOfTheDocumentsComesThrough) {
  int count = 0;
  const NextDocument next = [&count](std::string_view& text) {
    if (++count > 1000) throw UserError("the disk is gone");
    text = "some words";
    return true;
  };
  EXPECT_THROW(train_bpe(next, {.workers = 2, .spill_folder = testing::TempDir()}), UserError);
}

TEST(BpeTrainer, FailureToSpillComesThrough) {
  BpeTrainingOptions options{.memory_bytes = 10'000, .workers = 3, .spill_folder = "/nowhere/at/all"};
  EXPECT_THROW(train(random_documents(2000), options), UserError);
}

TEST(BpeTrainer, WordOfAMegabyteIsLearnedFrom) {
  std::mt19937 draw(5);
  std::string word(1'000'000, 'a');
  for (char& letter : word) letter = static_cast<char>('a' + draw() % 26);
  const TrainedBpe bpe = train({word}, {.vocab_size = 500});
  EXPECT_EQ(bpe.pieces.size(), 500u);
}

}  // namespace bpe_trainer_test
}  // namespace espalier::text
