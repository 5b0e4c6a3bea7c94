#include "data/blend_recipe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/data_plan.h"
#include "data/internal/test_folder.h"
#include "data/token_store.h"
#include "tests/support/oracle.h"

namespace espalier::data {
namespace {

using test_files::error_of;
using test_files::TestFolder;
using test_files::write_text;

// Documents of one token each.
void write_store(const std::string& prefix, int documents) {
  TokenStoreWriter writer(prefix, TokenType::kUint16);
  for (int document = 0; document < documents; ++document) {
    writer.add_sequence(std::vector<int32_t>{document});
    writer.end_document();
  }
  writer.finish();
}

TEST(BlendRecipe, ReadsBloomsRatios) {
  const std::filesystem::path file = test::find_data("bloom_ratios_v3.json");
  if (file.empty()) GTEST_SKIP() << "needs ../shared/data/bloom_ratios_v3.json";
  const std::vector<BlendSource> sources = parse_ratios(read_file(file), "bloom_ratios_v3.json");
  ASSERT_EQ(sources.size(), 28u);
  EXPECT_EQ(sources[0].weight, 0.0330676168743166);
  EXPECT_EQ(sources[0].corpus, "ar");
  EXPECT_TRUE(sources[1].prefix.ends_with("lines-articles_ca_text_document"));
  double sum = 0;
  for (const BlendSource& source : sources) sum += source.weight;
  EXPECT_NEAR(sum, 1, 0.01);
  // As BigScience's own script wrote the line, of which this is the first entry.
  const std::string line = split_file_content(sources, {"train", {0, 0.95}, false, "."});
  EXPECT_EQ(line.find("\"train: 0.0330676168743166 0:0.95 /gpfswork/rech/six/commun/bigscience-training/"), 0u) << line;
  EXPECT_TRUE(line.ends_with("\"\n"));
}

TEST(BlendRecipe, TakesRatiosByPathAndNamesWhatIsWrong) {
  const std::vector<BlendSource> sources =
      parse_ratios(R"({"a/en_text_document.bin": [0.75, 12.5], "b/fr_text_document": 1e-3})", "r.json");
  EXPECT_EQ(sources[0].prefix, "a/en_text_document");
  EXPECT_EQ(sources[0].weight, 0.75);
  EXPECT_EQ(sources[1].weight, 0.001);
  EXPECT_EQ(sources[1].corpus, "b");
  const auto refusal = [](const std::string& content) { return error_of([&] { parse_ratios(content, "r.json"); }); };
  EXPECT_EQ(refusal("[{\"dataset_path\": \"a\", \"ratio\": \"1\"}]"),
            "r.json: entry 1: ratio: expected a number, found \"1\"");
  EXPECT_EQ(refusal("[{\"dataset_path\": \"a\"}]"),
            "r.json: entry 1: expected the keys dataset_path and ratio, found no 'ratio'");
  EXPECT_EQ(refusal("[{\"dataset_path\": 1, \"ratio\": 1}]"),
            "r.json: entry 1: dataset_path: expected a string, found number");
  EXPECT_EQ(
      refusal("[{\"dataset_path\": \"a\", \"ratio\": -1}]"),
      "r.json: entry 1: ratio: expected a weight of 0 or more, found -1. Leave out a set that should not be read.");
  EXPECT_EQ(refusal("[1]"), "r.json: entry 1: expected an object, found number");
  EXPECT_EQ(refusal("7"), "r.json: expected a list of {\"dataset_path\", \"ratio\"}, found number");
  EXPECT_EQ(refusal("[]"), "r.json: expected at least one data set, found none");
  EXPECT_EQ(refusal(R"([{"dataset_path": "a", "ratio": 1e999}])"),
            "r.json: holds a number that is too large to be one");
  EXPECT_EQ(refusal(R"([{"dataset_path": "a", "ratio": )" + std::string(300'000, '[')),
            "r.json: line 1, column 95: lists and objects nest more than 64 deep, which no file of this kind needs");
  EXPECT_EQ(refusal("[{]"), "r.json: line 1, column 3: expected JSON, found ']'");
}

TEST(BlendRecipe, ReadsArgonnesFileLists) {
  const std::vector<BlendSource> sources = parse_file_list(
      "0.0031025147279277244 /flare/dolma/books-0000_text_document books\r\n\n 2 c4/c4-1_text_document.bin  c4 \n",
      "list.txt");
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[0].weight, 0.0031025147279277244);
  EXPECT_EQ(sources[0].corpus, "books");
  EXPECT_EQ(sources[1].prefix, "c4/c4-1_text_document");
  const auto refusal = [](const std::string& content) { return error_of([&] { parse_file_list(content, "l"); }); };
  EXPECT_EQ(refusal("1 a\n"), "l: line 1: expected three words, WEIGHT PREFIX CORPUS, found 2");
  EXPECT_EQ(refusal("1 a b\n\nx a b\n"), "l: line 3: 'x' is not a number");
  EXPECT_EQ(refusal("-1 a b"),
            "l: line 1: expected a weight of 0 or more, found -1. Leave out a set that should not be read.");
  EXPECT_EQ(refusal("\n"), "l: expected at least one line WEIGHT PREFIX CORPUS, found none");
}

TEST(BlendRecipe, WeighsCorporaByTheirSizeToAPower) {
  TestFolder folder;
  write_store(folder / "en0", 600);
  write_store(folder / "en1", 300);
  write_store(folder / "sw", 100);
  std::vector<BlendSource> sources =
      parse_file_list(concat("1 ", folder / "en0", " en\n1 ", folder / "en1", " en\n1 ", folder / "sw", " sw"), "l");
  measure(sources, {0, 0.95});
  EXPECT_EQ(sources[0].num_documents, 600);
  EXPECT_EQ(sources[0].num_train_tokens, 570);
  weigh_by_size(sources, 1);
  EXPECT_DOUBLE_EQ(sources[0].weight, 0.6);
  EXPECT_DOUBLE_EQ(sources[2].weight, 0.1);
  // q = p^0.3 / sum of p^0.3, p = 0.9 and 0.1 (Conneau and Lample 2019, section 3.1).
  weigh_by_size(sources, 0.3);
  const double en = std::pow(0.9, 0.3), sw = std::pow(0.1, 0.3);
  EXPECT_DOUBLE_EQ(sources[0].weight, en / (en + sw) * 2 / 3);
  EXPECT_DOUBLE_EQ(sources[1].weight, en / (en + sw) / 3);
  EXPECT_DOUBLE_EQ(sources[2].weight, sw / (en + sw));
  weigh_by_size(sources, 0);
  EXPECT_DOUBLE_EQ(sources[2].weight, 0.5);
  Problems problems;
  set_epochs(sources, {{"sw", 3}, {"em", 2}}, problems);
  EXPECT_EQ(problems.messages(), std::vector<std::string>{"--epochs em=2: no corpus has that name; did you mean en?"});
  weigh_by_size(sources, 1);
  EXPECT_DOUBLE_EQ(sources[2].weight, 300.0 / 1200);
  Problems none;
  set_epochs(sources, {{"en", 0}}, none);
  weigh_by_size(sources, 1);
  EXPECT_EQ(drop_unweighted(sources), (std::vector<std::string>{folder / "en0", folder / "en1"}));
  EXPECT_EQ(sources[0].weight, 1);
}

TEST(BlendRecipe, WritesWhatTrainingReadsWhereverTheFolderGoes) {
  TestFolder folder;
  write_store(folder / "data/en/text_document", 7);
  write_store(folder / "data/fr/text_document", 33);
  std::vector<BlendSource> sources = parse_ratios(R"([{"dataset_path": "/far/away/en/text_document", "ratio": 0.25},
                       {"dataset_path": "/far/away/fr/text_document", "ratio": 0.125}])",
                                                  "r.json");
  relocate(sources, folder / "data");
  measure(sources, {0, 0.9});
  const std::string train = split_file_content(sources, {"train", {0, 0.9}, false, folder / "data/splits"});
  EXPECT_EQ(train, "\"train: 0.25 0:0.9 ../en/text_document, 0.125 0:0.9 ../fr/text_document\"\n");
  const std::string valid = split_file_content(sources, {"valid", {0.9, 1}, true, folder / "data/splits"});
  EXPECT_EQ(valid,
            "\"valid: 0.25 0.9:1 ../en/text_document, 0.125 0.9:1 ../fr/text_document\" "
            "\"valid_en: 0.25 0.9:1 ../en/text_document\" \"valid_fr: 0.125 0.9:1 ../fr/text_document\"\n");
  std::filesystem::create_directories(folder / "data/splits");
  write_text(folder / "data/splits/train-splits.txt", train);
  write_text(folder / "data/splits/valid-splits.txt", valid);
  std::filesystem::rename(folder / "data", folder / "moved");
  DataSetOptions options;
  options.train_weighted_split_paths_path = folder / "moved/splits/train-splits.txt";
  options.valid_weighted_split_paths_path = folder / "moved/splits/valid-splits.txt";
  options.sequence_length = 4;
  Problems problems;
  const DataPlan plan = plan_data(options, problems);
  problems.raise();
  ASSERT_EQ(plan.train.sources.size(), 2u);
  EXPECT_EQ(plan.train.sources[1].prefix, folder / "moved/fr/text_document");
  EXPECT_EQ(plan.train.sources[1].weight, 0.125);
  EXPECT_EQ(plan.valid[2].name, "valid_fr");
}

TEST(BlendRecipe, RefusesAPathThatTheFormatCannotHold) {
  const std::vector<BlendSource> sources = parse_ratios(R"([{"dataset_path": "my data", "ratio": 1}])", "r.json");
  EXPECT_EQ(error_of([&] {
              split_file_content(sources, {"train", {0, 1}, false, "."});
            }),
            "'my data': a split file cannot hold a path with a space, a comma or a quote. Rename it.");
}

}  // namespace
}  // namespace espalier::data
