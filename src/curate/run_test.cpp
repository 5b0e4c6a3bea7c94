#include "curate/run.h"

#include <map>

#include "curate/internal/run_fixture.h"

namespace espalier::curate {
namespace {

using test::TestFolder;
using test::write_text;

// Adds its letter to every text.
class LetterStep : public Step {
 public:
  explicit LetterStep(char letter) : letter_(letter) {}
  Fate apply(Document& document) const override {
    document.text += letter_;
    return Fate::kept();
  }

 private:
  char letter_;
};
class LetterMaker : public StepMaker {
 public:
  explicit LetterMaker(char letter) : letter_(letter) {}
  std::unique_ptr<Step> make_step() const override { return std::make_unique<LetterStep>(letter_); }

 private:
  char letter_;
};

size_t part_of(const std::string& text) { return text.size() % 3; }

// The first of equal texts among those of its part.
class FirstPart : public PassPart {
 public:
  FirstPart(size_t part, const PassSpace& space) : part_(part), file_(space.folder / "first") {
    EXPECT_TRUE(std::filesystem::is_empty(space.folder));
  }
  void add(int64_t number, std::string_view digest) override {
    EXPECT_GT(number, last_);
    EXPECT_EQ(part_of(std::string(digest)), part_);
    last_ = number;
    first_.emplace(digest, number);
  }
  void finish() override {
    std::string lines;
    for (const auto& [text, number] : first_) lines += concat(number, " ", text, "\n");
    write_text(file_, lines);
  }

 private:
  size_t part_;
  std::filesystem::path file_;
  std::map<std::string, int64_t, std::less<>> first_;
  int64_t last_ = -1;
};

// Keeps the first of equal texts.
class FirstPass : public Pass {
 public:
  int64_t num_parts() const override { return 3; }
  void digest(const Document& document, Digests& digests) const override {
    digests.add(part_of(document.text), document.number, document.text);
  }
  std::unique_ptr<PassPart> make_part(int64_t part, const PassSpace& space) const override {
    return std::make_unique<FirstPart>(static_cast<size_t>(part), space);
  }
  void join(const std::vector<std::filesystem::path>& parts, const PassSpace& space) const override {
    std::string lines;
    for (const std::filesystem::path& part : parts) lines += test::read_text(part / "first");
    EXPECT_TRUE(std::filesystem::is_empty(space.folder));
    write_text(space.folder / "all", lines);
  }
  void open(const std::filesystem::path& folder) override {
    std::ifstream file(folder / "all");
    for (std::string line; std::getline(file, line);)
      EXPECT_TRUE(first_.emplace(line.substr(line.find(' ') + 1), std::stoll(line)).second);
  }
  Fate decide(Document& document) const override {
    const int64_t first = first_.at(document.text);
    return first == document.number ? Fate::kept() : Fate::dropped("duplicate", {}, static_cast<double>(first));
  }
  nlohmann::ordered_json facts() const override { return {{"distinct", first_.size()}}; }

 private:
  std::map<std::string, int64_t, std::less<>> first_;
};
class FirstMaker : public StepMaker {
 public:
  std::unique_ptr<Pass> make_pass() const override { return std::make_unique<FirstPass>(); }
};

// Cuts every text into its letters.
class SplitStep : public Step {
 public:
  Fate apply(Document& document) const override {
    std::vector<Document> pieces;
    for (const char letter : document.text)
      pieces.push_back({document.number, std::string(1, letter), document.metadata});
    return Fate::split(std::move(pieces));
  }
};
class SplitMaker : public StepMaker {
 public:
  std::unique_ptr<Step> make_step() const override { return std::make_unique<SplitStep>(); }
  bool may_split() const override { return true; }
};

struct Outcome {
  std::vector<std::string> texts;
  std::vector<int64_t> numbers;
  RunResult result;
};

Outcome run_over(const std::vector<std::string>& files, int64_t workers, const std::string& folder, bool keeps_work,
                 const std::string& steps = "xFy") {
  RunPlan plan;
  plan.sources = {{.files = files}};
  for (const char step : steps) {
    if (step == 'F')
      plan.steps.push_back({"first", std::make_unique<FirstMaker>()});
    else if (step == 'S')
      plan.steps.push_back({"split", std::make_unique<SplitMaker>()});
    else
      plan.steps.push_back({"letter", std::make_unique<LetterMaker>(step)});
  }
  plan.workers = workers;
  plan.work_folder = folder;
  plan.keeps_work = keeps_work;
  plan.shard_bytes = int64_t{3} << 20;
  Outcome outcome;
  outcome.result = run(plan, [&](Document&& document) {
    outcome.texts.push_back(document.text);
    outcome.numbers.push_back(document.number);
  });
  return outcome;
}

// Record i has the text i modulo `distinct`; every 11th is malformed.
std::string lines(int count, int distinct) {
  std::string text;
  for (int index = 0; index < count; ++index)
    text += index % 11 == 10 ? "{\"text\": 1}\n" : concat("{\"text\": \"", index % distinct, "\"}\n");
  return text;
}

TEST(CurateRun, PassesKeepTheFirstForAnyNumberOfWorkers) {
  TestFolder folder;
  for (const int count : {0, 1, 7, 33, 20000}) {
    write_text(folder / "in", lines(count, 13));
    std::vector<std::string> texts;
    std::map<int, int> seen;
    for (int index = 0; index < count; ++index)
      if (index % 11 != 10 && ++seen[index % 13] == 1) texts.push_back(concat(index % 13, "xy"));
    for (const int workers : {1, 2, 7})
      for (const bool keeps : {false, true}) {
        std::filesystem::remove_all(folder / "work");
        const Outcome outcome = run_over({folder / "in"}, workers, folder / "work", keeps);
        EXPECT_EQ(outcome.texts, texts) << count << " records, " << workers << " workers";
        EXPECT_EQ(outcome.result.input.num_records, count);
        EXPECT_EQ(outcome.result.input.num_malformed, count / 11);
        EXPECT_EQ(outcome.result.steps[1].num_in, count - count / 11);
        EXPECT_EQ(outcome.result.steps[1].num_out, static_cast<int64_t>(texts.size()));
        EXPECT_EQ(outcome.result.facts[1], (nlohmann::ordered_json{{"distinct", texts.size()}}));
        EXPECT_EQ(std::filesystem::exists(folder / "work"), keeps);
      }
  }
}

TEST(CurateRun, KeepsWhatOthersHaveInItsTemporaryFolder) {
  TestFolder folder;
  write_text(folder / "in", lines(100, 13));
  std::filesystem::create_directory(folder / "scratch");
  write_text(folder / "scratch/thesis", "x");
  EXPECT_EQ(run_over({folder / "in"}, 2, folder / "scratch", false).texts.size(), 13u);
  EXPECT_EQ(test::read_text(folder / "scratch/thesis"), "x");
  EXPECT_EQ(
      std::distance(std::filesystem::directory_iterator(folder / "scratch"), std::filesystem::directory_iterator()), 1);
}

TEST(CurateRun, GoesOnBehindTheLastCompleteShard) {
  TestFolder folder;
  const std::string filler(100 << 10, 'a');  // 11 MB: three shards of 3 MiB and more
  std::string text;
  for (int index = 0; index < 110; ++index) text += concat("{\"text\": \"", index % 60, filler, "\"}\n");
  write_text(folder / "in", text);
  const Outcome whole = run_over({folder / "in"}, 2, folder / "work", true);
  ASSERT_EQ(whole.result.num_shards, 3);
  ASSERT_EQ(whole.texts.size(), 60u);
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "work"))
    if (entry.is_regular_file()) files[entry.path()] = test::read_text(entry.path());
  // Any prefix of the shards of each stage is what a killed run leaves.
  for (const auto& [stage_0, stage_1] : {std::pair{0, 0}, {1, 0}, {2, 0}, {3, 0}, {3, 1}, {3, 2}, {3, 3}}) {
    for (int shard = 0; shard < 3; ++shard) {
      if (shard >= stage_0) std::filesystem::remove(concat(folder / "work/stage-0/0000000", shard, ".json"));
      if (shard >= stage_1) std::filesystem::remove(concat(folder / "work/stage-1/0000000", shard, ".json"));
    }
    const Outcome again = run_over({folder / "in"}, 3, folder / "work", true);
    EXPECT_EQ(again.texts == whole.texts, true) << stage_0 << " " << stage_1;
    EXPECT_EQ(again.numbers, whole.numbers);
    EXPECT_EQ(to_json(again.result.input), to_json(whole.result.input));
    for (size_t step = 0; step < 3; ++step)
      EXPECT_EQ(to_json(again.result.steps[step]), to_json(whole.result.steps[step]));
    for (const auto& [path, content] : files) EXPECT_EQ(test::read_text(path) == content, true) << path;
  }
}

TEST(CurateRun, NamesTheRecordsThatAreNoDocument) {
  TestFolder folder;
  write_text(folder / "in",
             "{\"text\": \"a\"}\nno JSON\n\n{\"other\": 1}\n{\"text\": null}\n{\"text\": \"\\ud800\xff\"}\n");
  const Outcome outcome = run_over({folder / "in"}, 1, folder / "work", false, "");
  EXPECT_EQ(outcome.numbers, (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(outcome.texts.back(), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(outcome.result.input.num_replaced, 2);
  const std::vector<std::string>& first = outcome.result.input.first_malformed;
  ASSERT_EQ(first.size(), 4u);
  EXPECT_EQ(first[0], (folder / "in") + ":2: Expecting value");
  EXPECT_EQ(first[1], (folder / "in") + ":3: The line is blank");
  EXPECT_EQ(first[2].substr(0, (folder / "in").size() + 4), (folder / "in") + ":4: ");
}

TEST(CurateRun, PiecesGoThroughTheStepsThatFollow) {
  TestFolder folder;
  write_text(folder / "in", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": \"c\"}\n");
  const Outcome outcome = run_over({folder / "in"}, 2, folder / "work", false, "FSx");
  EXPECT_EQ(outcome.texts, (std::vector<std::string>{"ax", "bx", "cx"}));
  EXPECT_EQ(outcome.numbers, (std::vector<int64_t>{0, 0, 2}));
  EXPECT_THROW(run_over({folder / "in"}, 2, folder / "work", false, "SF"), UserError);
}

TEST(CurateRun, NumbersRecordsOverAllFiles) {
  TestFolder folder;
  write_text(folder / "a", "{\"text\": \"0\"}\nx\n{\"text\": \"2\"}");
  write_text(folder / "b", "");
  write_text(folder / "c", "{\"text\": \"3\"}\r\n{\"text\": \"4\"}\n");
  const Outcome outcome = run_over({folder / "a", folder / "b", folder / "c"}, 2, folder / "work", false, "");
  EXPECT_EQ(outcome.numbers, (std::vector<int64_t>{0, 2, 3, 4}));
  EXPECT_EQ(outcome.texts, (std::vector<std::string>{"0", "2", "3", "4"}));
}

}  // namespace
}  // namespace espalier::curate
