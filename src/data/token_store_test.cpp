#include "data/token_store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "data/internal/test_folder.h"

namespace espalier::data {
namespace {

using test_files::error_of;
using test_files::TestFolder;
using test_files::write_text;

// Written by Megatron-DeepSpeed's own preprocess_data.py (tests/data/megatron-oracle).
const std::string kUpstream = "tests/data/megatron-oracle/preprocess/tricky/lines_text_document";
// Its ids as upstream's preprocess.json lists them, cut at the end-of-document id.
const std::vector<std::vector<int64_t>> kUpstreamIds = {
    {6098, 1652, 5645, 428, 1700, 50256},
    {3798, 5813, 1067, 1652, 220, 201, 198, 2641, 220, 201, 290, 220, 198, 14768, 50256},
    {75, 505, 8740, 5645, 428, 1700, 50256},
    {1652, 5645, 428, 1700, 50256},
    {2875, 50256},
    {220, 22524, 197, 392, 220, 9029, 220, 220, 50256},
    {1169, 938, 1700, 468, 645, 649, 1370, 50256}};

// A pair of files built byte by byte as the format's table says, for tests that break one field.
struct Pair {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t code = 8;
  std::vector<int32_t> sizes = {3, 1, 2};
  std::vector<int64_t> starts = {0, 6, 8};
  std::vector<int64_t> marks = {0, 1, 3};
  std::string tokens = "aabbccddeeff";
  uint64_t num_sequences = 3, num_marks = 3;

  std::string index() const {
    std::string bytes = magic;
    const auto put = [&bytes](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); };
    put(&version, 8), put(&code, 1), put(&num_sequences, 8), put(&num_marks, 8);
    put(sizes.data(), 4 * sizes.size()), put(starts.data(), 8 * starts.size()), put(marks.data(), 8 * marks.size());
    return bytes;
  }
  std::string write(const TestFolder& folder) const {
    write_text(folder / "set.idx", index());
    write_text(folder / "set.bin", tokens);
    return folder / "set";
  }
};

std::string refusal(const Pair& pair) {
  TestFolder folder;
  const std::string prefix = pair.write(folder);
  const std::string message = error_of([&] { TokenStore store(prefix); });
  EXPECT_EQ(message.substr(0, prefix.size()), prefix);
  return message.substr(std::min(prefix.size(), message.size()));
}

TEST(TokenStore, ReadsWhatMegatronWrote) {
  const TokenStore store(kUpstream);
  EXPECT_EQ(store.type(), TokenType::kUint16);
  ASSERT_EQ(store.num_sequences(), 7);
  EXPECT_EQ(store.num_documents(), 7);
  EXPECT_EQ(store.num_tokens(), 52);
  for (int64_t sequence = 0; sequence < 7; ++sequence) {
    const std::vector<int64_t>& expected = kUpstreamIds[static_cast<size_t>(sequence)];
    std::vector<int64_t> ids(static_cast<size_t>(store.size(sequence)));
    store.read(sequence, 0, store.size(sequence), ids.data());
    EXPECT_EQ(ids, expected) << "sequence " << sequence;
    EXPECT_EQ(store.first_sequence(sequence), sequence);
  }
  int64_t middle[3];
  store.read(1, 4, 3, middle);
  EXPECT_EQ(middle[0], 220);
  EXPECT_EQ(middle[2], 198);
  store.read(1, 15, 0, middle);  // an empty range at the very end is legal
  store.check_all();
}

TEST(TokenStore, ReadsSentencesOfADocumentAndInt32) {
  TestFolder folder;
  Pair pair;
  pair.code = 4;
  pair.starts = {0, 12, 16};
  pair.tokens = std::string(
      "\xff\xff\xff\x7f"
      "\2\0\0\0"
      "\3\0\0\0"
      "\4\0\0\0"
      "\5\0\0\0"
      "\6\0\0\0",
      24);
  const TokenStore store(pair.write(folder));
  EXPECT_EQ(store.type(), TokenType::kInt32);
  EXPECT_EQ(store.num_documents(), 2);
  EXPECT_EQ(store.first_sequence(1), 1);
  EXPECT_EQ(store.first_sequence(2), 3);
  int32_t ids[3];
  store.read(0, 0, 3, ids);
  EXPECT_EQ(ids[0], 2147483647);
  EXPECT_EQ(ids[2], 3);
  int64_t wide[2];
  store.read(2, 0, 2, wide);
  EXPECT_EQ(wide[1], 6);
}

TEST(TokenStore, OpensAnEmptyDataSet) {
  TestFolder folder;
  Pair pair;
  pair.sizes.clear(), pair.starts.clear(), pair.marks = {0}, pair.tokens.clear();
  pair.num_sequences = 0, pair.num_marks = 1;
  const TokenStore store(pair.write(folder));
  EXPECT_EQ(store.num_sequences(), 0);
  EXPECT_EQ(store.num_documents(), 0);
  EXPECT_EQ(store.num_tokens(), 0);
  store.check_all();
}

TEST(TokenStore, NamesTheFieldTheExpectedAndTheFoundValue) {
  const std::string again = ". Rebuild the data set with 'espalier preprocess' or copy it again.";
  Pair pair;
  pair.magic = std::string("PK\3\4MMIDI", 9);
  EXPECT_EQ(refusal(pair),
            ".idx: magic: expected MMIDIDX\\x00\\x00, found PK\\x03\\x04MMIDI. "
            "This is not the index of a token file.");
  pair = Pair(), pair.version = 2;
  EXPECT_EQ(refusal(pair), ".idx: version: expected 1, found 2" + again);
  pair = Pair(), pair.code = 5;
  EXPECT_EQ(refusal(pair), ".idx: dtype code: expected 4 (int32) or 8 (uint16), found 5 (int64)" + again);
  pair = Pair(), pair.num_sequences = uint64_t{1} << 63;
  EXPECT_EQ(refusal(pair),
            ".idx: number of sequences: expected at most 5 in a file of this size, found 9223372036854775808" + again);
  pair = Pair(), pair.num_marks = 0;
  EXPECT_EQ(refusal(pair), ".idx: number of document marks: expected 1 to 7 in a file of this size, found 0" + again);
  pair = Pair(), pair.num_sequences = 2;
  EXPECT_EQ(refusal(pair),
            ".idx: file size: expected 82 bytes for 2 sequences and 3 document marks, found 94 bytes" + again);
  pair = Pair(), pair.marks.push_back(3);
  EXPECT_EQ(refusal(pair),
            ".idx: file size: expected 94 bytes for 3 sequences and 3 document marks, found 102 bytes" + again);
  pair = Pair(), pair.starts[0] = 2;
  EXPECT_EQ(refusal(pair), ".idx: start of sequence 0: expected byte 0, found 2" + again);
  pair = Pair(), pair.sizes[2] = -1;
  EXPECT_EQ(refusal(pair), ".idx: size of sequence 2: expected 0 or more, found -1" + again);
  pair = Pair(), pair.starts[2] = -4;
  EXPECT_EQ(refusal(pair),
            ".idx: start of sequence 2: expected a byte from 0 to 12, the end of the .bin, found -4" + again);
  pair = Pair(), pair.marks[0] = 1;
  EXPECT_EQ(refusal(pair), ".idx: document mark 0: expected 0, found 1" + again);
  pair = Pair(), pair.marks[2] = 2;
  EXPECT_EQ(refusal(pair), ".idx: document mark 2 (the last): expected 3, the number of sequences, found 2" + again);
}

TEST(TokenStore, RefusesTokensThatDoNotFitTheIndex) {
  const std::string rest =
      ". The two files do not belong together or one is incomplete; rebuild the data set with "
      "'espalier preprocess' or copy it again.";
  Pair pair;
  pair.tokens = "aabbccddee";
  EXPECT_EQ(refusal(pair),
            ".bin: file size: expected 12 bytes from the end of the last sequence in the .idx, found 10" + rest);
  pair.tokens = "aabbccddeeffg";
  EXPECT_EQ(refusal(pair),
            ".bin: file size: expected 12 bytes from the end of the last sequence in the .idx, found 13" + rest);
}

TEST(TokenStore, RefusesATruncatedIndexAtEveryLength) {
  TestFolder folder;
  const std::string whole = Pair().index();
  write_text(folder / "set.bin", Pair().tokens);
  for (size_t length = 0; length < whole.size(); ++length) {
    write_text(folder / "set.idx", whole.substr(0, length));
    const std::string message = error_of([&] { TokenStore store(folder / "set"); });
    EXPECT_NE(message.find(": expected "), std::string::npos) << length << ": " << message;
    EXPECT_NE(message.find(", found "), std::string::npos) << length << ": " << message;
  }
}

// An index of the older format, built as megatron-deepspeed's reader takes it apart; for tests that break one field.
struct LegacyPair {
  std::vector<uint64_t> header = {1, 4, 4, 3, 3, 3};  // version, type, element size, items, sizes, marks
  std::vector<int64_t> dim_offsets = {0, 1, 2, 3}, offsets = {0, 3, 4, 6}, sizes = {3, 1, 2}, marks = {0, 1, 3};
  std::vector<int32_t> tokens = {11, 12, 13, 21, 31, 70000};

  std::string write(const TestFolder& folder) const {
    std::string bytes("TNTIDX\0\0", 8);
    const auto put = [&bytes](const auto& values) {
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
    };
    put(header), put(dim_offsets), put(offsets), put(sizes), put(marks);
    write_text(folder / "set.idx", bytes);
    write_text(folder / "set.bin", std::string(reinterpret_cast<const char*>(tokens.data()), 4 * tokens.size()));
    return folder / "set";
  }
};

std::string refusal(const LegacyPair& pair) {
  TestFolder folder;
  const std::string prefix = pair.write(folder);
  return error_of([&] { TokenStore store(prefix); }).substr(prefix.size());
}

TEST(TokenStore, ReadsTheOldFormatOfLazyAndCachedSets) {
  TestFolder folder;
  const TokenStore store(LegacyPair().write(folder));
  EXPECT_EQ(store.format(), IndexFormat::kLegacy);
  EXPECT_EQ(store.num_sequences(), 3);
  EXPECT_EQ(store.num_documents(), 2);
  EXPECT_EQ(store.first_sequence(1), 1);
  EXPECT_EQ(store.sizes()[2], 2);
  int64_t ids[2];
  store.read(2, 0, 2, ids);
  EXPECT_EQ(ids[0], 31);
  EXPECT_EQ(ids[1], 70000);
  store.check_all();
}

TEST(TokenStore, NamesWhatIsWrongWithAnOldIndex) {
  const std::string again = ". Rebuild the data set with 'espalier preprocess' or copy it again.";
  LegacyPair pair;
  pair.header[0] = 2;
  EXPECT_EQ(refusal(pair), ".idx: version: expected 1, found 2" + again);
  pair = {}, pair.header[1] = 5;
  EXPECT_EQ(refusal(pair), ".idx: dtype code (byte 16): expected 4 (int32) or 8 (uint16), found 5 (int64)" + again);
  pair = {}, pair.header[2] = 8;
  EXPECT_EQ(refusal(pair), ".idx: element size (byte 24): expected 4 bytes for int32, found 8" + again);
  pair = {}, pair.header[3] = uint64_t{1} << 61;
  EXPECT_EQ(
      refusal(pair),
      ".idx: number of items (byte 32): expected at most 21 in a file of this size, found 2305843009213693952" + again);
  pair = {}, pair.header[4] = 4;
  EXPECT_EQ(refusal(pair), ".idx: number of sizes (byte 40): expected 3, one for each item, found 4" + again);
  pair = {}, pair.header[5] = 0;
  EXPECT_EQ(refusal(pair),
            ".idx: number of document marks (byte 48): expected 1 to 21 in a file of this size, found 0" + again);
  pair = {}, pair.header[5] = 4;
  EXPECT_EQ(refusal(pair),
            ".idx: file size: expected 176 bytes for 3 items and 4 document marks, found 168 bytes" + again);
  pair = {}, pair.dim_offsets[1] = 2;
  EXPECT_EQ(refusal(pair), ".idx: dimensions of item 1: expected to begin at 1, one for each item, found 2" + again);
  pair = {}, pair.sizes[0] = int64_t{1} << 31;
  EXPECT_EQ(refusal(pair), ".idx: size of item 0: expected 0 to 2147483647, found 2147483648" + again);
  pair = {}, pair.offsets[1] = -1;
  EXPECT_EQ(refusal(pair), ".idx: start of item 1: expected an element of the .bin, found -1" + again);
  pair = {}, pair.offsets[3] = 7;
  EXPECT_EQ(refusal(pair), ".idx: end of the last item: expected element 6 from its start and size, found 7" + again);
  pair = {}, pair.tokens.pop_back();
  EXPECT_EQ(refusal(pair).substr(0, 92),
            ".bin: file size: expected 24 bytes from the end of the last sequence in the .idx, found 20. ");
}

TEST(TokenStore, SaysHowAPrefixIsWritten) {
  EXPECT_EQ(error_of([] { TokenStore store("data/wiki.idx"); }),
            "'data/wiki.idx' is one of two files; a data set is named by what they share. Use 'data/wiki'.");
  EXPECT_EQ(error_of([] { TokenStore store("no/such/set"); }),
            "there is no 'no/such/set.idx'; the folder 'no/such' does not exist");
}

TEST(TokenStore, FindsInTheMiddleWhatOpeningDidNotRead) {
  const std::string again = ". Rebuild the data set with 'espalier preprocess' or copy it again.";
  TestFolder folder;
  Pair pair;
  pair.starts[1] = 4000000000;
  const TokenStore store(pair.write(folder));
  const std::string head = folder / "set.idx: ";
  int64_t id;
  EXPECT_EQ(error_of([&] { store.read(1, 0, 1, &id); }),
            head + "start of sequence 1: expected its 1 tokens inside the 12 bytes of the .bin, found byte 4000000000" +
                again);
  EXPECT_EQ(error_of([&] { store.check_all(); }),
            head + "start of sequence 1: expected byte 6 from the sizes before it, found 4000000000" + again);
  pair = Pair(), pair.sizes[0] = -3;
  EXPECT_EQ(error_of([&] { TokenStore(pair.write(folder)).check_all(); }),
            head + "size of sequence 0: expected 0 or more, found -3" + again);
  pair = Pair(), pair.marks[1] = -1;
  EXPECT_EQ(error_of([&] { TokenStore(pair.write(folder)).check_all(); }),
            head + "document mark 1: expected at least 0 as in the mark before it, found -1" + again);
}

TEST(TokenStoreWriter, WritesMegatronsBytes) {
  TestFolder folder;
  TokenStoreWriter writer(folder / "new/set", TokenType::kUint16);  // makes the folder
  for (const std::vector<int64_t>& document : kUpstreamIds) {
    writer.add_sequence(std::vector<int32_t>(document.begin(), document.end()));
    writer.end_document();
  }
  writer.finish();
  for (const char* ending : {".bin", ".idx"})
    EXPECT_EQ(read_file(folder / "new/set" + std::string(ending)), read_file(kUpstream + ending)) << ending;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "new"), {}), 2) << "a temporary file is left";
}

TEST(TokenStoreWriter, WritesSeveralSequencesOfADocument) {
  TestFolder folder;
  TokenStoreWriter writer(folder / "set", TokenType::kUint16);
  writer.add_sequence(std::vector<int32_t>{0x6161, 0x6262, 0x6363});
  writer.end_document();
  writer.add_sequence(std::vector<int32_t>{0x6464});
  writer.add_sequence(std::vector<int32_t>{0x6565, 0x6666});
  writer.end_document();
  writer.finish();
  EXPECT_EQ(read_file(folder / "set.idx"), Pair().index());
  EXPECT_EQ(read_file(folder / "set.bin"), Pair().tokens);
}

TEST(TokenStoreWriter, WritesAnEmptyDataSet) {
  TestFolder folder;
  TokenStoreWriter(folder / "set", TokenType::kInt32).finish();
  const TokenStore store(folder / "set");
  EXPECT_EQ(store.num_sequences(), 0);
  EXPECT_EQ(file_size_bytes(folder / "set.idx"), 42);
}

TEST(TokenStoreWriter, MergedStoresEqualOneWrittenAtOnce) {
  TestFolder folder;
  std::vector<int32_t> ids(100000);
  std::iota(ids.begin(), ids.end(), -7);
  ids[0] = 2000000000;
  const auto write = [&](const std::string& name, const std::vector<int>& documents) {
    TokenStoreWriter writer(folder / name, TokenType::kInt32);
    for (const int document : documents) {
      for (int sequence = 0; sequence < document % 3; ++sequence)  // a document may be empty
        writer.add_sequence(std::span(ids).subspan(0, static_cast<size_t>(document) * 1033 % 99991));
      writer.end_document();
    }
    writer.finish();
  };
  write("whole", {1, 2, 3, 4, 5, 6, 7});
  write("a", {1, 2, 3});
  write("b", {});
  write("c", {4, 5, 6, 7});
  TokenStoreWriter merged(folder / "merged", TokenType::kInt32);
  for (const char* part : {"a", "b", "c"}) merged.append(TokenStore(folder / part));
  merged.finish();
  EXPECT_EQ(read_file(folder / "merged.idx"), read_file(folder / "whole.idx"));
  EXPECT_EQ(read_file(folder / "merged.bin"), read_file(folder / "whole.bin"));
  TokenStore(folder / "merged").check_all();
}

TEST(TokenStoreWriter, RefusesToMergeOtherTypes) {
  TestFolder folder;
  TokenStoreWriter(folder / "narrow", TokenType::kUint16).finish();
  TokenStoreWriter writer(folder / "wide", TokenType::kInt32);
  EXPECT_EQ(error_of([&] { writer.append(TokenStore(folder / "narrow")); }),
            concat("'", folder / "narrow", "' holds uint16, '", folder / "wide",
                   "' holds int32: they cannot be one data ", "set. Preprocess both with the same vocabulary."));
}

TEST(TokenStoreWriter, WithoutFinishLeavesWhatWasThere) {
  TestFolder folder;
  const std::string prefix = Pair().write(folder);
  {
    TokenStoreWriter writer(prefix, TokenType::kUint16);
    writer.add_sequence(std::vector<int32_t>{1, 2, 3});
    writer.end_document();
  }
  EXPECT_EQ(read_file(folder / "set.idx"), Pair().index());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
  TokenStoreWriter writer(prefix, TokenType::kUint16);
  writer.finish();
  EXPECT_EQ(TokenStore(prefix).num_sequences(), 0) << "finish() replaces";
}

TEST(TokenStoreWriter, ReportsAFolderItCannotMake) {
  TestFolder folder;
  write_text(folder / "file", "");
  EXPECT_EQ(error_of([&] { TokenStoreWriter writer(folder / "file/set", TokenType::kInt32); }),
            concat("cannot create '", folder / "file/set.bin.tmp", "': Not a directory"));
}

TEST(TokenType, FollowsMegatronsRule) {
  EXPECT_EQ(token_type_for(5000), TokenType::kUint16);
  EXPECT_EQ(token_type_for(65499), TokenType::kUint16);
  EXPECT_EQ(token_type_for(65500), TokenType::kInt32);
  EXPECT_EQ(token_type_for(250680), TokenType::kInt32);
}

}  // namespace
}  // namespace espalier::data
