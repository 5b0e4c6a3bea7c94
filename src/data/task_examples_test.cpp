// Against what upstream's own readers make of the same examples (tests/data/golden-use/finetune-samples.json).
#include "data/task_examples.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "data/task_sample.h"

namespace espalier::data {
namespace task_test {

namespace fs = std::filesystem;
constexpr TaskTokens kTokens{.cls = 101, .sep = 102, .pad = 0};

// The golden file's: lower-cased words, numbered from 1000 in the order in which they are first met.
class ToyTokenizer : public text::Tokenizer {
 public:
  class ToyEncoder : public text::Encoder {
   public:
    explicit ToyEncoder(std::map<std::string, int32_t>& words) : words_(words) {}
    void encode(std::string_view text, std::vector<int32_t>& ids) override {
      std::istringstream stream{std::string(text)};
      for (std::string word; stream >> word;) {
        for (char& letter : word) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
        ids.push_back(words_.try_emplace(word, 1000 + static_cast<int32_t>(words_.size())).first->second);
      }
    }

   private:
    std::map<std::string, int32_t>& words_;
  };
  std::unique_ptr<text::Encoder> new_encoder() const override { return std::make_unique<ToyEncoder>(words); }
  std::string decode(std::span<const int32_t>, bool) const override { return ""; }
  int64_t vocab_size() const override { return 2000; }
  std::optional<int32_t> eod() const override { return std::nullopt; }
  std::string id_to_piece(int32_t) const override { return ""; }
  std::optional<int32_t> piece_to_id(std::string_view) const override { return std::nullopt; }
  text::TokenizerJson tokenizer_json() const override { return {}; }
  std::string description() const override { return "toy"; }
  std::vector<std::pair<std::string, std::string>> files() const override { return {}; }

  mutable std::map<std::string, int32_t> words;
};

struct TaskFiles : testing::Test {
  void SetUp() override {
    folder =
        fs::path(testing::TempDir()) / "task_examples" / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder);
    fs::create_directories(folder);
    golden = parse_json(read_file("tests/data/golden-use/finetune-samples.json"), "golden");
  }
  std::string write(const std::string& name, const std::string& text) const {
    const fs::path path = folder / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  static TaskExamples read(FinetuningTask task, const std::string& path) {
    Problems problems;
    TaskExamples examples = read_task_examples(task, path, problems);
    EXPECT_TRUE(problems.empty()) << problems.messages()[0];
    return examples;
  }
  void expect_pairs(const TaskExamples& read, const char* key) const {
    const nlohmann::json& wanted = golden["glue"][key];
    ASSERT_EQ(read.examples.size(), wanted.size());
    for (size_t at = 0; at < wanted.size(); ++at) {
      EXPECT_EQ(read.examples[at].first.at(0), wanted[at]["text_a"]);
      EXPECT_EQ(*read.examples[at].second, wanted[at]["text_b"]);
      EXPECT_EQ(read.examples[at].label, wanted[at]["label"]);
      EXPECT_EQ(read.examples[at].uid, wanted[at]["uid"]);
    }
  }
  fs::path folder;
  nlohmann::json golden;
};

const char* const kMnliNames = "index\tp\tg\tsb1\tsb2\tp1\tp2\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n";
std::string mnli_row(const std::string& uid, const std::string& a, const std::string& b, const std::string& label) {
  return uid + "\tp\tg\ts\ts\tx\tx\tfiction\t" + a + "\t" + b + "\tneutral\t" + label + "\n";
}

TEST_F(TaskFiles, TextsAreCleanedAsUpstreamDoes) {
  for (const nlohmann::json& pair : golden["clean_text"])
    EXPECT_EQ(clean_task_text(pair[0].get<std::string>()), pair[1].get<std::string>());
}

TEST_F(TaskFiles, RowsAreCutAndFilledUpAsUpstreamDoes) {
  ASSERT_EQ(golden["build"].size(), 10u);
  for (const nlohmann::json& wanted : golden["build"]) {
    const auto first = wanted["a"].get<std::vector<int32_t>>();
    std::vector<int32_t> second;
    std::optional<std::span<const int32_t>> given;
    if (!wanted["b"].is_null()) given = second = wanted["b"].get<std::vector<int32_t>>();
    const TaskRow row = build_task_row(first, given, wanted["max"], kTokens);
    EXPECT_EQ(nlohmann::json(row.text), wanted["ids"]);
    EXPECT_EQ(nlohmann::json(row.types), wanted["types"]);
    EXPECT_EQ(nlohmann::json(row.padding_mask), wanted["mask"]);
  }
}

TEST_F(TaskFiles, RaceSamplesAreThoseOfUpstream) {
  write("RACE/dev/middle/7.txt", golden["race_article"].dump() + "\n");
  const TaskExamples race = read(FinetuningTask::kRace, (folder / "RACE/dev/middle/").string());
  EXPECT_EQ(race.name, "dev-middle");
  ASSERT_EQ(race.examples.size(), golden["race_samples"].size());
  const ToyTokenizer tokenizer;
  tokenizer.encode(*race.examples[0].second);  // upstream tokenizes the article first
  const int64_t length = golden["race_seq"];
  for (size_t at = 0; at < race.examples.size(); ++at) {
    Sample sample;
    make_task_sample(FinetuningTask::kRace, race.examples[at], tokenizer, kTokens, length, sample);
    const nlohmann::json& wanted = golden["race_samples"][at];
    const auto expect_rows = [&](const char* name, TaskField field) {
      std::vector<int64_t> flat;
      for (const nlohmann::json& row : wanted[name])
        for (const nlohmann::json& value : row) flat.push_back(value);
      EXPECT_EQ(sample.arrays[field], flat) << name;
    };
    expect_rows("text", kTaskText);
    expect_rows("types", kTaskTypes);
    expect_rows("padding_mask", kTaskPaddingMask);
    EXPECT_EQ(sample.arrays[kTaskLabel][0], wanted["label"]);
    EXPECT_EQ(sample.arrays[kTaskUid][0], wanted["uid"]);
  }
}

TEST_F(TaskFiles, RaceFilesAreReadByNameAndUidsCountThrough) {
  nlohmann::json article = golden["race_article"];
  for (const char* name : {"2", "10", "1"}) {
    article["article"] = name;
    write(std::string("high/") + name + ".txt", article.dump() + "\n" + article.dump());
  }
  const TaskExamples race = read(FinetuningTask::kRace, (folder / "high").string());
  EXPECT_EQ(race.name, "high");
  ASSERT_EQ(race.examples.size(), 12u);
  EXPECT_EQ(*race.examples[0].second, "1");
  EXPECT_EQ(*race.examples[4].second, "10");
  EXPECT_EQ(*race.examples[11].second, "2");
  EXPECT_EQ(race.examples[11].uid, 11);
}

TEST_F(TaskFiles, AQuestionIsCutToItsBoundBeforeTheArticleIsAdded) {
  std::string words;
  for (int word = 0; word < 200; ++word) words += concat(" w", word);
  const TaskExample example{{words, "a", "b", "c"}, std::make_shared<const std::string>("end"), 0, 0};
  Sample sample;
  make_task_sample(FinetuningTask::kRace, example, ToyTokenizer(), kTokens, 256, sample);
  EXPECT_EQ(sample.arrays[kTaskText][129], 102);  // after CLS and 128 ids
  EXPECT_EQ(std::accumulate(sample.arrays[kTaskPaddingMask].begin(), sample.arrays[kTaskPaddingMask].begin() + 256,
                            int64_t{0}),
            128 + 4);
}

TEST_F(TaskFiles, MnliPairsAreThoseOfUpstream) {
  const std::string dev =
      write("dev_matched.tsv", kMnliNames + mnli_row("7", " A man . sleeps", "He rests", "entailment") +
                                   mnli_row("8", "Rain  falls", "It is dry", "contradiction"));
  const TaskExamples labelled = read(FinetuningTask::kMnli, dev);
  EXPECT_EQ(labelled.name, "dev_matched");
  EXPECT_TRUE(labelled.has_labels);
  expect_pairs(labelled, "mnli_dev");
  const std::string test = write("test.tsv",
                                 "index\tp\tg\tsb1\tsb2\tp1\tp2\tgenre\tsentence1\tsentence2\n"
                                 "9\tp\tg\ts\ts\tx\tx\tfiction\tRain falls\tIt is wet\r\n");
  const TaskExamples unlabelled = read(FinetuningTask::kMnli, test);
  EXPECT_FALSE(unlabelled.has_labels);
  expect_pairs(unlabelled, "mnli_test");
}

TEST_F(TaskFiles, AnMnliSampleIsThatOfUpstream) {
  ToyTokenizer tokenizer;
  for (const auto& [word, id] : golden["toy_vocabulary_after_all"].items()) tokenizer.words[word] = id;
  const std::string file = write("dev.tsv", kMnliNames + mnli_row("7", "A man . sleeps", "He rests", "entailment"));
  Sample sample;
  make_task_sample(FinetuningTask::kMnli, read(FinetuningTask::kMnli, file).examples.at(0), tokenizer, kTokens, 16,
                   sample);
  const nlohmann::json& wanted = golden["glue"]["mnli_first_built"];
  EXPECT_EQ(nlohmann::json(sample.arrays[kTaskText]), wanted["text"]);
  EXPECT_EQ(nlohmann::json(sample.arrays[kTaskTypes]), wanted["types"]);
  EXPECT_EQ(nlohmann::json(sample.arrays[kTaskPaddingMask]), wanted["padding_mask"]);
}

TEST_F(TaskFiles, QqpPairsAreThoseOfUpstreamAndBrokenRowsAreCounted) {
  const std::string train = write("train.tsv",
                                  "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
                                  "3\t1\t2\tHow are you ?\tHow do you do ?\t1\n"
                                  "4\t1\t2\tcut short\n"
                                  "6\t1\t2\t \tempty\t0\n"
                                  "5\t1\t2\tWhere ?\tWho ?\t0\n");
  const TaskExamples labelled = read(FinetuningTask::kQqp, train);
  expect_pairs(labelled, "qqp_train");
  EXPECT_EQ(labelled.num_skipped, 2);
  const std::string test = write("test.tsv", "id\tquestion1\tquestion2\n0\tWhy ?\tHow ?\n");
  const TaskExamples unlabelled = read(FinetuningTask::kQqp, test);
  EXPECT_FALSE(unlabelled.has_labels);
  expect_pairs(unlabelled, "qqp_test");
}

std::string all_problems(FinetuningTask task, const std::string& path) {
  Problems problems;
  read_task_examples(task, path, problems);
  std::string all;
  for (const std::string& message : problems.messages()) all += message + "\n";
  return all;
}

TEST_F(TaskFiles, EverythingWrongWithAFileIsSaidWithItsLine) {
  const std::string mnli =
      write("bad.tsv", kMnliNames + mnli_row("x", "a", "b", "neutral") + mnli_row("1", "a", "b", "maybe") +
                           "2\tshort\n" + mnli_row("3", " ", "b", "neutral"));
  EXPECT_EQ(all_problems(FinetuningTask::kMnli, mnli),
            mnli + ", line 2: the number 'x' of the pair is not a whole number\n" + mnli +
                ", line 3: the label 'maybe' is not contradiction, entailment or neutral\n" + mnli +
                ", line 4: 2 columns; expected 10 or more, with the sentences in 9 and 10\n" + mnli +
                ", line 5: a sentence is empty\n");
  const std::string qqp = write("names.tsv", "a\tb\n");
  EXPECT_EQ(all_problems(FinetuningTask::kQqp, qqp),
            qqp + ", line 1: the names of 2 columns; QQP has 6, or 3 without labels\n");
  EXPECT_EQ(all_problems(FinetuningTask::kQqp, "nowhere.tsv"), "nowhere.tsv: there is no such file\n");
  const std::string empty = write("empty.tsv", "");
  EXPECT_EQ(all_problems(FinetuningTask::kQqp, empty), empty + " holds no examples\n");
  EXPECT_EQ(all_problems(FinetuningTask::kQqp, folder.string()),
            folder.string() + " is a folder; QQP is read from .tsv files, which must be named\n");
}

TEST_F(TaskFiles, EverythingWrongWithArticlesIsSaidWithItsLine) {
  nlohmann::json no_answer = golden["race_article"], letter = no_answer, options = no_answer;
  no_answer.erase("answers");
  letter["answers"][1] = "E";
  options["options"][0].erase(0);
  const std::string file =
      write("race/a.txt", no_answer.dump() + "\n" + letter.dump() + "\n" + options.dump() + "\n[]\n");
  EXPECT_EQ(all_problems(FinetuningTask::kRace, (folder / "race").string()),
            file + ", line 1: there is no 'answers'\n" + file + ", line 2: the answer 'E' is not A, B, C or D\n" +
                file + ", line 3: a question does not have 4 options\n" + file + ", line 4: expected a JSON object\n");
  EXPECT_EQ(all_problems(FinetuningTask::kRace, file),
            file + " is a file; RACE is read from folders of *.txt, such as RACE/train/middle\n");
  write("broken/a.txt", "{\"article\": \n");
  EXPECT_NE(all_problems(FinetuningTask::kRace, (folder / "broken").string()).find("line 1"), std::string::npos);
  fs::create_directories(folder / "none");
  EXPECT_EQ(all_problems(FinetuningTask::kRace, (folder / "none").string()),
            (folder / "none").string() + " holds no *.txt; give the folders that do, such as RACE/train/middle\n");
}

}  // namespace task_test
}  // namespace espalier::data
