#include "data/merge.h"

#include <gtest/gtest.h>

#include <numeric>

#include "data/internal/test_folder.h"
#include "data/token_store.h"

namespace espalier::data {
namespace {

using test_files::error_of;
using test_files::TestFolder;
using test_files::write_text;

// Document d has d % 3 sequences, so some documents are empty.
void write_store(const std::string& prefix, TokenType type, int first, int end) {
  TokenStoreWriter writer(prefix, type);
  for (int document = first; document < end; ++document) {
    for (int sequence = 0; sequence < document % 3; ++sequence) {
      std::vector<int32_t> ids(static_cast<size_t>(document * 1033 % 9973));
      std::iota(ids.begin(), ids.end(), document);
      writer.add_sequence(ids);
    }
    writer.end_document();
  }
  writer.finish();
}

void expect_same(const std::string& prefix, const std::string& expected) {
  for (const char* ending : {".bin", ".idx"})
    EXPECT_TRUE(read_file(prefix + ending) == read_file(expected + ending)) << ending;
}

TEST(Merge, EqualsOneRunByteForByte) {
  TestFolder folder;
  for (const TokenType type : {TokenType::kUint16, TokenType::kInt32}) {
    write_store(folder / "whole", type, 0, 33);
    write_store(folder / "a", type, 0, 7);
    write_store(folder / "b", type, 7, 7);
    write_store(folder / "c", type, 7, 8);
    write_store(folder / "d", type, 8, 33);
    const MergeSummary summary =
        merge({folder / "a", folder / "b", folder / "c", folder / "d"}, folder / "merged", /*overwrite=*/true);
    EXPECT_EQ(summary.num_documents, 33);
    EXPECT_EQ(summary.num_tokens, TokenStore(folder / "whole").num_tokens());
    expect_same(folder / "merged", folder / "whole");
    EXPECT_FALSE(std::filesystem::exists(folder / "merged.bin.tmp"));
  }
}

TEST(Merge, TakesAFolderInTheOrderOfItsNames) {
  TestFolder folder;
  write_store(folder / "in/part_10", TokenType::kUint16, 9, 12);
  write_store(folder / "in/part_0", TokenType::kUint16, 0, 4);
  write_store(folder / "in/part_00", TokenType::kUint16, 4, 9);
  std::filesystem::rename(folder / "in/part_00.idx", folder / "in/part_00.bin.idx");
  write_text(folder / "in/notes.txt", "");
  Problems problems;
  const std::vector<std::string> prefixes = prefixes_in(folder / "in", problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(prefixes, (std::vector<std::string>{folder / "in/part_0", folder / "in/part_00", folder / "in/part_10"}));
  merge(prefixes, folder / "merged");
  write_store(folder / "whole", TokenType::kUint16, 0, 12);
  expect_same(folder / "merged", folder / "whole");

  std::filesystem::remove(folder / "in/part_10.bin");
  prefixes_in(folder / "in", problems);
  EXPECT_EQ(problems.messages(), std::vector<std::string>{concat(
                                     "'", folder / "in/part_10",
                                     ".bin' is missing next to its other half. Run 'espalier preprocess' again.")});
  Problems empty;
  prefixes_in(folder / "none", empty);
  EXPECT_EQ(empty.messages(), std::vector<std::string>{
                                  concat("cannot read the folder '", folder / "none", "': No such file or directory")});
}

TEST(Merge, RefusesOtherTypesAndItsOwnInputsBeforeItWrites) {
  TestFolder folder;
  write_store(folder / "narrow", TokenType::kUint16, 0, 5);
  write_store(folder / "wide", TokenType::kInt32, 0, 5);
  EXPECT_EQ(error_of([&] {
              merge({folder / "narrow", folder / "wide"}, folder / "merged");
            }),
            concat("'", folder / "wide", "' holds int32, '", folder / "narrow",
                   "' holds uint16: they cannot be one data set. Preprocess both with the same vocabulary."));
  EXPECT_EQ(error_of([&] { merge({folder / "narrow"}, folder / "narrow"); }),
            concat("--output-prefix '", folder / "narrow",
                   "' is one of the data sets to be merged; the result would replace it. Give another name."));
  EXPECT_FALSE(std::filesystem::exists(folder / "merged.bin.tmp"));
}

TEST(Merge, ADamagedInputLeavesTheOldOutput) {
  TestFolder folder;
  write_store(folder / "good", TokenType::kUint16, 0, 5);
  write_store(folder / "bad", TokenType::kUint16, 0, 9);
  write_store(folder / "merged", TokenType::kUint16, 0, 3);
  const std::string before = read_file(folder / "merged.idx");
  std::string index = read_file(folder / "bad.idx");
  index[34 + 4 * TokenStore(folder / "bad").num_sequences() + 8] ^= 1;  // the start of sequence 1
  write_text(folder / "bad.idx", index);
  EXPECT_NE(error_of([&] {
              merge({folder / "good", folder / "bad"}, folder / "merged", /*overwrite=*/true);
            }).find("bad.idx: start of sequence 1: expected byte "),
            std::string::npos);
  EXPECT_EQ(read_file(folder / "merged.idx"), before);
  EXPECT_FALSE(std::filesystem::exists(folder / "merged.bin.tmp"));
}

}  // namespace
}  // namespace espalier::data
