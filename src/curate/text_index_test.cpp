#include "curate/text_index.h"

#include <sys/wait.h>

#include <csignal>
#include <map>
#include <random>

#include "base/format.h"
#include "base/json.h"
#include "curate/internal/run_fixture.h"

namespace espalier::curate {
namespace {

using test::TestFolder;
using test::write_text;

// Texts of few letters, so that stretches come again, and characters of 1 to 4 bytes.
std::vector<std::string> draw_texts(uint32_t seed, int count) {
  std::mt19937 draw(seed);
  const std::vector<std::string> letters = {"a", "b", "c", " ", "é", "日", "🙂", "\n"};
  std::vector<std::string> texts;
  for (int text = 0; text < count; ++text) {
    texts.emplace_back();
    for (unsigned length = draw() % 40; length > 0; --length) texts.back() += letters[draw() % letters.size()];
  }
  return texts;
}

TextIndexPlan plan_of(const TestFolder& folder, const std::vector<std::string>& texts, int64_t memory,
                      int64_t workers) {
  std::string lines[2];
  for (size_t text = 0; text < texts.size(); ++text) {
    if (text == 5) lines[0] += "broken\n";
    lines[text >= texts.size() / 2] +=
        nlohmann::json({{"text", texts[text]}, {"source", concat("s", text % 3)}}).dump() + "\n";
  }
  TextIndexPlan plan;
  InputSource source;
  for (const int file : {0, 1}) {
    source.files.push_back(folder / concat("in", file, ".jsonl"));
    write_text(source.files.back(), lines[file]);
  }
  plan.sources = {source};
  plan.folder = folder / "index";
  plan.memory_bytes = memory;
  plan.workers = workers;
  return plan;
}

// Occurrences in the order of the input: document and byte, found by looking everywhere.
std::vector<std::pair<int64_t, int64_t>> plainly(const std::vector<std::string>& texts, const std::string& question) {
  std::vector<std::pair<int64_t, int64_t>> found;
  for (size_t text = 0; text < texts.size(); ++text)
    for (size_t at = texts[text].find(question); at != std::string::npos; at = texts[text].find(question, at + 1))
      found.emplace_back(static_cast<int64_t>(text) + (text >= 5), static_cast<int64_t>(at));
  return found;
}

TEST(TextIndex, FindsWhatLookingEverywhereFinds) {
  const std::vector<std::string> texts = draw_texts(3, 90);
  for (const auto& [memory, workers] : {std::pair<int64_t, int64_t>{1 << 30, 1}, {6000, 1}, {3000, 3}, {1, 2}}) {
    TestFolder folder;
    const TextIndexSummary summary = build_text_index(plan_of(folder, texts, memory, workers));
    EXPECT_EQ(summary.num_documents, 90);
    EXPECT_EQ(summary.input.num_malformed, 1);
    EXPECT_EQ(summary.num_shards == 90, memory == 1);
    const TextIndex index(folder / "index");
    for (const std::string& question : draw_texts(4, 400)) {
      const std::string text = question.substr(0, question.size() % 9);
      if (text.empty() || (text.size() < question.size() && (question[text.size()] & 0xC0) == 0x80)) continue;
      const auto wanted = plainly(texts, text);
      EXPECT_EQ(index.count(text), static_cast<int64_t>(wanted.size())) << text;
      const std::vector<TextIndex::Place> places = index.places(text, 7);
      ASSERT_EQ(places.size(), std::min<size_t>(7, wanted.size()));
      for (size_t at = 0; at < places.size(); ++at) {
        EXPECT_EQ(places[at].document, wanted[at].first);
        EXPECT_EQ(places[at].begin, wanted[at].second);
      }
    }
  }
}

TEST(TextIndex, TellsWhereFrom) {
  TestFolder folder;
  std::vector<std::string> texts = draw_texts(3, 20);
  texts[12] = std::string(100, 'x') + "é needle 日" + std::string(100, 'y');
  build_text_index(plan_of(folder, texts, 1 << 20, 1));
  const std::vector<TextIndex::Place> places = TextIndex(folder / "index").places("needle", 10);
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].document, 13);  // one record before it is no document
  EXPECT_EQ(places[0].file, folder / "in1.jsonl");
  EXPECT_EQ(places[0].record, 3);
  EXPECT_EQ(places[0].source, "s0");
  EXPECT_EQ(places[0].before, std::string(57, 'x') + "é ");
  EXPECT_EQ(places[0].after, " 日" + std::string(56, 'y'));
}

TEST(TextIndex, PartsAreAsLongAsTheyCanBe) {
  const std::vector<std::string> texts = draw_texts(5, 60);
  TestFolder folder;
  build_text_index(plan_of(folder, texts, 3000, 1));
  const TextIndex index(folder / "index");
  const auto is_start = [](const std::string& text, size_t at) {
    return at == text.size() || (static_cast<uint8_t>(text[at]) & 0xC0) != 0x80;
  };
  for (const std::string& question : draw_texts(6, 40)) {
    // Every stretch that occurs and cannot be made longer at either end, by trying all.
    std::vector<std::pair<size_t, size_t>> wanted;
    for (size_t begin = 0; begin < question.size(); ++begin) {
      if (!is_start(question, begin)) continue;
      size_t end = begin;
      for (size_t at = begin + 1; at <= question.size(); ++at)
        if (is_start(question, at) && !plainly(texts, question.substr(begin, at - begin)).empty()) end = at;
      if (end - begin >= 4 && (wanted.empty() || end > wanted.back().second)) wanted.emplace_back(begin, end);
    }
    std::vector<std::pair<size_t, size_t>> found;
    for (const TextIndex::Part& part : index.parts(question, 4)) {
      found.emplace_back(part.begin, part.begin + part.size);
      EXPECT_EQ(part.count, static_cast<int64_t>(plainly(texts, question.substr(part.begin, part.size)).size()));
    }
    EXPECT_EQ(found, wanted) << question;
  }
}

TEST(TextIndex, LooseTakesCaseAndBlanksForTheSame) {
  TestFolder folder;
  TextIndexPlan plan = plan_of(folder, {"The  River\nwas ÉCOLE high."}, 1 << 20, 1);
  build_text_index(plan);
  EXPECT_EQ(TextIndex(folder / "index").count("the river was"), 0);
  plan.loose = true;
  build_text_index(plan);
  const TextIndex index(folder / "index");
  EXPECT_EQ(index.count(index.normal("THE river \t WAS École")), 1);
}

TEST(TextIndex, KilledAnywhereItGoesOn) {
  const std::vector<std::string> texts = draw_texts(7, 3000);
  TestFolder folder;
  const TextIndexPlan plan = plan_of(folder, texts, 100000, 2);
  const auto all = [&] {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "index"))
      files[entry.path().filename()] = test::read_text(entry.path());
    return files;
  };
  build_text_index(plan);
  const std::map<std::string, std::string> whole = all();
  EXPECT_GT(whole.size(), 10u);
  std::mt19937 draw(1);
  std::filesystem::remove_all(folder / "index");
  for (int kill = 0; kill < 6; ++kill) {
    const pid_t child = ::fork();
    if (child == 0) {
      build_text_index(plan);
      ::_exit(0);
    }
    ::usleep(static_cast<useconds_t>(draw() % 30000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  build_text_index(plan);
  std::map<std::string, std::string> again = all();
  std::erase_if(again, [](const auto& file) { return file.first.ends_with(".tmp"); });
  EXPECT_EQ(again, whole);
}

TEST(TextIndex, NamesWhatIsWrong) {
  TestFolder folder;
  const auto message = [&] {
    try {
      TextIndex(folder / "index").places("a", 1);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message().find("holds no index of texts"), std::string::npos);
  build_text_index(plan_of(folder, draw_texts(8, 20), 1 << 20, 1));
  EXPECT_EQ(message(), "");
  const std::filesystem::path documents = folder / "index/00000000.documents";
  write_text(documents, std::string(std::filesystem::file_size(documents), '\x7f'));
  EXPECT_NE(message().find("is in a document from 9187201950435737471 on of source 2139062143"), std::string::npos)
      << message();
  write_text(folder / "index/00000000.suffixes", std::string(400, '\xff'));
  EXPECT_NE(message().find("damaged: byte 4294967295"), std::string::npos) << message();
  write_text(folder / "index/00000000.text", "x");
  EXPECT_NE(message().find("do not match index.json"), std::string::npos) << message();
  std::filesystem::remove(folder / "index/index.json");
  write_text(folder / "index/building", "");
  EXPECT_NE(message().find("the same 'curate index' finishes it"), std::string::npos);
}

}  // namespace
}  // namespace espalier::curate
