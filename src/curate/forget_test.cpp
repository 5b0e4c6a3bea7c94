#include "curate/forget.h"

#include <sys/wait.h>

#include <csignal>
#include <map>
#include <random>
#include <set>

#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "curate/fates.h"
#include "curate/internal/run_fixture.h"
#include "curate/mix.h"
#include "data/store_metadata.h"

namespace espalier::curate {
namespace {

using test::TestFolder;
using test::write_text;

constexpr int kRecords = 700;

// Records with a kind, a URL, an address that a step masks, and texts of which some are too short and some empty behind
// the masks' step. Those of `without` are left out.
void write_records(const std::string& file, const std::set<int>& without) {
  std::mt19937 draw(5);
  std::string text;
  for (int record = 0; record < kRecords; ++record) {
    const auto kind = record == 600 ? 9 : draw() % 3;
    const auto length = draw() % 5 == 0 ? 0 : draw() % 60;
    std::string words;
    for (unsigned word = 0; word < length; ++word) words += concat(" w", draw() % 100);
    if (record % 97 == 13) text += "broken\n";
    if (!without.contains(record))
      text += concat("{\"kind\": \"k", kind, "\", \"url\": \"http://x.org/", record, "\", \"text\": \"", words,
                     record % 50 == 0 ? " me@mail.org" : "", record == 600 ? " only" : "", "\"}\n");
  }
  write_text(file, text);
}

std::string write_recipe(const TestFolder& folder, const std::string& name, const std::set<int>& without,
                         const std::string& compression = "zst") {
  write_records(folder / (name + ".jsonl"), without);
  write_text(
      folder / (name + ".toml"),
      concat(
          "[output]\nfolder = \"", folder / name, "\"\nby = \"kind\"\ncompression = \"", compression,
          "\"\ntokenizer = \"tests/data/gpt2-tiny/vocab.json\"\n[run]\nshard = \"20KiB\"\n[[source]]\nname = \"s\"\n",
          "files = [\"", folder / (name + ".jsonl"), "\"]\n[[step]]\nname = \"pii\"\n[[step]]\nname = \"length\"\n",
          "least = 0\nmost = 200\n"));
  return folder / (name + ".toml");
}

nlohmann::ordered_json make(const std::string& recipe_file) {
  Problems problems;
  Recipe recipe = read_recipe(recipe_file, problems);
  problems.raise();
  recipe.workers = 2;
  return make_mix(recipe).report;
}

// Documents and token files.
std::map<std::string, std::string> data_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".zst") || name.ends_with(".jsonl") || name.ends_with(".bin") || name.ends_with(".idx") ||
        name == "train-files.txt")
      files[name] = test::read_text(entry.path());
  }
  return files;
}

std::map<std::string, std::string> all_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[std::filesystem::relative(entry.path(), folder)] = test::read_text(entry.path());
  return files;
}

// The number of a record: those that are no document are counted too.
int64_t number_of(int record) { return record + (record >= 13 ? (record - 13) / 97 + 1 : 0); }

TEST(Forget, LeavesWhatACurationWithoutTheDocumentsGives) {
  TestFolder folder;
  const nlohmann::ordered_json before = make(write_recipe(folder, "mix", {}));
  std::set<int> gone = {0, 1, 50, 333, 600, 699};
  for (int record = 100; record < 140; ++record) gone.insert(record);
  make(write_recipe(folder, "without", gone));
  ForgetRequest request{.folder = folder / "mix"};
  for (const int record : gone)
    if (record % 2 == 0)
      request.documents.push_back(concat(number_of(record)));
    else
      request.urls.push_back(concat("http://x.org/", record));
  const ForgetResult result = forget(request);
  EXPECT_EQ(result.removed.size() + result.in_no_output.size() + result.urls_not_found.size(), gone.size());
  EXPECT_GT(result.removed.size(), 35u);
  EXPECT_GT(result.in_no_output.size() + result.urls_not_found.size(), 0u);  // dropped for their length
  std::map<std::string, std::string> wanted = data_of(folder / "without"), found = data_of(folder / "mix");
  // A group that is empty keeps its file; the others' order is that of their first documents.
  EXPECT_EQ(read_file(folder / "mix/report.json").find("\"tokens\": 0") != std::string::npos, true);
  found.erase("k9.jsonl.zst");
  const auto lines_of = [](const std::string& text) {
    std::vector<std::string> lines = split(text, '\n');
    return std::set<std::string>(lines.begin(), lines.end());
  };
  EXPECT_EQ(lines_of(found.at("train-files.txt")), lines_of(wanted.at("train-files.txt")));
  found.erase("train-files.txt");
  wanted.erase("train-files.txt");
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, content] : wanted) EXPECT_TRUE(found.at(name) == content) << name;
  EXPECT_FALSE(std::filesystem::exists(folder / "mix/forget.work"));
}

TEST(Forget, FatesFollow) {
  TestFolder folder;
  make(write_recipe(folder, "mix", {}, "none"));
  forget(
      {.folder = folder / "mix", .documents = {"0", "3", concat(folder / "mix.jsonl", ":10")}, .reason = "letter 17"});
  std::map<std::string, std::vector<std::string>> lines;
  for (const char* kind : {"k0", "k1", "k2", "k9"})
    lines[concat(kind, ".jsonl")] = split(read_file(folder / concat("mix/", kind, ".jsonl")), '\n');
  int places = 0, forgotten = 0;
  for (int record = 0; record < kRecords; ++record) {
    const std::string fate = explain_fate(folder / "mix", concat(number_of(record))).front();
    forgotten += fate.ends_with("was forgotten: letter 17");
    const size_t at = fate.find("stayed: line ");
    if (at == std::string::npos) continue;
    const std::vector<std::string> words = split(fate.substr(at), ' ');
    EXPECT_NE(lines.at(words[4])[std::stoul(words[2]) - 1].find(concat("\"http://x.org/", record, "\"")),
              std::string::npos)
        << fate;
    ++places;
  }
  EXPECT_EQ(forgotten, 3);
  EXPECT_GT(places, 400);
}

TEST(Forget, TakesSamplesOutOfTheReport) {
  TestFolder folder;
  const nlohmann::ordered_json before = make(write_recipe(folder, "mix", {}));
  const nlohmann::ordered_json& samples = before.at("steps")[0].at("samples");
  ASSERT_GT(samples.size(), 1u);
  const auto number = samples[0].at("number").get<int64_t>();
  const nlohmann::ordered_json& dropped = before.at("steps")[1].at("samples")[0];
  const ForgetResult result =
      forget({.folder = folder / "mix", .documents = {concat(number), concat(dropped.at("number").get<int64_t>())}});
  EXPECT_EQ(result.in_no_output, (std::vector<int64_t>{dropped.at("number").get<int64_t>()}));
  EXPECT_EQ(result.num_samples, 2);
  const auto after = parse_json<nlohmann::ordered_json>(read_file(folder / "mix/report.json"), "report");
  EXPECT_EQ(after.at("steps")[0].at("samples").size(), samples.size() - 1);
  EXPECT_EQ(after.at("forgotten").size(), 1u);
  for (const char* name : {"report.json", "report.md", "report.html"})
    EXPECT_EQ(read_file(folder / concat("mix/", name)).find(dropped.at("before").get<std::string>().substr(0, 60)),
              std::string::npos)
        << name;
  // A second time there is nothing to be done.
  const ForgetResult again = forget({.folder = folder / "mix", .documents = {concat(number)}});
  EXPECT_TRUE(again.removed.empty());
  EXPECT_EQ(again.in_no_output, (std::vector<int64_t>{number}));
}

TEST(Forget, DryRunChangesNothing) {
  TestFolder folder;
  make(write_recipe(folder, "mix", {}));
  const std::map<std::string, std::string> before = all_of(folder / "mix");
  const ForgetResult result = forget(
      {.folder = folder / "mix", .documents = {"3"}, .urls = {"http://x.org/9", "http://none.org"}, .dry_run = true});
  EXPECT_EQ(result.removed.size(), 2u);
  EXPECT_EQ(result.urls_not_found, (std::vector<std::string>{"http://none.org"}));
  EXPECT_EQ(all_of(folder / "mix"), before);
}

TEST(Forget, KilledAnywhereItIsCompletedByTheNext) {
  TestFolder folder;
  make(write_recipe(folder, "start", {}));
  const ForgetRequest request{.folder = folder / "mix", .documents = {"0", "5", "111", "222", "333"}};
  const auto copy = [&] {
    std::filesystem::remove_all(folder / "mix");
    std::filesystem::copy(folder / "start", folder / "mix", std::filesystem::copy_options::recursive);
  };
  copy();
  forget(request);
  const std::map<std::string, std::string> whole = all_of(folder / "mix");
  std::mt19937 draw(3);
  for (int attempt = 0; attempt < 5; ++attempt) {
    copy();
    for (int kill = 0; kill < 3; ++kill) {
      const pid_t child = ::fork();
      if (child == 0) {
        forget(request);
        ::_exit(0);
      }
      ::usleep(static_cast<useconds_t>(draw() % 40000));
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    forget(request);
    std::map<std::string, std::string> again = all_of(folder / "mix");
    again.erase("forget.tmp");
    EXPECT_EQ(again.size(), whole.size());
    for (const auto& [name, content] : whole) EXPECT_TRUE(again[name] == content) << name;
  }
}

TEST(Forget, NamesWhatIsWrong) {
  TestFolder folder;
  const auto message = [](const ForgetRequest& request) {
    try {
      forget(request);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message({.folder = folder / "none", .documents = {"1"}}).find("holds no finished curation"),
            std::string::npos);
  make(write_recipe(folder, "mix", {}, "none"));
  EXPECT_NE(message({.folder = folder / "mix", .documents = {"99999"}}).find("there were 708 records"),
            std::string::npos);
  EXPECT_NE(message({.folder = folder / "mix", .documents = {"x"}})
                .find("expected a number from 0, or FILE:LINE, with lines from 1"),
            std::string::npos);
  std::string lines = read_file(folder / "mix/k0.jsonl");
  write_text(folder / "mix/k0.jsonl", lines.substr(lines.find('\n') + 1));
  std::string found;
  for (int number = 0; number < 12 && found.empty(); ++number)
    found = message({.folder = folder / "mix", .documents = {concat(number)}});
  EXPECT_NE(found.find("the file is not as it was written"), std::string::npos) << found;
}

}  // namespace
}  // namespace espalier::curate
