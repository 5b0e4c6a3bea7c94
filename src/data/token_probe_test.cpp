#include "data/token_probe.h"

#include <gtest/gtest.h>

#include "data/internal/test_folder.h"

namespace espalier::data {
namespace {

using test_files::TestFolder;

// `count` documents of `length` tokens of id 7, and one other id.
std::string write_with_one_id(const std::string& prefix, int64_t count, size_t length, int64_t document, size_t token,
                              int32_t id) {
  TokenStoreWriter writer(prefix, TokenType::kInt32);
  for (int64_t at = 0; at < count; ++at) {
    std::vector<int32_t> ids(length, 7);
    if (at == document) ids[token] = id;
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
  return prefix;
}

TEST(TokenProbe, FindsAnIdOutsideOfTheVocabularyAtBothEndsOfTheFirstAndTheLast) {
  TestFolder folder;
  for (const int32_t id : {-7, -1, 8, 2000000000})
    for (const int64_t document : {0, 32})
      for (const size_t token : {size_t{0}, size_t{63}, size_t{136}, size_t{199}}) {
        const TokenStore store(write_with_one_id(folder / "a", 33, 200, document, token, id));
        EXPECT_EQ(probe_ids(store, {0, 33}, 8),
                  concat(folder / "a.bin", ": id of token ", token, " of sequence ", document,
                         ": expected 0 to 7, found ", id,
                         ". The data was made with another tokenizer, or is damaged: 'espalier data check' reads all "
                         "of it."));
      }
}

TEST(TokenProbe, TakesWhatIsGoodOrOutsideOfTheRange) {
  TestFolder folder;
  const TokenStore store(write_with_one_id(folder / "a", 33, 5, 32, 4, 8));
  EXPECT_EQ(probe_ids(store, {0, 33}, 9), std::nullopt);
  EXPECT_EQ(probe_ids(store, {0, 32}, 8), std::nullopt);
  EXPECT_NE(probe_ids(store, {32, 33}, 8), std::nullopt);
  EXPECT_EQ(probe_ids(store, {32, 32}, 8), std::nullopt);
}

// Every id once, where the documents are short; 64 from each end and none twice, where they are long.
TEST(TokenProbe, ReadsEndsAndNothingTwice) {
  TestFolder folder;
  for (const size_t length : {0, 1, 64, 65, 127, 128, 129, 500}) {
    TokenStoreWriter writer(folder / "a", TokenType::kUint16);
    std::vector<int32_t> ids(length);
    for (size_t at = 0; at < length; ++at) ids[at] = static_cast<int32_t>(at);
    writer.add_sequence(ids);
    writer.end_document();
    writer.finish();
    std::vector<int64_t> seen, expected;
    probe_tokens(TokenStore(folder / "a"), {0, 1}, [&](const TokenProbe& probe) {
      EXPECT_TRUE(probe.ids.empty() || probe.ids[0] == probe.offset);
      seen.insert(seen.end(), probe.ids.begin(), probe.ids.end());
    });
    for (size_t at = 0; at < length; ++at)
      if (at < 64 || at + 64 >= length) expected.push_back(static_cast<int64_t>(at));
    EXPECT_EQ(seen, expected) << length;
  }
}

}  // namespace
}  // namespace espalier::data
