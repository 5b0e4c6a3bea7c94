#include "data/input_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "data/internal/compress.h"
#include "data/internal/test_folder.h"

namespace espalier::data {
namespace {

using test_files::bzip2ed;
using test_files::error_of;
using test_files::gzipped;
using test_files::TestFolder;
using test_files::write_text;
using test_files::xzipped;
using test_files::zstandard;

std::string read_all(const std::string& path, size_t capacity = 1 << 16) {
  const std::unique_ptr<InputStream> stream = open_input(path);
  std::string all, part(capacity, '\0');
  while (const size_t got = stream->read(part.data(), capacity)) all.append(part.data(), got);
  EXPECT_EQ(stream->read(part.data(), capacity), 0u) << "after the end";
  EXPECT_EQ(stream->consumed_bytes(), file_size_bytes(path));
  return all;
}

// Text of some megabytes that packs moderately.
std::string sample_text() {
  std::mt19937 draw(3);
  std::string text;
  while (text.size() < 3000007) text += "word" + std::to_string(draw() % 1000) + (draw() % 9 == 0 ? "\n" : " ");
  return text;
}

TEST(InputStream, UnpacksWhatTheFirstBytesTell) {
  TestFolder folder;
  const std::string text = sample_text();
  write_text(folder / "plain.gz", text);  // the name does not count
  write_text(folder / "gzip", gzipped(text));
  write_text(folder / "zstd", zstandard(text));
  write_text(folder / "xz", xzipped(text));
  write_text(folder / "bzip2", bzip2ed(text));
  for (const char* name : {"plain.gz", "gzip", "zstd", "xz", "bzip2"})
    for (const size_t capacity : {size_t{333}, size_t{1} << 20})
      EXPECT_TRUE(read_all(folder / name, capacity) == text) << name;
  EXPECT_FALSE(is_compressed(folder / "plain.gz"));
  EXPECT_TRUE(is_compressed(folder / "gzip"));
}

TEST(InputStream, ReadsFilesStrungTogether) {
  TestFolder folder;
  write_text(folder / "gzip", gzipped("one\n") + gzipped("") + gzipped("two\n") + std::string(600, '\0'));
  write_text(folder / "zstd", zstandard("one\n") + zstandard("") + zstandard("two\n"));
  write_text(folder / "skippable", std::string("\x50\x2a\x4d\x18\3\0\0\0abc", 11) + zstandard("one\ntwo\n"));
  write_text(folder / "xz", xzipped("one\n") + xzipped("two\n"));
  write_text(folder / "bzip2", bzip2ed("one\n") + bzip2ed("") + bzip2ed("two\n"));
  for (const char* name : {"gzip", "zstd", "skippable", "xz", "bzip2"})
    EXPECT_EQ(read_all(folder / name), "one\ntwo\n") << name;
}

TEST(InputStream, ReadsShortAndEmptyFiles) {
  TestFolder folder;
  for (const std::string content : {"", "x", "\x1f", "{\"a\"}"}) {
    write_text(folder / "a", content);
    EXPECT_EQ(read_all(folder / "a"), content);
  }
  write_text(folder / "empty.gz", gzipped(""));
  EXPECT_EQ(read_all(folder / "empty.gz"), "");
}

TEST(InputStream, SaysWhereACompressedFileIsCutOff) {
  TestFolder folder;
  const std::string text = sample_text();
  for (const auto& [name, packed] :
       {std::pair{"gzip", gzipped(text)}, {"zstd", zstandard(text)}, {"xz", xzipped(text)}, {"bzip2", bzip2ed(text)}}) {
    for (const size_t left : {size_t{20}, packed.size() / 2, packed.size() - 1}) {
      write_text(folder / "a", packed.substr(0, left));
      std::string digits = std::to_string(left);
      for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
      EXPECT_EQ(error_of([&] { read_all(folder / "a"); }),
                concat("'", folder / "a", "': the ", name, " data is cut off after ", digits,
                       " bytes. Copy or compress the file again."));
    }
  }
}

TEST(InputStream, SaysWhereACompressedFileIsDamaged) {
  TestFolder folder;
  std::string packed = gzipped(sample_text());
  packed[packed.size() - 6] ^= 1;  // the checksum of the content
  write_text(folder / "a", packed);
  const std::string message = error_of([&] { read_all(folder / "a"); });
  EXPECT_EQ(message.find(concat("'", folder / "a", "': damaged gzip data at byte ")), 0u) << message;
  EXPECT_NE(message.find(" of the compressed file. Copy or compress"), std::string::npos) << message;

  packed = zstandard(sample_text());
  packed[packed.size() / 2] ^= 0x55;
  write_text(folder / "a", packed);
  EXPECT_EQ(error_of([&] { read_all(folder / "a"); }).find(concat("'", folder / "a", "': damaged zstd data at byte ")),
            0u);
  packed = xzipped(sample_text());
  packed[packed.size() / 2] ^= 0x55;
  write_text(folder / "a", packed);
  EXPECT_EQ(error_of([&] { read_all(folder / "a"); }).find(concat("'", folder / "a", "': damaged xz data at byte ")),
            0u);
  packed = bzip2ed(sample_text());
  packed[packed.size() / 2] ^= 0x55;
  write_text(folder / "a", packed);
  EXPECT_EQ(error_of([&] { read_all(folder / "a"); }).find(concat("'", folder / "a", "': damaged bzip2 data at byte ")),
            0u);
}

TEST(InputStream, RefusesByNameWhatItDoesNotRead) {
  TestFolder folder;
  write_text(folder / "a", "PK\3\4....");
  EXPECT_EQ(error_of([&] { open_input(folder / "a"); }),
            concat("'", folder / "a",
                   "' is a zip file; JSONL is read plain or compressed with gzip, zstd, xz or bzip2, or as Parquet."));
  EXPECT_EQ(error_of([&] { open_input(folder / "none"); }),
            concat("cannot open '", folder / "none", "': No such file or directory"));
  EXPECT_EQ(error_of([&] { open_input(folder.path()); }), concat("cannot read '", folder.path(), "': Is a directory"));
}

TEST(InputStream, StartsInTheMiddleOfAPlainFile) {
  TestFolder folder;
  write_text(folder / "a", "0123456789");
  const std::unique_ptr<InputStream> stream = open_plain_input_at(folder / "a", 7);
  char bytes[10];
  ASSERT_EQ(stream->read(bytes, 10), 3u);
  EXPECT_EQ(std::string(bytes, 3), "789");
}

}  // namespace
}  // namespace espalier::data
