#include "data/store_check.h"

#include <gtest/gtest.h>

#include "data/internal/test_folder.h"
#include "tests/support/oracle.h"

namespace espalier::data {
namespace {

using test_files::error_of;
using test_files::TestFolder;

std::string write_store(const TestFolder& folder, TokenType type, const std::vector<std::vector<int32_t>>& documents) {
  TokenStoreWriter writer(folder / "set", type);
  for (const std::vector<int32_t>& ids : documents) {
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
  return folder / "set";
}

IdRange check(const TokenStore& store, std::optional<int64_t> vocab_size, int64_t threads = 2) {
  Progress progress("check", store.num_bytes(), Progress::Unit::kBytes);
  return check_ids(store, vocab_size, threads, progress);
}

TEST(StoreCheck, SaysWhereAnIdOutsideTheVocabularyStands) {
  TestFolder folder;
  const TokenStore store(write_store(folder, TokenType::kInt32, {{7, 8}, {}, {100, 9, 250680, 3}}));
  const IdRange range = check(store, 250681);
  EXPECT_EQ(range.smallest, 3);
  EXPECT_EQ(range.largest, 250680);
  EXPECT_EQ(error_of([&] { check(store, 250680); }),
            (folder / "set") +
                ".bin: id of token 2 of sequence 2 (byte 16): expected 0 to 250679, found 250680. The data was made "
                "with another tokenizer, or is damaged.");
  const TokenStore negative(write_store(folder, TokenType::kInt32, {{7, -8}}));
  EXPECT_EQ(error_of([&] { check(negative, std::nullopt); }),
            (folder / "set") +
                ".bin: id of token 1 of sequence 0 (byte 4): expected 0 to 2147483647, found -8. The data was made "
                "with another tokenizer, or is damaged.");
}

TEST(StoreCheck, AVocabularyLargerThanTheTypeIsNoLimit) {
  TestFolder folder;
  const TokenStore store(write_store(folder, TokenType::kUint16, {{0, 65535, 7}}));
  EXPECT_EQ(check(store, 1000000).largest, 65535);
  EXPECT_EQ(check(store, std::nullopt).smallest, 0);
  EXPECT_EQ(check(TokenStore(write_store(folder, TokenType::kUint16, {})), 5).largest, 0);
}

// Several pieces of the file, an odd number of tokens, and two bad ids: the first is named, whichever thread finds
// what.
TEST(StoreCheck, FindsTheFirstBadIdOfALargeFileWithAnyNumberOfThreads) {
  TestFolder folder;
  std::vector<int32_t> ids(5'000'011);
  for (size_t at = 0; at < ids.size(); ++at) ids[at] = 10 + static_cast<int32_t>(at * 7919 % 1000);
  ids[4'999'999] = 3;
  ids[5'000'010] = 2999;
  EXPECT_EQ(check(TokenStore(write_store(folder, TokenType::kUint16, {{1009}, ids})), 3000, 3).smallest, 3);
  EXPECT_EQ(check(TokenStore(folder / "set"), 3000, 1).largest, 2999);
  ids[2'222'222] = 5000;
  const TokenStore store(write_store(folder, TokenType::kUint16, {{10}, ids}));
  for (const int64_t threads : {1, 2, 7})
    EXPECT_EQ(error_of([&] { check(store, 2999, threads); }),
              (folder / "set") +
                  ".bin: id of token 2222222 of sequence 1 (byte 4444446): expected 0 to 2998, found 5000. The data "
                  "was made with another tokenizer, or is damaged.");
}

// Whichever bit of the index is turned over, it is refused, save that document marks may come to be elsewhere in
// order: then a document is empty, which check counts.
TEST(StoreCheck, FindsEveryBitThatIsTurnedOverInAnIndex) {
  TestFolder folder;
  const std::string prefix = write_store(folder, TokenType::kUint16, {{5, 6, 7}, {8}, {9, 10}, {11, 12, 13, 14}});
  const std::string whole = read_file(prefix + ".idx");
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    try {
      const TokenIndex index({reinterpret_cast<const uint8_t*>(damaged.data()), damaged.size()}, "set.idx");
      index.check_ends(/*token_bytes=*/20, "set.bin");
      index.check_all();
      int64_t num_empty = 0;
      for (int64_t document = 0; document < index.num_documents(); ++document)
        num_empty += index.first_sequence(document) == index.first_sequence(document + 1);
      EXPECT_GT(num_empty, 0) << "byte " << bit / 8 << ", bit " << bit % 8;
      EXPECT_GE(bit / 8, 34u + 12 * 4 + 8) << "only a mark may move";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(", found "), std::string::npos) << error.what();
    }
  }
}

TEST(StoreCheck, CountsTheDocumentsThatEndWithTheToken) {
  TestFolder folder;
  const DocumentEnds ends =
      count_document_ends(TokenStore(write_store(folder, TokenType::kInt32, {{1, 9}, {}, {9, 1}, {9}})), 9);
  EXPECT_EQ(ends.num_documents, 3);
  EXPECT_EQ(ends.num_ended, 2);
}

TEST(StoreCheck, DecodesAndEncodesDocumentsAgain) {
  const auto tokenizer = text::open_tokenizer("tests/data/gpt2-tiny/vocab.json");
  const TokenStore store("tests/data/owt-20_text_document");
  const RoundTrip all = check_round_trip(store, *tokenizer, 100);
  EXPECT_EQ(all.num_documents, 20);
  EXPECT_EQ(all.num_tokens, store.num_tokens() - 20) << "the end-of-document ids are left out";
  EXPECT_EQ(check_round_trip(store, *tokenizer, 7).num_documents, 7);
  TestFolder folder;
  // "he" as two letters: the tokenizer would have merged them.
  const int32_t h = *tokenizer->piece_to_id("h"), e = *tokenizer->piece_to_id("e"), he = *tokenizer->piece_to_id("he");
  const TokenStore other(write_store(folder, TokenType::kUint16, {{e, 4999}, {h, e}}));
  EXPECT_EQ(error_of([&] { check_round_trip(other, *tokenizer, 2); }),
            concat(folder / "set", ".bin: document 1: its text, encoded again, differs at token 0: expected ", h,
                   " ('h') as in the file, found ", he, " ('he'). The data was made with another tokenizer than ",
                   tokenizer->description(), ", or its text had been changed after it was tokenized."));
}

}  // namespace
}  // namespace espalier::data
