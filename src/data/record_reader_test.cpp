#include "data/record_reader.h"

#include <gtest/gtest.h>

#include <random>

#include "data/internal/test_folder.h"

namespace espalier::data {
namespace {

using test_files::error_of;
using test_files::TestFolder;
using test_files::write_text;

// The rule of the header, one byte at a time.
std::vector<std::string> split_plainly(const std::string& bytes) {
  std::vector<std::string> records;
  std::string record;
  bool open = false;
  for (size_t at = 0; at < bytes.size(); ++at) {
    const bool ends = bytes[at] == '\n' || bytes[at] == '\r';
    if (bytes[at] == '\r' && at + 1 < bytes.size() && bytes[at + 1] == '\n') ++at;
    open = !ends;
    if (!ends) {
      record += bytes[at];
      continue;
    }
    records.push_back(record);
    record.clear();
  }
  if (open) records.push_back(record);
  return records;
}

std::string random_lines(std::mt19937& draw, size_t length) {
  static const std::string alphabet = "ab\r\n\n\xe2\x80\xa8";
  std::string bytes;
  while (bytes.size() < length) bytes += alphabet[draw() % alphabet.size()];
  return bytes;
}

std::vector<std::string> read_all(const std::vector<std::string>& files, const Shard& shard, int64_t block_bytes) {
  RecordReader reader(files, slices_of_shard(files, shard), block_bytes);
  std::vector<std::string> records;
  RecordBlock block;
  while (reader.next(block)) {
    RecordCursor cursor(block.bytes);
    for (std::string_view record; cursor.next(record);) records.emplace_back(record);
  }
  return records;
}

TEST(RecordReader, EndsRecordsAtLfCrlfAndLoneCr) {
  TestFolder folder;
  write_text(folder / "a", "one\r\ntwo\rthree\n\xe2\x80\xa8 four\v\f\xc2\x85\n\r\n\r\r\nlast");
  EXPECT_EQ(read_all({folder / "a"}, Shard{}, 1000),
            (std::vector<std::string>{"one", "two", "three", "\xe2\x80\xa8 four\v\f\xc2\x85", "", "", "", "last"}));
}

TEST(RecordReader, CutsBlocksOfAnySizeBetweenRecords) {
  TestFolder folder;
  std::mt19937 draw(7);
  for (int round = 0; round < 200; ++round) {
    const std::string bytes = random_lines(draw, draw() % 50);
    write_text(folder / "a", bytes);
    for (const int64_t block_bytes : {1, 2, 7, 33})
      ASSERT_EQ(read_all({folder / "a"}, Shard{}, block_bytes), split_plainly(bytes))
          << ::testing::PrintToString(bytes);
  }
}

TEST(RecordReader, ShardsInOrderAreTheWholeInput) {
  TestFolder folder;
  std::mt19937 draw(8);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::string> files;
    std::vector<std::string> whole;
    for (const char* name : {"a", "b", "c"}) {
      const std::string bytes = random_lines(draw, draw() % 40);
      files.push_back(folder / name);
      write_text(files.back(), bytes);
      for (std::string& record : split_plainly(bytes)) whole.push_back(std::move(record));
    }
    for (const int64_t count : {1, 2, 3, 7, 33}) {
      std::vector<std::string> together;
      for (int64_t index = 0; index < count; ++index)
        for (std::string& record : read_all(files, {index, count}, 5)) together.push_back(std::move(record));
      ASSERT_EQ(together, whole) << "round " << round << ", " << count << " shards";
    }
  }
}

TEST(RecordReader, SaysWhereEveryBlockBegins) {
  TestFolder folder;
  write_text(folder / "a", "12\r\n3456\n7\n");
  RecordReader reader({folder / "a"}, {{0, 0, kToTheEnd}}, 3);
  RecordBlock block;
  std::vector<int64_t> begins;
  int64_t input_bytes = 0;
  while (reader.next(block)) {
    begins.push_back(block.first_byte);
    input_bytes += block.input_bytes;
  }
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 4, 9}));
  EXPECT_EQ(input_bytes, 11);
  EXPECT_EQ(count_records(folder / "a", 9), 2);
}

TEST(RecordReader, PassesOverARecordThatIsTooLong) {
  TestFolder folder;
  write_text(folder / "a", "a\n" + std::string(1000, 'x') + "\r\nb\n" + std::string(500, 'y'));
  RecordReader reader({folder / "a"}, {{0, 0, kToTheEnd}}, 16, /*max_record_bytes=*/100);
  RecordBlock block;
  ASSERT_TRUE(reader.next(block));
  EXPECT_EQ(block.bytes, "a\n");
  ASSERT_TRUE(reader.next(block));
  EXPECT_EQ(block.bytes, "");
  EXPECT_EQ(block.skipped_bytes, 1002);
  EXPECT_EQ(block.first_byte, 2);
  ASSERT_TRUE(reader.next(block));
  EXPECT_EQ(block.bytes, "b\n");
  ASSERT_TRUE(reader.next(block));
  EXPECT_EQ(block.skipped_bytes, 500);
  EXPECT_FALSE(reader.next(block));
}

TEST(RecordReader, KeepsARecordOfTheLimit) {
  TestFolder folder;
  write_text(folder / "a", std::string(100, 'x') + "\r\n" + std::string(100, 'y') + "\nz");
  RecordReader reader({folder / "a"}, {{0, 0, kToTheEnd}}, 16, /*max_record_bytes=*/100);
  RecordBlock block;
  std::string all;
  while (reader.next(block)) all += block.bytes;
  EXPECT_EQ(all.size(), 204u);
}

TEST(RecordReader, DividesOnlyFiles) {
  TestFolder folder;
  write_text(folder / "a", "x\n");
  EXPECT_EQ(error_of([&] {
              slices_of_shard({folder / "a", "-"}, {1, 3});
            }),
            "--shard 1/3: standard input cannot be divided between machines; only files can.");
}

}  // namespace
}  // namespace espalier::data
