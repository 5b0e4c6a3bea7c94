// Samples of BERT and T5, against those that Megatron-DeepSpeed's own code made.
#include "data/sentence_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/sha256.h"
#include "data/internal/test_folder.h"
#include "data/sentence_case_test.h"
#include "tests/support/npy.h"
#include "tests/support/oracle.h"

namespace espalier::data {
namespace sentence_dataset_test {

using Json = nlohmann::json;
using test_files::error_of;
using test_files::TestFolder;
namespace fs = std::filesystem;

std::unique_ptr<text::Tokenizer> bert_tokenizer(const fs::path& vocab_file, int64_t extra_ids) {
  return text::load_tokenizer(
      {.type = "BertWordPieceLowerCase", .vocab_file = vocab_file.string(), .extra_ids = extra_ids});
}

SentenceVocabulary vocabulary_of(const text::Tokenizer& tokenizer, SentenceModel model) {
  Problems problems;
  SentenceVocabulary vocabulary = SentenceVocabulary::make(tokenizer, model, problems);
  EXPECT_TRUE(problems.empty()) << problems.messages().front();
  return vocabulary;
}

// A sample as upstream's dictionary: T5's masks of attention, which follow from the ids, among its arrays.
std::map<std::string, std::vector<int64_t>> upstream_arrays(const SentenceDataset& dataset, const Sample& sample) {
  std::map<std::string, std::vector<int64_t>> arrays;
  for (size_t at = 0; at < dataset.fields().size(); ++at) arrays[dataset.fields()[at].name] = sample.arrays[at];
  if (dataset.options().model == SentenceModel::kBert) return arrays;
  const std::vector<int64_t>&encoder = arrays["text_enc"], &decoder = arrays["text_dec"];
  const auto add_mask = [&](const std::string& name, const auto& queries, const auto& keys, bool causal) {
    std::vector<int64_t>& mask = arrays[name];
    for (size_t query = 0; query < queries.size(); ++query)
      for (size_t key = 0; key < keys.size(); ++key)
        mask.push_back(queries[query] >= 1 && keys[key] >= 1 && (!causal || key <= query));
  };
  add_mask("enc_mask", encoder, encoder, false);
  add_mask("dec_mask", decoder, decoder, true);
  add_mask("enc_dec_mask", decoder, encoder, false);
  return arrays;
}

// "{set}_{field}.npy" of a folder of the oracle, row by row, against the first samples. Returns how many were compared.
int64_t expect_equal_arrays(const fs::path& folder, const std::string& set, const SentenceDataset& dataset) {
  int64_t compared = 0;
  Sample sample;
  for (const auto& [name, unused] : upstream_arrays(dataset, (dataset.read(0, sample), sample))) {
    const fs::path file = folder / ((set.empty() ? "" : set + "_") + name + ".npy");
    if (!fs::exists(file)) continue;
    const test::Npy expected = test::read_npy(file);
    const std::vector<int64_t> values = expected.as<int64_t>();
    const size_t length = values.size() / static_cast<size_t>(expected.shape[0]);
    for (int64_t number = 0; number < expected.shape[0]; ++number) {
      dataset.read(number, sample);
      const auto begin = values.begin() + number * static_cast<int64_t>(length);
      EXPECT_EQ(upstream_arrays(dataset, sample).at(name),
                std::vector<int64_t>(begin, begin + static_cast<int64_t>(length)))
          << file << " sample " << number;
      ++compared;
    }
  }
  return compared;
}

std::vector<int64_t> values_of(const IndexArray& array) {
  std::vector<int64_t> values;
  for (int64_t at = 0; at < array.size(); ++at) values.push_back(array[at]);
  return values;
}

// Of the first samples: all arrays sorted by name, each number as an int64.
std::string sha256_of_samples(const SentenceDataset& dataset, int64_t count) {
  std::string bytes;
  Sample sample;
  for (int64_t number = 0; number < count; ++number) {
    dataset.read(number, sample);
    for (const auto& [name, values] : upstream_arrays(dataset, sample))
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
  }
  return hex_digits(sha256(bytes));
}

struct Options {
  DataSetOptions data;
  SentenceSampleOptions samples;
};

TEST(SentenceDataset, EverySampleOfTheOracleIsEqual) {
  const fs::path folder = test::find_data("megatron-oracle/bert_t5");
  if (folder.empty()) GTEST_SKIP() << "no megatron-oracle/bert_t5";
  const Json oracle = Json::parse(read_file(folder / "bert_t5.json"));
  ASSERT_EQ(oracle["cases"].size(), 3u);
  for (const Json& one : oracle["cases"]) {
    const bool is_t5 = one["kind"] == "t5";
    // T5's sentinels count among the ids that BERT draws from.
    const auto tokenizer = bert_tokenizer(folder / "vocab.txt", 100);
    Options options;
    options.data = {.data_path = {(folder / "sentences").string()},
                    .split = one["split"],
                    .sequence_length = one["max_seq_length"],
                    .seed = one["seed"],
                    .train_samples = one["num_samples"][0],
                    .valid_samples = one["num_samples"][1],
                    .test_samples = 0};
    options.samples = {.model = is_t5 ? SentenceModel::kT5 : SentenceModel::kBert,
                       .sequence_length = one["max_seq_length"],
                       .decoder_sequence_length = is_t5 ? one["max_seq_length_dec"].get<int64_t>() : 0,
                       .mask_probability = one["masked_lm_prob"],
                       .short_probability = one["short_seq_prob"],
                       .binary_head = one["binary_head"],
                       .vocabulary = vocabulary_of(*tokenizer, is_t5 ? SentenceModel::kT5 : SentenceModel::kBert)};
    const SentenceDataSets sets = SentenceDataSets::open(options.data, options.samples);
    for (const auto& [set, expected] : one["sets"].items()) {
      const SentenceDataset& dataset = set == "train" ? *sets.train : *sets.valid.at(0);
      const fs::path arrays = folder / one["case"];
      EXPECT_EQ(dataset.size(), expected["length"]) << arrays << " " << set;
      EXPECT_EQ(values_of(dataset.parts()[0].map.rows()),
                test::read_npy(arrays / (set + "_mapping.npy")).as<int64_t>());
      EXPECT_GE(expect_equal_arrays(arrays, set, dataset), 5 * 8) << arrays << " " << set;
      EXPECT_EQ(sha256_of_samples(dataset, std::min<int64_t>(500, dataset.size())),
                expected["sha256_of_first_500_samples"])
          << arrays << " " << set;
    }
  }
}

// Random small cases that upstream's own code made (tests/oracle/megatron_data_oracle.py): committed ones, and new ones
// where ESPALIER_FRESH_ORACLES names a folder with them.
TEST(SentenceDataset, CasesOfUpstreamAreEqual) {
  std::vector<fs::path> roots = {"tests/data/megatron-oracle/fresh_data"};
  if (const char* fresh = std::getenv("ESPALIER_FRESH_ORACLES")) roots.push_back(fs::path(fresh) / "megatron_data");
  int64_t num_cases = 0, num_arrays = 0;
  for (const fs::path& root : roots)
    for (const auto& entry : fs::exists(root) ? fs::directory_iterator(root) : fs::directory_iterator()) {
      const Json one = Json::parse(read_file(entry.path() / "case.json"));
      if (one["kind"] != "sentences") continue;
      const auto [data, samples] = test::sentence_case(entry.path(), one);
      const SentenceDataSets sets = SentenceDataSets::open(data, samples);
      EXPECT_EQ(values_of(sets.train->parts()[0].map.rows()),
                test::read_npy(entry.path() / "mapping.npy").as<int64_t>())
          << entry.path();
      const int64_t compared = expect_equal_arrays(entry.path(), "", *sets.train);
      EXPECT_GE(compared, 5) << entry.path();
      num_arrays += compared;
      ++num_cases;
    }
  EXPECT_GE(num_cases, 6);
  EXPECT_GE(num_arrays, 200);
}

constexpr int32_t kPad = 0, kCls = 1, kSep = 2, kMask = 3, kBos = 4, kEos = 5, kFirstPiece = 6;

// `num_pieces` pieces, every third of which continues with a word, and then sentinels.
SentenceVocabulary small_vocabulary(int32_t num_pieces, int32_t num_sentinels) {
  SentenceVocabulary vocabulary{.size = kFirstPiece + num_pieces + num_sentinels,
                                .cls = kCls,
                                .sep = kSep,
                                .mask = kMask,
                                .pad = kPad,
                                .bos = kBos,
                                .eos = kEos};
  for (int32_t id = 0; id < vocabulary.size; ++id) {
    vocabulary.continues_word.push_back(id >= kFirstPiece && id < kFirstPiece + num_pieces && id % 3 == 0);
    if (id >= kFirstPiece + num_pieces) vocabulary.sentinels.push_back(id);
  }
  return vocabulary;
}

using Documents = std::vector<std::vector<std::vector<int32_t>>>;

void write_store(const std::string& prefix, const Documents& documents) {
  TokenStoreWriter writer(prefix, TokenType::kUint16);
  for (const auto& document : documents) {
    for (const auto& sentence : document) writer.add_sequence(sentence);
    writer.end_document();
  }
  writer.finish();
}

Documents random_documents(std::mt19937& random, int64_t count, int32_t num_pieces) {
  Documents documents(static_cast<size_t>(count));
  for (auto& document : documents) {
    document.resize(random() % 9);  // some have none
    for (auto& sentence : document) {
      sentence.resize(random() % 40 == 0 ? 520 : random() % 23);  // some are empty, some too long
      for (int32_t& id : sentence)
        id = kFirstPiece + static_cast<int32_t>(random() % static_cast<uint32_t>(num_pieces));
    }
  }
  documents.push_back({{kFirstPiece}, {kFirstPiece + 1, kFirstPiece + 2}});  // at least one can be used
  return documents;
}

// What a sample of BERT was made from: its text with the labels in their places, less the special tokens.
std::vector<int64_t> tokens_of_bert(const SentenceDataset& dataset, const Sample& sample) {
  std::vector<int64_t> tokens;
  const auto& labels = sample.arrays[dataset.field("labels")];
  for (size_t at = 0; at < labels.size(); ++at) {
    const int64_t id = labels[at] >= 0 ? labels[at] : sample.arrays[dataset.field("text")][at];
    if (sample.arrays[dataset.field("padding_mask")][at] == 1 && id != kCls && id != kSep) tokens.push_back(id);
  }
  return tokens;
}

void check_bert(const SentenceDataset& dataset, const Sample& sample, const std::vector<int64_t>& sentences,
                int64_t target) {
  const auto array = [&](const char* name) { return sample.arrays[dataset.field(name)]; };
  const std::vector<int64_t> text = array("text"), types = array("types"), labels = array("labels");
  const std::vector<int64_t> loss_mask = array("loss_mask"), padding_mask = array("padding_mask");
  const auto length = static_cast<size_t>(std::count(padding_mask.begin(), padding_mask.end(), 1));
  EXPECT_EQ(text[0], kCls);
  EXPECT_EQ(text[length - 1], kSep);
  EXPECT_TRUE(std::is_sorted(padding_mask.rbegin(), padding_mask.rend()));
  EXPECT_TRUE(std::is_sorted(types.begin(), types.begin() + static_cast<int64_t>(length)));
  int64_t num_masked = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    EXPECT_EQ(loss_mask[at], labels[at] >= 0);
    num_masked += loss_mask[at];
    if (at >= length) {
      EXPECT_EQ((std::vector<int64_t>{text[at], types[at], labels[at]}), (std::vector<int64_t>{kPad, kPad, -1}));
    }
    if (labels[at] == kCls || labels[at] == kSep) ADD_FAILURE() << "a special token is masked";
  }
  const double share = dataset.options().mask_probability;
  EXPECT_LE(static_cast<double>(num_masked),
            std::min(std::max(1.0, std::nearbyint(share * static_cast<double>(length))),
                     share * static_cast<double>(target)));
  std::vector<int64_t> tokens = tokens_of_bert(dataset, sample);
  const auto total = static_cast<int64_t>(sentences.size());
  EXPECT_EQ(static_cast<int64_t>(tokens.size()), std::min(total, target));
  EXPECT_EQ(array("truncated")[0], total > target);
  if (total > target) return;
  // The halves in their order again.
  const int64_t in_b = std::count(types.begin(), types.begin() + static_cast<int64_t>(length), 1);
  if (array("is_random")[0] == 1)
    std::rotate(tokens.begin(), tokens.end() - std::max<int64_t>(in_b - 1, 0), tokens.end());
  EXPECT_EQ(tokens, sentences);
}

// Encoder and decoder together give the text back.
void check_t5(const SentenceDataset& dataset, const Sample& sample, std::vector<int64_t> sentences, int64_t target) {
  const auto array = [&](const char* name) { return sample.arrays[dataset.field(name)]; };
  const std::vector<int64_t> decoder = array("text_dec"), labels = array("labels"), loss_mask = array("loss_mask");
  const auto length = static_cast<size_t>(std::count(loss_mask.begin(), loss_mask.end(), 1));
  EXPECT_EQ(decoder[0], kBos);
  EXPECT_EQ(labels[length - 1], kEos);
  for (size_t at = 0; at < decoder.size(); ++at) {
    EXPECT_EQ(loss_mask[at], at < length);
    if (at + 1 < length) {
      EXPECT_EQ(labels[at], decoder[at + 1]);
    } else if (at >= length) {
      EXPECT_EQ((std::pair{decoder[at], labels[at]}), (std::pair<int64_t, int64_t>{kPad, -1}));
    }
  }
  const auto& sentinels = dataset.options().vocabulary.sentinels;
  const auto is_sentinel = [&](int64_t id) { return id >= sentinels.front(); };
  std::map<int64_t, std::vector<int64_t>> runs;
  int64_t current = 0;
  for (size_t at = 1; at < length; ++at) {
    if (is_sentinel(decoder[at])) {
      EXPECT_EQ(decoder[at], sentinels[runs.size()]) << "sentinels come in order";
      runs[current = decoder[at]];
    } else {
      runs[current].push_back(decoder[at]);
    }
  }
  std::vector<int64_t> text;
  for (const int64_t id : array("text_enc")) {
    if (id == kPad) break;
    if (!is_sentinel(id))
      text.push_back(id);
    else
      text.insert(text.end(), runs.at(id).begin(), runs.at(id).end());
  }
  EXPECT_EQ(array("truncated")[0], static_cast<int64_t>(sentences.size()) > target);
  if (static_cast<int64_t>(sentences.size()) > target) sentences.resize(static_cast<size_t>(target));
  EXPECT_EQ(text, sentences);
}

TEST(SentenceDataset, SamplesOfRandomStoresKeepTheirText) {
  TestFolder folder;
  std::mt19937 random(11);
  Sample sample;
  for (int round = 0; round < 60; ++round) {
    const bool is_t5 = round % 2 == 1;
    const int32_t num_pieces = 1 + static_cast<int32_t>(random() % 50);
    write_store(folder / "set", random_documents(random, 1 + random() % 9, num_pieces));
    const int64_t length = 5 + static_cast<int64_t>(random() % 70);
    const SentenceSampleOptions samples = {.model = is_t5 ? SentenceModel::kT5 : SentenceModel::kBert,
                                           .sequence_length = length,
                                           .decoder_sequence_length = 2 * length,
                                           .mask_probability = round % 5 == 0 ? 1.0 : 0.15,
                                           .short_probability = static_cast<double>(random() % 11) / 10,
                                           .binary_head = round % 4 == 0,
                                           .vocabulary = small_vocabulary(num_pieces, 200)};
    const DataSetOptions data = {
        .train_data_path = {folder / "set"},
        .sequence_length = length,
        .seed = 4294967290 + static_cast<int64_t>(random() % 6),  // beyond 2^32 with the number
        .train_samples = static_cast<int64_t>(random() % 40)};
    const SentenceDataSets sets = SentenceDataSets::open(data, samples);
    const SentenceDataset& dataset = *sets.train;
    ASSERT_GE(dataset.size(), data.train_samples);
    for (int64_t number = 0; number < dataset.size(); ++number) {
      dataset.read(number, sample);
      for (size_t at = 0; at < dataset.fields().size(); ++at)
        ASSERT_EQ(static_cast<int64_t>(sample.arrays[at].size()), dataset.fields()[at].size())
            << dataset.fields()[at].name;
      const SentenceMap::Row row = dataset.parts()[0].map[number];
      const TokenStore& store = *dataset.parts()[0].store;
      std::vector<int64_t> sentences;
      for (int64_t sentence = row.begin; sentence < row.end; ++sentence) {
        sentences.resize(sentences.size() + static_cast<size_t>(store.size(sentence)));
        store.read(sentence, 0, store.size(sentence), sentences.data() + sentences.size() - store.size(sentence));
      }
      SCOPED_TRACE(concat("round ", round, " sample ", number));
      if (is_t5)
        check_t5(dataset, sample, sentences, row.target);
      else
        check_bert(dataset, sample, sentences, row.target);
      if (HasFailure()) return;
    }
  }
}

// A store of one document of two sentences, read by a model of 16 tokens.
class SmallSentences : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::make_unique<TestFolder>();
    write("a", {{{6, 7, 8}, {9, 10}}, {{11, 12, 13}, {14}}});
  }
  void TearDown() override { folder_.reset(); }

  void write(const std::string& name, const Documents& documents) { write_store(*folder_ / name, documents); }
  SentenceDataSets open(const std::vector<std::string>& path) const {
    DataSetOptions data = data_;
    for (const std::string& word : path)
      data.train_data_path.push_back(word.find_first_not_of("0123456789.") == std::string::npos ? word
                                                                                                : *folder_ / word);
    return SentenceDataSets::open(data, samples_);
  }

  std::unique_ptr<TestFolder> folder_;
  DataSetOptions data_ = {.sequence_length = 16, .train_samples = 30};
  SentenceSampleOptions samples_ = {.sequence_length = 16, .vocabulary = small_vocabulary(60, 10)};
};

TEST_F(SmallSentences, ABlendTakesEachSampleFromOneOfItsSets) {
  write("b", {{{30, 31, 32}, {33, 34}}});
  const SentenceDataSets sets = open({"1", "a", "3", "b"});
  EXPECT_EQ(sets.train->source_names(), (std::vector<std::string>{"a", "b"}));
  Sample sample;
  int64_t of_b = 0;
  for (int64_t number = 0; number < 20; ++number) {
    sets.train->read(number, sample);
    of_b += sample.source;
    for (const int64_t id : tokens_of_bert(*sets.train, sample)) EXPECT_EQ(id >= 30, sample.source == 1) << number;
  }
  EXPECT_EQ(of_b, 15);
}

TEST_F(SmallSentences, DataWithoutSentencesAreRefused) {
  write("whole", {{{6, 7, 8}}, {{9, 10}}, {std::vector<int32_t>(40, 11)}});
  EXPECT_EQ(error_of([&] { open({"whole"}); }),
            concat("'", *folder_ / "whole",
                   "' does not say where sentences end: each of its 3 documents is a single sequence, and BERT's "
                   "samples are made of two halves. Rebuild it with 'espalier preprocess --split-sentences'. Documents "
                   "that are single sentences can be read with --bert-no-binary-head."));
  samples_.binary_head = false;
  EXPECT_EQ(error_of([&] { open({"whole"}); }),
            concat("'", *folder_ / "whole",
                   "' does not say where sentences end: each of its 3 documents is a single sequence; 1 of them have "
                   "more than the 13 tokens of a sample, and the rest would never be read. Rebuild it with 'espalier "
                   "preprocess --split-sentences'."));
  write("short", {{{6, 7, 8}}, {{9, 10}}});
  EXPECT_EQ(open({"short"}).train->parts()[0].map.survey().num_used, 2);
}

TEST_F(SmallSentences, WhatMakesNoSampleIsToldInOneGo) {
  samples_.model = SentenceModel::kT5;
  samples_.sequence_length = data_.sequence_length = 3;
  samples_.mask_probability = 0;
  samples_.short_probability = 1.5;
  const std::string message = error_of([&] { open({"a", "missing"}); });
  for (const char* part : {"--seq-length 3: T5 needs at least 4", "--mask-prob 0: expected a share above 0",
                           "--short-seq-prob 1.5: expected a share from 0 to 1", "missing"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
}

TEST_F(SmallSentences, SamplesOfWhichNoTokenIsEverMaskedAreRefused) {
  for (const auto& [model, length] : {std::pair(SentenceModel::kBert, 13), std::pair(SentenceModel::kT5, 14)}) {
    samples_.model = model;
    samples_.decoder_sequence_length = 16;
    samples_.mask_probability = 0.99 / length;
    EXPECT_NE(error_of([&] {
                open({"a"});
              }).find(concat("of the ", length, " tokens of a sample (--seq-length 16) is less than one token")),
              std::string::npos);
    samples_.mask_probability = 1.01 / length;
    EXPECT_NO_THROW(open({"a"}));
  }
}

TEST_F(SmallSentences, DocumentsThatMakeNoSampleAreCounted) {
  write("none", {{}, {{6}}, {{6}, std::vector<int32_t>(513, 7)}});
  EXPECT_NE(
      error_of([&] { open({"none"}); })
          .find("none of its 3 documents makes a sample: 1 without a sentence, 1 of fewer than 2 sentences, 1 with a "
                "sentence of more than 512 tokens"),
      std::string::npos);
}

TEST_F(SmallSentences, RoomThatDoesNotSufficeIsRefusedWithTheNumbers) {
  samples_.model = SentenceModel::kT5;
  samples_.mask_probability = 0.7;
  samples_.decoder_sequence_length = 5;
  EXPECT_NE(error_of([&] { open({"a"}); })
                .find("--decoder-seq-length 5: a sample of --seq-length 16 with --mask-prob 0.7 "
                      "needs at least 11"),
            std::string::npos);
  samples_.decoder_sequence_length = 64;
  samples_.vocabulary.sentinels.clear();
  const SentenceDataSets sets = open({"a"});
  Sample sample;
  EXPECT_NE(error_of([&] { sets.train->read(0, sample); }).find("and the vocabulary has 0 tokens <extra_id_N>"),
            std::string::npos);
}

TEST(SentenceSampleOptionsOfT5, SayWhatMayEndARun) {
  SentenceSampleOptions samples{.model = SentenceModel::kT5, .sequence_length = 66, .decoder_sequence_length = 16};
  samples.vocabulary.sentinels.resize(7);  // of 64 tokens 9 are masked: 7 runs are many
  EXPECT_NE(samples.caution().find("With a decoder of 16 tokens (--decoder-seq-length) the run ends"),
            std::string::npos)
      << samples.caution();
  samples.decoder_sequence_length = 17;
  EXPECT_EQ(samples.caution(), "");
  samples.vocabulary.sentinels.resize(6);
  EXPECT_NE(samples.caution().find("With 6 sentinels (--vocab-extra-ids) the run ends"), std::string::npos);
  samples.model = SentenceModel::kBert;
  EXPECT_EQ(samples.caution(), "");
}

TEST_F(SmallSentences, AnIdBeyondTheVocabularyIsRefusedWithItsPlace) {
  write("other", {{{6, 7}, {8, 300}}});
  const SentenceDataSets sets = open({"other"});
  Sample sample;
  EXPECT_EQ(
      error_of([&] { sets.train->read(0, sample); }),
      concat("'", *folder_ / "other.bin", "', sequence 1, token 1: expected an id below the 76 of the vocabulary, ",
             "found 300. The data were made with another tokenizer, or are damaged."));
}

TEST_F(SmallSentences, ThreadsReadTheSame) {
  const SentenceDataSets sets = open({"a"});
  std::vector<std::vector<std::vector<int64_t>>> found(4);
  std::vector<std::thread> threads;
  for (auto& arrays : found)
    threads.emplace_back([&arrays, &sets] {
      Sample sample;
      for (int64_t number = 0; number < 30; ++number) {
        sets.train->read(number, sample);
        arrays.insert(arrays.end(), sample.arrays.begin(), sample.arrays.end());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& arrays : found) EXPECT_EQ(arrays, found[0]);
}

TEST_F(SmallSentences, TheFingerprintTellsWhatIsReadOtherwise) {
  const auto changes = [&](const OrderFingerprint& saved) {
    return order_changes(parse_order(to_text(saved)), open({"a"}).train->fingerprint("single"));
  };
  const OrderFingerprint saved = open({"a"}).train->fingerprint("single");
  EXPECT_EQ(changes(saved), std::vector<std::string>());
  samples_.mask_probability = 0.2;
  ASSERT_EQ(changes(saved).size(), 1u);
  EXPECT_NE(changes(saved)[0].find("masked 0.15"), std::string::npos);
  samples_.mask_probability = 0.15;
  data_.train_samples = 300;
  EXPECT_NE(changes(saved).at(0).find("its samples come in another order (asked for 30, then 300)"), std::string::npos);
  data_.train_samples = 30;
  write("a", {{{6, 7, 8}, {9, 10}}, {{11, 12, 13}, {15}}});
  EXPECT_NE(changes(saved).at(0).find("it holds other tokens"), std::string::npos);
}

TEST_F(SmallSentences, AKeptMapIsReadAgainAndADamagedOneBuiltAgain) {
  data_.cache_path = *folder_ / "cache";
  const auto rows = [&] { return values_of(open({"a"}).train->parts()[0].map.rows()); };
  const std::vector<int64_t> built = rows();
  fs::path array;
  for (const auto& entry : fs::directory_iterator(data_.cache_path))
    if (entry.path().string().ends_with("_sentence_map.npy")) array = entry.path();
  ASSERT_FALSE(array.empty());
  EXPECT_EQ(test::read_npy(array).as<int64_t>(), built);
  const auto made = fs::last_write_time(array);
  EXPECT_EQ(rows(), built);
  EXPECT_EQ(fs::last_write_time(array), made);
  std::string bytes = read_file(array);
  bytes.back() ^= 1;
  test_files::write_text(array, bytes);
  EXPECT_EQ(rows(), built);
  test_files::write_text(array, bytes.substr(0, 100));
  EXPECT_EQ(rows(), built);
  data_.seed = 77;
  EXPECT_NE(rows(), built);
}

// The template of a tokenizer.json is around the whole text, as transformers has it.
TEST(EncodeWithSentinels, ATokenizerThatFindsThemGetsTheTextAsAWhole) {
  text::TokenizerOptions options;
  options.type = "PretrainedFromHF";
  options.name_or_path = "tests/data/megatron_tokenizers/hf_bert";
  options.extra_ids = 2;
  const auto tokenizer = text::load_tokenizer(options);
  const auto id = [&](const char* piece) { return tokenizer->piece_to_id(piece).value(); };
  EXPECT_EQ(encode_with_sentinels(*tokenizer, "a<extra_id_1> b <extra_id_0>"),
            (std::vector<int32_t>{id("[CLS]"), id("a"), id("<extra_id_1>"), id("b"), id("<extra_id_0>"), id("[CLS]")}));
  EXPECT_NO_THROW(encode_with_sentinels(*tokenizer, "a <extra_id_x> b <extra_id_> <extra_id_"));
  try {
    encode_with_sentinels(*tokenizer, "a <extra_id_2>");
    FAIL() << "taken as plain text";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "the model has no token <extra_id_2>: its last one is <extra_id_1>");
  }
}

}  // namespace sentence_dataset_test
}  // namespace espalier::data
