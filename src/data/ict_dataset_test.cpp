// Blocks and queries of the inverse cloze task: the map against upstream's array and by hand, samples against CPython's
// draws.
#include "data/ict_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "data/internal/test_folder.h"
#include "data/store_metadata.h"
#include "tests/support/npy.h"
#include "tests/support/oracle.h"

namespace espalier::data {
namespace ict_dataset_test {

using Row = BlockMap::Row;
using test_files::error_of;
using test_files::TestFolder;
using Ids = std::vector<int64_t>;
namespace fs = std::filesystem;

struct Texts {
  Texts(const std::vector<std::vector<int32_t>>& documents, std::vector<int32_t> title_sizes)
      : titles(std::move(title_sizes)) {
    for (const auto& document : documents) {
      sizes.insert(sizes.end(), document.begin(), document.end());
      marks.push_back(static_cast<int64_t>(sizes.size()));
    }
  }
  BlockMap map(const BlockMapRequest& request) const {
    return BlockMap::build({DocumentSizes(std::span(sizes)), DocumentMarks(std::span(marks))},
                           DocumentSizes(std::span(titles)), request);
  }

  std::vector<int32_t> sizes, titles;
  std::vector<int64_t> marks = {0};
};

std::vector<Row> rows_by_place(const BlockMap& map) {
  std::vector<Row> rows;
  for (int64_t at = 0; at < map.size(); ++at) rows.push_back(map[at]);
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.first < b.first; });
  return rows;
}

TEST(BlockMap, IsUpstreamsArrayToTheBit) {
  const fs::path folder = test::find_data("megatron-oracle/bert_t5");
  if (folder.empty()) GTEST_SKIP() << "no megatron-oracle/bert_t5";
  const TokenStore texts((folder / "sentences").string()), titles((folder / "sentences_titles").string());
  const BlockMap map = BlockMap::build(
      {texts.sizes(), texts.document_marks()}, titles.sizes(),
      {.documents = {0, texts.num_documents()}, .max_length = 256, .num_samples = 500, .seed = 1234, .name = "train"});
  const test::Npy expected = test::read_npy(folder / "ict_blocks/seed1234_seq256_onesent0.npy");
  EXPECT_EQ(expected.shape, (Ids{map.size(), 4}));
  Ids values;
  for (int64_t at = 0; at < map.rows().size(); ++at) values.push_back(map.rows()[at]);
  EXPECT_EQ(values, expected.as<int64_t>());
}

TEST(BlockMap, ATitleTakesRoomAndEveryBlockHasEnoughSentences) {
  const Texts texts({{4, 4, 4, 4, 4, 4}, {9}, {}, {5, 5, 5, 5, 5}, {600}, {1, 600}}, {0, 1, 0, 6, 0, 0});
  BlockMapRequest request{.documents = {0, 6}, .max_length = 11, .name = "set"};
  // 4 + 4 + 4 is 11 and more; the title of 6 leaves 5, which two sentences have; three are left, which are one block.
  EXPECT_EQ(rows_by_place(texts.map(request)),
            (std::vector<Row>{{0, 3, 0, 0}, {3, 6, 0, 1}, {7, 9, 3, 2}, {9, 12, 3, 3}}));
  request.min_sentences = 1;
  EXPECT_EQ(rows_by_place(texts.map(request)), (std::vector<Row>{{0, 3, 0, 0},
                                                                 {3, 6, 0, 1},
                                                                 {6, 7, 1, 2},
                                                                 {7, 8, 3, 3},
                                                                 {8, 9, 3, 4},
                                                                 {9, 10, 3, 5},
                                                                 {10, 11, 3, 6},
                                                                 {11, 12, 3, 7}}));
  // A set that begins later: documents and titles by their numbers in the file, blocks from 0.
  request = {.documents = {2, 6}, .max_length = 11, .name = "set"};
  EXPECT_EQ(rows_by_place(texts.map(request)), (std::vector<Row>{{7, 9, 3, 0}, {9, 12, 3, 1}}));
}

TEST(BlockMap, EpochsAreWholeAndNumberTheirBlocksAnew) {
  const Texts texts({{4, 4}, {5, 5}, {6, 6}}, {1, 1, 1});
  for (const auto& [asked, size] : std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {1, 3}, {3, 3}, {4, 6}, {7, 9}}) {
    const BlockMap map = texts.map({.documents = {0, 3}, .max_length = 100, .num_samples = asked, .name = "set"});
    EXPECT_EQ(map.size(), size) << asked;
    for (const Row& row : rows_by_place(map)) EXPECT_EQ(row.block, row.document);
  }
}

TEST(BlockMap, DocumentsAndTitlesThatCannotBeUsedAreRefused) {
  const Texts texts({{600, 1}, {9}, {}, {5, 5}}, {0, 0, 0, 12});
  EXPECT_EQ(error_of([&] {
              texts.map({.documents = {0, 3}, .max_length = 11, .name = "valid of wiki"});
            }),
            "valid of wiki: none of its 3 documents makes a block: 1 without a sentence, 1 of fewer than 2, 1 with a "
            "sentence of more than 512 tokens, which are left out as in Megatron. Give this set more documents, or "
            "split them into sentences with 'espalier preprocess --split-sentences', or use documents of one sentence "
            "with --use-one-sent-docs.");
  EXPECT_EQ(error_of([&] {
              texts.map({.documents = {0, 4}, .max_length = 11, .name = "train of wiki"});
            }),
            "train of wiki: the title of document 3 has 12 tokens; a sample has room for 0 to 11 besides its special "
            "ones. Shorten the titles or raise --seq-length.");
  EXPECT_EQ(texts.map({.documents = {0, 4}, .max_length = 12, .name = "train of wiki"}).size(), 1);
}

// Two documents of three sentences each; ids identify the document, the sentence and the token.
void write_texts(const TestFolder& folder, int64_t num_titles) {
  TokenStoreWriter texts(folder / "text", TokenType::kInt32), titles(folder / "title", TokenType::kInt32);
  for (int32_t document = 1; document <= 2; ++document) {
    for (int32_t sentence = 1; sentence <= 3; ++sentence)
      texts.add_sequence(std::vector<int32_t>{100 * document + 10 * sentence, 100 * document + 10 * sentence + 1});
    texts.end_document();
  }
  for (int32_t title = 1; title <= num_titles; ++title) {
    titles.add_sequence(std::vector<int32_t>{100 * title});
    titles.end_document();
  }
  texts.finish();
  titles.finish();
}

IctSampleOptions options_of(const TestFolder& folder, int64_t length) {
  IctSampleOptions options{.sequence_length = length, .titles_data_path = folder / "title"};
  options.vocabulary.size = 300;
  options.vocabulary.cls = 1;
  options.vocabulary.sep = 2;
  options.vocabulary.pad = 0;
  return options;
}

TEST(IctDataset, TakesTheSentencesThatCPythonDraws) {
  const TestFolder folder;
  write_texts(folder, 2);
  const DataSetOptions data{
      .data_path = {folder / "text"}, .split = "100,0,0", .sequence_length = 11, .seed = 1234, .train_samples = 4};
  IctSampleOptions options = options_of(folder, 11);
  options.query_in_block_prob = 0.5;
  const IctDataSets sets = IctDataSets::open(data, options);
  ASSERT_EQ(sets.train->size(), 4);
  // random.Random(1234) of CPython 3.11: (randint(0, 2), random() < 0.5), four times.
  const std::vector<std::pair<int64_t, bool>> draws = {{1, true}, {0, false}, {2, true}, {2, true}};
  Sample sample;
  for (const int64_t number : {3, 0, 2, 1}) {  // in any order
    sets.train->read(number, sample);
    const Row row = sets.train->map()[number];
    const auto [place, stays] = draws[static_cast<size_t>(number)];
    const int64_t first = 100 * (row.document + 1);
    Ids query = {1, first + 10 * (place + 1), first + 10 * (place + 1) + 1, 2}, block = {1, first, 2};
    for (int64_t sentence = 0; sentence < 3; ++sentence)
      if (stays || sentence != place)
        block.insert(block.end(), {first + 10 * sentence + 10, first + 10 * sentence + 11});
    block.push_back(2);
    Ids query_mask(query.size(), 1), block_mask(block.size(), 1);
    for (Ids* row_of : {&query, &query_mask, &block, &block_mask}) row_of->resize(11, 0);
    EXPECT_EQ(sample.arrays,
              (std::vector<Ids>{query, query_mask, block, block_mask, {row.first, row.end, row.document, row.block}}));
  }
}

TEST(IctDataset, CutsWhatIsTooLong) {
  const TestFolder folder;
  write_texts(folder, 2);
  const DataSetOptions data{.data_path = {folder / "text"}, .split = "1", .sequence_length = 4, .seed = 1};
  IctSampleOptions options = options_of(folder, 4);
  const IctDataSets sets = IctDataSets::open(data, options);
  Sample sample;
  sets.train->read(0, sample);
  EXPECT_EQ(sample.arrays[0].size(), 4u);
  EXPECT_EQ(sample.arrays[0].back(), 2);  // CLS, two tokens, SEP
  // The title fills it.
  EXPECT_EQ(sample.arrays[2], (Ids{1, 100 * (sample.arrays[4][2] + 1), 2, 2}));
}

TEST(IctDataset, NamesEveryProblemAtOnce) {
  const TestFolder folder;
  write_texts(folder, 3);
  const DataSetOptions data{.data_path = {folder / "text"}, .sequence_length = 3, .cache_path = folder / "cache"};
  EXPECT_EQ(error_of([&] { IctDataSets::open(data, options_of(folder, 3)); }),
            concat("3 problems:\n  - --seq-length 3: ICT needs 4 tokens or more: CLS, SEP and SEP, and one of the "
                   "text\n  - --data-cache-path: the maps of ICT are rebuilt each time, which takes a pass over the "
                   "sizes of the sentences; leave it out\n  - --titles-data-path ",
                   folder / "title", ": expected one title for each of the 2 documents of '", folder / "text",
                   "', found 3 sequences. Make them with 'espalier preprocess --json-keys title' from the same input, "
                   "without --split-sentences."));
  EXPECT_FALSE(fs::exists(folder / "cache"));
}

// Two of three records each, but not the same ones.
TEST(IctDataset, WarnsOfRecordsWithoutTextAndOthersWithoutTitle) {
  const TestFolder folder;
  write_texts(folder, 2);
  const DataSetOptions data{.data_path = {folder / "text"}, .split = "1", .sequence_length = 9};
  const auto warned = [&] {
    ::testing::internal::CaptureStderr();
    IctDataSets::open(data, options_of(folder, 9));
    return ::testing::internal::GetCapturedStderr();
  };
  const auto write = [&](const char* name, int64_t num_sequences, int64_t num_tokens, const char* empty) {
    write_metadata(folder / name, {.program = "espalier",
                                   .num_documents = 2,
                                   .num_sequences = num_sequences,
                                   .num_tokens = num_tokens,
                                   .options = {{"empty", empty}}});
  };
  write("text", 6, 12, "1");
  EXPECT_EQ(warned().find("gave no text"), std::string::npos);
  write("title", 2, 2, "1");
  EXPECT_NE(warned().find("1 records gave no text and 1 no title"), std::string::npos);
}

TEST(IctDataset, AFingerprintTellsTitlesApart) {
  const TestFolder folder;
  write_texts(folder, 2);
  const DataSetOptions data{.data_path = {folder / "text"}, .split = "1", .sequence_length = 9};
  const auto text_of = [&] {
    return to_text(IctDataSets::open(data, options_of(folder, 9)).train->fingerprint("in order"));
  };
  const std::string before = text_of();
  EXPECT_EQ(text_of(), before);
  TokenStoreWriter titles(folder / "title", TokenType::kInt32);
  for (int32_t title = 1; title <= 2; ++title) {
    titles.add_sequence(std::vector<int32_t>{100 * title, 7});
    titles.end_document();
  }
  titles.finish();
  EXPECT_NE(text_of(), before);
}

}  // namespace ict_dataset_test
}  // namespace espalier::data
