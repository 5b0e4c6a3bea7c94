#include "curate/mix.h"

#include <sys/wait.h>

#include <cmath>
#include <csignal>
#include <map>
#include <random>

#include "base/format.h"
#include "curate/fates.h"
#include "curate/forget.h"
#include "curate/internal/run_fixture.h"
#include "curate/source_check.h"
#include "data/line_reader.h"
#include "data/parquet.h"
#include "tests/support/long_version.h"

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

// Eight megabytes of lines in two files, some malformed, some short; "kind" names three groups.
std::string write_corpus(const TestFolder& folder) {
  std::mt19937 draw(7);
  for (const std::string name : {"a", "b"}) {
    std::string text;
    for (int line = 0; line < 2000; ++line) {
      if (line % 101 == 7) text += "broken\n";
      const std::string words(draw() % 4000, static_cast<char>('a' + draw() % 26));
      text += concat("{\"kind\": \"k", draw() % 3, "\", \"text\": \"", words, " me@mail.org\"}\n");
    }
    write_text(folder / (name + ".jsonl"), text);
  }
  const std::string recipe =
      concat("[output]\nfolder = \"", folder / "mix", "\"\nby = \"kind\"\ncompression = \"zst\"\n",
             "[run]\nshard = \"512KiB\"\n[[source]]\nname = \"s\"\nfiles = [\"", folder / "*.jsonl",
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
  for (int attempt = 0; attempt < espalier::test::in_suite_or_all(2, 4); ++attempt) {
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

// With a step that must see all documents first, so that there are two stages.
std::string write_corpus_with_duplicates(const TestFolder& folder) {
  const std::string recipe = write_corpus(folder);
  write_text(recipe, test::read_text(recipe) + "[[step]]\nname = \"exact\"\n");
  std::filesystem::copy_file(folder / "b.jsonl", folder / "c.jsonl");
  return recipe;
}

pid_t start(const std::string& recipe, int64_t workers) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  try {
    make(recipe, workers);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    ::_exit(1);
  }
  ::_exit(0);
}

void expect_same(const std::map<std::string, std::string>& found, const std::map<std::string, std::string>& whole) {
  ASSERT_EQ(found.size(), whole.size());
  for (const auto& [path, content] : whole) EXPECT_EQ(found.at(path) == content, true) << path;
}

TEST(CurateMix, IsTheSameForProcessesThatShareTheWork) {
  TestFolder folder;
  const std::string recipe = write_corpus_with_duplicates(folder);
  make(recipe, 2);
  const std::map<std::string, std::string> whole = files_of(folder / "mix");
  using Counts = std::vector<int>;
  for (const int count : espalier::test::in_suite_or_all(Counts{5}, Counts{2, 5})) {
    std::filesystem::remove_all(folder / "mix");
    std::vector<pid_t> children;
    for (int child = 0; child < count; ++child) children.push_back(start(recipe, 1 + child % 2));
    for (const pid_t child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    expect_same(files_of(folder / "mix"), whole);
  }
}

// Three processes at work, of which one after another is killed and replaced.
TEST(CurateMix, IsTheSameHoweverOftenProcessesAreKilled) {
  TestFolder folder;
  const std::string recipe = write_corpus_with_duplicates(folder);
  make(recipe, 2);
  const std::map<std::string, std::string> whole = files_of(folder / "mix");
  const int num_kills = espalier::test::in_suite_or_all(6, 50);
  std::mt19937 draw(5);
  std::vector<pid_t> children(3, 0);
  std::filesystem::remove_all(folder / "mix");
  for (int kill = 0; kill < num_kills; ++kill) {
    pid_t& child = children[draw() % children.size()];
    for (pid_t& other : children)
      if (other == 0 || ::waitpid(other, nullptr, WNOHANG) == other) other = start(recipe, 1 + draw() % 2);
    ::usleep(static_cast<useconds_t>(draw() % 60000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    child = 0;
    if (kill % 16 == 15) std::filesystem::remove_all(folder / "mix/work/out");  // what a finisher had begun
  }
  for (const pid_t child : children)
    if (child != 0) ::waitpid(child, nullptr, 0);
  make(recipe, 2);  // whatever is left
  expect_same(files_of(folder / "mix"), whole);
}

TEST(CurateMix, WritesWhatTheModelSees) {
  TestFolder folder;
  const std::string recipe = write_corpus(folder);
  std::string content = test::read_text(recipe);
  content.replace(content.find("compression = \"zst\""), 19,
                  "tokenizer = \"tests/data/tokenizers/gpt2/tokenizer.json\"\nappend_eod = false");
  write_text(recipe, content + "[mix]\nalpha = 0.5\nvalid_per_corpus = true\n");
  make(recipe, 2);
  const auto report = nlohmann::ordered_json::parse(test::read_text(folder / "mix/report.json"));
  double sum_of_roots = 0, all = 0;
  std::map<std::string, double> tokens;
  for (const auto& output : report.at("outputs")) {
    tokens[output.at("name")] = output.at("tokens");
    sum_of_roots += std::sqrt(output.at("tokens").get<double>());
    EXPECT_EQ(output.at("catalogue").at("licence").at("CC0"), output.at("documents"));
    EXPECT_EQ(output.at("catalogue").at("source").at("s"), output.at("documents"));
  }
  ASSERT_EQ(report.at("mix").size(), 3u);
  for (const auto& row : report.at("mix")) {
    all += row.at("share").get<double>();
    EXPECT_NEAR(row.at("share"), std::sqrt(tokens.at(row.at("output"))) / sum_of_roots, 1e-12);
    EXPECT_NEAR(row.at("epochs"), row.at("tokens_read").get<double>() / row.at("train_tokens").get<double>(), 1e-12);
  }
  EXPECT_NEAR(all, 1, 1e-12);
  const std::string splits = test::read_text(folder / "mix/train-splits.txt");
  EXPECT_TRUE(splits.starts_with("\"train: 0.")) << splits;
  EXPECT_NE(splits.find(" 0:0.95 k1_text_document"), std::string::npos) << splits;
  EXPECT_NE(test::read_text(folder / "mix/valid-splits.txt").find("\"valid_k2: "), std::string::npos);
  EXPECT_NE(test::read_text(folder / "mix/report.md").find("## What a model sees"), std::string::npos);
  EXPECT_NE(test::read_text(folder / "mix/k0_text_document.meta.json").find("\"CC0\""), std::string::npos);
  write_text(recipe, content + "[mix]\nalpha = 0.5\nratios = \"none.json\"\nvalid_range = \"0.5:1\"\n");
  const std::string problems = mix_problems(recipe);
  for (const char* part : {"Leave one out", "'none.json'", "share documents"})
    EXPECT_NE(problems.find(part), std::string::npos) << problems;
}

TEST(CurateMix, WritesParquet) {
  if (!data::has_parquet()) GTEST_SKIP() << "needs libespalier_parquet.so: scripts/setup --parquet";
  TestFolder folder;
  const std::string recipe = write_corpus(folder);
  make(recipe, 2);
  const auto lines_of = [&](const std::string& file) {
    std::vector<std::string> lines;
    data::LineReader reader({folder / file});
    for (std::string_view line; reader.next(line);) lines.push_back(nlohmann::json::parse(line).dump());
    return lines;
  };
  const std::vector<std::string> expected = lines_of("mix/k1.jsonl.zst");
  std::string content = test::read_text(recipe);
  content.replace(content.find("compression = \"zst\""), 19, "format = \"parquet\"");
  write_text(recipe, content);
  std::filesystem::remove_all(folder / "mix");
  make(recipe, 2);
  EXPECT_EQ(lines_of("mix/k1.parquet") == expected, true);
  const ForgetResult result = forget({.folder = folder / "mix", .documents = {"0", "1", "2", "3", "4", "5"}});
  int64_t num_lines = 0;
  for (const ForgetResult::Place& place : result.removed) num_lines += place.output == "k1.parquet";
  EXPECT_EQ(lines_of("mix/k1.parquet").size(), expected.size() - static_cast<size_t>(num_lines));
  content.replace(content.find("format = \"parquet\""), 18, "format = \"parquet\"\ncompression = \"xz\"");
  write_text(recipe, content);
  EXPECT_NE(mix_problems(recipe).find("is not for parquet; use none, snappy, gz or zst"), std::string::npos);
}

TEST(CurateMix, ReadsFoldersAsSparkLeavesThem) {
  TestFolder folder;
  for (const char* part :
       {"table/language=fr/day=2026-01-01", "table/language=__HIVE_DEFAULT_PARTITION__/day=a%20b", "table/_tmp"})
    std::filesystem::create_directories(folder / part);
  write_text(folder / "table/_SUCCESS", "");
  write_text(folder / "table/_tmp/part-0.jsonl", "no JSON\n");
  write_text(folder / "table/language=fr/day=2026-01-01/part-0.jsonl", "{\"text\": \"un\"}\n");
  write_text(folder / "table/language=fr/day=2026-01-01/.part-0.jsonl.crc", "crc");
  write_text(folder / "table/language=__HIVE_DEFAULT_PARTITION__/day=a%20b/part-1.jsonl", "{\"text\": \"deux\"}\n");
  write_text(folder / "list.txt", "# files\ntable/language=fr/day=2026-01-01/part-0.jsonl\n{\"path\": \"" +
                                      (folder / "table/language=__HIVE_DEFAULT_PARTITION__/day=a%20b/part-1.jsonl") +
                                      "\"}\n");
  for (const std::string& source :
       {"files = [\"" + (folder / "table") + "\"]", "manifest = \"" + (folder / "list.txt") + "\""}) {
    std::filesystem::remove_all(folder / "mix");
    write_text(folder / "r.toml",
               "[output]\nfolder = \"" + (folder / "mix") + "\"\n[[source]]\nname = \"t\"\n" + source + "\n");
    make(folder / "r.toml", 1);
    const std::string documents = test::read_text(folder / "mix/documents.jsonl");
    EXPECT_NE(documents.find(R"({"text": "un", "language": "fr", "day": "2026-01-01", "source": "t"})"),
              std::string::npos)
        << documents;
    EXPECT_NE(documents.find(R"({"text": "deux", "language": null, "day": "a b", "source": "t"})"), std::string::npos)
        << documents;
    EXPECT_EQ(std::count(documents.begin(), documents.end(), '\n'), 2);
  }
  write_text(folder / "list.txt", "s3://bucket/a.parquet\n{\"x\": 1}\nnone.jsonl\n");
  const std::string problems = mix_problems(folder / "r.toml");
  for (const char* part :
       {"list.txt:1: s3://bucket/a.parquet is on no disk", "list.txt:2: expected a path", "none.jsonl: no such file"})
    EXPECT_NE(problems.find(part), std::string::npos) << part << "\n" << problems;
}

// The names that Hive gives to the folders; what they hold is read back as a folder and by its manifest.
TEST(CurateMix, WritesPartitionsThatItReads) {
  TestFolder folder;
  const std::vector<std::pair<std::string, std::string>> partitions = {{R"("fr")", "language=fr"},
                                                                       {R"("a/b=c")", "language=a%2Fb%3Dc"},
                                                                       {R"("a_b_c")", "language=a_b_c"},
                                                                       {"null", "language=__HIVE_DEFAULT_PARTITION__"},
                                                                       {"7", "language=7"}};
  std::string lines;
  for (int record = 0; record < 33; ++record)
    lines += concat("{\"text\": \"", record, "\", \"language\": ", partitions[static_cast<size_t>(record % 5)].first,
                    ", \"id\": ", record, "}\n");
  write_text(folder / "in.jsonl", lines);
  const auto recipe = [&](const std::string& name, const std::string& source, const std::string& output) {
    write_text(folder / "r.toml", concat("[output]\nfolder = \"", folder / name, "\"\n", output,
                                         "[[source]]\nname = \"s\"\n", source, "\n"));
    make(folder / "r.toml", 2);
  };
  std::vector<std::string> formats = {"jsonl"};
  if (data::has_parquet()) formats.push_back("parquet");
  for (const std::string& format : formats) {
    std::filesystem::remove_all(folder / "mix");
    recipe("mix", concat("files = [\"", folder / "in.jsonl", "\"]"),
           concat("by = \"language\"\nlayout = \"partitions\"\ntokenizer = \"tests/data/gpt2-tiny/vocab.json\"\n",
                  "format = \"", format, "\"\n"));
    EXPECT_TRUE(std::filesystem::exists(folder / "mix/documents/_SUCCESS"));
    for (const auto& [value, name] : partitions) {
      std::vector<std::string> found;
      data::LineReader reader({folder / concat("mix/documents/", name, "/part-00000.", format)});
      for (std::string_view line; reader.next(line);) found.emplace_back(line);
      ASSERT_EQ(found.size(), value == "null" || value == "7" ? 6u : 7u) << name;
      EXPECT_EQ(found.front().find("language"), std::string::npos) << found.front();  // the folder says it
    }
    for (const char* tokens : {"fr", "a_b_c", "a_b_c-2", "unknown", "7"})
      EXPECT_TRUE(std::filesystem::exists(folder / concat("mix/", tokens, "_text_document.bin"))) << tokens;
    forget({.folder = folder / "mix", .documents = {"0", "1"}});
    for (const std::string& source : {concat("files = [\"", folder / "mix/documents", "\"]"),
                                      concat("manifest = \"", folder / "mix/manifest.txt", "\"")}) {
      std::filesystem::remove_all(folder / "again");
      recipe("again", source, "");
      std::map<int, std::string> languages;
      data::LineReader reader({folder / "again/documents.jsonl"});
      for (std::string_view line; reader.next(line);) {
        const auto record = nlohmann::json::parse(line);
        languages[record.at("id")] = record.at("language").dump();
      }
      ASSERT_EQ(languages.size(), 31u);
      for (const auto& [id, language] : languages) {
        const std::string& value = partitions[static_cast<size_t>(id % 5)].first;
        EXPECT_EQ(language, value == "7" ? "\"7\"" : value) << id;
      }
    }
  }
  write_text(folder / "r.toml", concat("[output]\nfolder = \"", folder / "mix", "\"\nlayout = \"partitions\"\n",
                                       "[[source]]\nname = \"s\"\nfiles = [\"", folder / "in.jsonl", "\"]\n"));
  EXPECT_NE(mix_problems(folder / "r.toml").find("needs the key to part by"), std::string::npos);
}

TEST(CurateMix, NoticesInputsOfTheSameSize) {
  TestFolder folder;
  const std::string file = write_corpus(folder);
  write_text(folder / "domains.txt", "a.org\n");
  write_text(file,
             test::read_text(file) + "[[step]]\nname = \"urls\"\ndomains = \"" + (folder / "domains.txt") + "\"\n");
  make(file, 2);
  const auto is_made = [&] {
    Problems problems;
    const Recipe recipe = read_recipe(file, problems);
    problems.raise();
    return is_finished(recipe);
  };
  const auto change = [&](const std::string& name, size_t at, bool keeps_time) {
    const std::filesystem::path path = folder / name;
    const auto time = std::filesystem::last_write_time(path);
    const std::string before = test::read_text(path);
    std::string text = before;
    text[at] = '!';
    write_text(path, text);
    if (keeps_time) std::filesystem::last_write_time(path, time);
    EXPECT_FALSE(is_made()) << name << ", byte " << at;
    write_text(path, before);
    std::filesystem::last_write_time(path, time);
    EXPECT_TRUE(is_made());
  };
  const size_t size = std::filesystem::file_size(folder / "a.jsonl");
  for (const size_t at : {size_t{0}, size_t{4095}, size - 1, size / 7 * 3}) change("a.jsonl", at, /*keeps_time=*/true);
  change("domains.txt", 0, /*keeps_time=*/true);
  change("b.jsonl", 10000, /*keeps_time=*/false);
}

// The change is between the pieces that the fingerprint is of, and the time is the old one.
TEST(CurateMix, RefusesToContinueOverOtherBytes) {
  TestFolder folder;
  const std::string file = write_corpus(folder);
  Problems problems;
  Recipe recipe = read_recipe(file, problems);
  problems.raise();
  RunPlan plan;
  plan.sources = recipe.sources;
  plan.work_folder = folder / "work";
  plan.keeps_work = true;
  plan.shard_bytes = int64_t{1} << 19;
  const std::string fingerprint = recipe.fingerprint();
  EXPECT_GT(run(plan, nullptr).num_shards, 5);
  std::filesystem::remove(folder / "work/stage-0/00000001.json");  // as after a kill
  EXPECT_GT(run(plan, nullptr).num_shards, 5);
  const auto time = std::filesystem::last_write_time(folder / "b.jsonl");
  std::string text = test::read_text(folder / "b.jsonl");
  text[text.find("\"text\": \"", 20000) + 9] = '!';
  write_text(folder / "b.jsonl", text);
  std::filesystem::last_write_time(folder / "b.jsonl", time);
  EXPECT_EQ(read_recipe(file, problems).fingerprint(), fingerprint);
  try {
    run(plan, nullptr);
    ADD_FAILURE() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 50), "the inputs have changed since the run began: of th");
  }
}

TEST(FileLocks, NameTheirOwner) {
  TestFolder folder;
  {
    const FileLock lock = FileLock::take(folder / "lock");
    EXPECT_FALSE(FileLock::try_take(folder / "lock"));
    EXPECT_EQ(test::read_text(folder / "lock"), process_name());
    EXPECT_TRUE(process_name().ends_with(concat("-", ::getpid())));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock = FileLock::take(folder / "lock");
    ::usleep(3'500'000);
    ::_exit(0);
  }
  while (FileLock::try_take(folder / "lock")) ::usleep(10000);
  ::testing::internal::CaptureStderr();
  const FileLock lock = FileLock::take(folder / "lock");
  const std::string said = ::testing::internal::GetCapturedStderr();
  ::waitpid(child, nullptr, 0);
  EXPECT_NE(said.find(concat("-", child, ", which holds '", folder / "lock", "'")), std::string::npos) << said;
}

TEST(CurateMix, IsMadeOnceOnly) {
  TestFolder folder;
  const std::string file = write_corpus(folder);
  make(file, 2);
  Problems problems;
  Recipe recipe = read_recipe(file, problems);
  EXPECT_TRUE(is_finished(recipe));
  std::filesystem::remove(folder / "b.jsonl");
  recipe = read_recipe(file, problems);
  problems.raise();
  EXPECT_FALSE(is_finished(recipe));
  check_folder(recipe, false, problems);
  ASSERT_EQ(problems.messages().size(), 1u);
  EXPECT_NE(problems.messages()[0].find("holds a finished curation of another recipe"), std::string::npos);
}

// Files that no curation has made, under names that this one needs.
TEST(CurateMix, OverwritingLeavesNothingOfWhatWasThere) {
  TestFolder folder;
  const std::string file = write_corpus(folder), first = test::read_text(file);
  std::string second = first;
  for (const auto& [from, to] : {std::pair("by = \"kind\"\n", ""), std::pair("least = 100", "least = 2000")})
    second.replace(second.find(from), std::string(from).size(), to);
  write_text(file, second);
  make(file, 2);
  const auto expected = files_of(folder / "mix");
  ASSERT_TRUE(expected.contains("documents.jsonl.zst"));
  std::filesystem::remove_all(folder / "mix");
  write_text(file, first);
  make(file, 2);
  ASSERT_TRUE(std::filesystem::exists(folder / "mix/k0.jsonl.zst"));
  write_text(folder / "mix/notes", "mine");
  write_text(file, second);
  Problems problems;
  Recipe recipe = read_recipe(file, problems);
  check_folder(recipe, /*overwrite=*/true, problems);
  problems.raise();
  make_mix(recipe, /*overwrite=*/true);
  auto found = files_of(folder / "mix");
  EXPECT_EQ(found.extract("notes").mapped(), "mine");
  EXPECT_TRUE(found == expected);
}

TEST(CurateMix, ReplacesNobodyElsesFiles) {
  TestFolder folder;
  const std::string file = write_corpus(folder);
  for (const char* name : {"mix/work/thesis", "mix/fates", "mix/report.md"}) {
    const std::filesystem::path path = folder / name;
    std::filesystem::create_directories(path.parent_path());
    write_text(path, "x");
    Problems problems;
    check_folder(read_recipe(file, problems), true, problems);
    ASSERT_EQ(problems.messages().size(), 1u) << name;
    EXPECT_NE(problems.messages()[0].find(concat(path.string(), " was not made by a curation")), std::string::npos)
        << problems.messages()[0];
    std::filesystem::remove_all(folder / "mix");
  }
  std::filesystem::create_directory(folder / "mix");
  write_text(folder / "mix/k0.jsonl.zst", "x");  // which outputs there are is known at the end only
  EXPECT_THROW(make(file, 2), UserError);
  EXPECT_EQ(test::read_text(folder / "mix/k0.jsonl.zst"), "x");
  std::filesystem::remove(folder / "mix/k0.jsonl.zst");
  make(file, 2);
  EXPECT_TRUE(std::filesystem::exists(folder / "mix/report.json"));
}

TEST(CurateMix, ADamagedFileIsNotABug) {
  TestFolder folder;
  make(write_corpus(folder), 2);
  const std::string index = folder / "mix/fates/index.json", whole = test::read_text(index);
  const auto message = [&] {
    try {
      explain_fate(folder / "mix", "5");
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadData);
      return std::string(error.what());
    }
    return std::string();
  };
  for (const char* key : {"steps", "outputs", "files", "shard_ends"}) {
    std::string damaged = whole;
    damaged[damaged.find(concat('"', key, '"')) + 1] ^= 1;
    write_text(index, damaged);
    EXPECT_NE(message().find(concat("'", key, "' is missing; the file is damaged")), std::string::npos) << message();
  }
  write_text(index, whole);
  const std::string fates = folder / "mix/fates/00000000.zst", bytes = test::read_text(fates);
  for (size_t at = 0; at < bytes.size(); at += bytes.size() / 33) {
    std::string damaged = bytes;
    damaged[at] ^= 4;
    write_text(fates, damaged);
    EXPECT_NE(message().find("is damaged"), std::string::npos) << at << ": " << message();
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
    malformed += fates[0].find("was not a document: ") != std::string::npos;
  }
  EXPECT_EQ(stayed + dropped + malformed, 200);
  EXPECT_EQ(malformed, 2);
  EXPECT_EQ(explain_fate(folder / "mix", (folder / "a.jsonl") + ":8"),
            std::vector<std::string>{"document 7 was not a document: Expecting value"});
  const std::vector<std::string> of_b = explain_fate(folder / "mix", (folder / "b.jsonl") + ":1");
  EXPECT_EQ(of_b.front().substr(0, 13), "document 2020");
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
        std::string("no file matches /none/*.x"), std::string("file /none/y: no such file"),
        std::string("name = \"oscr\": no such step; did you mean oscar?"),
        std::string("--least 10 is more than --most 5")})
    EXPECT_NE(problems.find(part), std::string::npos) << part << "\n" << problems;
  write_text(folder / "in.jsonl", "{\"text\": \"a quiz of at least eight words for the step\"}\n");
  write_text(file, concat("[output]\nfolder = \"x\"\n[[source]]\nname = \"a\"\nfiles = [\"", folder / "in.jsonl",
                          "\", \"", folder / "*.jsonl", "\"]\n[[step]]\nname = \"ngrams\"\nagainst = [\"q=",
                          folder / "in.jsonl", "\"]\n[[step]]\nname = \"exact\"\n"));
  EXPECT_NE(mix_problems(file).find("the step ngrams may cut documents into pieces"), std::string::npos)
      << mix_problems(file);
  std::string content = test::read_text(file);
  content.resize(content.find("[[step]]"));
  write_text(file, content);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(mix_problems(file), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            concat("warning: ", folder / "in.jsonl", " is named more than once, and each record is read as often\n"));
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

TEST(CurateMix, WarnsOfWhatLeavesNothingAndOfAKeyThatNoDocumentHas) {
  TestFolder folder;
  write_text(folder / "in.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  const std::string recipe = folder / "recipe.toml";
  const auto warnings = [&](const std::string& by, const std::string& step) {
    std::filesystem::remove_all(folder / "mix");
    write_text(recipe, concat("[output]\nfolder = \"", folder / "mix", "\"\n", by,
                              "[[source]]\nname = \"a\"\nfiles = [\"", folder / "in.jsonl", "\"]\n", step));
    ::testing::internal::CaptureStderr();
    make(recipe, 1);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(warnings("by = \"lang\"\n", "").find("no document has a text under the key 'lang'"), std::string::npos);
  EXPECT_EQ(warnings("by = \"source\"\n", "").find("no document has a text"), std::string::npos);
  const std::string most = warnings("", "[[step]]\nname = \"length\"\nleast = 100\n");
  EXPECT_NE(most.find("step 1, length: nothing is left of 2 documents"), std::string::npos) << most;
  EXPECT_EQ(warnings("", "[[step]]\nname = \"length\"\nleast = 1\n").find("nothing is left"), std::string::npos);
}

TEST(CurateMix, SaysInWhatAnotherRecipeDiffers) {
  TestFolder folder;
  write_text(folder / "in.jsonl", "{\"text\": \"one\"}\n");
  const std::string file = folder / "r.toml";
  const std::string start = concat("[output]\nfolder = \"", folder / "mix", "\"\n");
  const std::string source = concat("[[source]]\nname = \"a\"\nfiles = [\"", folder / "in.jsonl", "\"]\n");
  const auto problem = [&](const std::string& text) {
    write_text(file, text);
    Problems problems;
    const Recipe recipe = read_recipe(file, problems);
    problems.raise();
    check_folder(recipe, false, problems);
    return join(problems.messages(), "\n");
  };
  write_text(file, start + source + "[[step]]\nname = \"length\"\nleast = 1\n");
  make(file, 1);
  EXPECT_NE(problem(start + source + "[[step]]\nname = \"length\"\nleast = 2\n")
                .find("inputs ([[step]] 1, length: least = 2, there it is 1); --overwrite"),
            std::string::npos);
  const std::string more = problem(start + "by = \"source\"\n" + source + "[[step]]\nname = \"pii\"\n");
  EXPECT_NE(more.find("[[step]] 1, pii: name = 'pii' is new; [output] by = 'source' is new; "), std::string::npos)
      << more;
  EXPECT_NE(more.find("is only there"), std::string::npos) << more;
  write_text(folder / "in.jsonl", "{\"text\": \"two\"}\n");
  const auto later = std::filesystem::last_write_time(folder / "mix/recipe.toml") + std::chrono::seconds(5);
  std::filesystem::last_write_time(folder / "in.jsonl", later);
  const std::string changed = problem(start + source + "[[step]]\nname = \"length\"\nleast = 1\n");
  EXPECT_NE(changed.find(concat("the recipe says the same, but ", folder / "in.jsonl", " has changed since")),
            std::string::npos)
      << changed;
}

TEST(CurateMix, NamesOfTheMixAreCheckedBeforeTheRun) {
  TestFolder folder;
  write_text(folder / "in.jsonl", "{\"text\": \"one\"}\n");
  const std::string data = std::filesystem::current_path() / "tests/data/gpt2-tiny/";
  const auto problems = [&](const std::string& by, const std::string& epochs, const std::string& step) {
    write_text(folder / "r.toml",
               concat("[output]\nfolder = \"", folder / "mix", "\"\n", by, "tokenizer = \"", data, "vocab.json\"\n",
                      "[mix]\nepochs = [\"", epochs, "\"]\n[[source]]\nname = \"the books\"\nfiles = [\"",
                      folder / "in.jsonl", "\"]\n", step));
    return mix_problems(folder / "r.toml");
  };
  EXPECT_EQ(problems("by = \"source\"\n", "the_books=2", ""), "");
  EXPECT_NE(problems("by = \"source\"\n", "the_boks=2", "").find("did you mean the_books?"), std::string::npos);
  EXPECT_NE(problems("", "books=2", "").find("the only one is documents"), std::string::npos);
  EXPECT_EQ(problems("by = \"kind\"\n", "books=2", ""), "") << "which shows only while it runs";
  const std::string step = "[[step]]\nname = \"language\"\nkeep = [\"en\", \"fr\"]\n";
  EXPECT_EQ(problems("by = \"language\"\n", "fr=2", step), "");
  EXPECT_NE(problems("by = \"language\"\n", "fra=2", step).find("did you mean fr"), std::string::npos);
}

TEST(CurateMix, ASourceWithoutADocumentIsAnErrorUnlessTheRecipeSaysSo) {
  TestFolder folder;
  write_text(folder / "bad.jsonl", "one\ntwo\n");
  write_text(folder / "late.jsonl", "one\n{\"text\": \"two\"}\n");
  write_text(folder / "empty.jsonl", "");
  const auto problem = [&](const std::string& name, bool may_be_empty) {
    InputSource source;
    source.name = "s", source.files = {folder / (name + ".jsonl")}, source.may_be_empty = may_be_empty;
    Problems problems;
    check_sources({source}, problems);
    return join(problems.messages(), "\n");
  };
  EXPECT_EQ(problem("late", false), "");
  EXPECT_NE(problem("bad", false).find("none of its 2 records is a document. The first: "), std::string::npos);
  EXPECT_NE(problem("empty", false).find("there is no record in its 1 file"), std::string::npos);
  EXPECT_EQ(problem("bad", true) + problem("empty", true), "");
}

TEST(CurateMix, RefusesMemoryWithoutAUnit) {
  TestFolder folder;
  write_text(folder / "in.jsonl", "{\"text\": \"one\"}\n");
  write_text(folder / "recipe.toml", concat("[output]\nfolder = \"", folder / "mix", "\"\n[run]\nmemory = \"10\"\n",
                                            "[[source]]\nname = \"a\"\nfiles = [\"", folder / "in.jsonl", "\"]\n"));
  const std::string problems = mix_problems(folder / "recipe.toml");
  EXPECT_NE(problems.find("memory 10: expected an amount such as 512MiB, at least 1.00 MiB"), std::string::npos)
      << problems;
}

}  // namespace
}  // namespace espalier::curate
