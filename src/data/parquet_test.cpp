#include "data/parquet.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/format.h"
#include "data/internal/test_folder.h"

namespace espalier::data {
namespace parquet_test {

using Json = nlohmann::ordered_json;
using test_files::error_of;
using test_files::TestFolder;

#define NEEDS_PARQUET() \
  if (!has_parquet()) GTEST_SKIP() << "needs libespalier_parquet.so: scripts/setup --parquet"

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  for (const std::string& line : split(text, '\n'))
    if (!line.empty()) lines.push_back(Json::parse(line));
  return lines;
}

std::string text_of(const std::string& path, size_t capacity = 1 << 16) {
  const std::unique_ptr<InputStream> stream = open_input(path);
  std::string all, part(capacity, '\0');
  while (const size_t got = stream->read(part.data(), capacity)) all.append(part.data(), got);
  return all;
}

// Equal, but for the digits of numbers that were single precision.
bool same(const Json& a, const Json& b) {
  if (a.is_number_float() && b.is_number_float())
    return std::abs(a.get<double>() - b.get<double>()) <= 1e-7 * std::abs(b.get<double>());
  if (!a.is_structured() || !b.is_structured()) return a == b;
  if (a.size() != b.size() || a.is_object() != b.is_object()) return false;
  if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin(), same);
  for (const auto& [key, value] : a.items())
    if (!b.contains(key) || !same(value, b.at(key))) return false;
  return true;
}

TEST(Parquet, ReadsWhatPyarrowWrote) {
  NEEDS_PARQUET();
  for (const std::string name : {"none", "snappy", "gzip", "zstd"}) {
    const std::string file = "tests/data/parquet/" + name;
    const std::vector<Json> expected = lines_of(read_file(file + ".jsonl"));
    for (const size_t capacity : {size_t{1} << 16, size_t{7}}) {
      const std::vector<Json> found = lines_of(text_of(file + ".parquet", capacity));
      ASSERT_EQ(found.size(), expected.size());
      for (size_t row = 0; row < found.size(); ++row)
        EXPECT_TRUE(same(found[row], expected[row])) << name << ", row " << row << "\n"
                                                     << found[row] << "\n"
                                                     << expected[row];
    }
    EXPECT_TRUE(is_compressed(file + ".parquet")) << "it cannot be entered in the middle";
  }
}

TEST(Parquet, NamesFileRowGroupAndColumnOfDamage) {
  NEEDS_PARQUET();
  TestFolder folder;
  const std::string file = folder / "a.parquet";
  // Zeros are no deflated data: one gzip stretch, which is a page, after another, until one of the second row group
  // comes.
  const std::string bytes = read_file("tests/data/parquet/gzip.parquet");
  std::string error;
  for (size_t at = bytes.find("\x1f\x8b\x08");
       at != std::string::npos && error.find("row group 1") == std::string::npos;
       at = bytes.find("\x1f\x8b\x08", at + 1)) {
    std::string damaged = bytes;
    damaged.replace(at + 10, 8, 8, '\0');
    test_files::write_text(file, damaged);
    try {
      text_of(file);  // pages of nothing but nulls are not unpacked
    } catch (const UserError& damage) {
      error = damage.what();
    }
  }
  EXPECT_TRUE(error.starts_with("Parquet file '" + file + "': row group 1, column ")) << error;
  test_files::write_text(file, bytes.substr(0, bytes.size() / 2));
  error = error_of([&] { text_of(file); });
  EXPECT_TRUE(error.starts_with("Parquet file '" + file + "': cut off or damaged, as its end does not describe the "))
      << error;
  test_files::write_text(file, "PAR1....");
  error = error_of([&] { text_of(file); });
  EXPECT_TRUE(error.starts_with("Parquet file '" + file + "': cut off or damaged, as its end does not describe the "))
      << error;
}

std::string columns_of(const std::vector<std::string>& values) {
  ParquetColumns columns;
  for (const std::string& value : values) columns.add("k", value);
  return columns.description() + (columns.is_json_text("k") ? " as JSON" : "");
}

TEST(ParquetColumns, HoldAllValuesOfAKey) {
  EXPECT_EQ(columns_of({"null"}), R"({"k":"string"})");
  EXPECT_EQ(columns_of({"\"a\"", "null", "\"b\""}), R"({"k":"string"})");
  EXPECT_EQ(columns_of({"1", "null", "-7"}), R"({"k":"int64"})");
  EXPECT_EQ(columns_of({"1", "0.5"}), R"({"k":"double"})");
  EXPECT_EQ(columns_of({"9007199254740992", "0.5", "-9007199254740992"}), R"({"k":"double"})");
  EXPECT_EQ(columns_of({"1", "9007199254740993", "-9223372036854775808"}), R"({"k":"int64"})");
  EXPECT_EQ(columns_of({"true"}), R"({"k":"bool"})");
  EXPECT_EQ(columns_of({"[]", "[null, 1]", "null"}), R"({"k":["int64"]})");
  EXPECT_EQ(columns_of({"[]"}), R"({"k":["string"]})");
  EXPECT_EQ(columns_of({R"({"a": [1]})", R"({"b": null, "a": [0.5]})"}), R"({"k":{"a":["double"],"b":"string"}})");
  for (const std::vector<std::string>& values : {std::vector<std::string>{"1", "\"a\""},
                                                 {"\"a\"", "1"},
                                                 {"{}"},
                                                 {"NaN"},
                                                 {"18446744073709551615"},
                                                 {"[1, \"a\"]"},
                                                 {R"({"a": 1})", R"({"a": []})"},
                                                 {"[[1]]", "[1]"},
                                                 {"9007199254740993", "0.5"},
                                                 {"0.5", "1", "-9007199254740993"}})
    EXPECT_EQ(columns_of(values), R"({"k":"string"} as JSON)") << values.front();
}

TEST(Parquet, WritesWhatItReads) {
  NEEDS_PARQUET();
  TestFolder folder;
  const std::vector<std::string> rows = {
      R"({"id": 9007199254740993, "text": "Grüße\n\"\\", "tags": ["a", null], "meta": {"n": 0.5, "deep": [[1], []]}})",
      R"({"id": null, "text": "2026-01-01", "tags": [], "meta": null})",
      R"({"id": -1, "text": "", "tags": null, "meta": {"n": 3.0, "deep": null}})"};
  ParquetColumns columns;
  for (const std::string& row : rows) {
    const Json json = Json::parse(row);
    for (const auto& [key, value] : json.items()) columns.add(key, value.dump());
  }
  for (const std::string compression : {"none", "snappy", "gzip", "zstd"}) {
    const std::string file = folder / compression;
    {
      ParquetFileWriter writer(file, file, columns, compression);
      writer.write_row_group(rows[0] + "\n" + rows[1] + "\n");
      writer.write_row_group(rows[2] + "\n");
      writer.finish();
    }
    EXPECT_EQ(text_of(file), join(rows, "\n") + "\n") << compression;
  }
  EXPECT_NE(error_of([&] { ParquetFileWriter(folder / "no/a", "a.parquet", columns, "none"); }).find("'a.parquet'"),
            std::string::npos);
}

}  // namespace parquet_test
}  // namespace espalier::data
