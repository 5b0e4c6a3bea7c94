#include "curate/mix.h"

#include <sys/wait.h>

#include <csignal>
#include <map>
#include <random>

#include "base/format.h"
#include "curate/fates.h"
#include "curate/internal/run_fixture.h"

namespace espalier::curate {
namespace {

using test::TestFolder;
using test::write_text;

std::string mix_problems(const std::string& file) {
  Problems problems;
  read_recipe(file, problems);
  return join(problems.messages(), "\n");
}

// All files below a folder, by their paths in it.
std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[std::filesystem::relative(entry.path(), folder)] = test::read_text(entry.path());
  return files;
}

void make(const std::string& recipe_file, int64_t workers) {
  Problems problems;
  Recipe recipe = read_recipe(recipe_file, problems);
  problems.raise();
  recipe.workers = workers;
  make_mix(recipe);
}

// Twelve megabytes of lines in two files, some malformed, some short; "kind" names three groups.
std::string write_corpus(const TestFolder& folder) {
  std::mt19937 draw(7);
  for (const std::string name : {"a", "b"}) {
    std::string text;
    for (int line = 0; line < 3000; ++line) {
      if (line % 101 == 7) text += "broken\n";
      const std::string words(draw() % 4000, static_cast<char>('a' + draw() % 26));
      text += concat("{\"kind\": \"k", draw() % 3, "\", \"text\": \"", words, " me@mail.org\"}\n");
    }
    write_text(folder / (name + ".jsonl"), text);
  }
  const std::string recipe =
      concat("[output]\nfolder = \"", folder / "mix", "\"\nby = \"kind\"\ncompression = \"zst\"\n",
             "[run]\nshard = \"1MiB\"\n[[source]]\nname = \"s\"\nfiles = [\"", folder / "*.jsonl",
             "\"]\nmetadata = { licence = \"CC0\" }\n[[step]]\nname = \"length\"\nleast = 100\n",
             "[[step]]\nname = \"pii\"\n");
  write_text(folder / "r.toml", recipe);
  return folder / "r.toml";
}

TEST(CurateMix, IsTheSameForAnyNumberOfWorkersAndKills) {
  TestFolder folder;
  const std::string recipe = write_corpus(folder);
  make(recipe, 1);
  const std::map<std::string, std::string> whole = files_of(folder / "mix");
  EXPECT_TRUE(whole.contains("k0.jsonl.zst") && whole.contains("k2.jsonl.zst") && whole.contains("report.md"));
  EXPECT_GT(whole.size(), 8u);
  std::mt19937 draw(11);
  for (int attempt = 0; attempt < 4; ++attempt) {
    std::filesystem::remove_all(folder / "mix");
    for (int kill = 0; kill < 6; ++kill) {
      const pid_t child = ::fork();
      if (child == 0) {
        make(recipe, 1 + kill % 3);
        ::_exit(0);
      }
      ::usleep(static_cast<useconds_t>(draw() % 60000));
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    make(recipe, 3);
    const std::map<std::string, std::string> again = files_of(folder / "mix");
    ASSERT_EQ(again.size(), whole.size());
    for (const auto& [path, content] : whole) EXPECT_EQ(again.at(path) == content, true) << path;
  }
}

TEST(CurateMix, TellsTheFateOfEveryRecord) {
  TestFolder folder;
  make(write_corpus(folder), 2);
  int64_t stayed = 0, dropped = 0, malformed = 0;
  for (int number = 0; number < 200; ++number) {
    const std::vector<std::string> fates = explain_fate(folder / "mix", concat(number));
    ASSERT_EQ(fates.size(), 1u);
    stayed += fates[0].find("stayed: line ") != std::string::npos;
    dropped += fates[0].find("dropped by step 1, length: short ") != std::string::npos;
    malformed += fates[0].find("was no document: ") != std::string::npos;
  }
  EXPECT_EQ(stayed + dropped + malformed, 200);
  EXPECT_EQ(malformed, 2);
  EXPECT_EQ(explain_fate(folder / "mix", (folder / "a.jsonl") + ":8"),
            std::vector<std::string>{"document 7 was no document: Expecting value"});
  const std::vector<std::string> of_b = explain_fate(folder / "mix", (folder / "b.jsonl") + ":1");
  EXPECT_EQ(of_b.front().substr(0, 13), "document 3030");
  for (const char* none : {"-1", "x", "99999999", "none:1"})
    EXPECT_THROW(explain_fate(folder / "mix", none), UserError) << none;
}

TEST(CurateMix, ListsAllProblemsOfARecipe) {
  TestFolder folder;
  const std::string file = folder / "r.toml";
  write_text(file,
             "[output]\nfoldr = \"x\"\n[[source]]\nname = \"a\"\nfiles = [\"/none/*.x\", \"/none/y\"]\n[[step]]\n"
             "name = \"oscr\"\n[[step]]\nname = \"length\"\nleast = 10\nmost = 5\n[outptu]\n");
  const std::string problems = mix_problems(file);
  for (const std::string& part :
       {concat(file, ":12: unknown table outptu; did you mean output?"), concat(file, ":2: unknown key foldr"),
        std::string("no file is called /none/*.x"), std::string("file /none/y: no such file"),
        std::string("name = \"oscr\": no such step; did you mean oscar?"),
        std::string("--least 10 is more than --most 5")})
    EXPECT_NE(problems.find(part), std::string::npos) << part << "\n" << problems;
  write_text(file, "a = [");
  EXPECT_NE(mix_problems(file).find(":1: not TOML"), std::string::npos);
  EXPECT_NE(mix_problems(folder / "none").find("none"), std::string::npos);
  write_text(file, "");
  EXPECT_NE(mix_problems(file).find("there is no [output]"), std::string::npos);
}

TEST(CurateMix, RefusesToMixRecipes) {
  TestFolder folder;
  const std::string file = write_corpus(folder);
  std::filesystem::create_directories(folder / "mix/work");
  write_text(folder / "mix/work/recipe", "another");
  Problems problems, none;
  const Recipe recipe = read_recipe(file, problems);
  check_folder(recipe, false, problems);
  ASSERT_EQ(problems.messages().size(), 1u);
  EXPECT_NE(problems.messages()[0].find("the work of another recipe"), std::string::npos);
  check_folder(recipe, true, none);
  EXPECT_TRUE(none.empty());
}

TEST(CurateMix, TriesWithoutWriting) {
  TestFolder folder;
  const std::string file = write_corpus(folder);
  Problems problems;
  Recipe recipe = read_recipe(file, problems);
  problems.raise();
  const MixResult mix = try_mix(recipe, 33);
  EXPECT_EQ(mix.run.input.num_records, 33);
  EXPECT_EQ(mix.run.input.num_malformed, 1);
  EXPECT_FALSE(std::filesystem::exists(folder / "mix"));
  EXPECT_FALSE(std::filesystem::exists(folder / "mix.dry-run"));
}

}  // namespace
}  // namespace espalier::curate
