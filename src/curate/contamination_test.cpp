#include "curate/contamination.h"

#include <map>

#include "base/file.h"
#include "base/format.h"
#include "curate/internal/dedup_fixture.h"

namespace espalier::curate {
namespace {

const nlohmann::ordered_json& golden_ngrams() {
  static const auto golden =
      nlohmann::ordered_json::parse(read_file("tests/data/golden-use/ngram-decontamination.json"));
  return golden;
}

std::string lines_of(const nlohmann::ordered_json& records) {
  std::string lines;
  for (const auto& record : records) lines += record.dump() + "\n";
  return lines;
}

TEST(Ngrams, OutputEqualsTheOriginalsLineByLine) {
  const test::TestFolder folder;
  test::write_text(folder / "task", lines_of(golden_ngrams()["task_file"]));
  test::write_text(folder / "in", lines_of(golden_ngrams()["documents"]));
  for (const int workers : {1, 3}) {
    RunPlan plan;
    plan.sources = {{.files = {folder / "in"}, .text_key = "text"}};
    plan.steps.push_back({"ngrams", test::maker_of("ngrams", "against = [\"lambada=" + (folder / "task") + "\"]")});
    plan.workers = workers;
    plan.work_folder = folder / "work";
    std::string output;
    const RunResult result = run(plan, [&](Document&& document) {
      append_json(document, "text", output);
      output += "\n";
    });
    std::string expected = lines_of(golden_ngrams()["output"]);
    ASSERT_EQ(nlohmann::json::parse(output.substr(0, output.find('\n'))),
              nlohmann::json::parse(expected.substr(0, expected.find('\n'))));
    const std::vector<std::string> made = split(output, '\n'), wanted = split(expected, '\n');
    ASSERT_EQ(made.size(), wanted.size());
    for (size_t line = 0; line + 1 < made.size(); ++line)
      EXPECT_EQ(nlohmann::ordered_json::parse(made[line]), nlohmann::ordered_json::parse(wanted[line])) << line;
    EXPECT_EQ(result.steps.front().dropped, (std::map<std::string, int64_t>{{"contaminated", 3}}));
    // " Entities in ngrams 30", lengths (9, 1), (10, 1), (12, 1), (13, 27), " Ngrams below threshold 29"
    EXPECT_EQ(result.facts.front()["ngrams"], 30);
    EXPECT_EQ(result.facts.front()["by_length"], (nlohmann::ordered_json{{"9", 1}, {"10", 1}, {"12", 1}, {"13", 27}}));
    EXPECT_EQ(result.facts.front()["ngrams_removed"], 29);
  }
}

TEST(Ngrams, WordsAreThoseOfPython) {
  // re.findall(r'\w+', text.lower()) of Python 3.11; the last by places in the text itself
  const auto words = [](const std::u32string& text) { return contamination_words(text).words; };
  using List = std::vector<std::string>;
  EXPECT_EQ(words(U""), List{});
  EXPECT_EQ(words(U" \t.,"), List{});
  EXPECT_EQ(words(U"It's x1_2 \u00bd caf\u00e9, na\u00cfve\u0301"),
            (List{"it", "s", "x1_2", "\u00bd", "caf\u00e9", "na\u00efve"}));
  EXPECT_EQ(words(U"\u039f\u0394\u039f\u03a3 \u03a3"), (List{"\u03bf\u03b4\u03bf\u03c2", "\u03c3"}));
  EXPECT_EQ(words(U"D\u0130Z"), (List{"di", "z"}));
  EXPECT_EQ(contamination_words(U"D\u0130Z ab").starts, (std::vector<int64_t>{0, 2, 4}));
}

TEST(Ngrams, CutsAtTheEndsOfSentencesAndDropsWhatIsLeftOver) {
  ContaminationSetting setting;
  setting.most_words = 3;
  setting.least_words = 2;
  setting.least_characters = 3;
  setting.margin_characters = 2;
  Contamination table(setting);
  table.add_task_text("one");  // too short
  table.add_task_text("red Green blue");
  table.add_task_text("final words");
  EXPECT_EQ(table.num_ngrams(), 2u);
  EXPECT_EQ(table.cut("Abcd. xx red, green blue yy. Tail is here."),
            (std::vector<std::string>{"Abcd.", " Tail is here."}));
  EXPECT_EQ(table.cut("final words"), (std::vector<std::string>{"final words"}));  // two words are never searched
  EXPECT_EQ(table.cut("These are my final words"), (std::vector<std::string>{}));
  EXPECT_EQ(table.cut("red green blue"), (std::vector<std::string>{}));
  EXPECT_EQ(table.cut(""), (std::vector<std::string>{""}));
  EXPECT_EQ(table.find("red green blue red green blue").size(), 1u);
  std::vector<int64_t> documents(table.num_ngrams());
  documents[0] = 10;
  table.keep_rare(documents);
  EXPECT_EQ(table.cut("red green blue"), (std::vector<std::string>{"red green blue"}));
}

TEST(Ngrams, NamesEveryProblemOfItsFiles) {
  const test::TestFolder folder;
  test::write_text(folder / "bad", "{\"question\": {\"text\": \"a\"}}\nno\n");
  test::write_text(folder / "other", "{\"question\": {\"text\": \"a\"}}\n");
  const std::string problems =
      test::problems_of("ngrams", concat("against = [\"x\", \"a=", folder / "bad", "\", \"b=", folder / "other",
                                         "\", \"c:question.text=", folder / "other", "\", \"d=", folder / "missing",
                                         "\"]\nmin_ngram = 14"));
  EXPECT_NE(problems.find("--against x: expected NAME=FILE or NAME:KEY=FILE"), std::string::npos) << problems;
  EXPECT_NE(problems.find(":2 is not JSON"), std::string::npos);
  EXPECT_NE(problems.find("has a text 'text'"), std::string::npos);
  EXPECT_NE(problems.find("--min-ngram 14 is more than --max-ngram 13"), std::string::npos);
  EXPECT_NE(problems.find(folder / "missing"), std::string::npos);
  EXPECT_EQ(problems.find("--against c"), std::string::npos);
}

}  // namespace
}  // namespace espalier::curate
