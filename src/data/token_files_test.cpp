#include "data/token_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "data/data_plan.h"
#include "data/internal/test_folder.h"
#include "data/token_store.h"

namespace espalier::data {
namespace {

using test_files::error_of;
using test_files::TestFolder;
using test_files::write_text;

void write_pair(const TestFolder& folder, const std::string& index, const std::string& tokens) {
  write_text(folder / index, "");
  write_text(folder / tokens, "");
}

TEST(TokenFiles, FindsThePairOfAPrefix) {
  TestFolder folder;
  write_pair(folder, "a_text_document.idx", "a_text_document.bin");
  const std::optional<TokenFiles> files = find_token_files(folder / "a_text_document");
  ASSERT_TRUE(files);
  EXPECT_EQ(files->index, folder / "a_text_document.idx");
  EXPECT_EQ(files->tokens, folder / "a_text_document.bin");
  EXPECT_EQ(files->remark, "");
}

TEST(TokenFiles, TakesAnIndexThatWasNamedAfterTheBin) {
  TestFolder folder;
  write_pair(folder, "a.bin.idx", "a.bin");
  const std::optional<TokenFiles> files = find_token_files(folder / "a");
  ASSERT_TRUE(files);
  EXPECT_EQ(files->index, folder / "a.bin.idx");
  EXPECT_EQ(files->tokens, folder / "a.bin");
  EXPECT_EQ(files->remark, concat("the index of '", folder / "a", "' is called '", folder / "a.bin.idx",
                                  "'; fix it with: mv '", folder / "a.bin.idx", "' '", folder / "a.idx", "'"));
  write_text(folder / "a.idx", "");
  EXPECT_EQ(find_token_files(folder / "a")->index, folder / "a.idx") << "the right name comes first";
}

TEST(TokenFiles, TakesASetMadeWithTheNameOfTheBinAsPrefix) {
  TestFolder folder;
  write_pair(folder, "a.bin.idx", "a.bin.bin");
  EXPECT_EQ(find_token_files(folder / "a")->tokens, folder / "a.bin.bin");
  EXPECT_NE(find_token_files(folder / "a")->remark, "");
  EXPECT_EQ(find_token_files(folder / "a.bin")->remark, "") << "spelt as it is";
}

TEST(TokenFiles, TakesTheOneNameThatDiffersInDashesAndUnderscores) {
  TestFolder folder;
  write_pair(folder, "my-data_text_document.idx", "my-data_text_document.bin");
  const std::optional<TokenFiles> files = find_token_files(folder / "my_data-text_document");
  ASSERT_TRUE(files);
  EXPECT_EQ(files->index, folder / "my-data_text_document.idx");
  EXPECT_EQ(files->remark,
            concat("there is no '", folder / "my_data-text_document", ".idx'; '", folder / "my-data_text_document",
                   "', whose name differs only in '-' and '_', is read instead"));
  write_pair(folder, "my-data-text-document.idx", "my-data-text-document.bin");
  EXPECT_FALSE(find_token_files(folder / "my_data-text_document")) << "two would do: none is guessed";
  EXPECT_NE(describe_missing(folder / "my_data-text_document").find("Did you mean"), std::string::npos);
}

TEST(TokenFiles, DoesNotGuessWhereHalfOfTheSetIsThere) {
  TestFolder folder;
  write_pair(folder, "a-b.idx", "a-b.bin");
  write_text(folder / "a_b.bin", "");
  EXPECT_FALSE(find_token_files(folder / "a_b"));
  EXPECT_EQ(describe_missing(folder / "a_b"),
            concat("'", folder / "a_b", ".idx' is missing next to its other half. Run 'espalier preprocess' again."));
}

TEST(TokenFiles, SaysWhatStandsUnderTheNameInstead) {
  TestFolder folder;
  const std::string tokens = "training reads token files (.bin with .idx)";
  const std::string make = "Make them with: espalier preprocess --input '";
  write_text(folder / "a.jsonl", "{\"text\": \"x\"}\n");
  EXPECT_EQ(describe_missing(folder / "a.jsonl"),
            concat("'", folder / "a.jsonl", "' is text (JSON); ", tokens, ". ", make, folder / "a.jsonl",
                   "' --output-prefix '", folder / "a", "' --append-eod --tokenizer-type ...; then give '",
                   folder / "a", "_text_document'."));
  write_text(folder / "b.jsonl.zst", "\x28\xb5\x2f\xfd rest");
  EXPECT_NE(describe_missing(folder / "b.jsonl.zst").find(concat("' is packed text; ", tokens, ". ", make)),
            std::string::npos);
  write_text(folder / "lines", "\xef\xbb\xbf {\"text\": 1}");
  EXPECT_NE(describe_missing(folder / "lines").find("' is text (JSON); "), std::string::npos);
  write_text(folder / "c.parquet", "PAR1....");
  EXPECT_NE(describe_missing(folder / "c.parquet").find("' is a Parquet file; "), std::string::npos);
  write_text(folder / "empty", "");
  EXPECT_NE(describe_missing(folder / "empty").find("' is an empty file; "), std::string::npos);
  EXPECT_EQ(describe_missing(""), "an empty name of a data set; give the prefix of its .bin and .idx");
}

TEST(TokenFiles, SaysWhatAFolderHolds) {
  TestFolder folder;
  std::filesystem::create_directories(folder / "sets");
  for (const std::string& path : {folder / "sets", folder / "sets/"})
    EXPECT_EQ(describe_missing(path), concat("'", path, "' is a folder without a token file (.bin with .idx). ",
                                             "Make them with 'espalier preprocess'."));
  write_pair(folder, "sets/x.idx", "sets/x.bin");
  EXPECT_EQ(describe_missing(folder / "sets"), concat("'", folder / "sets", "' is a folder. Give a data set in it, ",
                                                      "without .bin or .idx: ", folder / "sets/x"));
}

TEST(TokenFiles, NamesWhatIsNoRegularFile) {
  TestFolder folder;
  const std::string advice = ". Token files are regular files; copy or recreate it.";
  write_pair(folder, "a.idx", "a.bin");
  std::filesystem::remove(folder / "a.bin");
  ASSERT_EQ(::mkfifo((folder / "a.bin").c_str(), 0600), 0);
  EXPECT_FALSE(find_token_files(folder / "a"));
  EXPECT_EQ(describe_missing(folder / "a"), concat("'", folder / "a.bin", "' is a pipe (FIFO)", advice));
  std::filesystem::create_directories(folder / "b.idx");
  EXPECT_EQ(describe_missing(folder / "b"), concat("'", folder / "b.idx", "' is a folder", advice));
  std::filesystem::create_symlink("gone", folder / "c.idx");
  EXPECT_EQ(describe_missing(folder / "c"),
            concat("'", folder / "c.idx", "' is a link to 'gone', which does not exist", advice));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(describe_missing(folder / "pipe"),
            concat("'", folder / "pipe", "' is a pipe (FIFO). Give the prefix of token files (.bin with .idx)."));
  EXPECT_NE(describe_missing(folder / std::string(300, 'x')).find("is out of reach: File name too long"),
            std::string::npos);
}

TEST(TokenFiles, ListsOfDataSetsAreRegularFiles) {
  TestFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  Problems problems;
  plan_data({.train_weighted_split_paths_path = folder / "pipe"}, problems);
  plan_data({.data_file_list = folder.path()}, problems);
  ASSERT_GE(problems.messages().size(), 2u);
  const std::string expected = "; expected a regular file, which every rank can read.";
  EXPECT_EQ(problems.messages()[0],
            concat("--train-weighted-split-paths-path: '", folder / "pipe", "' is a pipe (FIFO)", expected));
  EXPECT_EQ(problems.messages().back(), concat("--data-file-list: '", folder.path(), "' is a folder", expected));
}

TEST(TokenFiles, NamesAPointerOfGitLfs) {
  TestFolder folder;
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid "
      "sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d1"
      "7e2393\nsize 987654321\n";
  const auto refused = [&](const std::string& path) {
    return concat("'", path,
                  "' is a pointer of Git LFS to a file of 987654321 bytes, which was not fetched. Run 'git lfs ",
                  "pull' in its repository, or download the file itself.");
  };
  write_pair(folder, "a.idx", "a.bin");
  write_text(folder / "a.bin", pointer);
  EXPECT_EQ(error_of([&] { TokenStore(folder / "a"); }), refused(folder / "a.bin"));
  write_text(folder / "a.idx", pointer);
  EXPECT_EQ(error_of([&] { TokenStore(folder / "a"); }), refused(folder / "a.idx"));
  write_text(folder / "a.jsonl", pointer);
  EXPECT_EQ(describe_missing(folder / "a.jsonl"), refused(folder / "a.jsonl"));
}

TEST(TokenFiles, ZeroBytesAreRefusedByName) {
  TestFolder folder;
  TokenStoreWriter writer(folder / "a", TokenType::kUint16);
  writer.add_sequence(std::vector<int32_t>{1, 2, 3});
  writer.end_document();
  writer.finish();
  std::filesystem::resize_file(folder / "a.bin", 0);
  EXPECT_EQ(error_of([&] { TokenStore(folder / "a"); }).find(folder / "a.bin: file size: expected 6 bytes"), 0u);
  std::filesystem::resize_file(folder / "a.idx", 0);
  EXPECT_EQ(error_of([&] { TokenStore(folder / "a"); })
                .find(folder / "a.idx: file size: expected at least 34 bytes, "
                               "found 0 bytes"),
            0u);
}

TEST(TokenFiles, ANameOfTheHubIsNotDownloaded) {
  EXPECT_EQ(describe_missing("no-such-owner/corpus"),
            "there is no 'no-such-owner/corpus.idx'; the folder 'no-such-owner' does not exist. A data set of the "
            "Hugging Face Hub is not downloaded: save it as lines {\"text\": \"...\"}, and run 'espalier preprocess'");
  EXPECT_EQ(describe_missing("/no-such-folder/corpus"),
            "there is no '/no-such-folder/corpus.idx'; the folder '/no-such-folder' does not exist");
}

TEST(TokenFiles, ComparesTheFormatWithTheOneAskedFor) {
  TestFolder folder;
  write_text(folder / "old.idx", std::string("TNTIDX\0\0rest", 12));
  write_text(folder / "new.idx", std::string("MMIDIDX\0\0", 9));
  const TokenFiles old{folder / "old.idx", "", ""}, current{folder / "new.idx", "", ""};
  for (const char* impl : {"infer", "lazy", "cached"}) EXPECT_EQ(format_problem(old, impl), "") << impl;
  for (const char* impl : {"infer", "mmap"}) EXPECT_EQ(format_problem(current, impl), "") << impl;
  EXPECT_EQ(format_problem(old, "mmap"),
            concat("--data-impl mmap: '", folder / "old.idx",
                   "' is an index of the 'lazy' or 'cached' format. Leave the option out, or give infer."));
  EXPECT_EQ(format_problem(current, "cached"),
            concat("--data-impl cached: '", folder / "new.idx",
                   "' is an index of the 'mmap' format. Leave the option out, or give infer."));
}

}  // namespace
}  // namespace espalier::data
