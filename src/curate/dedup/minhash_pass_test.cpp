#include <map>
#include <random>
#include <set>

#include "curate/dedup/minhash.h"
#include "curate/internal/dedup_fixture.h"
#include "tests/support/long_version.h"

namespace espalier::curate {
namespace {

using test::run_pass_over;

std::string random_words(std::mt19937& random, int count) {
  std::string text;
  for (int word = 0; word < count; ++word) text += concat(word == 0 ? "" : " ", "w", random() % 100000);
  return text;
}

TEST(MinHashPass, KeepsTheLowestNumberOfPlantedClusters) {
  std::mt19937 random(7);
  std::vector<std::string> texts, expected;
  for (int text = 0; text < 300; ++text) {
    texts.push_back(random_words(random, 200));
    expected.push_back(texts.back());
  }
  for (int copy = 0; copy < 100; ++copy)
    texts.push_back(texts[static_cast<size_t>(copy % 40)] + (copy % 2 ? "." : " end"));
  for (const char* setting : {"words", "characters", "openwebtext"})
    for (const int64_t memory : {1 << 10, 1 << 26})
      for (const int workers : {1, 3}) {
        // In the suite several workers have little memory, and one has much.
        if (!espalier::test::long_version() && (workers == 1) != (memory == 1 << 26)) continue;
        const test::PassOutcome outcome =
            run_pass_over("minhash", concat("setting = \"", setting, "\""), texts, workers, memory);
        EXPECT_TRUE(outcome.texts == expected) << setting << ": " << outcome.texts.size();
        EXPECT_EQ(outcome.tally.dropped, (std::map<std::string, int64_t>{{"duplicate", 100}}));
        EXPECT_EQ(outcome.facts["clusters"], 40);
        EXPECT_EQ(outcome.facts["largest"][0], (nlohmann::ordered_json{{"kept", 0}, {"documents", 4}}));
      }
}

TEST(MinHashPass, ThresholdsCompareTheTextsThemselves) {
  std::mt19937 random(8);
  const std::string text = random_words(random, 400);
  // One word in the middle differs: 5 of 396 runs, a similarity of 391 / 401.
  const std::string near = text.substr(0, text.size() / 2) + "X" + text.substr(text.size() / 2);
  EXPECT_EQ(run_pass_over("minhash", "threshold = 0.97", {text, near}).texts.size(), 1u);
  EXPECT_EQ(run_pass_over("minhash", "threshold = 0.98", {text, near}).texts.size(), 2u);
  EXPECT_EQ(run_pass_over("minhash", "threshold = 1.0", {text, text, near, text}).numbers,
            (std::vector<int64_t>{0, 2}));
}

// The pipeline's own steps over its buckets, with lists of Python's kind: the lowest number is the main document.
TEST(MinHashPass, OpenWebTextEqualsAPlainRestatement) {
  std::mt19937 random(9);
  std::vector<std::string> texts;
  for (int family = 0; family < 12; ++family) {
    const std::string base = random_words(random, 60);
    for (int member = 0; member < 6; ++member) {
      std::string text = base;
      for (int edit = 0; edit < member * 2; ++edit) text[random() % text.size()] = 'z';
      texts.push_back(text);
    }
  }
  for (const char* odd : {"", "a", "abcde", "abcde", "      ", "      ", "\xc3\xbc\xc3\xbc\xc3\xbc"})
    texts.emplace_back(odd);
  const auto set_of = [](const std::string& text) {  // ASCII, but for the last
    std::set<std::string> set;
    for (size_t at = 0; at + 5 < text.size() && text[0] != '\xc3'; ++at) set.insert(text.substr(at, 5));
    return set;
  };
  const WindowMinHash minhash(openwebtext_seeds());
  std::vector<size_t> least(texts.size());
  for (size_t text = 0; text < texts.size(); ++text) least[text] = text;
  std::vector<std::vector<uint32_t>> values_of_texts;
  for (const std::string& text : texts) values_of_texts.push_back(minhash(text));
  std::vector<std::pair<size_t, size_t>> joined;
  for (size_t band = 0; band < 10; ++band) {
    std::map<std::vector<uint32_t>, std::vector<size_t>> buckets;
    for (size_t text = 0; text < texts.size(); ++text) {
      const std::vector<uint32_t>& values = values_of_texts[text];
      buckets[{values.begin() + static_cast<int64_t>(band * 10), values.begin() + static_cast<int64_t>(band * 10 + 10)}]
          .push_back(text);
    }
    for (auto [key, bucket] : buckets)
      while (bucket.size() > 1) {
        const size_t main = bucket.front();
        std::vector<size_t> rest;
        for (size_t at = 1; at < bucket.size(); ++at) {
          const auto a = set_of(texts[main]), b = set_of(texts[bucket[at]]);
          std::vector<std::string> both;
          std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
          const double divisor = static_cast<double>(a.size() + b.size() - both.size());
          const double similarity = divisor == 0 ? 0 : static_cast<double>(both.size()) / divisor;
          if (similarity > 0.5) {
            if (similarity >= 0.7) joined.emplace_back(main, bucket[at]);
          } else {
            rest.push_back(bucket[at]);
          }
        }
        bucket = rest;
      }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [a, b] : joined) {
      const size_t to = std::min(least[a], least[b]);
      changed |= least[a] != to || least[b] != to;
      least[a] = least[b] = to;
    }
  }
  std::vector<int64_t> kept;
  for (size_t text = 0; text < texts.size(); ++text)
    if (least[text] == text) kept.push_back(static_cast<int64_t>(text));
  ASSERT_LT(kept.size(), texts.size() - 10);
  ASSERT_GT(kept.size(), 20u);
  for (const int64_t memory : {1 << 10, 1 << 26})
    EXPECT_EQ(run_pass_over("minhash", "setting = \"openwebtext\"", texts, 2, memory).numbers, kept);
}

TEST(MinHashPass, TakesOddSizesAndTextsWithoutWords) {
  for (const size_t count : {0, 1, 7, 33}) {
    const std::vector<std::string> blanks(count, " \n\t ");
    EXPECT_EQ(run_pass_over("minhash", "", blanks).texts.size(), count);  // without a word: like none
    EXPECT_EQ(run_pass_over("minhash", "setting = \"openwebtext\"", blanks).texts.size(), count);
    const std::vector<std::string> same(count, "one");
    EXPECT_EQ(run_pass_over("minhash", "", same).texts.size(), std::min<size_t>(1, count));
  }
}

TEST(MinHashPass, FindsAHundredThousandPlantedDuplicatesInLittleMemory) {
  std::mt19937 random(10);
  std::vector<std::string> texts;
  for (int text = 0; text < 20000; ++text) texts.push_back(random_words(random, 8));
  for (int copy = 0; copy < 100000; ++copy) texts.push_back(texts[random() % 20000]);
  const test::PassOutcome outcome = run_pass_over("minhash", "bands = 4\nrows = 4", texts, 2, 1 << 20);
  EXPECT_EQ(outcome.texts.size(), 20000u);
  EXPECT_EQ(outcome.tally.dropped.at("duplicate"), 100000);
}

// A killed run leaves some first shards of each stage, and parts of passes: what is made again from them is the same.
TEST(MinHashPass, AnInterruptedRunGoesOnToTheSameOutput) {
  std::mt19937 random(11);
  std::vector<std::string> texts;
  for (int text = 0; text < 3000; ++text)
    texts.push_back(text > 1000 && text % 2 == 0 ? texts[random() % 1000] + " end" : random_words(random, 300));
  const test::TestFolder folder;
  test::write_text(folder / "in", test::to_jsonl(texts));
  const auto run_kept = [&](int workers, int64_t memory_bytes) {
    RunPlan plan;
    plan.sources = {{.files = {folder / "in"}, .text_key = "text"}};
    for (const char* step : {"exact", "minhash", "simhash"}) plan.steps.push_back({step, test::maker_of(step, "")});
    plan.workers = workers;
    plan.memory_bytes = memory_bytes;
    plan.work_folder = folder / "work";
    plan.keeps_work = true;
    plan.shard_bytes = int64_t{1} << 20;
    std::vector<int64_t> numbers;
    const RunResult result = run(plan, [&](Document&& document) { numbers.push_back(document.number); });
    EXPECT_GT(result.num_shards, 1);
    return numbers;
  };
  const std::vector<int64_t> whole = run_kept(2, 1 << 26);
  EXPECT_EQ(whole.size(), 2001u);  // 0 to 1000, and the odd ones behind
  for (int trial = 0; trial < 2; ++trial) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "work")) {
      if (entry.path().string().find("/stage-") == std::string::npos) continue;
      const int stage = entry.path().string().find("stage-0") != std::string::npos ? 0 : 1;
      const bool is_first = entry.path().filename().string().starts_with("00000000");
      const bool is_killed = stage > trial || (stage == trial && !is_first);
      if (entry.path().extension() == ".json" && is_killed) std::filesystem::remove(entry.path());
    }
    // Of the first pass, half of the parts; of those that follow, nothing.
    for (int part = 8; part < 16; ++part)
      std::filesystem::remove_all(concat(folder / "work/pass-0/part-000", part < 10 ? "0" : "", part));
    std::filesystem::remove_all(folder / "work/pass-0/joined");
    std::filesystem::create_directory(folder / "work/pass-0/part-00009.partial");
    test::write_text(folder / "work/pass-0/part-00009.partial/drops", "half of a re");
    for (const char* pass : {"work/pass-1", "work/pass-2"}) std::filesystem::remove_all(folder / pass);
    EXPECT_TRUE(run_kept(1 + 2 * trial, trial == 0 ? 1 << 16 : 1 << 26) == whole) << trial;
  }
}

TEST(MinHashPass, RefusesOptionsThatDoNotBelongTogether) {
  const std::string problems =
      test::problems_of("minhash", "setting = \"openwebtext\"\nbands = 9\nseed = 2\nthreshold = 2");
  EXPECT_NE(problems.find("--bands 9 x --rows 10 is 90: the setting openwebtext has 100 values"), std::string::npos);
  EXPECT_NE(problems.find("--seed 2: the seeds of openwebtext are fixed"), std::string::npos);
  EXPECT_NE(problems.find("--threshold 2: expected 0 to 1"), std::string::npos);
}

TEST(ExactPass, KeepsTheFirstOfEqualDocuments) {
  const std::vector<std::string> texts{"a", "b", "a", "", " ", "", "b ", "a"};
  for (const int64_t memory : {0, 1 << 20})
    EXPECT_EQ(run_pass_over("exact", "", texts, 2, memory).numbers, (std::vector<int64_t>{0, 1, 3, 4, 6}));
  EXPECT_EQ(run_pass_over("exact", "keep = \"none\"", texts).numbers, (std::vector<int64_t>{1, 4, 6}));
  EXPECT_EQ(run_pass_over("exact", "times = 3", texts).numbers, (std::vector<int64_t>{0, 1, 3, 4, 5, 6}));
  std::vector<std::string> many, expected;
  for (int text = 0; text < 120000; ++text) many.push_back(concat("text ", text % 20000));
  const test::PassOutcome outcome = run_pass_over("exact", "", many, 2, 1 << 16);
  EXPECT_TRUE(outcome.texts == (std::vector<std::string>{many.begin(), many.begin() + 20000}));
  EXPECT_EQ(outcome.facts, (nlohmann::ordered_json{{"compared", 120000}, {"distinct", 20000}, {"duplicates", 100000}}));
}

TEST(ExactPass, RemovesRepeatedLinesAndParagraphs) {
  EXPECT_EQ(run_pass_over("exact", "unit = \"line\"", {"a\nb\n\na\nc", " b \nd\n", "a\nb", "e\na"}).texts,
            (std::vector<std::string>{"a\nb\n\nc", "d\n", "e"}));
  EXPECT_EQ(run_pass_over("exact", "unit = \"line\"\nkeep = \"none\"\ntimes = 3\nleast_characters = 2",
                          {"menu\nx\none", "menu\nx\ntwo", "menu\nx\ntwo", "menu"})
                .texts,
            (std::vector<std::string>{"x\none", "x\ntwo", "x\ntwo"}));
  EXPECT_EQ(run_pass_over("exact", "unit = \"paragraph\"", {"a\nb\n\n\nc", "c\n\na\n\na\nb\n\nd"}).texts,
            (std::vector<std::string>{"a\nb\n\n\nc", "a\n\nd"}));
}

TEST(ExactPass, ComparesUrls) {
  const test::TestFolder folder;
  test::write_text(folder / "in",
                   "{\"text\": \"1\", \"url\": \"https://A.org/x?q=1\"}\n{\"text\": \"2\", \"url\": "
                   "\"http://u@a.org:80/x#y\"}\n{\"text\": \"3\"}\n{\"text\": \"4\", \"url\": 5}\n{\"text\": "
                   "\"5\", \"url\": \"https://A.org/x?q=1\"}\n");
  EXPECT_EQ(test::run_pass("exact", "unit = \"url\"", folder / "in", folder / "work").numbers,
            (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(test::run_pass("exact", "unit = \"url\"\nhost_and_path = true", folder / "in", folder / "work").numbers,
            (std::vector<int64_t>{0, 2, 3}));
}

}  // namespace
}  // namespace espalier::curate
