#include "data/token_files.h"

#include <gtest/gtest.h>

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
                                  "'; mend it with: mv '", folder / "a.bin.idx", "' '", folder / "a.idx", "'"));
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
                   "', whose name differs in '-' and '_' alone, is read instead"));
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
            concat("'", folder / "a_b", ".idx' is missing beside its other half. Run 'espalier preprocess' again."));
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
