#include "data/line_reader.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"

namespace espalier::data {
namespace line_reader_test {

std::vector<std::string> lines_of(const std::vector<std::string>& contents) {
  std::vector<std::string> files, lines;
  for (const std::string& content : contents) {
    files.push_back(testing::TempDir() + "espalier_line_reader_" + std::to_string(files.size()));
    write_file_atomically(files.back(), content);
  }
  LineReader reader(files);
  for (std::string_view line; reader.next(line);) lines.emplace_back(line);
  size_t num_bytes = 0;
  for (const std::string& content : contents) num_bytes += content.size();
  EXPECT_EQ(reader.consumed_bytes(), static_cast<int64_t>(num_bytes));
  for (const std::string& file : files) std::filesystem::remove(file);
  return lines;
}

using Lines = std::vector<std::string>;

TEST(LineReader, LineFeedsEndLinesAndStayWithThem) {
  EXPECT_EQ(lines_of({"a\nb\r\n\n c\rd"}), (Lines{"a\n", "b\r\n", "\n", " c\rd"}));
}

TEST(LineReader, NoLineSpansFiles) { EXPECT_EQ(lines_of({"a", "", "b\n", "\n", "c"}), (Lines{"a", "b\n", "\n", "c"})); }

TEST(LineReader, NoFilesAndEmptyFilesHaveNoLines) {
  EXPECT_EQ(lines_of({}), Lines());
  EXPECT_EQ(lines_of({"", ""}), Lines());
}

TEST(LineReader, LinesLongerThanWhatIsReadAtOnceStayWhole) {
  const std::string large(1'000'003, 'x');
  EXPECT_EQ(lines_of({"a\n" + large + "\nb\n" + large}), (Lines{"a\n", large + "\n", "b\n", large}));
}

}  // namespace line_reader_test
}  // namespace espalier::data
