#include "data/gpt_dataset.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/sha256.h"
#include "tests/support/npy.h"
#include "tests/support/oracle.h"

namespace espalier::data {
namespace {

using Json = nlohmann::json;

class GptDatasetTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / concat("espalier_gpt_dataset_", info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Documents of `length` tokens each; token = first_id + number of the document.
  std::string write_store(const std::string& name, int64_t num_documents, int64_t length, int32_t first_id) {
    const std::string prefix = (folder_ / name).string();
    TokenStoreWriter writer(prefix, TokenType::kInt32);
    for (int64_t document = 0; document < num_documents; ++document) {
      writer.add_sequence(std::vector<int32_t>(static_cast<size_t>(length), first_id + static_cast<int32_t>(document)));
      writer.end_document();
    }
    writer.finish();
    return prefix;
  }

  static std::string refusal(const DataSetOptions& options) {
    try {
      GptDataSets::open(options);
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  }

  static std::vector<int64_t> ids_of(const GptDataset& dataset, int64_t number) {
    std::vector<int64_t> ids(static_cast<size_t>(dataset.sequence_length() + 1));
    dataset.sample(number, ids);
    return ids;
  }

  DataSetOptions options_of(const std::vector<std::string>& data_path, const std::string& split) {
    DataSetOptions options;
    options.data_path = data_path;
    options.split = split;
    options.sequence_length = 4;
    options.train_samples = 10;
    options.valid_samples = 3;
    return options;
  }

  std::filesystem::path folder_;
};

using GptDatasetOracle = GptDatasetTest;

TEST_F(GptDatasetOracle, SamplesEqualMegatrons) {
  const std::filesystem::path bin = test::find_data("owt_text_document.bin");
  if (bin.empty()) GTEST_SKIP() << "needs ../shared/data/owt_text_document.bin";
  const Json cases = Json::parse(test::read_bytes(test::find_data("megatron-oracle/gpt_index/cases.json")));
  for (const Json& test_case : cases) {
    DataSetOptions options;
    options.data_path = {bin.string().substr(0, bin.string().size() - 4)};
    options.split = test_case["split"];
    options.sequence_length = test_case["seq_length"];
    options.seed = test_case["seed"];
    options.train_samples = test_case["num_samples"][0];
    options.valid_samples = test_case["num_samples"][1];
    options.test_samples = test_case["num_samples"][2];
    const GptDataSets sets = GptDataSets::open(options);
    const std::pair<std::string, const GptDataset*> named[] = {
        {"train", sets.train.get()},
        {"valid", sets.valid.empty() ? nullptr : sets.valid.front().get()},
        {"test", sets.test.empty() ? nullptr : sets.test.front().get()}};
    for (const auto& [name, set] : named) {
      SCOPED_TRACE(test_case["case"].get<std::string>() + " " + name);
      const Json& expected = test_case["sets"].contains(name) ? test_case["sets"][name] : Json();
      ASSERT_EQ(set == nullptr, expected.is_null());
      if (set == nullptr) continue;
      EXPECT_EQ(set->size(), expected["length"]);
      std::string bytes;
      for (int64_t number = 0; number < expected["samples_in_that_sha"]; ++number) {
        const std::vector<int64_t> ids = ids_of(*set, number);
        bytes.append(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t));
      }
      EXPECT_EQ(hex_digits(sha256(bytes)), expected["sha256_of_all_samples_int64"]);
    }
  }
}

TEST_F(GptDatasetOracle, FirstSamplesEqualMegatrons) {
  const std::filesystem::path bin = test::find_data("owt_text_document.bin");
  const std::filesystem::path first =
      test::find_data("megatron-oracle/gpt_index/seq64_seed77_ns160/train_first_samples.npy");
  if (bin.empty() || first.empty()) GTEST_SKIP() << "needs ../shared/data";
  DataSetOptions options = options_of({bin.string().substr(0, bin.string().size() - 4)}, "949,50,1");
  options.sequence_length = 64;
  options.seed = 77;
  options.train_samples = 160;
  const GptDataSets sets = GptDataSets::open(options);
  std::vector<int64_t> ids;
  for (int64_t number = 0; number < 8; ++number)
    for (const int64_t id : ids_of(*sets.train, number)) ids.push_back(id);
  EXPECT_EQ(ids, test::read_npy(first).as<int64_t>());
}

TEST_F(GptDatasetOracle, NamedGroupsEqualMegatrons) {
  const std::filesystem::path bin = test::find_data("owt_text_document.bin");
  if (bin.empty()) GTEST_SKIP() << "needs ../shared/data/owt_text_document.bin";
  const std::string prefix = bin.string().substr(0, bin.string().size() - 4);
  DataSetOptions options;
  options.sequence_length = 64;
  options.seed = 77;
  options.train_samples = 320;
  options.valid_samples = 48;
  options.train_weighted_split_paths = {"train: 1 0:0.949 " + prefix};
  for (const Json& group : Json::parse(test::read_bytes(test::find_data("megatron-oracle/gpt_index/groups.json")))) {
    std::string text = group["string"];
    for (size_t at; (at = text.find(" A")) != std::string::npos;) text.replace(at, 2, " " + prefix);
    options.valid_weighted_split_paths.push_back(text);
  }
  const GptDataSets sets = GptDataSets::open(options);
  ASSERT_EQ(sets.valid.size(), 2u);
  for (const auto& set : sets.valid) {
    const auto first = test::find_data("megatron-oracle/gpt_index/group_" + set->name() + "/first_samples.npy");
    if (first.empty()) GTEST_SKIP() << "needs ../shared/data/megatron-oracle";
    std::vector<int64_t> ids;
    for (int64_t number = 0; number < 8; ++number)
      for (const int64_t id : ids_of(*set, number)) ids.push_back(id);
    EXPECT_EQ(ids, test::read_npy(first).as<int64_t>()) << set->name();
  }
}

TEST_F(GptDatasetTest, SourcesOfABlendAreToldByNameAndById) {
  const std::string a = write_store("apples", 40, 7, 1000), b = write_store("pears", 40, 7, 2000);
  const GptDataSets sets = GptDataSets::open(options_of({"0.3", a, "0.7", b}, "8,1,1"));
  EXPECT_EQ(sets.train->source_names(), (std::vector<std::string>{"apples", "pears"}));
  std::vector<int64_t> ids(5);
  for (int64_t number = 0; number < sets.train->size(); ++number) {
    const int64_t source = sets.train->sample(number, ids);
    for (const int64_t id : ids) EXPECT_EQ(id / 1000, source + 1) << "sample " << number;
  }
}

TEST_F(GptDatasetTest, EqualNamesOfSourcesAreTakenApart) {
  std::filesystem::create_directories(folder_ / "x");
  const std::string a = write_store("wiki", 9, 7, 0), b = write_store("x/wiki", 9, 7, 0);
  const GptDataSets sets = GptDataSets::open(options_of({"1", a, "1", b}, "1"));
  EXPECT_EQ(sets.train->source_names(), (std::vector<std::string>{a, b}));
  DataSetOptions twice = options_of({}, "");
  twice.train_weighted_split_paths = {concat("t: 1 0:0.5 ", a, ", 1 0.5:1 ", a)};
  EXPECT_EQ(GptDataSets::open(twice).train->source_names(), (std::vector<std::string>{a + " 0:0.5", a + " 0.5:1"}));
}

// Upstream's assertion stops here: 3 documents give valid none.
TEST_F(GptDatasetTest, SourceWithoutValidDocumentsIsLeftOutOfThatBlend) {
  const std::string a = write_store("large", 40, 7, 1000), b = write_store("small", 3, 7, 2000);
  const GptDataSets sets = GptDataSets::open(options_of({"0.5", a, "0.5", b}, "90,10,0"));
  ASSERT_EQ(sets.valid.size(), 1u);
  EXPECT_EQ(sets.valid.front()->source_names(), std::vector<std::string>{"large"});
  EXPECT_GE(sets.valid.front()->size(), 3);
  EXPECT_TRUE(sets.test.empty());
}

TEST_F(GptDatasetTest, TrainWithoutDocumentsIsRefused) {
  const std::string a = write_store("three", 3, 7, 0);
  EXPECT_EQ(refusal(options_of({a}, "0,1,0")),
            concat("train: the split gives it documents 0 to 0 of the 3 of '", a,
                   "', which are none. Give train a larger share or leave the data set out."));
}

TEST_F(GptDatasetTest, EveryProblemOfTheOptionsIsReportedAtOnce) {
  DataSetOptions options = options_of({"0.5", "a", "x", "b"}, "1,y");
  const std::string text = refusal(options);
  for (const char* part :
       {"2 problems", "--split '1,y': 'y' is not a number", "--data-path, before 'b': 'x' is not a number"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
}

TEST_F(GptDatasetTest, MissingFilesNameTheNearest) {
  const std::string a = write_store("wiki_text_document", 3, 7, 0);
  const std::string wrong = (folder_ / "wkii_text_document").string();
  EXPECT_NE(refusal(options_of({wrong}, ""))
                .find(concat("--data-path: there is no '", wrong, ".idx'. Did you mean '", a, "'?")),
            std::string::npos);
  EXPECT_NE(
      refusal(options_of({a + ".bin"}, "")).find(concat("'", a, ".bin' is a file. Give the prefix without .bin.")),
      std::string::npos);
  const std::string lost = (folder_ / "none" / "x").string();
  EXPECT_NE(
      refusal(options_of({lost}, "")).find(concat("the folder '", (folder_ / "none").string(), "' does not exist")),
      std::string::npos);
  std::filesystem::remove(a + ".bin");
  EXPECT_NE(refusal(options_of({a}, "")).find(concat("'", a, ".bin' is missing next to its other half")),
            std::string::npos);
}

TEST_F(GptDatasetTest, TheTwoWaysToNameDataExcludeEachOther) {
  const std::string a = write_store("a", 3, 7, 0);
  DataSetOptions options = options_of({a}, "");
  options.train_weighted_split_paths = {"t: 1 0:1 " + a};
  EXPECT_NE(refusal(options).find("--data-path and weighted split paths are mutually exclusive"), std::string::npos);
  options.data_path.clear();
  options.train_weighted_split_paths.push_back("u: 1 0:1 " + a);
  EXPECT_NE(refusal(options).find("--train-weighted-split-paths has 2 groups; training reads exactly one"),
            std::string::npos);
  EXPECT_NE(refusal(options_of({}, "")).find("no data: give --data-path or --train-weighted-split-paths"),
            std::string::npos);
}

// Argonne's list says what --data-path says, and what is next to it is found from there.
TEST_F(GptDatasetTest, AFileListIsTheSameAsItsWordsBehindDataPath) {
  const std::string a = write_store("a", 20, 7, 0), b = write_store("b", 20, 7, 100);
  const std::string list = (folder_ / "list.txt").string();
  std::ofstream(list) << "0.75 " << a << " books\n\n0.25 b.bin web\n0.0 nowhere web\n";
  DataSetOptions listed = options_of({}, "80,10,10");
  listed.data_file_list = list;
  const GptDataSets from_list = GptDataSets::open(listed);
  const GptDataSets from_words = GptDataSets::open(options_of({"0.75", a, "0.25", b}, "80,10,10"));
  ASSERT_EQ(from_list.train->size(), from_words.train->size());
  for (int64_t sample = 0; sample < from_words.train->size(); ++sample)
    EXPECT_EQ(ids_of(*from_list.train, sample), ids_of(*from_words.train, sample));
  std::ofstream(list) << "1 " << a << "\n";
  EXPECT_NE(refusal(listed).find("line 1: expected three words, WEIGHT PREFIX CORPUS, found 2"), std::string::npos);
  std::ofstream(list) << "0 " << a << " books\n";
  EXPECT_NE(refusal(listed).find("every weight is 0"), std::string::npos);
  listed.data_path = {a};
  EXPECT_NE(refusal(listed).find("--data-path and --data-file-list are mutually exclusive"), std::string::npos);
}

TEST_F(GptDatasetTest, EachSetMayHaveFilesOfItsOwn) {
  const std::string a = write_store("a", 20, 7, 0), b = write_store("b", 20, 7, 100);
  DataSetOptions options = options_of({}, "");
  options.train_data_path = {a};
  options.valid_data_path = {"1", b, "1", b};
  const GptDataSets sets = GptDataSets::open(options);
  ASSERT_EQ(sets.valid.size(), 1u);
  EXPECT_TRUE(sets.test.empty());
  for (int64_t sample = 0; sample < 10; ++sample) EXPECT_LT(ids_of(*sets.train, sample)[0], 20);
  for (int64_t sample = 0; sample < 3; ++sample) EXPECT_GE(ids_of(*sets.valid[0], sample)[0], 100);
  options.valid_data_path = {b + "x"};
  EXPECT_NE(refusal(options).find(concat("--valid-data-path: there is no '", b, "x.idx'")), std::string::npos);
  options.split = "1,1,1";
  EXPECT_NE(refusal(options).find("--split and --train-data-path, --valid-data-path and --test-data-path are mutually "
                                  "exclusive"),
            std::string::npos);
  options.split.clear(), options.train_data_path.clear();
  EXPECT_NE(refusal(options).find("is given without --train-data-path"), std::string::npos);
}

TEST_F(GptDatasetTest, GroupsFromAFile) {
  const std::string a = write_store("a", 20, 7, 0);
  const std::string file = (folder_ / "valid.txt").string();
  std::ofstream(file) << "\"first: 1 0:0.5 " << a << "\" \"second: 0.5 0.5:0.7 " << a << ", 0.5 0.7:1 " << a << "\"\n";
  DataSetOptions options = options_of({}, "");
  options.train_weighted_split_paths = {"train: 1 0:0.5 " + a};
  options.valid_weighted_split_paths_path = file;
  const GptDataSets sets = GptDataSets::open(options);
  ASSERT_EQ(sets.valid.size(), 2u);
  EXPECT_EQ(sets.valid[0]->name(), "first");
  EXPECT_EQ(sets.valid[1]->name(), "second");
  EXPECT_EQ(sets.valid[1]->source_names().size(), 2u);
  std::ofstream(file) << "first: 1 0:0.5 " << a << "\n";
  EXPECT_NE(refusal(options).find("expected groups in double quotes"), std::string::npos);
}

TEST(DataGroup, WrongTextIsQuoted) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      parse_data_group(text);
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string form = ". The form is \"NAME: WEIGHT a:b PREFIX, WEIGHT a:b PREFIX\".";
  EXPECT_EQ(refusal("valid"), "'valid' has no name" + form);
  EXPECT_EQ(refusal("v: 1 a"), "group 'v': '1 a' has 2 words, not 3" + form);
  EXPECT_EQ(refusal("v: 0 0:1 a"),
            "group 'v', before 'a': weight 0 is not above 0. Leave out a data set that should not be read.");
}

// --- the cache ------------------------------------------------------------------------------------------------------

class SampleIndexCacheTest : public GptDatasetTest {
 protected:
  DataSetOptions cached(const std::string& prefix) {
    DataSetOptions options = options_of({prefix}, "6,3,1");
    options.cache_path = (folder_ / "cache").string();
    return options;
  }
  std::vector<std::filesystem::path> files() {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache")) found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
  }
  std::vector<std::vector<int64_t>> all_ids(const DataSetOptions& options) {
    const GptDataSets sets = GptDataSets::open(options);
    std::vector<std::vector<int64_t>> ids;
    for (int64_t number = 0; number < sets.train->size(); ++number) ids.push_back(ids_of(*sets.train, number));
    return ids;
  }
};

TEST_F(SampleIndexCacheTest, StoredOrderIsReadBack) {
  const DataSetOptions options = cached(write_store("a", 50, 7, 0));
  DataSetOptions without = options;
  without.cache_path.clear();
  const auto expected = all_ids(without);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache"));
  EXPECT_EQ(all_ids(options), expected);
  const auto written = files();
  EXPECT_EQ(written.size(), 12u);  // four files for each of three sets
  const auto time = std::filesystem::last_write_time(written.front());
  EXPECT_EQ(all_ids(options), expected);
  EXPECT_EQ(files(), written);
  EXPECT_EQ(std::filesystem::last_write_time(written.front()), time);
}

TEST_F(SampleIndexCacheTest, AnotherSplitOrAnotherFileGetsAnotherName) {
  const std::string prefix = write_store("a", 50, 7, 0);
  DataSetOptions options = cached(prefix);
  all_ids(options);
  options.split = "7,2,1";
  all_ids(options);
  EXPECT_EQ(files().size(), 20u);  // the test set, 5 documents at the end, is the same
  write_store("a", 50, 9, 0);
  all_ids(options);
  EXPECT_EQ(files().size(), 32u);
}

TEST_F(SampleIndexCacheTest, DamagedFilesAreBuiltAgain) {
  const DataSetOptions options = cached(write_store("a", 50, 7, 0));
  const auto expected = all_ids(options);
  set_log_level(LogLevel::kQuiet);  // one warning for each damage
  for (const std::filesystem::path& file : files()) {
    if (!file.filename().string().starts_with("train")) continue;
    const std::string whole = test::read_bytes(file);
    std::string flipped = whole;
    flipped.back() ^= 1;
    for (const std::string& damaged : {whole.substr(0, whole.size() / 2), whole + "x", flipped, std::string()}) {
      std::filesystem::remove(file);
      std::ofstream(file, std::ios::binary) << damaged;
      EXPECT_EQ(all_ids(options), expected) << file;
      EXPECT_EQ(test::read_bytes(file), whole) << file;
    }
    std::filesystem::remove(file);
    EXPECT_EQ(all_ids(options), expected) << file;
    EXPECT_EQ(test::read_bytes(file), whole) << file;
  }
  set_log_level(LogLevel::kInfo);
}

}  // namespace
}  // namespace espalier::data
